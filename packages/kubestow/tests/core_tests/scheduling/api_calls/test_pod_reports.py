"""Conditions and events of pods, with a server that takes a second per request."""

from __future__ import annotations

from core_tests.scheduling.api_calls.harness import Response, ScriptedCluster, api_error, unreachable
from kubestow.testing import node, pod
from kubestow.testing.scheduler_harness import SchedulerHarness, in_virtual_time


def test_a_pod_bound_by_another_client_gets_no_more_patches() -> None:
    server = ScriptedCluster()

    async def scenario(harness: SchedulerHarness) -> None:
        server.responses = [Response(seconds=5)]
        server.put(pod("p", cpu="8"))
        await harness.settle()
        server.put(node("m", cpu="8", taints=["dedicated=yes:NoSchedule"]))
        await harness.advance(3)
        assert [event.note.split()[0] for event in server.events] == ["0/1", "0/2"]
        server.put(pod("p", cpu="8", node="elsewhere"))
        await harness.advance(5)
        assert [what.split()[0] for _, what in server.received] == ["0/1"]

    in_virtual_time(scenario, node("n", cpu="4"), cluster=server)


def test_a_binding_waits_for_the_unschedulable_condition_in_flight() -> None:
    server = ScriptedCluster()

    async def scenario(harness: SchedulerHarness) -> None:
        server.put(pod("p", cpu="8"))
        await harness.settle()
        server.put(node("m", cpu="8"))
        await harness.advance(5)
        assert [what.split()[0] for _, what in server.received] == ["0/1", "bind"]
        assert server.received[1][0] - server.received[0][0] >= 1.0

    in_virtual_time(scenario, node("n", cpu="4"), cluster=server)


def test_a_failed_binding_is_the_only_condition_that_is_reported() -> None:
    server = ScriptedCluster()

    async def scenario(harness: SchedulerHarness) -> None:
        server.responses = [Response(failure=api_error(403)), Response(failure=unreachable()), Response()]
        server.put(pod("p"))
        await harness.advance(3)
        message = 'running Bind plugin "DefaultBinder": rejected with 403'
        assert [what for _, what in server.received][:3] == ["bind to n", message, message]
        assert server.violations == []

    in_virtual_time(scenario, node("n"), cluster=server)
