"""The solvers of OR-Tools, which is imported here alone and only when a solver is needed."""

from __future__ import annotations

from functools import cache
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


@cache
def _plain_model() -> Any:
    """The class of models without their names from before PEP 8.

    Every model defines some seventy of them for itself, which takes longer than to build a small one.
    """

    class PlainModel(cp_model().CpModel):  # type: ignore[misc]  # the class is known when it is imported
        def _add_pre_pep8_methods(self) -> None:
            pass

    return PlainModel


def new_cp_model() -> Any:
    """A new, empty model of CP-SAT. Raises InputError without OR-Tools."""
    return _plain_model()()
