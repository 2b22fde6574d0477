"""Requests and answers recorded between kube-scheduler and kube-apiserver, where they lie beside the project."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

_WIRE = Path(__file__).parents[2].parent / "shared" / "wire"

needs_wire = pytest.mark.skipif(not _WIRE.is_dir(), reason="the recorded transcripts are not here")


def exchanges(scenario: str, method: str = "", path: str = "") -> list[dict[str, Any]]:
    """The recorded exchanges of a scenario, by method and by a part of the path."""
    recorded = [json.loads(line) for line in (_WIRE / f"{scenario}.jsonl").read_text().splitlines()]
    return [one for one in recorded if one["method"].startswith(method) and path in one["path"]]
