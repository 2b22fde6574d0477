"""The image definitions: no root user, no shell, existing sources of copies, and a bill of materials."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from fnmatch import fnmatch
from pathlib import Path

import pytest
from tools.image.bill_of_materials import bill_of_materials

from core_tests.hang_limit import HANG_LIMIT
from tests.deploy.manifests import DEPLOY

ROOT = DEPLOY.parent


@pytest.fixture(scope="module")
def instructions() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile and their arguments, in order."""
    text = (DEPLOY / "image" / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in lines)]


def test_the_image_does_not_run_as_root(instructions: list[tuple[str, str]]) -> None:
    (user,) = (argument for word, argument in instructions if word == "USER")
    assert all(number.isdigit() and int(number) > 0 for number in user.split(":"))


def test_the_image_starts_without_a_shell(instructions: list[tuple[str, str]]) -> None:
    entry = dict(instructions)
    assert json.loads(entry["ENTRYPOINT"]) == ["/opt/kubestow/bin/kubestow"]
    assert json.loads(entry["CMD"]) == ["run"]


def test_both_builds_make_an_image_with_the_same_command_and_user(instructions: list[tuple[str, str]]) -> None:
    script = (ROOT / "tools" / "image" / "build").read_text()
    entry = dict(instructions)
    assert f"--config.user {entry['USER']}" in script
    assert (
        f"--config.entrypoint {json.loads(entry['ENTRYPOINT'])[0]} --config.cmd {json.loads(entry['CMD'])[0]}" in script
    )
    assert f"--config.exposedports {entry['EXPOSE']}/tcp" in script


def test_the_bill_of_materials_lists_debian_packages_and_python_distributions(tmp_path: Path) -> None:
    debian = tmp_path / "var/lib/dpkg/status.d"
    python = tmp_path / "opt/kubestow/lib/python3.11/site-packages/Some_Library-1.2.dist-info"
    for directory in (debian, python):
        directory.mkdir(parents=True)
    (debian / "libc6").write_text(
        "Package: libc6\nVersion: 2.36-9+deb12u1\nArchitecture: amd64\nDescription: C\n library\n"
    )
    (python / "METADATA").write_text("Metadata-Version: 2.1\nName: Some_Library\nVersion: 1.2\n")
    created = datetime(2026, 1, 2, tzinfo=UTC)
    document = json.loads(bill_of_materials(tmp_path, "3.4", created))
    assert document["metadata"]["component"]["name"] == "kubestow"
    assert document["metadata"]["component"]["version"] == "3.4"
    assert [component["purl"] for component in document["components"]] == [
        "pkg:deb/debian/libc6@2.36-9%2Bdeb12u1?arch=amd64",
        "pkg:pypi/some-library@1.2",
    ]
    assert bill_of_materials(tmp_path, "3.4", created) == bill_of_materials(tmp_path, "3.4", created)


def test_copied_files_exist_and_are_not_ignored(instructions: list[tuple[str, str]]) -> None:
    included = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    copies = [argument.split() for word, argument in instructions if word == "COPY" and "--from=" not in argument]
    sources = [source for words in copies for source in words[:-1] if not source.startswith("--")]
    assert sources
    for source in sources:
        assert (ROOT / source).exists(), source
        assert any(fnmatch(source, pattern) for pattern in included), source


def test_the_kube_scheduler_command_accepts_its_flags(tmp_path: Path) -> None:
    script = (DEPLOY / "image" / "kube-scheduler").read_text()
    command = tmp_path / "kube-scheduler"
    command.write_text(script)
    completed = subprocess.run(
        [sys.executable, command, "--help"], capture_output=True, text=True, timeout=HANG_LIMIT, check=False
    )
    assert completed.returncode == 0
    assert "--config" in completed.stdout
