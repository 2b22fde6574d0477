"""The framework runtime: statuses, errors, cancellation and what it reports to observers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from kubestow.cluster.changes.events import Action, ClusterEvent, EventResource
from kubestow.cluster.nodes.views import NodeRows
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import PluginError
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.event_registration import on
from kubestow.framework.interface import (
    FilterPlugin,
    Permission,
    PermitPlugin,
    Plugin,
    PostFilterPlugin,
    PostFilterResult,
    PreBindPlugin,
    PreEnqueuePlugin,
    ReservePlugin,
    ScorePlugin,
    normalized,
)
from kubestow.framework.profile import Profile
from kubestow.framework.runtime.binding_runtime import BindingRuntime
from kubestow.framework.runtime.framework_runtime import FrameworkRuntime
from kubestow.framework.runtime.plugin_caller import PluginObserver
from kubestow.framework.runtime.queueing_runtime import QueueingRuntime
from kubestow.framework.runtime.validation import in_range
from kubestow.framework.status import SUCCESS, Code, Status, Verdict, aggregate
from kubestow.testing import PluginHarness, node, pod

NODE_ADDED = ClusterEvent(EventResource.NODE, Action.ADD)


class Recorder(PluginObserver):
    """Records what the runtime reports."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, Any]] = []
        self.ended: list[tuple[str, Code]] = []
        self.hints: list[tuple[str, str, str]] = []

    def plugin_called(self, plugin: str, extension_point: str, result: Any, seconds: float) -> None:
        self.calls.append((plugin, extension_point, result))

    def extension_point_ended(self, extension_point: str, code: Code, seconds: float) -> None:
        self.ended.append((extension_point, code))

    def queueing_hint_called(self, plugin: str, event: str, hint: str, seconds: float) -> None:
        self.hints.append((plugin, event, hint))


class Fixture:
    """A runtime with some plugins, besides those that every profile needs, and one pod."""

    def __init__(self, *plugins: type[Plugin]) -> None:
        names = ["PrioritySort", *(plugin.name for plugin in plugins), "DefaultBinder"]
        enabled = {"multiPoint": {"disabled": [{"name": "*"}], "enabled": [{"name": name} for name in names]}}
        self.harness = PluginHarness([node("n")], profile={"plugins": enabled}, plugins=plugins)
        profile: Profile = self.harness.profiles["default-scheduler"]
        self.observer = Recorder()
        self.runtime = FrameworkRuntime(profile.runtime.plugins, observer=self.observer)
        self.bindings = BindingRuntime(profile.runtime.plugins, observer=self.observer)
        self.queueing = QueueingRuntime(profile.runtime.plugins, observer=self.observer)
        self.pod = self.harness.info(pod("p"))
        self.binding = CycleState(), self.pod, "n"


def returning(name: str, base: type[Plugin], **methods: Callable[..., Any]) -> type[Any]:
    """A plugin with these methods."""
    rest = {method: lambda self, *arguments: None for method in base.__abstractmethods__}
    return type(name, (base,), {"name": name, "events_to_register": ()} | rest | methods)


def fails(*arguments: Any) -> Any:
    raise ValueError("boom")


def test_pre_enqueue_stops_at_the_first_failure_and_names_its_plugin() -> None:
    first = returning("First", PreEnqueuePlugin, pre_enqueue=lambda self, pod: SUCCESS)
    second = returning("Second", PreEnqueuePlugin, pre_enqueue=lambda self, pod: Status.unschedulable("not yet"))
    third = returning("Third", PreEnqueuePlugin, pre_enqueue=fails)
    fixture = Fixture(first, second, third)
    assert fixture.queueing.run_pre_enqueue_plugins(fixture.pod) == Status.unschedulable("not yet").by("Second")
    assert [plugin for plugin, _, _ in fixture.observer.calls] == ["First", "Second"]
    assert fixture.observer.ended == [("PreEnqueue", Code.UNSCHEDULABLE)]


