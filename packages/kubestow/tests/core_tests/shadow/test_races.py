"""Which states a shadow tries for a decision that differs, and in which order: events in the order of its watches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from msgspec.structs import replace

from core_tests.shadow.delayed_cluster import configuration
from kubestow.api.core import Node, Pod, PodCondition
from kubestow.config import FeatureGates
from kubestow.plugins import in_tree_registry
from kubestow.scheduling.events.resources import NODES, PODS
from kubestow.scheduling.interfaces import Resource
from kubestow.shadow.comparison import Verdict
from kubestow.shadow.shadow import ComparedDecision, Shadow
from kubestow.testing.builders import node, pod


class Watches:
    """The watches of a shadow; an event every few milliseconds."""

    def __init__(self, *objects: Any, seconds: float = 0.005) -> None:
        self.time, self._seconds, self._version = 0.0, seconds, 1000
        self.results: list[ComparedDecision] = []
        self._delayed: Resource | None = None
        self._waiting: list[tuple[str, Any]] = []
        self._shadow = Shadow(
            configuration(),
            in_tree_registry(),
            FeatureGates(),
            monotonic=lambda: self.time,
            on_result=self.results.append,
        )
        for resource in self._shadow.resources:
            self._shadow.replace(resource, [each for each in objects if isinstance(each, resource.type)])

    def put(self, *objects: Pod | Node) -> None:
        """Objects are created or changed."""
        for obj in objects:
            self._apply("MODIFIED", obj)

    def delete(self, *objects: Pod | Node) -> None:
        """Objects are deleted."""
        for obj in objects:
            self._apply("DELETED", obj)

    def bind(self, each: Pod, node_name: str) -> None:
        """A pod gets its node."""
        self.put(replace(each, spec=replace(each.spec, node_name=node_name)))

    def reject(self, name: str, message: str, **same: Any) -> None:
        """A pod gets a condition."""
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        self.put(pod(name, status={"conditions": [condition]}, **same))

    def nominate(self, each: Pod, node_name: str, message: str) -> None:
        """A pod waits on a node for its victims to leave it."""
        condition = PodCondition(type="PodScheduled", status="False", reason="Unschedulable", message=message)
        self.put(replace(each, status=replace(each.status, nominated_node_name=node_name, conditions=[condition])))

    def evict(self, *victims: Pod) -> None:
        """Victims get the condition, and are deleted."""
        condition = PodCondition(type="DisruptionTarget", status="True", reason="PreemptionByScheduler")
        for victim in victims:
            self.put(replace(victim, status=replace(victim.status, conditions=[condition])))
            self.delete(victim)

    def judged(self) -> ComparedDecision:
        """The decision that was made, when all that may have to do with it has been delivered."""
        (found,) = self.all_judged()
        return found

    def all_judged(self) -> list[ComparedDecision]:
        """The same of several decisions."""
        self.time += 20
        for _ in range(2):  # nominations are looked at twice
            self._shadow.judge()
        return self.results

    @contextmanager
    def delayed(self, resource: Resource) -> Iterator[None]:
        """The watch of this resource delivers what happens in the block at the end of it."""
        self._delayed, waiting = resource, self._waiting
        yield
        self._delayed = None
        for event, obj in waiting:
            self._deliver(resource, event, obj)
        waiting.clear()

    def _apply(self, event: str, obj: Pod | Node) -> None:
        self._version += 1
        obj = replace(obj, metadata=replace(obj.metadata, resource_version=str(self._version)))
        resource = PODS if isinstance(obj, Pod) else NODES
        if resource == self._delayed:
            self._waiting.append((event, obj))
        else:
            self._deliver(resource, event, obj)

    def _deliver(self, resource: Resource, event: str, obj: Pod | Node) -> None:
        self.time += self._seconds
        self._shadow.apply(resource, event, obj)


def _elsewhere(watches: Watches, count: int, names: Sequence[str] = ("far",)) -> None:
    """Changes of nodes on which the pods of these tests do not fit."""
    for number in range(count):
        name = names[number % len(names)]
        watches.put(node(name, cpu="1", labels={"number": str(number)}))


def test_a_deletion_on_the_better_node_is_tried_before_hundreds_of_changes_elsewhere() -> None:
    occupying, waiting = pod("occupying", cpu="3", node="empty"), pod("waiting", cpu="2")
    half = pod("half", cpu="1", node="half")
    watches = Watches(node("empty", cpu="4"), node("half", cpu="4"), node("far", cpu="1"), occupying, half)
    watches.put(waiting)
    watches.delete(occupying)
    _elsewhere(watches, 700)
    watches.bind(waiting, "half")  # the scheduler did not know of the deletion
    found = watches.judged()
    assert not found.differs
    assert "the deletion of Pod default/occupying was not known yet" in found.race
    assert found.moments < 20


def test_a_rejection_that_is_written_late_is_explained_after_few_states() -> None:
    waiting = pod("waiting", cpu="2")
    watches = Watches(node("small", cpu="1"), node("far", cpu="1"))
    watches.put(waiting)
    _elsewhere(watches, 50)
    watches.put(node("new", cpu="1"))
    _elsewhere(watches, 400)
    message = (
        "0/2 nodes are available: 2 Insufficient cpu. no new claims to deallocate, preemption: "
        "0/2 nodes are available: 2 Preemption is not helpful for scheduling."
    )
    watches.reject("waiting", message, cpu="2")
    found = watches.judged()
    assert not found.differs
    assert "the creation of Node new was not known yet" in found.race
    assert found.moments == 2  # those with three nodes are no explanation


def test_watches_that_lag_behind_one_another_are_aligned_by_resource_versions() -> None:
    occupying, waiting = pod("occupying", cpu="3", node="full"), pod("waiting", cpu="2")
    watches = Watches(node("full", cpu="4"), node("far", cpu="1"), occupying)
    watches.put(waiting)
    with watches.delayed(NODES):  # all that happens to nodes meanwhile is delivered after all that happens to pods
        for number in range(40):
            watches.put(node("far", cpu="1", labels={"number": str(number)}))
            watches.put(pod("other", cpu="0", node="far", labels={"number": str(number)}))
            if number == 20:
                watches.put(node("new", cpu="1"))  # known to the scheduler, and all before it
                watches.delete(occupying)
                watches.put(node("large", cpu="8"))
    message = (
        "0/3 nodes are available: 3 Insufficient cpu. no new claims to deallocate, preemption: "
        "0/3 nodes are available: 1 No preemption victims found for incoming pod, "
        "2 Preemption is not helpful for scheduling."
    )
    watches.reject("waiting", message, cpu="2")
    found = watches.judged()
    assert not found.differs, found.here
    assert {
        "the deletion of Pod default/occupying was not known yet",
        "the creation of Node large was not known yet",
    } <= {*found.race}
    assert found.moments < 100


def test_a_deleted_pod_that_fits_nowhere_is_no_explanation() -> None:
    waiting, huge = pod("waiting", cpu="2"), pod("huge", cpu="500")
    watches = Watches(node("empty", cpu="4"), node("half", cpu="4"), pod("half", cpu="1", node="half"))
    watches.put(huge, waiting)
    watches.delete(huge)
    watches.bind(waiting, "half")
    assert watches.judged().differs


def test_a_deleted_pod_that_fits_on_the_better_node_is_one() -> None:
    waiting, gone = pod("waiting", cpu="2"), pod("gone", cpu="2")
    watches = Watches(node("empty", cpu="4"), node("half", cpu="4"), pod("half", cpu="1", node="half"))
    watches.put(gone, waiting, pod("other"))
    watches.delete(gone)
    watches.bind(waiting, "half")
    found = watches.judged()
    assert not found.differs
    assert found.race == ("Pod default/gone, which was deleted, was assumed on empty",)


def test_a_pod_that_preempts_again_on_its_node_has_other_victims_each_time() -> None:
    def started(minute: int) -> dict[str, str]:
        return {"startTime": f"2026-01-01T00:{minute:02}:00Z"}

    preemptor, rival = pod("preemptor", cpu="2", priority=100), pod("rival", cpu="1", priority=200)
    kept = pod("kept", cpu="1", priority=1000, node="node")
    first, second, last = (pod(f"low-{n}", cpu="1", node="node", status=started(9 - n)) for n in range(3))
    watches = Watches(node("node", cpu="4"), kept, first, second, last)
    watches.put(preemptor)
    watches.nominate(preemptor, "node", "0/1 nodes are available: 1 Insufficient cpu.")
    watches.evict(first, second)
    watches.put(rival)
    watches.bind(rival, "node")  # before the preemptor, which has to evict one more pod
    watches.evict(last)
    watches.nominate(preemptor, "node", "0/1 nodes are available: 1 Insufficient cpu. again")
    nominations = [found for found in watches.all_judged() if found.observed.nominated]
    assert [found.verdict for found in nominations] == [Verdict.SAME_VICTIMS, Verdict.SAME_VICTIMS]
