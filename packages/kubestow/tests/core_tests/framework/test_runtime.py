"""The framework runtime: statuses, errors, cancellation and what it reports to observers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import closing, suppress
from typing import Any, NamedTuple

import numpy as np
import pytest

from kubestow.cluster.changes.events import Action, ClusterEvent, EventResource
from kubestow.cluster.nodes.views import NodeRows
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import PluginError
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.event_registration import on
from kubestow.framework.interface import (
    BindPlugin,
    FilterPlugin,
    Permission,
    PermitPlugin,
    Plugin,
    PostFilterPlugin,
    PostFilterResult,
    PreBindPlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    PreScorePlugin,
    QueueSortPlugin,
    ReservePlugin,
    ScorePlugin,
    normalized,
)
from kubestow.framework.profile import Profile
from kubestow.framework.runtime.binding_runtime import BindingRuntime
from kubestow.framework.runtime.framework_runtime import FrameworkRuntime
from kubestow.framework.runtime.plugin_caller import PluginCaller, PluginObserver
from kubestow.framework.runtime.queueing_runtime import QueueingRuntime
from kubestow.framework.runtime.validation import as_status, in_range
from kubestow.framework.status import SUCCESS, Code, Status, Verdict, aggregate
from kubestow.testing import PluginHarness, node, pod

NODE_ADDED = ClusterEvent(EventResource.NODE, Action.ADD)


class Recorder(PluginObserver):
    """Records what the runtime reports."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, Any]] = []
        self.ended: list[tuple[str, Code]] = []
        self.hints: list[tuple[str, str, str]] = []
        #: The seconds of the extension points that have ended.
        self.durations: list[float] = []

    def plugin_called(self, plugin: str, extension_point: str, result: Any, seconds: float) -> None:
        self.calls.append((plugin, extension_point, result))

    def extension_point_ended(self, extension_point: str, code: Code, seconds: float) -> None:
        self.ended.append((extension_point, code))
        self.durations.append(seconds)

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


def test_permit_succeeds_without_a_plugin_that_delays_the_pod() -> None:
    fixture = Fixture(returning("Free", PermitPlugin))
    assert fixture.bindings.run_permit_plugins(*fixture.binding) == (SUCCESS, {})
    assert fixture.observer.ended == [("Permit", Code.SUCCESS)]
    assert fixture.observer.calls == [("Free", "Permit", None)]


def test_a_broken_contract_at_permit_is_an_error_of_permit(caplog: pytest.LogCaptureFixture) -> None:
    fixture = Fixture(returning("Broken", PermitPlugin, permit=lambda self, *_: 5))
    status, timeouts = fixture.bindings.run_permit_plugins(*fixture.binding)
    message = 'running Permit plugin "Broken": returned int, expected a Status or None'
    assert (status.code, status.plugin, status.message, timeouts) == (Code.ERROR, "Broken", message, {})
    logged = "plugin 'Broken' failed at Permit: returned int, expected a Status or None"
    assert caplog.messages == [logged]


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


@pytest.mark.parametrize(
    ("result", "problem"),
    [
        (PostFilterResult(5), "returned int, expected a Status or None"),  # type: ignore[arg-type]
        (PostFilterResult(None), "returned a PostFilterResult without a status"),  # type: ignore[arg-type]
        (Status.unschedulable("no"), "returned Status, expected a PostFilterResult"),
        (PostFilterResult(SUCCESS, nominated_node_name=5), "nominated_node_name must be the name of a node or None"),  # type: ignore[arg-type]
        (PostFilterResult(SUCCESS, victims=("a",)), "victims and lower_priority_nominated must be tuples of PodInfo"),  # type: ignore[arg-type]
        (PostFilterResult(SUCCESS, lower_priority_nominated=[]), "victims and lower_priority_nominated must be tuples"),  # type: ignore[arg-type]
    ],
)
def test_a_result_of_post_filter_that_breaks_the_contract_raises(result: Any, problem: str) -> None:
    fixture = Fixture(returning("Broken", PostFilterPlugin, post_filter=lambda self, *_: result))
    found: Any = None
    with pytest.raises(PluginError, match=f"plugin 'Broken' failed at PostFilter: {problem}"):
        list(fixture.runtime.run_post_filter_plugins(CycleState(), fixture.pod, found, found))


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
    assert fixture.observer.ended == [("PreBindPreFlight", Code.SUCCESS)]
    assert Fixture(idle).bindings.run_pre_bind_pre_flights(*fixture.binding).status.code is Code.SKIP


