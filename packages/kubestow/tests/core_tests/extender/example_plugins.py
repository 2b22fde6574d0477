"""Plugins for extender tests."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.interface import FilterPlugin, ReservePlugin, ScorePlugin
from kubestow.framework.status import Status, Verdict

MISMATCH = Status.unresolvable("node(s) had another colour")
CROWDED = Status.unschedulable("node(s) were crowded")


class Colour(FilterPlugin, ScorePlugin):
    """Filters nodes by the pod's label ``colour`` and by pod count; scores them by their label ``number``."""

    name = "Colour"

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict:
        required = pod.labels.get("colour")
        keys = nodes.by_label("colour", lambda colour: 0 if required in (None, colour) else 1, np.int32)
        crowded = (keys == 0) & (nodes.pod_count > 1)
        return Verdict.of(np.where(crowded, 2, keys).astype(np.int32), {1: MISMATCH, 2: CROWDED})

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> NDArray[np.int64]:
        return nodes.by_label("number", lambda number: int(number or 0))


class Failing(FilterPlugin):
    """Raises in Filter."""

    name = "Failing"

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict:
        raise LookupError("no such thing")


class Reserving(ReservePlugin):
    """Implements no extension point of the extender protocol."""

    name = "Reserving"

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        return None

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        pass


def labelled(colour: str = "red", number: int = 0) -> dict[str, Any]:
    return {"colour": colour, "number": str(number)}
