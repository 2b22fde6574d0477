"""The results of Prometheus queries, as a loop gets them: what was measured per node, or why nothing was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["QueryResult", "QuerySample"]


class QuerySample(NamedTuple):
    """A value; ``instance`` is the label that names the node, ``time`` is in seconds since the Unix epoch."""

    instance: str
    time: float
    value: float


@dataclass(frozen=True, slots=True)
class QueryResult:
    """The samples that a query returned; ``problem`` says why there are none if it failed."""

    samples: Sequence[QuerySample] = ()
    problem: str = ""