def test_an_exception_becomes_an_error_status_that_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    fixture = Fixture(returning("Broken", ReservePlugin, reserve=fails))
    status = fixture.bindings.run_reserve_plugins(*fixture.binding)
    assert status == Status(Code.ERROR, ('running Reserve plugin "Broken": ValueError: boom',), "Broken")
    assert [record.getMessage() for record in caplog.records] == ["plugin 'Broken' failed at Reserve: ValueError: boom"]
    assert caplog.records[0].exc_info is not None and isinstance(caplog.records[0].exc_info[1], ValueError)


def test_unreserve_runs_for_all_plugins_in_reverse_order_even_if_one_fails() -> None:
    names = ("One", "Two", "Three")
    fixture = Fixture(*(returning(name, ReservePlugin, unreserve=fails) for name in names))
    fixture.bindings.run_unreserve_plugins(*fixture.binding)
    assert [plugin for plugin, _, _ in fixture.observer.calls] == list(reversed(names))


def test_permit_collects_the_plugins_that_delay_a_pod() -> None:
    waiting = returning("Waiting", PermitPlugin, permit=lambda self, *_: Permission.wait(30))
    fixture = Fixture(waiting, returning("Free", PermitPlugin))
    assert fixture.bindings.run_permit_plugins(*fixture.binding) == (SUCCESS, {"Waiting": 30})
    assert fixture.observer.ended == [("Permit", Code.WAIT)]


def test_a_rejection_at_permit_outweighs_a_delay() -> None:
    waiting = returning("Waiting", PermitPlugin, permit=lambda self, *_: Permission.wait(30))
    rejecting = returning("Rejecting", PermitPlugin, permit=lambda self, *_: Status.unschedulable("no"))
    fixture = Fixture(waiting, rejecting)
    assert fixture.bindings.run_permit_plugins(*fixture.binding) == (Status.unschedulable("no").by("Rejecting"), {})


def post_filter(name: str, status: Status) -> type[Any]:
    return returning(name, PostFilterPlugin, post_filter=lambda self, *_: PostFilterResult(status))


def test_post_filter_calls_as_many_plugins_as_the_caller_wants() -> None:
    refused = Status.unschedulable("no victims")
    fixture = Fixture(*(post_filter(name, refused) for name in ("One", "Two", "Three")))
    found: Any = None
    with closing(fixture.runtime.run_post_filter_plugins(CycleState(), fixture.pod, found, found)) as results:
        assert [next(results).status, next(results).status] == [refused, refused]
    assert [plugin for plugin, _, _ in fixture.observer.calls] == ["One", "Two"]
    assert fixture.observer.ended == [("PostFilter", Code.UNSCHEDULABLE)]


def test_a_post_filter_plugin_that_fails_raises() -> None:
    fixture = Fixture(returning("Broken", PostFilterPlugin, post_filter=fails))
    found: Any = None
    with pytest.raises(PluginError, match="plugin 'Broken' failed at PostFilter: ValueError: boom"):
        list(fixture.runtime.run_post_filter_plugins(CycleState(), fixture.pod, found, found))
    assert fixture.observer.ended == [("PostFilter", Code.ERROR)]


# -- PreBind -------------------------------------------------------------------------------------------------------


async def pre_bind(fixture: Fixture, cancellation: asyncio.Future[str] | None = None) -> Status:
    never: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    flight = fixture.bindings.run_pre_bind_pre_flights(*fixture.binding)
    return await fixture.bindings.run_pre_bind_plugins(flight.plugins, *fixture.binding, cancellation or never)


def test_pre_flight_leaves_out_the_plugins_without_work() -> None:
    idle = returning("Idle", PreBindPlugin, pre_bind_pre_flight=lambda self, *_: Status.skip())
    fixture = Fixture(idle, returning("Busy", PreBindPlugin))
    flight = fixture.bindings.run_pre_bind_pre_flights(*fixture.binding)
    assert (flight.status, [plugin.name for plugin in flight.plugins]) == (SUCCESS, ["Busy"])
    assert Fixture(idle).bindings.run_pre_bind_pre_flights(*fixture.binding).status.code is Code.SKIP


