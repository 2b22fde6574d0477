"""The image definition: no root user, no shell, and existing sources of copies."""

from __future__ import annotations

import json
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest

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
        [sys.executable, command, "--help"], capture_output=True, text=True, timeout=60, check=False
    )
    assert completed.returncode == 0
    assert "--config" in completed.stdout