@pytest.mark.parametrize(
    ("plugins", "groups"),
    [("ABcD", ["AB", "c", "D"]), ("abCD", ["a", "b", "CD"]), ("aBcDE", ["a", "B", "c", "DE"])],
)
async def test_neighbours_that_allow_it_run_at_the_same_time(plugins: str, groups: list[str]) -> None:
    """Those in capital letters allow it."""
    log: list[str] = []

    def logging_(name: str) -> type[Any]:
        async def pre_bind(self: Any, *arguments: Any) -> None:
            log.append(f"{name} begins")
            await asyncio.sleep(0)
            log.append(f"{name} ends")

        kind = returning(name, PreBindPlugin, pre_bind=pre_bind)
        kind.parallel = name.isupper()
        return kind

    fixture = Fixture(*map(logging_, plugins))
    assert (await pre_bind(fixture)).ok
    assert log == [f"{name} {what}" for group in groups for what in ("begins", "ends") for name in group]


async def test_a_plugin_that_cancels_its_own_task_has_failed() -> None:
    async def pre_bind_and_cancel(self: Any, *arguments: Any) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    fixture = Fixture(returning("Cancels", PreBindPlugin, pre_bind=pre_bind_and_cancel))
    assert await pre_bind(fixture) == Status(Code.ERROR, ('running PreBind plugin "Cancels": cancelled',), "Cancels")


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


async def test_a_call_that_returns_an_awaitable_is_reported_with_it_and_with_the_status_it_ends_with() -> None:
    async def refused(self: Any, *arguments: Any) -> Status:
        return Status.error("no volume")

    fixture = Fixture(returning("Waits", PreBindPlugin, pre_bind=refused))
    assert (await pre_bind(fixture)).message == 'running PreBind plugin "Waits": no volume'
    (_, point, awaitable), ended = [call for call in fixture.observer.calls if call[1] == "PreBind"]
    assert point == "PreBind" and asyncio.iscoroutine(awaitable)
    assert ended == ("Waits", "PreBind", Status.error("no volume"))


async def test_a_broken_contract_at_pre_bind_is_reported_as_one_of_pre_bind() -> None:
    fixture = Fixture(returning("Broken", PreBindPlugin, pre_bind=lambda self, *_: 5))
    assert (
        await pre_bind(fixture)
    ).message == 'running PreBind plugin "Broken": returned int, expected a Status or None'
    assert fixture.observer.calls[-1] == ("Broken", "PreBind", 5)


async def test_bind_plugins_are_asked_until_one_does_not_skip_the_pod() -> None:
    asked: list[str] = []

    def answering(name: str, status: Status | None) -> type[Any]:
        def bind(self: Any, *arguments: Any) -> Status | None:
            asked.append(name)
            return status

        return returning(name, BindPlugin, bind=bind)

    fixture = Fixture(answering("Skips", Status.skip()), answering("Binds", None), answering("Later", None))
    assert await fixture.bindings.run_bind_plugins(*fixture.binding) == SUCCESS
    assert asked == ["Skips", "Binds"]
    assert fixture.observer.ended == [("Bind", Code.SUCCESS)]


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


@pytest.mark.parametrize(("seconds", "is_logged"), [(1.0, False), (1.5, True)])
def test_a_call_that_takes_more_than_a_second_is_logged(
    caplog: pytest.LogCaptureFixture, seconds: float, is_logged: bool
) -> None:
    ticks = iter(range(100))
    plugins = Fixture(returning("Slow", PreEnqueuePlugin, pre_enqueue=lambda self, pod: SUCCESS)).runtime.plugins
    fixture = Fixture()
    queueing = QueueingRuntime(plugins, monotonic=lambda: seconds * next(ticks))
    with caplog.at_level(logging.WARNING):
        assert queueing.run_pre_enqueue_plugins(fixture.pod).ok
    logged = ["plugin Slow took 1.5 s at PreEnqueue; nothing else is scheduled meanwhile"]
    assert caplog.messages == (logged if is_logged else [])


