"""Turns: calls in the order of an event loop with virtual time, and a scheduler that decides as one on such a loop."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from random import Random
from typing import Any, ClassVar, Protocol

import msgspec
import numpy as np
import pytest

from kubestow import config
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.engine.cluster_api.memory_api import MemoryAPI
from kubestow.engine.turns import SchedulerInTurns, Turns, TurnWake
from kubestow.engine.virtual_time import VirtualClock, VirtualTimeLoop, run
from kubestow.errors import APIError
from kubestow.framework.cycle_state import CycleState, PodsToActivate
from kubestow.framework.interface import (
    FilterPlugin,
    Permission,
    PermitPlugin,
    Plugin,
    PostBindPlugin,
    PreBindPlugin,
    ReservePlugin,
)
from kubestow.framework.profile import implements
from kubestow.framework.status import Status, Verdict
from kubestow.plugins import in_tree_registry
from kubestow.scheduling.decision.result import Decision
from kubestow.scheduling.environment import Concurrency, Environment
from kubestow.scheduling.interfaces import ObjectReference
from kubestow.scheduling.observer import Observer, Result
from kubestow.scheduling.queued_pod import QueuedPod
from kubestow.scheduling.scheduler import Scheduler
from kubestow.testing import node, pod

# -- calls -------------------------------------------------------------------------------------------------------------

#: Seconds; some are the same, and some are more than a loop waits at once.
_DELAYS = (0.0, 0.0, 1e-9, 0.25, 0.5, 0.5, 1.0, 7.0, 90_000.0, 200_000.0)
#: After all calls. The order of calls at equal times depends on which timers there are.
_LONG_AFTER = 20_000_000.0


class Time(Protocol):
    """What makes calls."""

    def time(self) -> float: ...
    def call_soon(self, call: Callable[[], object], /) -> object: ...
    def call_at(self, when: float, call: Callable[[], object], /) -> Any: ...
    def call_later(self, seconds: float, call: Callable[[], object], /) -> Any: ...
    def advance(self, seconds: float) -> None: ...


class RandomCalls:
    """Calls that ask for further calls, cancel some, and take time; the same ones whatever makes them."""

    def __init__(self, seed: int, time: Time, sleep: Callable[[float, Callable[[], object]], object]) -> None:
        self._random, self._time, self._sleep = Random(f"calls {seed}"), time, sleep
        self._timers: list[Any] = []
        self._count = 0
        #: The number of each call, with its time.
        self.made: list[tuple[int, float]] = []

    def ask_for_more(self) -> None:
        for _ in range(self._random.choice([0, 1, 1, 2, 3])):
            self._ask()
        if self._timers and self._random.random() < 0.3:
            self._timers.pop(self._random.randrange(len(self._timers))).cancel()

    def _ask(self) -> None:
        if self._count == 60:
            return
        self._count += 1
        number, random, seconds = self._count, self._random, self._random.choice(_DELAYS)

        def call() -> None:
            self.made.append((number, self._time.time()))
            if random.random() < 0.2:
                self._time.advance(0.25)
            self.ask_for_more()

        match random.randrange(4):
            case 0:
                self._time.call_soon(call)
            case 1:
                self._timers.append(self._time.call_later(seconds, call))
            case 2:
                self._timers.append(self._time.call_at(self._time.time() + seconds - 0.5, call))
            case _:
                self._sleep(seconds, call)


def _made_on_loop(seed: int) -> list[tuple[int, float]]:
    async def main() -> list[tuple[int, float]]:
        loop, tasks = asyncio.get_running_loop(), set[asyncio.Task[None]]()
        assert isinstance(loop, VirtualTimeLoop)

        async def sleep(seconds: float, call: Callable[[], object]) -> None:
            await asyncio.sleep(seconds)
            call()

        calls = RandomCalls(seed, loop, lambda seconds, call: tasks.add(loop.create_task(sleep(seconds, call))))
        calls.ask_for_more()
        await asyncio.sleep(_LONG_AFTER)
        return calls.made

    return run(main())


def _made_in_turns(seed: int) -> list[tuple[int, float]]:
    turns = Turns()

    def sleep(seconds: float, call: Callable[[], object]) -> None:
        turns.call_soon(lambda: turns.continue_after(seconds, call))

    calls = RandomCalls(seed, turns, sleep)
    calls.ask_for_more()
    turns.call_later(_LONG_AFTER, lambda: None)
    while turns.next_call() < math.inf:
        turns.turn()
    return calls.made


@pytest.mark.parametrize("seeds", [range(first, first + 25) for first in range(0, 100, 25)])
def test_calls_are_made_in_the_order_of_an_event_loop(seeds: Iterable[int]) -> None:
    for seed in seeds:
        assert _made_in_turns(seed) == _made_on_loop(seed)


def test_time_passes_to_the_next_timer_only_if_no_call_is_due() -> None:
    turns, made = Turns(), list[float]()
    assert turns.next_call() == math.inf
    with pytest.raises(RuntimeError, match="no call is due and there is no timer"):
        turns.turn()
    turns.call_at(2.0, lambda: made.append(turns.time()))
    turns.call_soon(lambda: made.append(turns.time()))
    assert turns.next_call() == 0.0
    turns.turn()
    assert (made, turns.next_call()) == ([0.0], 2.0)
    turns.turn()
    assert (made, turns.next_call()) == ([0.0, 2.0], math.inf)


@pytest.mark.parametrize("seconds", [90_000.0, 2e7, 3e7])
def test_a_turn_lasts_a_day_at_most(seconds: float) -> None:
    turns, made = Turns(), list[float]()
    turns.call_at(seconds, lambda: made.append(turns.time()))
    for _ in range(int(seconds // 86400) + 1):
        assert not made
        turns.turn()
    assert made == [seconds]


def test_a_turn_is_skipped_if_no_call_is_due() -> None:
    turns = Turns()
    assert turns.skip_turn()
    cancelled = turns.call_later(0.0, lambda: None)
    assert not turns.skip_turn()
    cancelled.cancel()
    turns.call_later(1.0, lambda: None)
    assert turns.skip_turn()
    turns.advance(1.0)
    assert not turns.skip_turn()
    turns.turn()
    turns.call_soon(lambda: None)
    assert not turns.skip_turn()


def test_the_first_reason_of_a_refusal_is_kept() -> None:
    turns = Turns()
    turns.refuse("one")
    turns.refuse("other")
    assert turns.refusal == "one"


def test_nothing_is_called_after_the_close() -> None:
    turns, made = Turns(), list[str]()

    async def ends() -> None:
        try:
            await turns.run_all([asyncio.sleep(0)])
        finally:
            made.append("closed")

    turns.start(ends())
    turns.turn()
    turns.call_soon(lambda: made.append("called"))
    turns.call_later(1.0, lambda: made.append("called later"))
    turns.close()
    assert (made, turns.next_call(), turns.running) == (["closed"], math.inf, set())


# -- coroutines --------------------------------------------------------------------------------------------------------


def _coroutines(time: Time, concurrency: Concurrency, noted: list[tuple[str, float]]) -> None:
    """Have coroutines run that end, fail, and wait for each other."""

    def note(what: str) -> None:
        noted.append((what, time.time()))
        time.call_soon(lambda: noted.append((f"turn after {what}", time.time())))

    async def ends(name: str) -> str:
        note(f"{name} runs")
        return name

    async def fails() -> str:
        note("fails")
        raise ValueError("of a coroutine")

    async def waits(name: str, count: int) -> str:
        note(f"{name} begins")
        outcomes = await concurrency.run_all([*(ends(f"{name}{number}") for number in range(count)), fails()])
        note(f"{name} goes on with {outcomes}")
        assert await concurrency.run_all([]) == []
        inner = await concurrency.run_all([waits(f"{name}/inner", count - 1)] if count else [])
        note(f"{name} ends with {inner}")
        return name

    for name, count in (("one", 2), ("other", 0)):
        task = concurrency.start(waits(name, count))
        task.add_done_callback(lambda done, name=name: note(f"{name} is over"))  # type: ignore[misc]


def test_coroutines_run_as_tasks_of_an_event_loop_do() -> None:
    async def on_loop() -> list[tuple[str, float]]:
        noted: list[tuple[str, float]] = []
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        _coroutines(loop, Concurrency(), noted)
        await asyncio.sleep(1.0)
        return noted

    turns, noted = Turns(), list[tuple[str, float]]()
    _coroutines(turns, turns, noted)
    while turns.next_call() < math.inf:
        turns.turn()
    assert (turns.refusal, turns.running) == ("", set())
    assert noted == run(on_loop())
    assert {what for what, _ in noted} >= {"one is over", "other is over"}


def test_a_coroutine_that_waits_for_something_else_is_refused() -> None:
    for wait in (lambda turns: asyncio.sleep(0), lambda turns: turns.wake().wait()):
        turns = Turns()
        turns.start(wait(turns))
        turns.turn()
        assert turns.refusal == "a coroutine waits for an event loop"
        turns.close()


def test_a_wake_makes_one_call_in_the_turn_after_it_is_set() -> None:
    turns, made = Turns(), list[str]()
    wake = turns.wake()
    assert isinstance(wake, TurnWake)
    wake.set()
    assert (wake.is_set, wake.is_awaited, turns.next_call()) == (True, False, math.inf)
    wake.clear()
    wake.call_when_set(lambda: made.append("woken"))
    assert (wake.is_set, wake.is_awaited) == (False, True)
    wake.set()
    wake.set()
    assert (made, wake.is_awaited) == ([], False)
    turns.turn()
    assert (made, turns.next_call()) == (["woken"], math.inf)


# -- the scheduler -----------------------------------------------------------------------------------------------------

#: What happens to the cluster, with its time.
Changes = Sequence[tuple[float, Callable[[MemoryAPI], object]]]

_ATTEMPT_SECONDS = 0.125
_END = 100.0


class Noted(Observer):
    """Notes the ends of attempts, which take time, and the bindings."""

    def __init__(self, time: Time) -> None:
        self._time = time
        self.lines: list[tuple[float, str, str, str, float]] = []

    def decision_made(self, decision: Decision, seconds: float) -> None:
        self._time.advance(_ATTEMPT_SECONDS)

    def node_found(self, info: PodInfo) -> None:
        self._time.advance(_ATTEMPT_SECONDS)

    def attempt_ended(self, queued: QueuedPod, result: Result, message: str, seconds: float) -> None:
        self.lines.append((self._time.time(), queued.info.name, result.value, message, seconds))

    def pod_bound(self, queued: QueuedPod, node_name: str, seconds: float) -> None:
        self.lines.append((self._time.time(), queued.info.name, "bound", node_name, seconds))


class Case:
    """A cluster, changes of it, and plugins."""

    def __init__(
        self,
        nodes: Iterable[Any],
        changes: Changes,
        plugins: Sequence[type[Plugin]] = (),
        api: type[MemoryAPI] = MemoryAPI,
        **configured: Any,
    ) -> None:
        self._changes, self._plugins = changes, plugins
        self._api = api()
        for each in nodes:
            self._api.put(each)
        self._registry = in_tree_registry() | {plugin.name: plugin for plugin in plugins}
        enabled = {"multiPoint": {"enabled": [{"name": plugin.name} for plugin in plugins]}}
        document = {
            "apiVersion": config.API_VERSION,
            "kind": config.KIND,
            "profiles": [{"plugins": enabled}],
            **configured,
        }
        self._gates = config.FeatureGates()
        self._configuration = config.load(
            document, subject="test", gates=self._gates, implements=implements(self._registry)
        )

    def _environment(self, time: Any, concurrency: Concurrency) -> Environment:
        clock, random = VirtualClock(time), Random(1)
        stopwatch = repeat(0.0).__next__
        self.noted = Noted(time)
        return Environment(self._api, clock, random, self.noted, stopwatch=stopwatch, concurrency=concurrency)

    def on_loop(self) -> list[tuple[float, str, str, str, float]]:
        """What is noted on an event loop."""

        async def main() -> None:
            loop = asyncio.get_running_loop()
            scheduler = Scheduler(
                self._configuration,
                registry=self._registry,
                environment=self._environment(loop, Concurrency()),
                gates=self._gates,
                pod_max_in_unschedulable_pods=math.inf,
            )
            running = asyncio.create_task(scheduler.run())
            await scheduler.started()
            for time, change in self._changes:
                await asyncio.sleep(time - loop.time())
                change(self._api)
            await asyncio.sleep(_END - loop.time())
            running.cancel()
            await asyncio.wait((running,))

        run(main())
        return self.noted.lines

    def in_turns(self) -> tuple[list[tuple[float, str, str, str, float]], str]:
        """What is noted in turns, and the reason of a refusal."""
        turns = Turns()
        self.scheduler = scheduler = SchedulerInTurns(
            self._configuration,
            turns=turns,
            registry=self._registry,
            environment=self._environment(turns, turns),
            gates=self._gates,
            pod_max_in_unschedulable_pods=math.inf,
        )
        scheduler.begin(self._api.begin_watch)
        changes = iter(self._changes)

        def change(now: Callable[[MemoryAPI], object] | None) -> None:
            scheduler.begin_arrivals()
            if now is not None:
                now(self._api)
            if (following := next(changes, None)) is not None:
                time, call = following
                turns.continue_after(time - turns.time(), lambda: change(call))
            scheduler.end_arrivals()

        turns.call_soon(lambda: change(None))
        while not turns.refusal and turns.next_call() <= _END:
            turns.turn()
        return self.noted.lines, turns.refusal


def put(*objects: Any) -> Callable[[MemoryAPI], object]:
    return lambda api: [api.put(each) for each in objects]


def removed(*objects: Any) -> Callable[[MemoryAPI], object]:
    def remove(api: MemoryAPI) -> None:
        for each in objects:
            api.remove(each)

    return remove


def terminating(name: str, **same: Any) -> Any:
    found = pod(name, **same)
    metadata = msgspec.structs.replace(found.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
    return msgspec.structs.replace(found, metadata=metadata)


def some_nodes() -> list[Any]:
    """Three nodes with room, and as many without as it takes for totals to be kept while single nodes change."""
    with_room = [node(name, cpu=cpu) for name, cpu in (("a", "4"), ("b", "3"), ("c", "2"))]
    return [*with_room, *(node(f"small-{number}", cpu="100m") for number in range(20))]


#: Pods that arrive alone and together, while others are attempted, that wait for room, and that leave.
CHANGES: Changes = [
    (1.0, put(pod("p0", cpu="1"))),
    (2.0, put(pod("p1", cpu="1"))),
    (3.0, put(pod("p2", cpu="1"), pod("q0", cpu="500m"), pod("p3", cpu="1"))),
    (3.25, put(pod("p4", cpu="1"))),
    (5.0, put(terminating("deleted", cpu="1"))),
    (6.0, put(pod("p5", cpu="1"))),
    (7.0, put(pod("large", cpu="3"), pod("p6", cpu="1"))),
    (8.0, removed(pod("p0"), pod("p1"), pod("p2"))),
    (20.0, put(pod("gated", cpu="1", spec={"schedulingGates": [{"name": "wait"}]}))),
    (21.0, put(pod("q1", cpu="500m"))),
    (22.0, put(pod("gated", cpu="1"))),
    (23.0, removed(*(pod(f"p{number}") for number in range(7)))),
    (30.0, put(pod("p7", cpu="1"), node("d", cpu="8"))),
    (31.0, put(pod("p8", cpu="1"))),
]


def compared(case: Callable[[], Case]) -> list[tuple[float, str, str, str, float]]:
    """What is noted in turns, which is what is noted on an event loop."""
    found, refusal = case().in_turns()
    assert refusal == ""
    assert found == case().on_loop()
    return found


def test_pods_are_bound_as_on_an_event_loop() -> None:
    found = compared(lambda: Case(some_nodes(), CHANGES))

    bound = {name: (where, seconds) for _, name, what, where, seconds in found if what == "bound"}
    assert set(bound) == {*(f"p{number}" for number in range(9)), "q0", "q1", "large", "gated"}
    assert bound["p0"][1] == _ATTEMPT_SECONDS
    assert bound["large"][1] > 1.0


class TakesNotes(PostBindPlugin):
    """Notes each binding."""

    name = "TakesNotes"
    notes: ClassVar[list[tuple[str, str]]] = []

    def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        self.notes.append((pod.name, node_name))


def test_plugins_are_called_for_each_pod_after_its_binding() -> None:
    TakesNotes.notes.clear()
    found, refusal = Case(some_nodes(), CHANGES, [TakesNotes]).in_turns()

    assert refusal == ""
    assert TakesNotes.notes == [(name, where) for _, name, what, where, _ in found if what == "bound"]
    assert found == Case(some_nodes(), CHANGES, [TakesNotes]).on_loop()


class OpensTheDoor(FilterPlugin, ReservePlugin, PostBindPlugin):
    """Rejects the pods with a label until another pod is reserved, or bound, and has them attempted then."""

    name = "OpensTheDoor"
    events_to_register = ()
    rejected: ClassVar[dict[str, list[PodInfo]]] = {}
    is_open: ClassVar[set[str]] = set()

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict | None:
        door = pod.labels.get("door", "")
        if not door or door in self.is_open:
            return None
        self.rejected.setdefault(door, []).append(pod)
        return Verdict.rejecting(np.full(len(nodes), True), Status.unschedulable("the door is closed"))

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        self._open(state, "reserved")

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None: ...

    def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        self._open(state, "bound")

    def _open(self, state: CycleState, door: str) -> None:
        self.is_open.add(door)
        PodsToActivate.of(state).add(*self.rejected.get(door, ()))


def test_pods_that_a_plugin_names_are_activated() -> None:
    changes: Changes = [
        (1.0, put(*(pod(f"after-{door}", labels={"door": door}) for door in ("reserved", "bound")))),
        (40.0, put(pod("opens"))),
    ]

    def case() -> Case:
        OpensTheDoor.rejected.clear()
        OpensTheDoor.is_open.clear()
        return Case([node("a")], changes, [OpensTheDoor])

    found = compared(case)

    assert {name: int(time) for time, name, what, *_ in found if what == "bound"} == {
        "opens": 40,
        "after-reserved": 40,
        "after-bound": 40,
    }


# -- refusals ----------------------------------------------------------------------------------------------------------


class DelaysPods(PermitPlugin):
    """Has every pod wait."""

    name = "DelaysPods"

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Permission:
        return Permission.wait(1.0)


class PreparesBinding(PreBindPlugin):
    """Has something to do before each binding."""

    name = "PreparesBinding"

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None: ...


class PreparesSomeBindings(PreparesBinding):
    """Has something to do before some bindings."""

    name = "PreparesSomeBindings"

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        return Status.skip() if pod.name == "plain" else Status.unschedulable()


class ReportsBinding(PostBindPlugin):
    """May wait after each binding."""

    name = "ReportsBinding"

    async def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None: ...


@pytest.mark.parametrize(
    ("plugin", "refusal", "bound"),
    [
        (DelaysPods, "a Permit plugin delays pods", []),
        (PreparesBinding, "a PreBind plugin has work to do for every pod: PreparesBinding", []),
        (PreparesSomeBindings, "a PreBind plugin has work to do", ["plain"]),
        (ReportsBinding, "a PostBind plugin is a coroutine: ReportsBinding", []),
    ],
)
def test_what_needs_an_event_loop_is_refused(plugin: type[Plugin], refusal: str, bound: list[str]) -> None:
    changes: Changes = [(1.0, put(pod("plain"))), (2.0, put(pod("other")))]

    found, reason = Case([node("a")], changes, [plugin]).in_turns()

    assert reason == refusal
    assert [name for _, name, what, *_ in found if what == "bound"] == bound


class RefusesBindings(MemoryAPI):
    """Fails to bind."""

    async def bind(self, pod: ObjectReference, node_name: str) -> None:
        raise APIError(409, "Conflict", f"{pod.name} is bound already")


def test_a_binding_that_fails_is_refused() -> None:
    case = Case([node("a")], [(1.0, put(pod("one")))], api=RefusesBindings)

    found, reason = case.in_turns()

    assert (found, reason) == ([], "a binding failed: one is bound already")


def test_no_work_is_in_progress_after_the_bindings() -> None:
    for plugins in ([], [TakesNotes]):
        case = Case(some_nodes(), CHANGES, plugins)
        case.in_turns()
        assert not case.scheduler.work_in_progress
