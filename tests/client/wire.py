"""Requests and responses recorded between kube-scheduler and kube-apiserver, if they are available."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

_WIRE = Path(__file__).parents[2].parent / "shared" / "wire"

needs_wire = pytest.mark.skipif(not _WIRE.is_dir(), reason="the recorded transcripts are not available")


def exchanges(scenario: str, method: str = "", path: str = "") -> list[dict[str, Any]]:
    """The recorded exchanges of a scenario, by method and by a part of the path."""
    recorded = [json.loads(line) for line in (_WIRE / f"{scenario}.jsonl").read_text().splitlines()]
    return [each for each in recorded if each["method"].startswith(method) and path in each["path"]]