class Clock:
    """A clock that a plugin moves; reading it takes a tick."""

    def __init__(self, tick: float = 0.0) -> None:
        self.time, self._tick = 0.0, tick

    def __call__(self) -> float:
        self.time += self._tick
        return self.time


@pytest.mark.parametrize("answers", [True, False])
@pytest.mark.parametrize(("seconds", "noted"), [(0.03125, 0.0), (0.0625, 0.125)])
def test_the_time_of_slow_calls_is_summed_whether_or_not_they_fail(seconds: float, noted: float, answers: bool) -> None:
    clock = Clock()

    def take_time(self: Any, *arguments: Any) -> list[int]:
        clock.time += seconds
        return [0] if answers else fails()

    of_nodes = {"applies_to": take_time, "filter": fails, "filter_rows": take_time}
    plugins = Fixture(returning("Slow", FilterPlugin, **of_nodes)).harness.profiles["default-scheduler"].runtime.plugins
    caller = FrameworkRuntime(plugins, monotonic=clock, observer=Recorder())
    (plugin,), fixture = plugins.filter, Fixture()
    row = NodeRows(fixture.harness.cluster.nodes, [0])
    calls: list[tuple[str, Callable[[], Any]]] = [
        ("applies_to", lambda: caller.plugin_applies_to(plugin, fixture.pod)),
        ("Filter", lambda: caller.run_filter_plugin_on_rows(plugin, CycleState(), fixture.pod, row)),
    ]
    for point, call in calls:
        caller.slow_calls.clear()
        for _ in range(2):
            with suppress(PluginError):
                call()
        assert caller.slow_calls == ({("Slow", point): noted} if noted else {})


def test_the_runtimes_of_a_profile_sum_the_time_of_slow_calls_together() -> None:
    profile = Fixture().harness.profiles["default-scheduler"]
    assert profile.runtime.slow_calls is profile.binding.slow_calls is profile.gangs.slow_calls


def test_an_extension_point_may_begin_where_another_has_ended() -> None:
    fixture = Fixture()
    clock = Clock(tick=1.0)
    caller = PluginCaller(fixture.runtime.plugins, monotonic=clock, observer=fixture.observer)
    for began in (None, clock.time - 3.0):
        with caller.timer("Filter", began=began):
            clock.time = 10.0
    assert fixture.observer.durations == [9.0, 13.0]


def test_a_queueing_hint_is_timed() -> None:
    class Seconds(Recorder):
        def queueing_hint_called(self, plugin: str, event: str, hint: str, seconds: float) -> None:
            self.durations.append(seconds)

    observer, fixture, clock = Seconds(), Fixture(), Clock(tick=1.0)
    clock.time = 1000.0
    queueing = QueueingRuntime(fixture.runtime.plugins, monotonic=clock, observer=observer)
    registration = on(EventResource.NODE, Action.ALL, hint=lambda pod, old, new: True)
    assert queueing.run_queueing_hint("Zones", registration, fixture.pod, None, None, event=NODE_ADDED)
    assert observer.durations == [1.0]


@pytest.mark.parametrize("answers", [True, False])
@pytest.mark.parametrize(("seconds", "noted"), [(0.03125, 0.0), (0.0625, 0.125)])
def test_the_time_of_slow_calls_for_a_status_is_summed_too(seconds: float, noted: float, answers: bool) -> None:
    clock = Clock()
    clock.time = 1000.0

    def take_time(self: Any, *arguments: Any) -> None:
        clock.time += seconds
        if not answers:
            fails()

    plugins = Fixture(returning("Slow", PreEnqueuePlugin, pre_enqueue=take_time)).runtime.plugins
    queueing = QueueingRuntime(plugins, monotonic=clock, observer=Recorder())
    for _ in range(2):
        assert queueing.run_pre_enqueue_plugins(Fixture().pod).ok == answers
    assert queueing.slow_calls == ({("Slow", "PreEnqueue"): noted} if noted else {})


