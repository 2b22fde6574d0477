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
from tools.package.readme import for_package_index

from kubestow.devcluster.cluster import DevCluster
from kubestow.version import KUBERNETES_VERSION, VERSION
from tests.hang_limit import HANG_LIMIT

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

#: The packages that a scheduler imports, with what they import.
RUN_IMPORTS = {
    *("aiohappyeyeballs", "aiohttp", "aiosignal", "attr", "frozenlist", "idna", "multidict", "propcache", "yarl"),
    *("cbor2", "click", "httptools", "kubernetes_asyncio", "msgspec", "numpy", "prometheus_client", "yaml"),
    *("cryptography", "_cffi_backend"),
    "typing_extensions",
    "uvloop",
}
#: What `kubestow up`, the offline commands and the tests need.
NOT_FOR_RUN = {"distributed", "google", "pandas", "polars", "pytest", "re2", "rich", "hypothesis"}

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
    packages = {name for name in packages if not name.startswith(("_", "cython"))} - {"kubestow"}
    assert packages <= RUN_IMPORTS
    assert not packages & NOT_FOR_RUN
    assert not [name for name in modules if name.startswith(("kubestow.devcluster", "kubestow.simulation"))]


def test_every_dependency_has_a_lowest_version() -> None:
    extras = PROJECT["optional-dependencies"].values()
    for requirement in [*PROJECT["dependencies"], *(name for names in extras for name in names)]:
        assert re.fullmatch(r"[\w.-]+>=\d[\w.]*", requirement), requirement


def test_every_imported_package_is_a_dependency() -> None:
    distributions = {
        "aiohttp_retry": "",
        "cel_expr_python": "cel-expr-python",
        "google": "protobuf",
        "re2": "google-re2",
        "yaml": "PyYAML",
    }
    declared = {re.split(r"[<>=]", name)[0] for name in PROJECT["dependencies"]}
    declared |= {re.split(r"[<>=]", name)[0] for names in PROJECT["optional-dependencies"].values() for name in names}
    imported = set()
    for file in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_bytes())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                imported.add((node.module or "").partition(".")[0])
    packages = imported - sys.stdlib_module_names - {"kubestow"}
    assert {distributions.get(name, name) for name in packages} <= declared | {"pytest"}


def test_the_version_is_written_once_more_in_the_metadata() -> None:
    assert PROJECT["version"] == VERSION


@pytest.mark.parametrize("source", ["", "https://git.example/kubestow"])
def test_links_of_the_readme_work_on_a_package_index(source: str) -> None:
    description = for_package_index((ROOT / "README.md").read_text(encoding="utf-8"), source)
    links = re.findall(r"\]\(([^)]+)\)", description)
    assert [link for link in links if not link.startswith(("https://", "http://", "#"))] == []
    assert "operate" in description
    assert bool(links) == bool(source)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("", " why https://x.example ![b](https://x.example/b.png)"),
        (
            "https://git.example/kubestow/",
            "![a](https://git.example/kubestow/raw/main/docs/a.png)"
            " [why](https://git.example/kubestow/blob/main/docs/a.md)"
            " https://x.example ![b](https://x.example/b.png)",
        ),
    ],
)
def test_pictures_of_the_readme_are_shown_on_a_package_index(source: str, expected: str) -> None:
    text = "![a](docs/a.png) [why](docs/a.md) https://x.example ![b](https://x.example/b.png)"
    assert for_package_index(text, source) == expected


def test_the_documented_versions_are_those_of_the_package() -> None:
    names = ("install.md", "release.md", "first-steps.md")
    install, release, first_steps = ((ROOT / "docs" / name).read_text(encoding="utf-8") for name in names)
    assert set(re.findall(r"kubestow-(\d[\d.]*\d)[-/.]", install + first_steps)) == {VERSION}
    row = f"| {VERSION.rpartition('.')[0]} | {KUBERNETES_VERSION.removeprefix('v').rpartition('.')[0]} |"
    pythons = re.findall(r"Python :: (3\.\d+)", " ".join(PROJECT["classifiers"]))
    assert f"{row} {', '.join(pythons)} |" in release


def test_the_forge_runs_what_everyone_runs() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))
    steps = workflow["jobs"]["ci"]["steps"]
    assert steps[-1]["run"] == ".ci/run"
    versions = next(step for step in steps if "setup-python" in step.get("uses", ""))["with"]["python-version"]
    pythons = re.findall(r"Python :: (3\.\d+)", " ".join(PROJECT["classifiers"]))
    assert sorted(versions.split()) == pythons
