"""The objects in deploy/, rendered by kubectl and Helm."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

__all__ = ["CHART", "DEPLOY", "NEEDS_A_CHART_RENDERER", "Object", "chart", "kustomize"]

Object = dict[str, Any]

DEPLOY = Path(__file__).parents[2] / "deploy"
CHART = DEPLOY / "helm" / "kubestow"

_GO_LIBRARIES = Path("/usr/share/gocode")
_HAS_GO = bool(shutil.which("go")) and (_GO_LIBRARIES / "src/github.com/Masterminds/sprig").exists()

NEEDS_A_CHART_RENDERER = pytest.mark.skipif(
    not (shutil.which("helm") or _HAS_GO),
    reason="neither helm nor Go with sprig (golang-github-masterminds-sprig-dev) is installed",
)


def kustomize(directory: str) -> list[Object]:
    """The objects of a kustomization in deploy/."""
    return _objects(_output("kubectl", "kustomize", str(DEPLOY / directory)))


def chart(values: Path | None = None) -> list[Object]:
    """The objects of the chart as release ``kubestow`` in kube-system, rendered by Helm or by chart/render.go."""
    if shutil.which("helm"):
        options = ["--values", str(values)] if values else []
        command = ["helm", "template", "kubestow", str(CHART), "--namespace", "kube-system", *options]
        return _objects(_output(*command))
    program = Path(__file__).parent / "chart" / "render.go"
    arguments = [str(CHART), "kubestow", "kube-system", *([str(values)] if values else [])]
    return _objects(_output("go", "run", str(program), *arguments))


def _objects(text: str) -> list[Object]:
    return [obj for obj in yaml.safe_load_all(text) if obj]


def _output(*command: str) -> str:
    environment = {**os.environ, "GO111MODULE": "off", "GOPATH": str(_GO_LIBRARIES), "GOFLAGS": ""}
    completed = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)
    assert completed.returncode == 0, completed.stderr
    return completed.stdout