def test_the_calls_of_an_attempt_are_observed_by_the_observer_of_that_attempt() -> None:
    class OfAttempts(Recorder):
        of_attempt = Recorder()

        def for_attempt(self, pod: PodInfo) -> PluginObserver:
            return self.of_attempt

    fixture, observer = Fixture(), OfAttempts()
    caller = PluginCaller(fixture.runtime.plugins, observer=observer)
    of_attempt = caller.for_attempt(fixture.pod)
    assert (caller.observer, of_attempt.observer) == (observer, observer.of_attempt)
    assert of_attempt.slow_calls is caller.slow_calls
    assert fixture.runtime.for_attempt(fixture.pod) is fixture.runtime, "its observer observes all attempts"
    unobserved = PluginCaller(fixture.runtime.plugins)
    assert unobserved.for_attempt(fixture.pod) is unobserved


@pytest.mark.parametrize(("gates", "seconds"), [(0, 1.0), (1, 1.0), (2, 2.0)])
def test_an_extension_point_lasts_until_the_end_of_its_last_call(gates: int, seconds: float) -> None:
    kinds = [returning(f"Gate{number}", PreEnqueuePlugin) for number in range(gates)]
    fixture = Fixture(*kinds)
    queueing = QueueingRuntime(fixture.runtime.plugins, monotonic=Clock(tick=1.0), observer=fixture.observer)
    assert queueing.run_pre_enqueue_plugins(fixture.pod).ok
    assert fixture.observer.durations == [seconds]


@pytest.mark.parametrize("results", [[True], [1.5], [np.int64(1)], [None]])
def test_the_results_for_single_rows_are_ints(results: list[Any]) -> None:
    fixture = Fixture(returning("Keyed", FilterPlugin, filter_rows=lambda self, *_: results))
    row = NodeRows(fixture.harness.cluster.nodes, [0])
    (plugin,) = fixture.runtime.plugins.filter
    with pytest.raises(PluginError, match=f"returned {type(results[0]).__name__}, expected an int for node n"):
        fixture.runtime.run_filter_plugin_on_rows(plugin, CycleState(), fixture.pod, row)


def test_the_node_that_has_no_int_is_named() -> None:
    fixture = Fixture(returning("Keyed", FilterPlugin, filter_rows=lambda self, *_: [3, 0.5, None]))
    for name in ("second", "third"):
        fixture.harness.cluster.add_node(node(name))
    rows = NodeRows(fixture.harness.cluster.nodes, [0, 1, 2])
    (plugin,) = fixture.runtime.plugins.filter
    with pytest.raises(PluginError, match="returned float, expected an int for node second"):
        fixture.runtime.run_filter_plugin_on_rows(plugin, CycleState(), fixture.pod, rows)


@pytest.mark.parametrize("results", [[], [1, 2], (1,), None])
def test_there_is_one_result_for_each_row(results: Any) -> None:
    fixture = Fixture(returning("Keyed", FilterPlugin, filter_rows=lambda self, *_: results))
    row = NodeRows(fixture.harness.cluster.nodes, [0])
    (plugin,) = fixture.runtime.plugins.filter
    with pytest.raises(PluginError, match=f"returned {type(results).__name__}, expected a list with 1 numbers"):
        fixture.runtime.run_filter_plugin_on_rows(plugin, CycleState(), fixture.pod, row)


def test_plugins_have_no_results_for_rows_unless_they_implement_them() -> None:
    kind = type("Plain", (FilterPlugin, ScorePlugin), {"name": "Plain", "filter": fails, "score": fails})
    fixture = Fixture(kind)
    plugin: Any = fixture.runtime.plugins.filter[0]
    row = NodeRows(fixture.harness.cluster.nodes, [0])
    for run in (fixture.runtime.run_filter_plugin_on_rows, fixture.runtime.run_score_plugin_on_rows):
        with pytest.raises(PluginError, match="NotImplementedError"):
            run(plugin, CycleState(), fixture.pod, row)


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


