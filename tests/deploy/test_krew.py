"""What krew installs: manifests that fit their archives, and launchers that find kubestow, uv or pipx."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from tools.krew import KubectlPlugin, plugins, write

from kubestow.version import VERSION

URI = "https://example.com/releases"
PLUGINS = {plugin.name: plugin for plugin in plugins()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "dist", f"{URI}/", "https://example.com")
    return tmp_path / "dist"


def manifest(folder: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((folder / f"{name}.yaml").read_text())
    return found


def test_all_plugins_are_written_and_the_same_each_time(folder: Path, tmp_path: Path) -> None:
    assert sorted(PLUGINS) == ["capacity", "explain-pod", "simulate", "what-if", "why"]
    again = write(tmp_path / "again", URI, "https://example.com")
    assert {path.name: path.read_bytes() for path in again} == {
        path.name: path.read_bytes() for path in folder.iterdir()
    }
    assert len(again) == 2 * len(PLUGINS)


@pytest.mark.parametrize("name", PLUGINS)
def test_a_manifest_is_as_krew_validates_it_and_fits_its_archive(folder: Path, name: str) -> None:
    found = manifest(folder, name)
    spec = found["spec"]
    assert (found["apiVersion"], found["kind"]) == ("krew.googlecontainertools.github.com/v1alpha2", "Plugin")
    assert found["metadata"] == {"name": name} and re.fullmatch(r"[\w-]+", name)
    assert re.fullmatch(r"v\d+\.\d+\.\d+", spec["version"])
    assert spec["homepage"] and spec["description"]
    assert 0 < len(spec["shortDescription"]) < 100 and not spec["shortDescription"].endswith(".")
    (platform,) = spec["platforms"]
    archive = folder / platform["uri"].removeprefix(f"{URI}/")
    assert platform["sha256"] == hashlib.sha256(archive.read_bytes()).hexdigest()
    assert platform["bin"] == f"kubectl-{name.replace('-', '_')}"
    with tarfile.open(archive) as content:
        modes = {member.name: member.mode for member in content}
        launcher = content.extractfile(platform["bin"])
        assert launcher is not None and launcher.read().decode() == PLUGINS[name].launcher()
    assert modes == {platform["bin"]: 0o755, "LICENSE": 0o644}


def launch(plugin: KubectlPlugin, folder: Path, *programs: str) -> subprocess.CompletedProcess[str]:
    """Run a launcher where some programs exist, each of which prints its name and arguments."""
    launcher = folder / plugin.script
    launcher.write_text(plugin.launcher())
    launcher.chmod(0o755)
    for name in programs:
        program = folder / name
        program.write_text(f'#!/bin/sh\necho {name} "$@"\n')
        program.chmod(0o755)
    environment = {**os.environ, "PATH": str(folder)}
    return subprocess.run([launcher, "-A", "a b"], env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("programs", "out"),
    [
        (("kubestow", "uvx", "pipx"), "kubestow explain -A a b\n"),
        (("uvx", "pipx"), f"uvx --quiet --from kubestow=={VERSION} kubectl-explain_pod -A a b\n"),
        (("pipx",), f"pipx run --quiet --spec kubestow=={VERSION} kubectl-explain_pod -A a b\n"),
    ],
    ids=["installed", "uv", "pipx"],
)
def test_a_launcher_runs_what_is_installed(tmp_path: Path, programs: tuple[str, ...], out: str) -> None:
    done = launch(PLUGINS["explain-pod"], tmp_path, *programs)
    assert (done.returncode, done.stdout, done.stderr) == (0, out, "")


def test_a_launcher_says_what_it_needs(tmp_path: Path) -> None:
    done = launch(PLUGINS["what-if"], tmp_path)
    error = f"kubectl what-if: needs kubestow, uv or pipx; install it with: pip install kubestow-lab=={VERSION}\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", error)
