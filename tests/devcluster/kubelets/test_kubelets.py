"""Simulated nodes under virtual time."""

from __future__ import annotations

import asyncio

import pytest

from kubestow.devcluster.kubelets import DURATION, SHUTDOWN
from kubestow.devcluster.kubelets.behaviour import Behaviour
from tests.devcluster.client import NODES, PODS, Client, node, pod
from tests.devcluster.nodes import bound, phase, simulated


def test_a_node_becomes_ready_and_loses_its_taint() -> None:
    async def story(client: Client) -> None:
        await client.post(NODES, node("n"))
        await asyncio.sleep(1)
        shown = (await client.get(f"{NODES}/n")).json
        assert "taints" not in shown["spec"]
        assert {c["type"]: c["status"] for c in shown["status"]["conditions"] if c["type"] == "Ready"} == {
            "Ready": "True"
        }

    simulated(story)


def test_a_cordoned_node_is_tainted_until_it_is_uncordoned() -> None:
    async def story(client: Client) -> None:
        await client.post(NODES, node("n"))
        for unschedulable, keys in ((True, ["node.kubernetes.io/unschedulable"]), (None, [])):
            await client.patch(f"{NODES}/n", {"spec": {"unschedulable": unschedulable}})
            await asyncio.sleep(1)
            spec = (await client.get(f"{NODES}/n")).json["spec"]
            assert [taint["key"] for taint in spec.get("taints", [])] == keys

    simulated(story)


def test_a_bound_pod_runs_and_is_ready() -> None:
    async def story(client: Client) -> None:
        await bound(client)
        assert await phase(client) == "Pending"
        await asyncio.sleep(1)
        status = (await client.get(f"{PODS}/p")).json["status"]
        ready = {c["type"]: c["status"] for c in status["conditions"]}
        assert (status["phase"], ready["Ready"], ready["PodScheduled"]) == ("Running", "True", "True")
        assert status["podIP"] and status["startTime"] and status["containerStatuses"][0]["ready"]

    simulated(story)


def test_a_pod_with_a_duration_succeeds_after_it() -> None:
    async def story(client: Client) -> None:
        await bound(client, **{DURATION: "30s"})
        await asyncio.sleep(29)
        assert await phase(client) == "Running"
        await asyncio.sleep(2)
        assert await phase(client) == "Succeeded"

    simulated(story)


def test_a_pod_without_a_node_never_starts() -> None:
    async def story(client: Client) -> None:
        await client.post(PODS, pod("p", nodeName="nowhere"))
        await asyncio.sleep(60)
        assert await phase(client) == "Pending"
        await client.post(NODES, node("nowhere"))
        await asyncio.sleep(1)
        assert await phase(client) == "Running"

    simulated(story)


@pytest.mark.parametrize(("shutdown", "grace", "gone_after"), [("", 30, 1), ("10s", 30, 11), ("1h", 5, 6)])
def test_a_deleted_pod_goes_when_its_containers_have_stopped(shutdown: str, grace: int, gone_after: int) -> None:
    async def story(client: Client) -> None:
        await bound(client, **({SHUTDOWN: shutdown} if shutdown else {}))
        await asyncio.sleep(1)
        await client.delete(f"{PODS}/p", {"gracePeriodSeconds": grace})
        assert await phase(client) == "Running"
        await asyncio.sleep(gone_after)
        assert await phase(client) == "gone"

    simulated(story)


def test_a_pod_made_again_under_the_same_name_is_another_pod() -> None:
    async def story(client: Client) -> None:
        await bound(client, **{DURATION: "10s"})
        await asyncio.sleep(5)
        await client.delete(f"{PODS}/p", {"gracePeriodSeconds": 0})
        await bound(client)
        await asyncio.sleep(60)
        assert await phase(client) == "Running", "the first pod's duration is not the second's"

    simulated(story)


@pytest.mark.parametrize(("text", "seconds"), [("1h30m", 5400.0), ("250ms", 0.25), ("0", 0.0)])
def test_durations_are_gos(text: str, seconds: float) -> None:
    behaviour = Behaviour.of({"metadata": {"annotations": {DURATION: text}}})
    assert (behaviour.duration, behaviour.problems) == (seconds, ())


@pytest.mark.parametrize("text", ["30", "", "-1s", "x"])
def test_what_is_no_duration_is_told_and_ignored(text: str) -> None:
    behaviour = Behaviour.of({"metadata": {"annotations": {DURATION: text}}})
    assert behaviour.duration is None
    assert behaviour.problems == (f"{DURATION}: {text!r} is not a duration such as 30s; it is ignored",)