@pytest.mark.parametrize("reasons", [["a"], ("a", 1), "a", (None,)])
def test_the_reasons_of_a_status_are_a_tuple_of_strings(reasons: Any) -> None:
    plugin = returning("Broken", ReservePlugin)(None, None)
    with pytest.raises(PluginError, match="returned a Status whose reasons are not a tuple of strings"):
        as_status(plugin, "Reserve", Status(Code.UNSCHEDULABLE, reasons))
    for valid in ((), ("a", "b")):
        assert as_status(plugin, "Reserve", Status(Code.UNSCHEDULABLE, valid)).reasons == valid


@pytest.mark.parametrize(
    ("legend", "problem"),
    [
        (lambda key: None, "returned NoneType, expected a Status for key 7"),
        (lambda key: "full", "returned str, expected a Status for key 7"),
        ({}.__getitem__, r"returned key 7, which is not in its legend \(KeyError: 7\)"),
    ],
)
def test_the_legend_of_a_verdict_has_a_status_for_each_key(legend: Any, problem: str) -> None:
    keys = np.array([0, 7], np.int32)
    fixture = Fixture(returning("Broken", FilterPlugin, filter=lambda self, *_: Verdict(keys, legend)))
    fixture.harness.cluster.add_node(node("second"))
    (plugin,) = fixture.runtime.plugins.filter
    nodes = fixture.harness.cluster.all_nodes()
    verdict = fixture.runtime.run_filter_plugin(plugin, CycleState(), fixture.pod, nodes)
    assert verdict is not None and verdict.status(0) is SUCCESS
    with pytest.raises(PluginError, match=f"plugin 'Broken' failed at Filter: {problem}"):
        verdict.status(1)


def test_a_failure_names_the_method_or_the_extension_point_that_was_called() -> None:
    methods = ("pre_filter", "filter", "filter_rows", "pre_score", "score", "score_rows", "normalize")
    of_shapes = ("applies_to", "label_keys_for", "signature")
    kind = type(
        "Broken",
        (PreFilterPlugin, FilterPlugin, PreScorePlugin, ScorePlugin),
        {"name": "Broken", "events_to_register": (), **dict.fromkeys((*methods, *of_shapes), fails)},
    )
    fixture = Fixture(kind)
    runtime, info, state = fixture.runtime, fixture.pod, CycleState()
    plugin: Any = runtime.plugins.filter[0]
    cluster = fixture.harness.cluster
    all_nodes, row = cluster.all_nodes(), NodeRows(cluster.nodes, [0])
    of_nodes = state, info, all_nodes
    calls: dict[str, Callable[[], Any]] = {
        "applies_to": lambda: runtime.plugin_applies_to(plugin, info),
        "label_keys_for": lambda: runtime.plugin_label_keys(plugin, info),
        "signature": lambda: runtime.plugin_signature(plugin, info),
        "PreFilter": lambda: runtime.run_pre_filter_plugin(plugin, *of_nodes),
        "Filter": lambda: runtime.run_filter_plugin(plugin, *of_nodes),
        "PreScore": lambda: runtime.run_pre_score_plugin(plugin, *of_nodes),
        "Score": lambda: runtime.run_score_plugin(plugin, *of_nodes),
        "NormalizeScore": lambda: runtime.run_normalize_score_plugin(
            plugin, state, info, np.zeros(1, np.int64), all_nodes
        ),
    }
    for point, call in calls.items():
        with pytest.raises(PluginError, match=f"plugin 'Broken' failed at {point}: ValueError: boom"):
            call()
    for point, call in {
        "Filter": lambda: runtime.run_filter_plugin_on_rows(plugin, state, info, row),
        "Score": lambda: runtime.run_score_plugin_on_rows(plugin, state, info, row),
    }.items():
        with pytest.raises(PluginError, match=f"plugin 'Broken' failed at {point}: ValueError: boom"):
            call()
    assert [point for _, point, _ in fixture.observer.calls] == [*calls, "Filter", "Score"]