async def test_neighbours_that_allow_it_run_at_the_same_time() -> None:
    log: list[str] = []

    def logging_(name: str, *, parallel: bool) -> type[Any]:
        async def pre_bind(self: Any, *arguments: Any) -> None:
            log.append(f"{name} begins")
            await asyncio.sleep(0)
            log.append(f"{name} ends")

        kind = returning(name, PreBindPlugin, pre_bind=pre_bind)
        kind.parallel = parallel
        return kind

    fixture = Fixture(*(logging_(name, parallel=name != "C") for name in "ABCD"))
    assert (await pre_bind(fixture)).ok
    assert log == [
        *("A begins", "B begins", "A ends", "B ends"),
        *("C begins", "C ends", "D begins", "D ends"),
    ]


def hanging(name: str) -> type[Any]:
    async def pre_bind(self: Any, state: CycleState, pod: PodInfo, node_name: str) -> None:
        state.put(name)
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            state.put(f"{name} has ended")

    return returning(name, PreBindPlugin, pre_bind=pre_bind)


async def test_a_cancellation_ends_the_plugins_that_are_running() -> None:
    fixture = Fixture(hanging("Hanging"), returning("Later", PreBindPlugin, pre_bind=fails))
    cancellation: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    running = asyncio.create_task(pre_bind(fixture, cancellation))
    for _ in range(3):  # the task begins, and then the plugin
        await asyncio.sleep(0)
    cancellation.set_result("preempted by DefaultPreemption")
    assert await running == Status(
        Code.ERROR, ('running PreBind plugin "Hanging": preempted by DefaultPreemption',), "Hanging"
    )
    assert fixture.binding[0][str] == "Hanging has ended"
    assert fixture.observer.ended[-1] == ("PreBind", Code.ERROR)


async def test_the_first_failure_cancels_the_plugins_beside_it() -> None:
    failing = returning("Failing", PreBindPlugin, pre_bind=lambda self, *_: Status.error("no volume"))
    beside = hanging("Hanging")
    failing.parallel = beside.parallel = True
    fixture = Fixture(beside, failing)
    assert (await pre_bind(fixture)).message == 'running PreBind plugin "Failing": no volume'
    assert fixture.binding[0][str] == "Hanging has ended"


# -- queueing hints ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hint", "queues", "outcome"),
    [
        (lambda pod, old, new: True, True, "Queue"),
        (lambda pod, old, new: False, False, "QueueSkip"),
        (fails, True, "Error"),
    ],
)
def test_a_queueing_hint_decides_unless_it_fails(hint: Any, queues: bool, outcome: str) -> None:
    fixture = Fixture()
    registration = on(EventResource.NODE, Action.ALL, hint=hint)
    assert (
        fixture.queueing.run_queueing_hint("Zones", registration, fixture.pod, None, None, event=NODE_ADDED) is queues
    )
    assert fixture.observer.hints == [("Zones", NODE_ADDED.label, outcome)]


def test_without_a_hint_every_event_requeues() -> None:
    fixture = Fixture()
    registration = on(EventResource.NODE, Action.ALL)
    assert fixture.queueing.run_queueing_hint("Zones", registration, fixture.pod, None, None, event=NODE_ADDED)
    assert fixture.observer.hints == []


@pytest.mark.parametrize(("event_filter", "passes"), [(None, True), (lambda old, new: False, False), (fails, True)])
def test_an_event_filter_decides_unless_it_fails(event_filter: Any, passes: bool) -> None:
    registration = on(EventResource.NODE, Action.ALL, event_filter=event_filter)
    assert Fixture().queueing.run_event_filter("Zones", registration, None, None) is passes


def test_a_slow_call_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    ticks = iter(range(100))
    plugins = Fixture(returning("Slow", PreEnqueuePlugin, pre_enqueue=lambda self, pod: SUCCESS)).runtime.plugins
    fixture = Fixture()
    queueing = QueueingRuntime(plugins, monotonic=lambda: 1.5 * next(ticks))
    with caplog.at_level(logging.WARNING):
        assert queueing.run_pre_enqueue_plugins(fixture.pod).ok
    assert caplog.messages == ["plugin Slow took 1.5 s at PreEnqueue; nothing else is scheduled meanwhile"]


