"""Checkouts of other versions: worktrees of commits, and the environment in which their code runs.

Every version runs with the installed third-party packages of this one, in processes of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from configparser import ConfigParser
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]


@cache
def metadata_of(checkout: Path) -> TemporaryDirectory[str]:
    """The metadata of a checkout's packages as if it were installed, in a folder that goes with this process.

    The entry points of the installed packages name modules that another version may lack, and lack commands that it
    has. Metadata that comes first on the path counts alone; packages that the checkout lacks have no entry points.
    """
    folder = TemporaryDirectory(prefix="kubestow-metadata-")
    for name in {_project(file)["name"] for file in ROOT.glob(_PROJECT_FILES)}:
        _write_metadata(Path(folder.name), {"name": name, "version": "0"})
    for file in checkout.glob(_PROJECT_FILES):
        _write_metadata(Path(folder.name), _project(file))
    return folder


_PROJECT_FILES = "packages/*/pyproject.toml"


def _project(file: Path) -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads(file.read_text())["project"]
    return project


def _write_metadata(folder: Path, project: Mapping[str, Any]) -> None:
    """Write the name, version and entry points of a package, in place of those of another version."""
    info = folder / f"{project['name'].replace('-', '_')}.dist-info"
    info.mkdir(exist_ok=True)
    written = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (info / "METADATA").write_text(written)
    entry_points = ConfigParser(delimiters="=", interpolation=None)
    entry_points.optionxform = str  # type: ignore[assignment, method-assign]  # names are case-sensitive
    entry_points.read_dict(project.get("entry-points", {}))
    with (info / "entry_points.txt").open("w") as file:
        entry_points.write(file)


def environment_of(checkout: Path) -> dict[str, str]:
    """The environment of a process that runs the code of a checkout, with its entry points."""
    sources = map(str, sorted(checkout.glob("packages/*/src")))
    return {**os.environ, "PYTHONPATH": os.pathsep.join((metadata_of(checkout).name, *sources))}


class Usage(NamedTuple):
    """What a process printed on standard output, and what it used: CPU seconds, and bytes of memory at its peak."""

    output: bytes
    cpu_seconds: float
    peak_bytes: int


def run_kubestow(checkout: Path, *arguments: str) -> Usage:
    """Run a command of kubestow with the code of a checkout, and exit with its message if it fails."""
    command = [sys.executable, "-m", "kubestow", *arguments]
    with TemporaryFile() as output, TemporaryFile() as errors:
        process = subprocess.Popen(command, env=environment_of(checkout), stdout=output, stderr=errors)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        errors.seek(0)
        printed, complaint = output.read(), errors.read()
    if process.returncode:
        problem = (complaint or printed).decode(errors="replace").strip()
        sys.exit(f"kubestow {' '.join(arguments)} failed with the code in {checkout}: {problem}")
    return Usage(printed, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024)


def git(*arguments: str) -> str:
    """What a command of git prints in this checkout, stripped. Raises CalledProcessError."""
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


@contextmanager
def worktree(commit: str) -> Iterator[Path]:
    """A worktree of a commit in a temporary folder, removed on exit."""
    with TemporaryDirectory(prefix="kubestow-checkout-") as folder:
        path = Path(folder) / "checkout"
        git("worktree", "add", "--detach", str(path), commit)
        try:
            yield path
        finally:
            git("worktree", "remove", "--force", str(path))
