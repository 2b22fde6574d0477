"""The objects in deploy/, rendered by kubectl and Helm."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from core_tests.hang_limit import HANG_LIMIT

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


def chart(values: Path | None = None, *, release: str = "kubestow", namespace: str = "kube-system") -> list[Object]:
    """The objects of a release of the chart, rendered by Helm or by chart/render.go.

    Raises jsonschema.ValidationError for values that the chart's schema rejects, as Helm does.
    """
    given = yaml.safe_load(values.read_text()) if values else {}
    validate_values(_overlaid(yaml.safe_load((CHART / "values.yaml").read_text()), given))
    if shutil.which("helm"):
        options = ["--values", str(values)] if values else []
        command = ["helm", "template", release, str(CHART), "--namespace", namespace, *options]
        return _objects(_output(*command))
    return _objects(_rendered(release, namespace, values))


def chart_notes(values: Path | None = None, *, release: str = "kubestow", namespace: str = "kube-system") -> str:
    """What Helm prints after an installation; rendered by chart/render.go, as ``helm template`` omits it."""
    return _rendered(release, namespace, values, "--notes")


def validate_values(values: Object) -> None:
    """Raises jsonschema.ValidationError for values that the chart's schema rejects."""
    jsonschema.validate(values, json.loads((CHART / "values.schema.json").read_text()))


def _rendered(release: str, namespace: str, values: Path | None, *options: str) -> str:
    program = Path(__file__).parent / "chart" / "render.go"
    arguments = [str(CHART), release, namespace, *([str(values)] if values else [])]
    return _output("go", "run", str(program), *options, *arguments)


def _overlaid(under: Object, over: Object) -> Object:
    merged = dict(under)
    for name, value in over.items():
        both = isinstance(value, dict) and isinstance(under.get(name), dict)
        merged[name] = _overlaid(under[name], value) if both else value
    return merged


def _objects(text: str) -> list[Object]:
    return [obj for obj in yaml.safe_load_all(text) if obj]


def _output(*command: str) -> str:
    environment = {**os.environ, "GO111MODULE": "off", "GOPATH": str(_GO_LIBRARIES), "GOFLAGS": ""}
    completed = subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=HANG_LIMIT, check=False
    )
    assert completed.returncode == 0, completed.stderr
    return completed.stdout
