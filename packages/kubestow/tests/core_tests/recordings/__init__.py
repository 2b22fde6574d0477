"""Requests and responses recorded between kube-apiserver v1.36.2 and its clients (README.md)."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

__all__ = ["exchanges", "openapi_schemas", "printed", "scenarios"]

_DIRECTORY = Path(__file__).parent


def scenarios() -> list[str]:
    return sorted(path.name.removesuffix(".jsonl.gz") for path in _DIRECTORY.glob("*.jsonl.gz"))


def exchanges(scenario: str, method: str = "", path: str = "") -> list[dict[str, Any]]:
    """The recorded exchanges of a scenario, by method and by a part of the path."""
    lines = gzip.decompress((_DIRECTORY / f"{scenario}.jsonl.gz").read_bytes()).splitlines()
    recorded = [json.loads(line) for line in lines]
    return [each for each in recorded if each["method"].startswith(method) and path in each["path"]]


def openapi_schemas() -> dict[str, dict[str, Any]]:
    """The schemas in the OpenAPI documents of kube-apiserver, by path below ``/openapi/v3/`` and by name."""
    documents: dict[str, dict[str, Any]] = json.loads(
        gzip.decompress((_DIRECTORY / "openapi-schemas.json.gz").read_bytes())
    )
    return documents


def printed() -> dict[str, dict[str, str]]:
    """The ``command`` and the ``output`` of kubectl by scenario, in the order of the recording."""
    found: dict[str, dict[str, str]] = json.loads(gzip.decompress((_DIRECTORY / "kubectl-output.json.gz").read_bytes()))
    return found
