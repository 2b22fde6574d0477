"""Plugins that do as a test tells them, and remember what they were asked."""

from __future__ import annotations

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

__all__ = ["FAIL", "REJECT", "Puppet", "profile", "puppet"]

T = TypeVar("T")

REJECT = Status.unschedulable("injected rejection")
FAIL = Status.error("injected error")


class Puppet(
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
    """Every extension point; what ``say`` has nothing for is a success. ``asked`` counts the asks about pods."""

    name = "Puppet"
    events_to_register = ()
    say: ClassVar[dict[str, Any]]
    asked: ClassVar[list[tuple[str, str]]]
    #: Everything that puppets of this test were asked, in order, as (plugin, point).
    journal: ClassVar[list[tuple[str, str]]]

    def _answer(self, point: str, pod: PodInfo, default: T) -> T:
        self.asked.append((point, pod.name))
        self.journal.append((self.name, point))
        said = self.say.get(point, default)
        answer: T = said(pod) if callable(said) else said
        return answer

    def pre_enqueue(self, pod: PodInfo) -> Status:
        return self._answer("pre_enqueue", pod, SUCCESS)

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Status | PreFilterResult:
        default: Status | PreFilterResult = SUCCESS
        return self._answer("pre_filter", pod, default)

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict:
        status = self._answer("filter", pod, SUCCESS)
        if status.ok:
            return Verdict.rejecting(np.zeros(len(nodes), np.bool_), REJECT)
        return Verdict.rejecting(np.ones(len(nodes), np.bool_), status)

    def post_filter(
        self, state: CycleState, pod: PodInfo, diagnosis: Diagnosis, filters: FilterRunner
    ) -> PostFilterResult:
        return PostFilterResult(self._answer("post_filter", pod, REJECT))

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Status:
        return self._answer("pre_score", pod, SUCCESS)

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Any:
        best = self._answer("score", pod, cast("str | Status", ""))
        if isinstance(best, Status):
            raise RuntimeError(best.message)
        return np.array([100 if name == best else 0 for name in nodes.names], np.int64)

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        return self._answer("reserve", pod, SUCCESS)

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        self._answer("unreserve", pod, SUCCESS)

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Permission | Status:
        default: Permission | Status = SUCCESS
        return self._answer("permit", pod, default)

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        default: Status | Awaitable[Status] = SUCCESS
        answer = self._answer("pre_bind", pod, default)
        return answer if isinstance(answer, Status) else await answer

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        return SUCCESS if "pre_bind" in self.say else Status.skip()

    async def bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        default: str | Status = Status(Code.SKIP)
        answer = self._answer("bind", pod, default)
        if isinstance(answer, Status):
            return answer
        await self.handle.bind(pod, node_name)
        return SUCCESS

    async def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        self._answer("post_bind", pod, SUCCESS)


def puppet(
    name: str = "Puppet", *, at: Mapping[str, Any] | None = None, requeues: Iterable[EventRegistration] = (), **say: Any
) -> type[Puppet]:
    """A class of puppets of its own: what it says at each point, a value or a function of the pod."""
    said = {**(at or {}), **say}
    return type(
        name, (Puppet,), {"name": name, "say": said, "asked": [], "journal": [], "events_to_register": tuple(requeues)}
    )


def profile(*plugins: type[Plugin], **points: Any) -> dict[str, Any]:
    """A configuration that enables plugins wherever they extend something; ``points`` override single points."""
    enabled = [{"name": plugin.name} for plugin in plugins]
    # Binders stand in line: ours come before the default one.
    ours = [{"name": plugin.name} for plugin in plugins if issubclass(plugin, BindPlugin)]
    binders = [*ours, {"name": "DefaultBinder"}]
    sets = {"multiPoint": {"enabled": enabled}, "bind": {"disabled": [{"name": "*"}], "enabled": binders}}
    return {"plugins": plugins, "profiles": [{"plugins": sets | points}]}