@pytest.mark.parametrize(("is_sampling", "seconds"), [(True, 2.0), (False, 0.0)])
def test_calls_on_single_rows_are_timed_while_durations_are_sampled(is_sampling: bool, seconds: float) -> None:
    class Durations(Recorder):
        def plugin_called(self, plugin: str, extension_point: str, result: Any, seconds: float) -> None:
            self.calls.append((plugin, extension_point, seconds))

    ticks = iter(range(0, 100, 2))
    observer = Durations()
    observer.is_sampling = is_sampling
    fixture = Fixture(returning("Keyed", FilterPlugin, filter_row=lambda self, state, pod, node: 7))
    plugins = fixture.runtime.plugins
    runtime = FrameworkRuntime(plugins, monotonic=lambda: float(next(ticks)), observer=observer)
    row = NodeRows(fixture.harness.cluster.nodes, [0])
    assert runtime.run_filter_plugin_on_rows(plugins.filter[0], CycleState(), fixture.pod, row) == [7]
    assert observer.calls == [("Keyed", "Filter", seconds)]


@pytest.mark.parametrize(
    ("scores", "expected", "reverse"),
    [
        ([1, 3, 0], [33, 100, 0], [67, 0, 100]),
        ([0, 0], [0, 0], [100, 100]),
        ([-2, -1], [-2, -1], [100, 100]),  # as in Go, where the highest score is sought from 0 on
        ([], [], []),
    ],
)
def test_the_highest_score_becomes_100(scores: list[int], expected: list[int], reverse: list[int]) -> None:
    assert normalized(np.array(scores, np.int64)).tolist() == expected
    assert normalized(np.array(scores, np.int64), reverse=True).tolist() == reverse


def test_hint_keys_are_those_of_the_pod_and_of_the_event_with_amounts_of_64_bits() -> None:
    keys: dict[str, Any] = {"a": (1, 2**70), "b": ()}
    hinted = returning("Hinted", FilterPlugin, hint_keys=lambda self, pod: keys)
    fixture = Fixture(hinted)
    (plugin,) = fixture.harness.profiles["default-scheduler"].runtime.plugins.filter
    expected = {"a": (1, 2**63 - 1), "b": ()}
    assert fixture.queueing.hint_keys(plugin, fixture.pod) == expected
    registration = on(EventResource.NODE, Action.ADD, hint_keys=lambda old, new: [old, new])
    assert fixture.queueing.run_hint_keys("Hinted", registration, "x", "y") == {"x": (), "y": ()}
    without = on(EventResource.NODE, Action.ADD)
    assert fixture.queueing.run_hint_keys("Hinted", without, "x", "y") is None


@pytest.mark.parametrize(("scores", "culprit"), [([0, 100, 101], 101), ([0, -1, 100], -1), ([200, -1], 200)])
def test_the_first_score_out_of_range_is_named(scores: list[int], culprit: int) -> None:
    plugin = returning("Scoring", ScorePlugin)(None, None)
    with pytest.raises(PluginError, match=f"an invalid score {culprit},"):
        in_range(plugin, "Score", np.array(scores, np.int64))
    for valid in ([], [0, 100]):
        assert in_range(plugin, "Score", np.array(valid, np.int64)).tolist() == valid


def test_several_messages_are_listed_as_in_kubernetes() -> None:
    assert (aggregate(["one"]), aggregate(["one", "two"])) == ("one", "[one, two]")


def test_a_verdict_counts_each_status_of_some_nodes_whatever_its_keys() -> None:
    statuses = {-7: Status.unschedulable("a"), 3: Status.unschedulable("b"), 2**30: Status.unschedulable("c")}
    keys = np.array([3, 0, -7, 3, 2**30, -7], np.int32)
    some = np.array([True, True, True, True, False, False])
    verdict = Verdict.of(keys, statuses)
    assert sorted(verdict.tally(some), key=lambda entry: entry[2]) == [(statuses[-7], 1, -7), (statuses[3], 2, 3)]
    assert {status.message: where.tolist() for status, where in verdict.by_status(~some)} == {
        "a": [False, False, False, False, False, True],
        "c": [False, False, False, False, True, False],
    }
    assert verdict.tally(np.zeros(6, np.bool_)) == []
    assert [verdict.status(position).message for position in range(6)] == ["b", "", "a", "b", "c", "a"]
