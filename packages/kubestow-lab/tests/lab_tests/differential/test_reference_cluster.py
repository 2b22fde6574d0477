"""Scenarios are played on an API server with a scheduler, here the embedded one with kubestow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from kubestow.cli.embedded import SchedulerArguments
from kubestow.client.rest.credentials import load_credentials
from kubestow.client.rest.transport import Transport
from kubestow.plugins import in_tree_registry
from kubestow.process import WallClock
from kubestow.rules.minors import DEFAULT_MINOR
from kubestow_devcluster.cluster import DevCluster
from kubestow_lab.conformance.observed_decisions import compare_observed
from kubestow_lab.differential.reference_cluster import ReferenceCluster, server_minor
from kubestow_lab.differential.scenarios import Scenario
from lab_tests.differential.test_fuzzing import TAINTED, node, pod

#: A test is not about what a scheduler misses that has not seen all objects yet.
SETTLE = 0.5


@pytest.fixture
async def cluster() -> AsyncIterator[ReferenceCluster]:
    async with DevCluster(kubelets=False) as server:
        app, ready = SchedulerArguments().create_app(), asyncio.Event()
        running = asyncio.create_task(app.run(kubeconfig="", master=server.url, on_ready=lambda scheduler: ready.set()))
        await ready.wait()
        credentials = await load_credentials("", master=server.url)
        async with Transport(credentials, clock=WallClock()) as transport:
            assert await server_minor(transport) == DEFAULT_MINOR
            played = ReferenceCluster(transport, DEFAULT_MINOR)
            await played.prepare()
            yield played
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


async def test_scenarios_are_played_one_after_another(cluster: ReferenceCluster) -> None:
    filling = pod("filling", nodeName="n", priority=0)
    filling["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "4"
    scenarios = [
        (TAINTED, "node"),
        (Scenario("test", {"nodes": [node("n", key="k", effect="NoSchedule")]}, pod("rejected")), "message"),
        (Scenario("test", {"nodes": [node("n")], "pods": [filling]}, pod("high", priority=100)), "victims"),
    ]
    for scenario, outcome in scenarios:
        case = await cluster.play(scenario, settle_seconds=SETTLE)
        assert case is not None and outcome in case.expect[0]["observed"]
        assert compare_observed(case, in_tree_registry(DEFAULT_MINOR)).verdict.agrees


async def test_what_the_api_server_rejects_is_left_out(cluster: ReferenceCluster) -> None:
    invalid = node("invalid", key="!", effect="NoSchedule")
    case = await cluster.play(Scenario("test", {"nodes": [invalid, node("n")]}, pod("p")), settle_seconds=SETTLE)
    assert case is not None and [each["metadata"]["name"] for each in case.cluster["nodes"]] == ["n"]
    assert await cluster.play(Scenario("test", {}, pod("Invalid")), settle_seconds=0) is None
