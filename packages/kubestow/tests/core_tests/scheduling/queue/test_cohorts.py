"""Pods that wait in cohorts: every event means for them what its hints say about each pod alone (semantics 6.8)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from random import Random
from typing import Any, ClassVar

import pytest

from core_tests.scheduling.fixture import enabled
from core_tests.scheduling.queue.random_objects import random_event, random_pod
from kubestow import config
from kubestow.api.core import Node, Pod
from kubestow.cluster.changes.events import Action, ClusterEvent, EventResource
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.event_registration import on
from kubestow.framework.interface import Plugin, PreEnqueuePlugin, PreFilterPlugin
from kubestow.framework.profile import implements
from kubestow.framework.status import SUCCESS, Status
from kubestow.plugins import in_tree_registry
from kubestow.rules.minors import DEFAULT_MINOR, MINORS, Minor
from kubestow.scheduling.environment import Environment
from kubestow.scheduling.events.cluster_events import EVERY_EVENT, NODE_ADD
from kubestow.scheduling.observer import Observer
from kubestow.scheduling.queue.queueing_hints import QueueingHints
from kubestow.scheduling.queued_pod import Place, QueueingStrategy
from kubestow.scheduling.scheduler import Scheduler
from kubestow.testing import MemoryCluster, node, pod

NODE_LABEL = ClusterEvent(EventResource.NODE, Action.UPDATE_NODE_LABEL)
#: The in-tree plugins that reject pods and register events.
REJECTORS = (
    "NodeUnschedulable",
    "NodeName",
    "TaintToleration",
    "NodeAffinity",
    "NodePorts",
    "NodeResourcesFit",
    "VolumeRestrictions",
    "NodeVolumeLimits",
    "VolumeBinding",
    "VolumeZone",
    "PodTopologySpread",
    "InterPodAffinity",
    "DynamicResources",
    "NodeDeclaredFeatures",
)
_OWN_UPDATES = (Action.UPDATE_POD_TOLERATION, Action.UPDATE_POD_LABEL, Action.UPDATE_POD_SCALE_DOWN)


class ManualClock:
    seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds


class World:
    """A scheduler whose loop does not run, and the clock of its queue."""

    def __init__(
        self, *, plugins: Iterable[type[Plugin]] = (), minor: Minor = DEFAULT_MINOR, **configured: Any
    ) -> None:
        gates = config.FeatureGates({}, minor=minor)
        registry = in_tree_registry(minor) | {plugin.name: plugin for plugin in plugins}
        document = {"apiVersion": config.API_VERSION, "kind": config.KIND, **configured}
        self.clock = ManualClock()
        clock: Any = self.clock
        self.scheduler = Scheduler(
            config.load(document, subject="test", gates=gates, implements=implements(registry)),
            registry=registry,
            environment=Environment(MemoryCluster(), clock, Random(1), Observer()),
            gates=gates,
        )
        self.queue = self.scheduler.queue

    def info(self, obj: Pod) -> PodInfo:
        return self.scheduler.cluster.shapes.info(obj)

    def reject(self, obj: Pod, *rejectors: str, pending: Sequence[str] = ()) -> PodInfo:
        """Have a pod rejected, and its backoff end."""
        info = self.info(obj)
        self.queue.add(info)
        queued = self.queue.pop()
        assert queued is not None
        self.queue.return_after_failure(
            queued, rejectors=frozenset(rejectors), pending_plugins=frozenset(pending), now=self.clock.seconds
        )
        self.clock.seconds += 30
        return info

    def popped(self) -> list[str]:
        """The names of the pods that are ready, in the order in which they are scheduled."""
        names = []
        while (queued := self.queue.pop()) is not None:
            names.append(queued.info.name)
            self.queue.in_flight.done(queued.info.uid)
        return names


class Undeclared(PreFilterPlugin):
    """A plugin without declarations: its hints are called for every pod. One of them fails for some pods."""

    name = "Undeclared"
    events_to_register = (
        on(EventResource.NODE, Action.ALL, hint=lambda pod, old, new: bool(new and "zone" in new.metadata.labels)),
        on(EventResource.POD, Action.DELETE, hint=lambda pod, old, new: pod.labels["tier"] == "a"),
    )

    def pre_filter(self, state: Any, pod: PodInfo, nodes: Any) -> None:
        pass


@pytest.mark.parametrize("minor", MINORS[1:], ids=lambda minor: str(minor.number))
@pytest.mark.parametrize("seed", range(8))
def test_an_event_requeues_the_pods_for_which_the_hints_say_so_one_by_one(seed: int, minor: Minor) -> None:
    random = Random(seed)
    world = World(minor=minor, **enabled(Undeclared))
    hints = QueueingHints(world.scheduler.profiles)
    known = {plugin.name for plugin in world.scheduler.profiles["default-scheduler"].plugins}
    rejecting = [name for name in (*REJECTORS, "Undeclared") if name in known]
    waiting: dict[str, tuple[PodInfo, list[str], list[str]]] = {}
    for number in range(60):
        rejectors = random.sample(rejecting, random.choice([1, 1, 2]))
        pending = random.sample(rejecting, 1) if random.random() < 0.1 else []
        own: dict[str, Any] = {"resourceClaims": []}  # DynamicResources would gate the pod
        info = world.reject(random_pod(random, f"p{number}", own=own), *rejectors, pending=pending)
        waiting[info.name] = info, rejectors, pending
    for _ in range(30):
        event, old, new = random_event(random, world.info)
        if random.random() < 0.1:  # an event about a waiting pod
            old = new = waiting[random.choice(list(waiting))][0]
            event = ClusterEvent(EventResource.UNSCHEDULABLE_POD, random.choice(list(_OWN_UPDATES)))
        decisions = hints.decisions(event, hints.filtered(event, old, new), old, new)
        expected = [
            name
            for name, (info, rejectors, pending) in waiting.items()
            if decisions.of(info, rejectors=rejectors, pending_plugins=pending) is not QueueingStrategy.SKIP
        ]
        world.queue.move_all_to_active_or_backoff(event, old, new)
        assert world.popped() == expected
        for name in expected:
            info, rejectors, pending = waiting.pop(name)
            world.reject(info.pod, *rejectors, pending=pending)
            waiting[name] = info, rejectors, pending


def test_a_hint_is_called_once_for_pods_with_equal_signatures() -> None:
    calls = Counter[str]()

    def hint(pod: PodInfo, old: Any, new: Any) -> bool:
        calls[pod.name] += 1
        return False

    class Counting(PreFilterPlugin):
        name = "Counting"
        events_to_register = (on(EventResource.NODE, Action.ADD, hint=hint),)

        def pre_filter(self, state: Any, pod: PodInfo, nodes: Any) -> None:
            pass

        def hint_signature(self, pod: PodInfo) -> Hashable:
            return pod.labels["app"]

    world = World(**enabled(Counting))
    for number in range(10):
        world.reject(pod(f"p{number}", labels={"app": "ab"[number % 2], "number": str(number)}), "Counting")
    world.queue.move_all_to_active_or_backoff(NODE_ADD, None, node())
    assert calls == {"p0": 1, "p1": 1}


def test_hints_of_a_plugin_without_hint_signatures_are_called_for_every_pod() -> None:
    class Individual(PreFilterPlugin):
        name = "Individual"
        wanted: ClassVar[set[str]] = {"p1", "p3"}
        events_to_register = (on(EventResource.NODE, Action.ADD, hint=lambda pod, old, new: pod.name in {"p1", "p3"}),)

        def pre_filter(self, state: Any, pod: PodInfo, nodes: Any) -> None:
            pass

    world = World(**enabled(Individual))
    for number in range(5):
        world.reject(pod(f"p{number}"), "Individual")
    world.queue.move_all_to_active_or_backoff(NODE_ADD, None, node())
    assert world.popped() == ["p1", "p3"]


def test_a_failing_hint_signature_leaves_the_hints_to_be_called_for_the_pod() -> None:
    class Failing(PreFilterPlugin):
        name = "Failing"
        events_to_register = (on(EventResource.NODE, Action.ADD, hint=lambda pod, old, new: pod.name == "p1"),)

        def pre_filter(self, state: Any, pod: PodInfo, nodes: Any) -> None:
            pass

        def hint_signature(self, pod: PodInfo) -> Hashable:
            raise RuntimeError

    world = World(**enabled(Failing))
    for number in range(3):
        world.reject(pod(f"p{number}"), "Failing")
    world.queue.move_all_to_active_or_backoff(NODE_ADD, None, node())
    assert world.popped() == ["p1"]


def test_the_pod_that_an_event_is_about_gets_calls_of_its_own() -> None:
    world = World()
    twins = [world.reject(pod(name, tolerations=[{"key": "a"}]), "TaintToleration") for name in ("one", "two")]
    event = ClusterEvent(EventResource.UNSCHEDULABLE_POD, Action.UPDATE_POD_TOLERATION)
    world.queue.move_all_to_active_or_backoff(event, twins[1], twins[1])
    assert world.popped() == ["two"]


def test_an_updated_pod_is_decided_about_as_it_is_now() -> None:
    world = World()
    infos = [world.reject(pod(name, node_selector={"zone": "1"}), "NodeAffinity") for name in ("one", "two")]
    world.queue.update(infos[0], world.info(pod("one", node_selector={"zone": "2"})), [])
    world.queue.move_all_to_active_or_backoff(NODE_ADD, None, node(labels={"zone": "2"}))
    assert world.popped() == ["one"]


# -- events that help many pods ----------------------------------------------------------------------------------


def crowd(world: World, count: int = 1200) -> list[PodInfo]:
    return [world.reject(pod(f"p{number}", labels={"app": "ab"[number % 2]}), "NodeName") for number in range(count)]


def test_an_event_that_helps_many_pods_moves_some_at_once_and_none_is_scheduled_before_the_others_are_moved() -> None:
    world = World()
    infos = crowd(world)
    late = world.reject(pod("important", priority=1), "NodeName")
    world.queue.move_all_to_active_or_backoff(NODE_ADD, None, node())
    assert world.queue.moves.is_moving
    assert world.queue.has_work
    assert world.popped() == [late.name, *(info.name for info in infos)]
    assert not world.queue.moves.is_moving


def test_pods_that_are_deleted_before_they_are_moved_are_forgotten() -> None:
    """A standby scheduler pops nothing, so it moves no more pods than an event does itself."""

    class Closed(PreEnqueuePlugin):
        name = "Closed"
        events_to_register = (on(EventResource.NODE, Action.ADD),)

        def pre_enqueue(self, pod: PodInfo) -> Status:
            return Status.unschedulable("closed")

    world = World(**enabled(Closed))
    for _ in range(5):
        infos = [world.info(pod(f"p{number}")) for number in range(1500)]
        for info in infos:
            world.queue.add(info)
        world.queue.move_all_to_active_or_backoff(NODE_ADD, None, node())
        for info in infos:
            world.queue.delete(info.uid)
    assert len(world.queue.moves._helped) <= len(infos)


def test_pods_that_were_unschedulable_for_too_long_are_moved_in_steps_too() -> None:
    world = World()
    infos = crowd(world)
    world.clock.seconds += 40_000
    world.queue.moves.flush()
    assert world.queue.moves.is_moving
    assert world.popped() == [info.name for info in infos]


def test_pods_that_are_yet_to_be_moved_can_be_deleted_updated_activated_and_helped_again() -> None:
    world = World()
    infos = crowd(world)
    world.queue.move_all_to_active_or_backoff(NODE_ADD, None, node())
    world.queue.delete(infos[-1].uid)
    world.queue.update(infos[-2], world.info(pod("p1198", labels={"app": "c"})), [])
    world.queue.activate([infos[-3].uid])
    queued = world.queue.moves.settle(infos[-4].uid)
    assert queued is not None
    assert queued.place is Place.ACTIVE
    world.queue.move_all_to_active_or_backoff(NODE_ADD, None, node())
    assert sorted(world.popped()) == sorted(info.name for info in infos[:-1])


def test_a_pod_that_was_deleted_and_rejected_again_before_it_was_moved_is_not_moved() -> None:
    world = World()
    infos = crowd(world)
    world.queue.move_all_to_active_or_backoff(NODE_ADD, None, node())
    world.queue.delete(infos[-1].uid)
    world.queue.move_all_to_active_or_backoff(EVERY_EVENT)
    assert infos[-1].name not in world.popped()
    assert world.queue.pods.get(infos[-1].uid) is None


# -- events with keys --------------------------------------------------------------------------------------------


def test_an_event_with_a_key_reaches_the_hints_of_the_pods_with_this_key_only() -> None:
    asked: list[str] = []

    def hint(pod: PodInfo, old: Any, new: Node) -> bool:
        asked.append(pod.name)
        return True

    class Keyed(PreFilterPlugin):
        name = "Keyed"
        events_to_register = (
            on(
                EventResource.NODE,
                Action.ADD,
                hint=hint,
                hint_keys=lambda old, new: [new.metadata.name] if new.metadata.name else None,
            ),
        )

        def pre_filter(self, state: Any, pod: PodInfo, nodes: Any) -> None:
            pass

        def hint_keys(self, pod: PodInfo) -> Iterable[Hashable]:
            return () if pod.name == "none" else iter(pod.labels.values())

    world = World(**enabled(Keyed))
    for name, labels in (("one", {"a": "n1", "b": "n2"}), ("two", {"a": "n2"}), ("three", {"a": "n3"}), ("none", {})):
        world.reject(pod(name, labels=labels), "Keyed")
    world.queue.move_all_to_active_or_backoff(NODE_ADD, None, node("n2"))
    assert asked == world.popped() == ["one", "two"]
    world.queue.move_all_to_active_or_backoff(NODE_ADD, None, node(""))
    assert asked[2:] == world.popped() == ["three", "none"]


def test_failing_keys_leave_all_pods_to_the_hints() -> None:
    class Failing(PreFilterPlugin):
        name = "Failing"
        events_to_register = (on(EventResource.NODE, Action.ADD, hint_keys=lambda old, new: [new.metadata.name]),)

        def pre_filter(self, state: Any, pod: PodInfo, nodes: Any) -> None:
            pass

        def hint_keys(self, pod: PodInfo) -> Iterable[Hashable]:
            raise RuntimeError

    world = World(**enabled(Failing))
    world.reject(pod("p"), "Failing")
    world.queue.move_all_to_active_or_backoff(NODE_ADD, None, node())
    assert world.popped() == ["p"]


def test_a_pod_that_an_event_helped_while_it_was_gated_waits_for_its_gate_alone() -> None:
    """Then the keys of the plugins that rejected it no longer matter: their hints are not called again."""

    class Closed(PreEnqueuePlugin):
        name = "Closed"
        events_to_register = (on(EventResource.NODE, Action.ADD),)
        is_open = True

        def pre_enqueue(self, pod: PodInfo) -> Status:
            return SUCCESS if self.is_open else Status.unschedulable("closed")

    world = World(**enabled(Closed))
    world.reject(pod("p", node_selector={"zone": "1"}), "NodeAffinity")
    Closed.is_open = False
    world.queue.move_all_to_active_or_backoff(NODE_ADD, None, node(labels={"zone": "1"}))
    assert world.popped() == []
    Closed.is_open = True
    world.queue.move_all_to_active_or_backoff(NODE_ADD, None, node(labels={"zone": "2"}))
    assert world.popped() == ["p"]
