"""Plugins with scripted results at every extension point that record their calls."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Mapping
from typing import Any, ClassVar, TypeVar, cast

import numpy as np

from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.diagnosis import Diagnosis
from kubestow.framework.event_registration import EventRegistration
from kubestow.framework.interface import (
    BindPlugin,
    FilterPlugin,
    FilterRunner,
    Permission,
    PermitPlugin,
    Plugin,
    PostBindPlugin,
    PostFilterPlugin,
    PostFilterResult,
    PreBindPlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    PreFilterResult,
    PreScorePlugin,
    ReservePlugin,
    ScorePlugin,
)
from kubestow.framework.status import SUCCESS, Code, Status, Verdict

T = TypeVar("T")

REJECT = Status.unschedulable("injected rejection")
FAIL = Status.error("injected error")


class ScriptedPlugin(
    PreEnqueuePlugin,
    PreFilterPlugin,
    FilterPlugin,
    PostFilterPlugin,
    PreScorePlugin,
    ScorePlugin,
    ReservePlugin,
    PermitPlugin,
    PreBindPlugin,
    BindPlugin,
    PostBindPlugin,
):
    """Implements every extension point; points without a scripted result succeed.

    ``calls`` lists (point, pod); ``called_again`` is set by each call.
    """

    name = "ScriptedPlugin"
    events_to_register = ()
    results: ClassVar[dict[str, Any]]
    calls: ClassVar[list[tuple[str, str]]]
    called_again: ClassVar[asyncio.Event]
    #: The calls in order as (plugin, point); several plugins can share it.
    log: ClassVar[list[tuple[str, str]]]

    @classmethod
    async def until_called(cls, point: str, pod: str) -> None:
        """Wait until the plugin has been called at this extension point for this pod."""
        while (point, pod) not in cls.calls:
            cls.called_again.clear()
            await cls.called_again.wait()

    def _result(self, point: str, pod: PodInfo, default: T) -> T:
        self.calls.append((point, pod.name))
        self.log.append((self.name, point))
        self.called_again.set()
        scripted = self.results.get(point, default)
        result: T = scripted(pod) if callable(scripted) else scripted
        return result

    def pre_enqueue(self, pod: PodInfo) -> Status:
        return self._result("pre_enqueue", pod, SUCCESS)

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Status | PreFilterResult:
        default: Status | PreFilterResult = SUCCESS
        return self._result("pre_filter", pod, default)

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict:
        status = self._result("filter", pod, SUCCESS)
        if status.ok:
            return Verdict.rejecting(np.zeros(len(nodes), np.bool_), REJECT)
        return Verdict.rejecting(np.ones(len(nodes), np.bool_), status)

    def post_filter(
        self, state: CycleState, pod: PodInfo, diagnosis: Diagnosis, filters: FilterRunner
    ) -> PostFilterResult:
        return PostFilterResult(self._result("post_filter", pod, REJECT))

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Status:
        return self._result("pre_score", pod, SUCCESS)

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Any:
        best = self._result("score", pod, cast("str | Status", ""))
        if isinstance(best, Status):
            raise RuntimeError(best.message)
        return np.array([100 if name == best else 0 for name in nodes.names], np.int64)

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        return self._result("reserve", pod, SUCCESS)

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        self._result("unreserve", pod, SUCCESS)

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Permission | Status:
        default: Permission | Status = SUCCESS
        return self._result("permit", pod, default)

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        default: Status | Awaitable[Status] = SUCCESS
        result = self._result("pre_bind", pod, default)
        return result if isinstance(result, Status) else await result

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        return SUCCESS if "pre_bind" in self.results else Status.skip()

    async def bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        default: str | Status = Status(Code.SKIP)
        result = self._result("bind", pod, default)
        if isinstance(result, Status):
            return result
        await self.handle.bind(pod, node_name)
        return SUCCESS

    async def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        self._result("post_bind", pod, SUCCESS)


def scripted_plugin(
    name: str = "ScriptedPlugin",
    *,
    at: Mapping[str, Any] | None = None,
    requeues: Iterable[EventRegistration] = (),
    **results: Any,
) -> type[ScriptedPlugin]:
    """A plugin class of its own; ``results`` gives a value or a function of the pod for each extension point."""
    results = {**(at or {}), **results}
    return type(
        name,
        (ScriptedPlugin,),
        {
            "name": name,
            "results": results,
            "calls": [],
            "called_again": asyncio.Event(),
            "log": [],
            "events_to_register": tuple(requeues),
        },
    )


def profile(*plugins: type[Plugin], **points: Any) -> dict[str, Any]:
    """A configuration that enables plugins at all their extension points; ``points`` override single ones."""
    enabled = [{"name": plugin.name} for plugin in plugins]
    # Bind plugins run in order: ours before the default binder.
    ours = [{"name": plugin.name} for plugin in plugins if issubclass(plugin, BindPlugin)]
    binders = [*ours, {"name": "DefaultBinder"}]
    sets = {"multiPoint": {"enabled": enabled}, "bind": {"disabled": [{"name": "*"}], "enabled": binders}}
    return {"plugins": plugins, "profiles": [{"plugins": sets | points}]}
