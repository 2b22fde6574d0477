"""Taints and tolerations.

Nodes share few distinct lists of taints. The table interns them, so that a plugin decides once per list and not once
per node (see :meth:`kubestow.cluster.nodes.table.Nodes.by_taints`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kubestow.api.core import Taint, Toleration
from kubestow.api.resource import DeviceTaint, DeviceToleration
from kubestow.cluster.nodes.selectors import go_int64

__all__ = ["NO_EXECUTE", "NO_SCHEDULE", "PREFER_NO_SCHEDULE", "tolerates", "untolerated"]

NO_SCHEDULE, NO_EXECUTE, PREFER_NO_SCHEDULE = "NoSchedule", "NoExecute", "PreferNoSchedule"


def tolerates(
    toleration: Toleration | DeviceToleration, taint: Taint | DeviceTaint, *, comparisons: bool = False
) -> bool:
    """Whether a toleration covers a taint, of a node or of a device (semantics 8.5).

    ``comparisons`` admits the operators ``Lt`` and ``Gt`` (feature gate TaintTolerationComparisonOperators).
    """
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    match toleration.operator:
        case "" | "Equal":
            return toleration.value == taint.value
        case "Exists":
            return True
        case "Lt" | "Gt" if comparisons:
            return _compares(toleration, taint)
        case _:
            return False


def _compares(toleration: Toleration | DeviceToleration, taint: Taint | DeviceTaint) -> bool:
    bound, value = go_int64(toleration.value), go_int64(taint.value)
    if bound is None or value is None or str(bound) != toleration.value or str(value) != taint.value:
        return False  # only numbers in their shortest form are compared: no "+5", no "05"
    return value < bound if toleration.operator == "Lt" else value > bound


def untolerated(
    taints: Iterable[Taint], tolerations: Sequence[Toleration], *, effects: Iterable[str], comparisons: bool = False
) -> list[Taint]:
    """The taints of the given effects that no toleration covers, in their own order."""
    return [
        taint
        for taint in taints
        if taint.effect in effects and not any(tolerates(t, taint, comparisons=comparisons) for t in tolerations)
    ]
