"""Events about objects that cannot be decoded."""

from __future__ import annotations

import asyncio

from core_tests.client.subscribers import RESOURCE_CLAIMS
from core_tests.scheduling.test_leadership import ScriptedElection, candidate, run_scenario
from kubestow.api.meta import ObjectMeta
from kubestow.scheduling.events.resources import NODES, PODS
from kubestow.scheduling.interfaces import EventRecord, ObjectReference
from kubestow.testing import MemoryCluster
from kubestow.testing.scheduler_harness import SchedulerHarness, in_virtual_time


def broken(name: str, *, generation: int = 1, version: str = "7") -> ObjectMeta:
    return ObjectMeta(name=name, namespace="tenant", uid=f"uid-{name}", generation=generation, resource_version=version)


def notes(cluster: MemoryCluster) -> list[tuple[str, str]]:
    return [(event.regarding.name, event.note) for event in cluster.events if event.reason == "FailedDecoding"]


def test_an_event_names_the_object_and_the_problem() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.scheduler.handlers.unreadable(RESOURCE_CLAIMS, broken("claim"), "spec: expected an object")
        assert harness.cluster.events == [
            EventRecord(
                ObjectReference("ResourceClaim", "tenant", "claim", "uid-claim", "resource.k8s.io/v1", "7"),
                "FailedDecoding",
                "Decoding",
                "the scheduler cannot decode the object: spec: expected an object",
                "Warning",
            )
        ]

    in_virtual_time(scenario)


def test_there_is_one_event_for_each_generation_of_an_object() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        unreadable = harness.scheduler.handlers.unreadable
        for version in range(5):  # of its status or annotations
            unreadable(PODS, broken("a", version=str(version)), f"problem {version}")
        unreadable(PODS, broken("a", generation=2), "problem of the next generation")
        assert notes(harness.cluster) == [
            ("a", "the scheduler cannot decode the object: problem 0"),
            ("a", "the scheduler cannot decode the object: problem of the next generation"),
        ]

    in_virtual_time(scenario)


def test_objects_without_an_identity_or_a_namespace_have_no_events() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.scheduler.handlers.unreadable(PODS, ObjectMeta(), "not an object")
        harness.scheduler.handlers.unreadable(NODES, ObjectMeta(name="n", uid="uid-n"), "spec: expected an object")
        assert harness.cluster.events == []

    in_virtual_time(scenario)


def test_events_are_limited_whatever_the_number_of_objects() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        for number in range(1000):
            harness.scheduler.handlers.unreadable(PODS, broken(f"a-{number}"), "problem")
        assert len(notes(harness.cluster)) == 20
        await asyncio.sleep(60)
        for number in range(1000):
            harness.scheduler.handlers.unreadable(PODS, broken(f"b-{number}"), "problem")
        assert len(notes(harness.cluster)) == 40

    in_virtual_time(scenario)


def test_a_standby_reports_when_it_leads() -> None:
    async def scenario(cluster: MemoryCluster, lead: ScriptedElection) -> None:
        async with candidate(cluster, lead) as (scheduler, _):
            scheduler.handlers.unreadable(PODS, broken("a"), "problem")
            await asyncio.sleep(10)
            assert cluster.events == []
            lead.won.set()
            await asyncio.sleep(1)
            assert notes(cluster) == [("a", "the scheduler cannot decode the object: problem")]

    run_scenario(scenario)
