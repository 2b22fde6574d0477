"""requirements/: every package of constraints.txt, or of a table of types, with its hashes, and nothing else."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tools.lock import FOLDER, ROOT, SCHEMA, installations

_HASH = re.compile(r" --hash=sha256:([0-9a-f]{64})")


def locked(name: str) -> dict[str, tuple[str, list[str]]]:
    """Version and hashes by package."""
    text = (FOLDER / f"{name}.txt").read_text().replace("\\\n", "")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    requirements = [(Requirement(line.partition(" --hash")[0]), _HASH.findall(line)) for line in lines]
    return {canonicalize_name(one.name): (str(one.specifier), hashes) for one, hashes in requirements}


def pinned(name: str = "") -> dict[str, str]:
    """The versions by package: those of constraints.txt, or those that a table of types pins itself."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    if name.startswith(SCHEMA):
        lines = installations()[name]
    requirements = [Requirement(line) for line in lines if not line.startswith("#")]
    return {canonicalize_name(one.name): str(one.specifier) for one in requirements}


def names(requirements: Iterable[str]) -> set[str]:
    return {canonicalize_name(Requirement(one).name) for one in requirements}


def test_every_pinned_package_is_installed_somewhere_and_no_other() -> None:
    shared = [name for name in installations() if not name.startswith(SCHEMA)]
    everywhere = {name: version for each in shared for name, (version, _) in locked(each).items()}
    assert everywhere == pinned()
    assert {file.stem for file in FOLDER.iterdir()} == installations().keys()


@pytest.mark.parametrize("name", installations())
def test_every_package_has_the_hashes_of_its_pinned_version(name: str) -> None:
    versions = pinned(name)
    for package, (version, hashes) in locked(name).items():
        assert version == versions[package], package
        assert len(hashes) == len(set(hashes)) >= 1, package


@pytest.mark.parametrize("name", installations())
def test_what_an_installation_asks_for_is_in_its_file(name: str) -> None:
    assert names(installations()[name]) <= locked(name).keys()


def test_each_table_of_types_names_the_packages_that_it_is_pinned_to() -> None:
    folder = ROOT / "packages/kubestow-devcluster/src/kubestow_devcluster/apiserver/schema"
    tables = {file.stem.removeprefix("kubernetes-"): json.loads(file.read_text()) for file in folder.glob("*.json")}
    assert {f"{SCHEMA}{minor}" for minor in tables} == {name for name in installations() if name.startswith(SCHEMA)}
    (listed,) = re.findall(r"^SCHEMAS := (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert sorted(listed.split()) == sorted(tables)
    for minor, table in tables.items():
        sources = {
            f"{name} {version.removeprefix('==')} (Apache-2.0)" for name, version in pinned(f"{SCHEMA}{minor}").items()
        }
        assert (table["about"]["kubernetes"], set(table["about"]["sources"])) == (minor, sources)


def test_the_files_name_no_registry() -> None:
    for file in [*FOLDER.iterdir(), ROOT / "constraints.txt"]:
        assert "://" not in file.read_text()


def test_nothing_is_installed_past_the_hashes() -> None:
    for file in ("Makefile", "tools/image/build", "deploy/image/Dockerfile"):
        text = Path(ROOT, file).read_text().replace("\\\n", " ")
        installs = [line for line in text.splitlines() if re.search(r"pip install|\$\(PIP\)|^add_packages -", line)]
        assert installs, file
        for line in installs:
            if not line.startswith(("PIP :=", "#")) and '"$@"' not in line:
                local = ("--editable", "/wheels/", "$work")
                assert "--no-deps" in line, line
                assert "--require-hashes" in line or any(source in line for source in local), line
