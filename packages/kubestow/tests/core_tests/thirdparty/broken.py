"""Plugins that break their contract for the pod named "unlucky", until they are repaired."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.interface import (
    BindPlugin,
    FilterPlugin,
    NodeFilterPlugin,
    NodeScorePlugin,
    PermitPlugin,
    Plugin,
    PostBindPlugin,
    PostFilterPlugin,
    PreBindPlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    PreScorePlugin,
    ReservePlugin,
    ScorePlugin,
)
from kubestow.framework.status import Code, Status, Verdict

#: The base class and the method of each extension point.
EXTENSION_POINTS: dict[str, tuple[type[Plugin], str]] = {
    "PreEnqueue": (PreEnqueuePlugin, "pre_enqueue"),
    "PreFilter": (PreFilterPlugin, "pre_filter"),
    "Filter": (FilterPlugin, "filter"),
    "FilterNode": (NodeFilterPlugin, "filter_node"),
    "PostFilter": (PostFilterPlugin, "post_filter"),
    "PreScore": (PreScorePlugin, "pre_score"),
    "Score": (ScorePlugin, "score"),
    "ScoreNode": (NodeScorePlugin, "score_node"),
    "NormalizeScore": (ScorePlugin, "normalize"),
    "Reserve": (ReservePlugin, "reserve"),
    "Permit": (PermitPlugin, "permit"),
    "PreBindPreFlight": (PreBindPlugin, "pre_bind_pre_flight"),
    "PreBind": (PreBindPlugin, "pre_bind"),
    "Bind": (BindPlugin, "bind"),
    "PostBind": (PostBindPlugin, "post_bind"),
    "applies_to": (ScorePlugin, "applies_to"),
    "signature": (ScorePlugin, "signature"),
}


def _valid_result(point: str) -> Callable[..., Any]:
    """A method that returns a valid result of an extension point."""
    results: dict[str, Callable[..., Any]] = {
        "PreEnqueue": lambda self, pod: Status(Code.SUCCESS),
        "Score": lambda self, state, pod, nodes: np.zeros(len(nodes), np.int64),
        "ScoreNode": lambda self, state, pod, node_info: 0,
        "NormalizeScore": lambda self, state, pod, scores, nodes: scores,
        "PreBindPreFlight": lambda self, state, pod, node: Status(Code.SUCCESS),
        "Bind": lambda self, state, pod, node: Status.skip(),
        "applies_to": lambda self, pod: True,
    }
    return results.get(point, lambda self, *arguments: None)


def broken(point: str, misbehavior: Callable[..., Any]) -> type[Any]:
    """A plugin whose method at one extension point calls ``misbehavior`` until ``repaired`` is set."""
    base, method = EXTENSION_POINTS[point]
    rest: dict[str, Callable[..., Any]] = {
        "score": lambda self, state, pod, nodes: np.arange(len(nodes)),
        "unreserve": lambda self, state, pod, node: None,
        "pre_bind": _valid_result("PreBind"),
    }

    def method_(self: Any, *arguments: Any) -> Any:
        pod = next(argument for argument in arguments if isinstance(argument, PodInfo))
        if pod.name != "unlucky" or type(self).repaired:
            return _valid_result(point)(self, *arguments)
        return misbehavior(*arguments)

    methods = {name: do for name, do in rest.items() if name in base.__abstractmethods__} | {method: method_}
    return type("Broken", (base,), {"name": "Broken", "events_to_register": (), "repaired": False, **methods})


def hanging(point: str, *, time_limit: float = 30.0) -> type[Any]:
    """A plugin whose coroutine never ends."""

    async def hang(*arguments: Any) -> None:
        await asyncio.get_running_loop().create_future()

    kind = broken(point, hang)
    kind.time_limit = time_limit
    return kind


def scores(value: Any) -> Callable[..., NDArray[np.int64]]:
    """Returns the same score for every node."""
    return lambda state, pod, nodes: np.full(len(nodes), value, np.int64)


def verdict(keys: Callable[[Nodes], Any], statuses: dict[int, Any]) -> Callable[..., Verdict]:
    """Returns a verdict; ``keys`` makes its keys for the nodes."""

    def filter_(state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict:
        return Verdict.of(keys(nodes), statuses)

    return filter_
