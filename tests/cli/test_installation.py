"""What an installation contains: the packages that ``kubestow run`` imports, and the metadata of the distribution."""

from __future__ import annotations

import ast
import asyncio
import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from core_tests.hang_limit import HANG_LIMIT
from kubestow.rules.minors import MINORS
from kubestow.version import KUBERNETES_VERSION, VERSION
from kubestow_devcluster.cluster import DevCluster

ROOT = Path(__file__).parents[2]
#: The metadata of each distribution by its name.
DISTRIBUTIONS: dict[str, dict[str, Any]] = {
    file.parent.name: tomllib.loads(file.read_text(encoding="utf-8"))["project"]
    for file in sorted((ROOT / "packages").glob("*/pyproject.toml"))
}

#: The packages that a scheduler imports, with what they import.
RUN_IMPORTS = {
    *("aiohappyeyeballs", "aiohttp", "aiosignal", "attr", "frozenlist", "idna", "multidict", "propcache", "yarl"),
    *("cbor2", "click", "httptools", "kubernetes_asyncio", "msgspec", "numpy", "prometheus_client", "yaml"),
    *("cryptography", "_cffi_backend"),
    "typing_extensions",
    "uvloop",
}
#: What `kubestow up`, the offline commands and the tests need.
NOT_FOR_RUN = {
    "distributed",
    "google",
    "grpc",
    "opentelemetry",
    "pandas",
    "polars",
    "pytest",
    "re2",
    "rich",
    "hypothesis",
}

_PROGRAM = """
import atexit, json, sys
def report():
    names = {name for name in sys.modules if sys.modules[name] is not None}
    print(json.dumps(sorted(names)), flush=True)
atexit.register(report)
from kubestow.cli import main
main(sys.argv[1:])
"""


async def test_a_scheduler_imports_only_what_it_needs() -> None:
    async with DevCluster(nodes=2) as api:
        flags = ["--master", api.url, "--secure-port=0", "--leader-elect=false"]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", _PROGRAM, "run", *flags),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert process.stderr is not None
        async with asyncio.timeout(HANG_LIMIT):
            await process.stderr.readuntil(b'"Scheduling"')
            process.terminate()
            out, _ = await process.communicate()
    modules = json.loads(out)
    packages = {name.partition(".")[0] for name in modules} - sys.stdlib_module_names
    packages = {name for name in packages if not name.startswith(("_", "cython"))} - {"kubestow", "kubestow_contrib"}
    assert packages <= RUN_IMPORTS
    assert not packages & NOT_FOR_RUN
    assert not [name for name in modules if name.startswith(("kubestow.engine", "kubestow.observability.tracing"))]
    # Of the contributed packages only the pod groups, of which the scheduler has to know before it watches.
    contributed = {name for name in modules if name.startswith("kubestow_contrib.")}
    assert contributed <= {
        "kubestow_contrib.coscheduling",
        "kubestow_contrib.shares",
        "kubestow_contrib.volcano",
        "kubestow_contrib.volcano.kube_batch",
        "kubestow_contrib.volcano.pod_groups",
        "kubestow_contrib.volcano.queues",
    }


def requirements(name: str) -> list[str]:
    """What a distribution requires, with and without extras."""
    project = DISTRIBUTIONS[name]
    extras = project.get("optional-dependencies", {}).values()
    return [*project["dependencies"], *(requirement for names in extras for requirement in names)]


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_every_dependency_has_a_lowest_version_and_every_sibling_the_same(name: str) -> None:
    for requirement in requirements(name):
        assert re.fullmatch(rf"kubestow[\w-]*(\[\w+\])?=={VERSION}|[\w.-]+>=\d[\w.]*", requirement), requirement


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_every_imported_package_is_a_dependency(name: str) -> None:
    distributions = {
        "aiohttp_retry": "",
        "cel_expr_python": "cel-expr-python",
        "google": "protobuf",
        "grpc": "grpcio",
        "opentelemetry": "opentelemetry-sdk",
        "kubestow_devcluster": "kubestow-devcluster",
        "mcp_types": "mcp-types",
        "re2": "google-re2",
        "yaml": "PyYAML",
    }
    declared = {re.split(r"[<>=]", requirement)[0] for requirement in requirements(name)}
    imported = set()
    for file in (ROOT / "packages" / name / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_bytes())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                imported.add((node.module or "").partition(".")[0])
    packages = imported - sys.stdlib_module_names - {name.replace("-", "_")}
    assert {distributions.get(package, package) for package in packages} <= declared | {"pytest"}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_all_distributions_have_one_version(name: str) -> None:
    assert DISTRIBUTIONS[name]["version"] == VERSION


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_the_readme_of_a_distribution_has_no_relative_links(name: str) -> None:
    """A package index shows the README without the repository."""
    text = (ROOT / "packages" / name / "README.md").read_text(encoding="utf-8")
    assert [link for link in re.findall(r"\]\(([^)]+)\)", text) if not link.startswith("https://")] == []


def test_the_documented_versions_are_those_of_the_package() -> None:
    names = ("install.md", "release.md", "first-steps.md")
    install, release, first_steps = ((ROOT / "docs" / name).read_text(encoding="utf-8") for name in names)
    assert set(re.findall(r"kubestow-(\d[\d.]*\d)[-/.]", install + first_steps)) == {VERSION}
    compared = [minor for minor in MINORS if minor.is_compared]
    assert str(compared[-1]) == KUBERNETES_VERSION.removeprefix("v").rpartition(".")[0]
    row = f"| {VERSION.rpartition('.')[0]} | {compared[0]} to {compared[-1]}; {MINORS[-1]} by its published sources |"
    pythons = re.findall(r"Python :: (3\.\d+)", " ".join(DISTRIBUTIONS["kubestow"]["classifiers"]))
    assert f"{row} {', '.join(pythons)} |" in release


def test_the_forge_runs_what_everyone_runs() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))
    steps = workflow["jobs"]["ci"]["steps"]
    assert steps[-1]["run"] == ".ci/run"
    versions = next(step for step in steps if "setup-python" in step.get("uses", ""))["with"]["python-version"]
    pythons = re.findall(r"Python :: (3\.\d+)", " ".join(DISTRIBUTIONS["kubestow"]["classifiers"]))
    assert sorted(versions.split()) == pythons
