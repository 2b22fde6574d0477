"""The solvers of OR-Tools, which is imported here alone and only when a solver is needed."""

from __future__ import annotations

from typing import Any

from kubestow.errors import InputError

_MISSING = "needs OR-Tools, install kubestow[solvers]"


def require_solvers(subject: str) -> None:
    """Raise InputError, which names the subject and the extra to install, where OR-Tools is missing."""
    try:
        import ortools.init.python.init  # noqa: F401
    except ImportError:
        raise InputError(subject, _MISSING) from None


def min_cost_flow() -> Any:
    """A new solver for min-cost flow. Raises InputError without OR-Tools."""
    require_solvers("placement by flow")
    from ortools.graph.python.min_cost_flow import SimpleMinCostFlow

    return SimpleMinCostFlow()


def max_flow() -> Any:
    """A new solver for maximum flow. Raises InputError without OR-Tools."""
    require_solvers("placement by flow")
    from ortools.graph.python.max_flow import SimpleMaxFlow

    return SimpleMaxFlow()


def cp_model() -> Any:
    """The module of CP-SAT. Raises InputError without OR-Tools."""
    require_solvers("optimal placement")
    from ortools.sat.python import cp_model

    return cp_model
