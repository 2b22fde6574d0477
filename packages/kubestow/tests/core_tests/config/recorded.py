"""The configurations with the errors that kube-scheduler reports for them, of tests/conformance."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

_CORPUS = Path(__file__).parents[5] / "tests" / "conformance" / "corpus" / "configerrors.jsonl.gz"

CASES: list[dict[str, Any]] = [json.loads(line) for line in gzip.decompress(_CORPUS.read_bytes()).splitlines()]
