"""Bindings that are answered with success and that the watch does not show: what the server says of the pod decides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from msgspec.structs import replace

from kubestow.api.core import Pod
from kubestow.errors import APIError
from kubestow.rules.minors import Minor
from kubestow.scheduling.events.resources import PODS
from kubestow.scheduling.interfaces import ObjectReference
from kubestow.testing import MemoryCluster, node, pod
from kubestow.testing.scheduler_harness import SchedulerHarness, in_virtual_time


@dataclass
class _ForgetfulCluster(MemoryCluster):
    """Answers the first bindings with success and does nothing; then says of pods what ``answers`` make of them."""

    ignored: int = 1
    answers: Callable[[Pod], Pod | None] = field(default=lambda pod: pod)
    reads: int = 0

    async def bind(self, pod: ObjectReference, node_name: str) -> None:
        if self.ignored:
            self.ignored -= 1
            return
        await super().bind(pod, node_name)

    async def read_pod(self, pod: ObjectReference) -> Pod | None:
        self.reads += 1
        found = await super().read_pod(pod)
        return None if found is None else self.answers(found)


def _on(node_name: str) -> Callable[[Pod], Pod]:
    return lambda pod: replace(pod, spec=replace(pod.spec, node_name=node_name))


def test_a_pod_that_is_not_bound_is_scheduled_again(caplog: pytest.LogCaptureFixture) -> None:
    cluster = _ForgetfulCluster()

    async def scenario(harness: SchedulerHarness) -> None:
        cluster.put(pod("a", cpu="1"))
        await harness.advance(29.0)
        assert harness.node_of("a") == ""
        await harness.advance(20.0)
        assert harness.node_of("a") == "n"
        assert not list(harness.scheduler.cluster.assumed())

    in_virtual_time(scenario, node("n"), cluster=cluster)
    assert "answered the binding with success, and the pod is not bound; it is scheduled again" in caplog.text


def _succeeded(pod: Pod) -> Pod:
    return replace(_on("n")(pod), status=replace(pod.status, phase="Succeeded"))


@pytest.mark.parametrize("answer", [lambda pod: None, _succeeded], ids=["deleted", "succeeded"])
def test_the_resources_of_a_pod_that_is_gone_are_free_again(answer: Callable[[Pod], Pod | None]) -> None:
    cluster = _ForgetfulCluster(answers=answer)

    async def scenario(harness: SchedulerHarness) -> None:
        cluster.put(pod("a", cpu="3"))
        await harness.settle()
        cluster.put(pod("waits", cpu="3"))
        await harness.advance(40.0)
        assert harness.node_of("waits") == "n"

    in_virtual_time(scenario, node("n"), cluster=cluster)


def test_a_pod_that_is_on_another_node_takes_up_room_there(caplog: pytest.LogCaptureFixture) -> None:
    cluster = _ForgetfulCluster(answers=_on("other"))

    async def scenario(harness: SchedulerHarness) -> None:
        cluster.put(pod("a", cpu="3", node_selector={"kubernetes.io/hostname": "n"}))
        await harness.advance(40.0)
        placed = harness.scheduler.cluster.placed_pod("uid-default-a")
        assert placed is not None
        assert placed.node_name == "other"

    in_virtual_time(scenario, node("n"), node("other"), cluster=cluster)
    assert "Pod default/a was bound to node n, and is on node other" in caplog.text


def test_a_binding_that_only_the_watch_has_missed_stands() -> None:
    cluster = _ForgetfulCluster(answers=_on("n"))

    async def scenario(harness: SchedulerHarness) -> None:
        cluster.put(pod("a", cpu="3"))
        await harness.advance(400.0)
        assert harness.scheduler.cluster.is_assumed("uid-default-a")

    in_virtual_time(scenario, node("n"), cluster=cluster)


@pytest.mark.parametrize("minor", [Minor(36), Minor(34)], ids=str)
def test_a_pod_that_is_deleted_before_the_watch_has_shown_its_binding_frees_its_resources(minor: Minor) -> None:
    cluster = _ForgetfulCluster(answers=_on("n"))

    async def scenario(harness: SchedulerHarness) -> None:
        cluster.put(pod("a", cpu="3"))
        await harness.advance(40.0)
        cluster.remove(cluster.pod("a"))  # a pod without a node as far as the watch knows
        cluster.put(pod("waits", cpu="3"))
        await harness.advance(60.0)
        assert harness.node_of("waits") == "n"

    in_virtual_time(scenario, node("n"), cluster=cluster, minor=minor)


def test_a_read_that_fails_is_repeated() -> None:
    failures = [APIError(503, "ServiceUnavailable", "later"), APIError(403, "Forbidden", "no reading")]

    def answer(pod: Pod) -> Pod | None:
        if failures:
            raise failures.pop()
        return None

    cluster = _ForgetfulCluster(answers=answer)

    async def scenario(harness: SchedulerHarness) -> None:
        cluster.put(pod("a", cpu="3"))
        await harness.settle()
        cluster.put(pod("waits", cpu="3"))
        await harness.advance(150.0)
        assert harness.node_of("waits") == "n"

    in_virtual_time(scenario, node("n"), cluster=cluster)


def test_a_server_that_refuses_to_tell_leaves_the_pod_where_it_is(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(pod: Pod) -> Pod:
        raise APIError(403, "Forbidden", "no reading")

    cluster = _ForgetfulCluster(answers=refuse)

    async def scenario(harness: SchedulerHarness) -> None:
        cluster.put(pod("a", cpu="3"))
        await harness.advance(400.0)
        assert harness.scheduler.cluster.is_assumed("uid-default-a")

    in_virtual_time(scenario, node("n"), cluster=cluster)
    assert "default/a is unconfirmed" in caplog.text


def test_bindings_that_the_watch_shows_are_not_read() -> None:
    cluster = _ForgetfulCluster(ignored=0)

    async def scenario(harness: SchedulerHarness) -> None:
        for number in range(5):
            cluster.put(pod(f"p{number}", cpu="100m"))
        await harness.advance(100.0)
        assert cluster.reads == 0
        assert {pod.spec.node_name for _, pod in cluster._objects[PODS].items()} == {"n"}

    in_virtual_time(scenario, node("n"), cluster=cluster)
