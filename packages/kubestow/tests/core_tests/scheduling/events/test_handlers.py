"""What the event handlers do with single objects: added, changed, deleted, and made anew after a failure."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from kubestow.api.core import Namespace, Pod
from kubestow.api.meta import ObjectMeta
from kubestow.cluster.cache import Cluster
from kubestow.scheduling.events.resources import NAMESPACES, NODES
from kubestow.scheduling.observer import Observer
from kubestow.testing import node, pod
from kubestow.testing.scheduler_harness import SchedulerHarness, in_virtual_time


class Failures(Observer):
    """Counts the handlers that fail, by kind."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def event_handler_failed(self, kind: str) -> None:
        self.counts[kind] += 1


@pytest.mark.parametrize(
    ("added", "is_placed", "nomination"),
    [
        (pod("a", node="n"), True, None),
        (pod("a", nominated="n"), False, "n"),
        (pod("a"), False, None),
    ],
    ids=["assigned", "nominated", "pending"],
)
def test_a_pod_that_is_reported_once_is_known_with_its_node_and_its_nomination(
    added: Pod, is_placed: bool, nomination: str | None
) -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        scheduler = harness.scheduler
        scheduler.handlers.pod_added(added)
        assert scheduler.pods.get(added.metadata.uid) is not None
        assert (scheduler.cluster.placed_pod(added.metadata.uid) is not None) == is_placed
        assert (added.metadata.uid in scheduler.queue.pods) == (not is_placed)
        assert scheduler.cluster.nomination(added.metadata.uid) == nomination

    in_virtual_time(scenario, node("n"))


def test_a_finished_pod_that_is_reported_once_is_not_kept() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.scheduler.handlers.pod_added(pod("a", status={"phase": "Succeeded"}))
        assert list(harness.scheduler.pods.pods()) == []

    in_virtual_time(scenario)


def test_a_pod_that_cannot_be_decoded_is_reported_and_not_queued() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        handlers = harness.scheduler.handlers
        handlers.pod_added(pod("a", cpu="many"))
        assert [each.metadata.name for each in handlers.unreadable_objects] == ["a"]
        assert not harness.scheduler.queue.pods

    in_virtual_time(scenario)


def test_a_deleted_namespace_has_no_labels_any_more() -> None:
    failures = Failures()

    async def scenario(harness: SchedulerHarness) -> None:
        namespace = Namespace(metadata=ObjectMeta(name="tenant", labels={"team": "a"}))
        handlers, cluster = harness.scheduler.handlers, harness.scheduler.cluster
        handlers.apply(NAMESPACES, "ADDED", namespace)
        assert cluster.namespaces["tenant"]["team"] == "a"
        handlers.apply(NAMESPACES, "DELETED", namespace)
        assert "tenant" not in cluster.namespaces

    in_virtual_time(scenario, observer=failures)
    assert not failures.counts


class FailsOnce:
    """A method of the cluster cache that fails at its first call, before it does anything."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
        self._original, self.has_failed = getattr(Cluster, method), False
        monkeypatch.setattr(Cluster, method, lambda *args: self(*args))

    def __call__(self, *args: Any) -> Any:
        if not self.has_failed:
            self.has_failed = True
            raise KeyError("something inside")
        return self._original(*args)


@pytest.mark.parametrize(
    ("method", "event_type", "cpu"), [("update_node", "MODIFIED", [8000]), ("remove_node", "DELETED", [])]
)
def test_a_node_whose_handler_fails_is_made_anew(
    method: str, event_type: str, cpu: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    failures, failing = Failures(), FailsOnce(monkeypatch, method)

    async def scenario(harness: SchedulerHarness) -> None:
        harness.scheduler.handlers.apply(NODES, event_type, node("n", cpu="8"))
        assert harness.scheduler.cluster.all_nodes().allocatable("cpu").tolist() == cpu

    in_virtual_time(scenario, node("n", cpu="4"), observer=failures)
    assert failing.has_failed
    assert failures.counts == {"Node": 1}


def test_a_pod_gets_the_node_that_another_pod_is_no_longer_nominated_to() -> None:
    """The nomination ends in the other pod's status, without an attempt of this scheduler."""

    async def scenario(harness: SchedulerHarness) -> None:
        nowhere: dict[str, Any] = {"node_selector": {"there": "is none"}, "cpu": "4", "priority": 10}
        harness.cluster.put(pod("first", **nowhere))
        await harness.advance(1)
        harness.cluster.put(pod("first", nominated="n", **nowhere))
        harness.cluster.put(pod("second", cpu="4", priority=1))
        await harness.advance(20)
        assert harness.node_of("second") == ""
        harness.cluster.put(pod("first", **nowhere))
        await harness.settle()
        assert harness.node_of("second") == "n"

    in_virtual_time(scenario, node("n", cpu="4"))
