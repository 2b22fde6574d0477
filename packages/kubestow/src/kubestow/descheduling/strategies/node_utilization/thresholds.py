"""Thresholds of utilization, in per cent of allocatable resources, and their validation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

from kubestow.descheduling.interface import Problem
from kubestow.descheduling.pod_selection import Namespaces

__all__ = ["Thresholds", "first_of", "first_threshold_problem", "namespace_problems"]

Thresholds = Mapping[str, float]
"""Per cent by resource name."""


def first_of(problems: Iterator[Problem]) -> Iterator[Problem]:
    """The first problem only, as later ones may follow from it."""
    return islice(problems, 1)


def first_threshold_problem(path: str, thresholds: Thresholds) -> Problem | None:
    """The first mistake of thresholds, None if there is none."""
    if not thresholds:
        return Problem(path, "no resource threshold is configured")
    for name, percent in thresholds.items():
        if not 0 <= percent <= 100:
            return Problem(f"{path}.{name}", f"{name} threshold not in [0, 100] range")
    return None


def namespace_problems(namespaces: Namespaces | None) -> Iterator[Problem]:
    """The mistake in ``evictableNamespaces``, if it has one."""
    if namespaces is not None and namespaces.include:
        yield Problem("evictableNamespaces.include", "only Exclude namespaces can be set, inclusion is not supported")
