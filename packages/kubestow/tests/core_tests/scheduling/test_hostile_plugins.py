"""Plugins that raise or return nonsense at every extension point: the scheduler goes on and binds other pods."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, ClassVar

import numpy as np
import pytest

from kubestow.api.core import Service
from kubestow.api.meta import convert
from kubestow.cluster.changes.events import Action, EventResource
from kubestow.cluster.pods.pod_groups import Members
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.config import FeatureGates
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.event_registration import on
from kubestow.framework.gang import (
    Evictable,
    Gang,
    GangPlugin,
    GangPreemptionPlugin,
    Placement,
    PlacementGeneratePlugin,
    PlacementScorePlugin,
)
from kubestow.framework.interface import (
    BindPlugin,
    FilterPlugin,
    Handle,
    Permission,
    PermitPlugin,
    Plugin,
    PostBindPlugin,
    PostFilterPlugin,
    PostFilterResult,
    PreBindPlugin,
    PreFilterPlugin,
    PreFilterResult,
    PreScorePlugin,
    Queued,
    QueueSortPlugin,
    ReservePlugin,
    ScorePlugin,
)
from kubestow.framework.status import SUCCESS, Code, Status, Verdict
from kubestow.observability.observability import Observability
from kubestow.process import WallClock
from kubestow.testing import node, pod
from kubestow.testing.scheduler_harness import SchedulerHarness, in_virtual_time

#: A coroutine that a plugin returns where none is expected is never awaited.
pytestmark = pytest.mark.filterwarnings("ignore")

#: The coroutines of a test.
_created: list[Coroutine[Any, Any, None]] = []


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Thousands of logged tracebacks take longer than the tests. No later test is warned of coroutines of this one."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
    close_coroutines()


def close_coroutines() -> None:
    """Close those that plugins have returned, of which some have not been awaited."""
    for coroutine in _created:
        coroutine.close()
    _created.clear()


class Liar:
    """Raises wherever it is used."""

    def __bool__(self) -> bool:
        raise ValueError("no truth value")

    def __hash__(self) -> int:
        return 1

    def __eq__(self, other: object) -> bool:
        raise ValueError("not comparable")

    def __lt__(self, other: object) -> bool:
        raise ValueError("not comparable")

    def __iter__(self) -> Iterator[Any]:
        raise ValueError("not iterable")

    def __index__(self) -> int:
        raise ValueError("not a number")


def raising(error: BaseException) -> Callable[[], Any]:
    def behave() -> Any:
        raise error

    return behave


def _raising_later(error: BaseException) -> Coroutine[Any, Any, None]:
    async def wait_and_raise() -> None:
        await asyncio.sleep(1)
        raise error

    coroutine = wait_and_raise()
    _created.append(coroutine)
    return coroutine


def returning(value: Any) -> Callable[[], Any]:
    def behave() -> Any:
        return value

    return behave


BEHAVIOURS = [
    raising(ValueError("broken")),
    raising(RecursionError("too deep")),
    raising(SystemExit(3)),
    raising(asyncio.CancelledError()),
    raising(StopIteration()),
    returning(object()),
    returning(Liar()),
    returning(np.array([1.5, math.nan])),
    returning("nonsense"),
    returning(-(10**30)),
    returning(math.nan),
    returning(Status(None, None, None)),  # type: ignore[arg-type]
    returning(Status(Code.UNSCHEDULABLE, (1, None))),  # type: ignore[arg-type]
    returning(Status(Code.WAIT)),
    returning(Status(Code.SKIP)),
    returning(Permission.wait(math.nan)),
    returning(Permission.wait(-math.inf)),
    returning(Permission.wait(math.inf)),
    returning(Permission(None, None)),  # type: ignore[arg-type]
    returning(PreFilterResult(frozenset({"none", 1}))),  # type: ignore[arg-type]
    returning(PostFilterResult(None, 5, action=5)),  # type: ignore[arg-type]
    returning(PostFilterResult(SUCCESS, 5)),  # type: ignore[arg-type]
    returning(PostFilterResult(SUCCESS, "n", action=lambda: _raising_later(SystemExit(3)))),
    returning(PostFilterResult(SUCCESS, "n", extender_candidates=Liar())),  # type: ignore[arg-type]
    returning(Gang("x", "", "many", math.nan, None)),  # type: ignore[arg-type]
    returning(Gang(Liar(), None, -1, -1.0, Members({}.keys(), {}, {}))),  # type: ignore[arg-type]
    returning(Evictable(None, None)),  # type: ignore[arg-type]
    returning({"key": (1.5,)}),
    returning([Placement("x", None)]),  # type: ignore[arg-type]
    lambda: Verdict(np.full(1, 7, np.int32), Liar()),  # type: ignore[arg-type]
    lambda: Verdict.of(np.full(1, 7, np.int32), {7: SUCCESS}),
    lambda: _raising_later(SystemExit(3)),
    lambda: _raising_later(asyncio.CancelledError()),
]
METHODS = {
    "applies_to": True,
    "signature": None,
    "pre_enqueue": SUCCESS,
    "pre_filter": None,
    "filter": None,
    "post_filter": PostFilterResult(Status.unschedulable("no")),
    "pre_score": None,
    "score": lambda *arguments: np.zeros(len(arguments[-1]), np.int64),
    "normalize": lambda *arguments: arguments[-2],
    "reserve": None,
    "unreserve": None,
    "permit": None,
    "pre_bind_pre_flight": SUCCESS,
    "pre_bind": None,
    "post_bind": None,
    "bind": Status.skip(),
    "gang_of": lambda info: Gang("all", "", 1, 5.0, Members({}.keys(), {info.uid: info}, {info.uid: None})),
    "attempt_ended": None,
    "preempts_as_a_whole": True,
    "evictable_units": Status.unschedulable("no"),
    "placements": lambda gang, pods, nodes: [Placement("all", nodes)],
    "score_placement": 1,
    "normalize_placements": lambda gang, scores: scores,
    "may_gate": True,
    "hint_signature": None,
    "hint_keys": ("key",),
    "hint": True,
    "keys_of_event": ("key",),
    "event_filter": True,
}
#: The methods that are tested with pods of a gang.
GANG_METHODS = {
    *("gang_of", "attempt_ended", "preempts_as_a_whole", "evictable_units", "placements"),
    *("score_placement", "normalize_placements", "pre_enqueue", "may_gate", "filter", "permit"),
}


def misbehaving(at: str, behave: Callable[[], Any], *, name: str = "Hostile") -> type[Plugin]:
    """A plugin with every extension point but QueueSort, which misbehaves in one."""

    def method(called: str, default: Any) -> Callable[..., Any]:
        def call(self: Any, *arguments: Any) -> Any:
            if called == at:
                return behave()
            return default(*arguments) if callable(default) else default

        return call

    methods = {called: method(called, default) for called, default in METHODS.items()}

    def hint(*arguments: Any) -> Any:
        return methods["hint"](None, *arguments)

    def event_filter(*arguments: Any) -> Any:
        return methods["event_filter"](None, *arguments)

    def keys_of_event(*arguments: Any) -> Any:
        return methods["keys_of_event"](None, *arguments)

    keys = keys_of_event if at in ("keys_of_event", "hint_keys") else None
    registrations = (on(EventResource.NODE, Action.ALL, hint=hint, event_filter=event_filter, hint_keys=keys),)
    gang = (GangPlugin, GangPreemptionPlugin, PlacementGeneratePlugin, PlacementScorePlugin)
    bases = (
        *(gang if at in GANG_METHODS else ()),
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
    )
    return type("Hostile", bases, {"name": name, "events_to_register": registrations, **methods})


@pytest.mark.parametrize("at", list(METHODS))
def test_the_scheduler_goes_on(at: str) -> None:
    plugins = [misbehaving(at, behave, name=f"hostile-{number}") for number, behave in enumerate(BEHAVIOURS)]

    async def scenario(harness: SchedulerHarness) -> None:
        for plugin in plugins:
            harness.cluster.put(pod(f"{plugin.name}-a", cpu="100m", scheduler=plugin.name, priority=5))
            harness.cluster.put(pod(f"{plugin.name}-b", cpu="100m", scheduler=plugin.name))
            harness.cluster.put(pod(f"{plugin.name}-too-big", cpu="20", scheduler=plugin.name))
        await harness.advance(20)
        harness.cluster.put(node("n", cpu="8", labels={"changed": "yes"}))
        await harness.advance(20)
        harness.cluster.put(node("m", cpu="8"))
        await harness.advance(40)
        harness.cluster.put(pod("fine", cpu="500m"))
        await harness.advance(5)
        assert harness.node_of("fine")

    disabled = [{"name": "DefaultPreemption"}] if at in GANG_METHODS else []
    hostile = [
        {
            "schedulerName": plugin.name,
            "plugins": {"multiPoint": {"enabled": [{"name": plugin.name}], "disabled": disabled}},
        }
        for plugin in plugins
    ]
    profiles = [{"schedulerName": "default-scheduler"}, *hostile]
    observer = Observability(WallClock(), FeatureGates()).observer
    in_virtual_time(scenario, node("n", cpu="8"), plugins=plugins, profiles=profiles, observer=observer)


class HostileSort(QueueSortPlugin):
    name = "HostileSort"
    behave: ClassVar[Callable[[], Any]]

    def sort_key(self, queued: Queued) -> Any:
        return type(self).behave()


@pytest.mark.parametrize("behave", BEHAVIOURS)
def test_the_scheduler_goes_on_without_an_order_of_the_queue(behave: Callable[[], Any]) -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        for number in range(3):
            harness.cluster.put(pod(f"p{number}", cpu="1"))
        await harness.advance(20)
        assert all(harness.node_of(f"p{number}") for number in range(3))

    plugin = type("HostileSort", (HostileSort,), {"behave": staticmethod(behave)})
    queue_sort = {"enabled": [{"name": "HostileSort"}], "disabled": [{"name": "*"}]}
    in_virtual_time(scenario, node("n"), plugins=[plugin], profiles=[{"plugins": {"queueSort": queue_sort}}])


LISTENED = ["pod_added", "pod_removed", "pod_observed", "pod_ended", "object_changed"]


class HostileListener(PermitPlugin):
    """Listens to everything that a plugin can listen to, and fails at one of the calls."""

    name = "HostileListener"
    at: ClassVar[str]
    error: ClassVar[BaseException]

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        handle.cluster.listen_to_placements(self)
        handle.cluster.listen_to_pods(self)
        handle.cluster.catalog(Service).subscribe(lambda old, new: self.called("object_changed"))

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        return None

    def called(self, method: str) -> None:
        if method == self.at:
            raise self.error

    def pod_added(self, row: int, info: PodInfo) -> None:
        self.called("pod_added")

    def pod_removed(self, row: int, info: PodInfo) -> None:
        self.called("pod_removed")

    def pod_observed(self, info: PodInfo) -> None:
        self.called("pod_observed")

    def pod_ended(self, uid: str) -> None:
        self.called("pod_ended")


@pytest.mark.parametrize("error", [ValueError("broken"), SystemExit(3), asyncio.CancelledError()])
@pytest.mark.parametrize("at", LISTENED)
def test_the_scheduler_goes_on_when_a_listener_fails(at: str, error: BaseException) -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(convert(Service, {"metadata": {"name": "s", "namespace": "default"}}))
        harness.cluster.put(pod("a", cpu="1"))
        await harness.advance(5)
        assert harness.node_of("a")
        harness.cluster.remove(harness.cluster.pod("a"))
        harness.cluster.put(pod("b", cpu="1"))
        await harness.advance(5)
        assert harness.node_of("b")
        assert harness.scheduler.cluster.pod_count == 1

    plugin = type("HostileListener", (HostileListener,), {"at": at, "error": error})
    profiles = [{"plugins": {"multiPoint": {"enabled": [{"name": "HostileListener"}]}}}]
    in_virtual_time(scenario, node("n", cpu="1"), plugins=[plugin], profiles=profiles)
