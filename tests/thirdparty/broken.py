"""Plugins that break their contract in every way there is, for the pod named "unlucky" and until they are healed."""

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

__all__ = ["ASKED_AT", "broken", "hanging"]

#: The method of each extension point, and the base that has it.
ASKED_AT: dict[str, tuple[type[Plugin], str]] = {
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


def _well(point: str) -> Callable[..., Any]:
    """What a well-behaved plugin answers at a point."""
    answers: dict[str, Callable[..., Any]] = {
        "PreEnqueue": lambda self, pod: Status(Code.SUCCESS),
        "Score": lambda self, state, pod, nodes: np.zeros(len(nodes), np.int64),
        "ScoreNode": lambda self, state, pod, node, pods: 0,
        "NormalizeScore": lambda self, state, pod, scores, nodes: scores,
        "PreBindPreFlight": lambda self, state, pod, node: Status(Code.SUCCESS),
        "Bind": lambda self, state, pod, node: Status.skip(),
        "applies_to": lambda self, pod: True,
    }
    return answers.get(point, lambda self, *arguments: None)


def broken(point: str, misbehave: Callable[..., Any]) -> type[Any]:
    """A plugin that misbehaves at one point; ``misbehave`` gets what the method gets. ``healed`` ends it."""
    base, method = ASKED_AT[point]
    rest: dict[str, Callable[..., Any]] = {
        "score": lambda self, state, pod, nodes: np.arange(len(nodes)),
        "unreserve": lambda self, state, pod, node: None,
        "pre_bind": _well("PreBind"),
    }

    def answer(self: Any, *arguments: Any) -> Any:
        pod = next(argument for argument in arguments if isinstance(argument, PodInfo))
        if pod.name != "unlucky" or type(self).healed:
            return _well(point)(self, *arguments)
        return misbehave(*arguments)

    methods = {name: do for name, do in rest.items() if name in base.__abstractmethods__} | {method: answer}
    return type("Broken", (base,), {"name": "Broken", "events_to_register": (), "healed": False, **methods})


def hanging(point: str, *, time_limit: float = 30.0) -> type[Any]:
    """A plugin whose ``async def`` never comes to an end."""

    async def for_ever(*arguments: Any) -> None:
        await asyncio.get_running_loop().create_future()

    kind = broken(point, for_ever)
    kind.time_limit = time_limit
    return kind


def scores(value: Any) -> Callable[..., NDArray[np.int64]]:
    """Gives every node the same score."""
    return lambda state, pod, nodes: np.full(len(nodes), value, np.int64)


def verdict(keys: Callable[[Nodes], Any], statuses: dict[int, Any]) -> Callable[..., Verdict]:
    """A verdict of keys that are made for the nodes."""

    def answer(state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict:
        return Verdict.of(keys(nodes), statuses)

    return answer