@pytest.mark.parametrize("point", ["PreScore", "Score"])
def test_a_result_of_the_wrong_type_names_the_extension_point(point: str) -> None:
    kind = type(
        "Broken",
        (PreScorePlugin, ScorePlugin),
        {"name": "Broken", "events_to_register": (), **dict.fromkeys(("pre_score", "score"), lambda self, *_: 5)},
    )
    fixture = Fixture(kind)
    plugin: Any = fixture.runtime.plugins.score[0][0]
    run = fixture.runtime.run_pre_score_plugin if point == "PreScore" else fixture.runtime.run_score_plugin
    with pytest.raises(PluginError, match=f"plugin 'Broken' failed at {point}: returned int") as raised:
        run(plugin, CycleState(), fixture.pod, fixture.harness.cluster.all_nodes())
    assert raised.value.extension_point == point
    assert fixture.observer.calls == [("Broken", point, 5)]


# -- the queue -----------------------------------------------------------------------------------------------------


def test_a_pod_is_gated_only_by_plugins_that_can_gate_it_and_those_that_fail_to_say_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    answers: dict[str, Callable[..., Any]] = {
        "Cannot": lambda self, pod: False,
        "Can": lambda self, pod: True,
        "Fails": fails,
    }
    fixture = Fixture(*(returning(name, PreEnqueuePlugin, may_gate=answer) for name, answer in answers.items()))
    assert [plugin.name for plugin in fixture.queueing.gates_of(fixture.pod)] == ["Can", "Fails"]
    assert caplog.messages == ["plugin Fails failed at may_gate for pod default/p"]


class QueuedPod(NamedTuple):
    info: PodInfo
    timestamp: float


def test_pods_without_a_sort_key_are_last_and_the_oldest_of_them_first(caplog: pytest.LogCaptureFixture) -> None:
    def sort_key(self: Any, queued: QueuedPod) -> float:
        return fails() if queued.info.name.startswith("broken") else queued.timestamp

    kind = returning("Order", QueueSortPlugin, sort_key=sort_key)
    enabled = {"queueSort": {"enabled": [{"name": "Order"}], "disabled": [{"name": "*"}]}}
    harness = PluginHarness(profile={"plugins": enabled}, plugins=[kind])
    queueing = harness.profiles["default-scheduler"].queueing
    times = {"broken-late": 2.0, "broken-early": 1.0, "late": 9.0, "early": 3.0}
    queued = [QueuedPod(harness.info(pod(name)), timestamp) for name, timestamp in times.items()]
    assert [each.info.name for each in sorted(queued, key=queueing.sort_key)] == [
        *("early", "late"),
        *("broken-early", "broken-late"),
    ]
    assert caplog.messages[0] == "plugin Order failed at QueueSort for pod default/broken-late"


def test_what_fails_in_the_queue_is_logged_with_what_was_called(caplog: pytest.LogCaptureFixture) -> None:
    fixture = Fixture(returning("Broken", FilterPlugin, hint_signature=fails, hint_keys=fails))
    (plugin,), queueing = fixture.runtime.plugins.filter, fixture.queueing
    broken = on(EventResource.NODE, Action.ADD, hint=fails, event_filter=fails, hint_keys=fails)
    assert queueing.run_queueing_hint("Broken", broken, fixture.pod, None, None, event=NODE_ADDED)
    assert queueing.hint_signature(plugin, fixture.pod) is None
    assert queueing.hint_keys(plugin, fixture.pod) is None
    assert queueing.run_hint_keys("Broken", broken, None, None) is None
    assert queueing.run_event_filter("Broken", broken, None, None) is True
    of_pod, of_event = "for pod default/p", f"for event {broken.event.label}"
    assert caplog.messages == [
        f"plugin Broken failed at queueing hint {of_pod}, event {NODE_ADDED.label}",
        f"plugin Broken failed at hint_signature {of_pod}",
        f"plugin Broken failed at hint_keys {of_pod}",
        f"plugin Broken failed at hint_keys {of_event}",
        f"plugin Broken failed at event filter {of_event}",
    ]


def test_what_a_registration_does_not_have_is_not_called(caplog: pytest.LogCaptureFixture) -> None:
    fixture, without = Fixture(), on(EventResource.NODE, Action.ADD)
    assert fixture.queueing.run_queueing_hint("P", without, fixture.pod, None, None, event=NODE_ADDED) is True
    assert fixture.queueing.run_hint_keys("P", without, None, None) is None
    assert fixture.queueing.run_event_filter("P", without, None, None) is True
    assert caplog.messages == []


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
