"""Taints and tolerations, of nodes and of devices.

The node table interns lists of taints, so a plugin decides once per distinct list instead of once per node (see
:meth:`kubestow.cluster.nodes.views.Nodes.by_taints`).
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
    """Whether a toleration tolerates a taint (semantics 8.5).

    ``comparisons`` enables the operators ``Lt`` and ``Gt`` (feature gate TaintTolerationComparisonOperators).
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
        return False  # numbers must be canonical: not "+5", not "05"
    return value < bound if toleration.operator == "Lt" else value > bound


def untolerated(
    taints: Iterable[Taint], tolerations: Sequence[Toleration], *, effects: Iterable[str], comparisons: bool = False
) -> list[Taint]:
    """The taints with one of the effects that no toleration tolerates, in order."""
    return [
        taint
        for taint in taints
        if taint.effect in effects and not any(tolerates(t, taint, comparisons=comparisons) for t in tolerations)
    ]
