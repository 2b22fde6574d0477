"""Lives of pods on simulated nodes, as kubectl shows them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kubestow.devcluster.kubelets import DURATION, EXIT_CODE, INIT_DURATION, INIT_EXIT_CODE, READY, SHUTDOWN, START
from kubestow.devcluster.kubelets.pod_lifecycle import back_off
from tests.devcluster.client import PODS, Client, pod
from tests.devcluster.nodes import bound, phase, run_pod, seen, simulated, status_of


def lives(new: dict[str, Any], seconds: float, **annotations: str) -> list[str]:
    """What a pod is seen as over its first seconds on a node."""
    words: list[str] = []

    async def story(client: Client) -> None:
        await run_pod(client, new, **annotations)
        words.extend(await seen(client, seconds))

    simulated(story)
    return words


def with_init(*inits: dict[str, Any], **spec: Any) -> dict[str, Any]:
    new = pod(**spec)
    new["spec"]["initContainers"] = [{"name": f"i{number}", "image": "x", **init} for number, init in enumerate(inits)]
    return new


async def reasons(client: Client) -> list[str]:
    """What events tell, the oldest first."""
    events = (await client.get("/api/v1/namespaces/default/events")).json["items"]
    return [one["reason"] for one in sorted(events, key=lambda one: int(one["metadata"]["resourceVersion"]))]


def test_events_tell_what_the_kubelet_does() -> None:
    async def story(client: Client) -> None:
        await bound(client)
        await asyncio.sleep(1)
        await client.delete(f"{PODS}/p")
        await asyncio.sleep(1)
        assert await reasons(client) == ["Pulled", "Created", "Started", "Killing"]

    simulated(story)


def test_a_pod_is_created_started_and_ready_after_its_delays() -> None:
    words = lives(pod(), 5, **{START: "1s", READY: "2s"})
    assert words == ["Pending 0/1", "ContainerCreating 0/1", "Running 0/1", "Running 1/1"]


def test_a_readiness_probe_delays_readiness_as_it_says() -> None:
    new = pod()
    new["spec"]["containers"][0]["readinessProbe"] = {"tcpSocket": {"port": 80}, "initialDelaySeconds": 3}
    assert lives(new, 2)[-1] == "Running 0/1"
    assert lives(new, 4)[-1] == "Running 1/1"


def test_a_pod_may_never_become_ready() -> None:
    assert lives(pod(), 60, **{READY: "never"})[-1] == "Running 0/1"


def test_containers_of_a_pod_that_fails_are_not_started_again_under_never() -> None:
    words = lives(pod(restartPolicy="Never"), 60, **{DURATION: "2s", EXIT_CODE: "3"})
    assert words[-2:] == ["Running 1/1", "Error 0/1"]


def test_a_container_that_keeps_failing_crash_loops() -> None:
    async def story(client: Client) -> None:
        await bound(client, **{DURATION: "1s", EXIT_CODE: "1"})
        words = await seen(client, 20)
        assert words[2:6] == ["Running 1/1", "Error 0/1", "Running 1/1", "CrashLoopBackOff 0/1"]
        status = await status_of(client)
        container = status["containerStatuses"][0]
        assert (status["phase"], container["restartCount"]) == ("Running", 2)
        assert container["lastState"]["terminated"]["exitCode"] == 1
        assert container["state"]["waiting"]["message"].startswith("back-off 20s restarting failed container=c pod=p_")
        table = (await client.get(f"{PODS}/p", accept="application/json;as=Table;v=v1;g=meta.k8s.io")).json
        assert table["rows"][0]["cells"][3] == "2 (6s ago)"
        assert (await reasons(client)).count("BackOff") == 2

    simulated(story)


def test_exit_codes_are_those_of_one_run_after_the_other() -> None:
    new = pod(restartPolicy="OnFailure")
    words = lives(new, 60, **{DURATION: "1s", EXIT_CODE: "1,0"})
    assert words[-1] == "Completed 0/1"


def test_init_containers_run_one_after_the_other() -> None:
    words = lives(with_init({}, {}), 5, **{INIT_DURATION: "1s"})
    assert words == ["Pending 0/1", "Init:0/2 0/1", "Init:1/2 0/1", "PodInitializing 0/1", "Running 1/1"]


def test_an_init_container_that_keeps_failing_crash_loops() -> None:
    words = lives(with_init({}), 15, **{INIT_DURATION: "1s", INIT_EXIT_CODE: "1"})
    assert words[:4] == ["Pending 0/1", "Init:0/1 0/1", "Init:Error 0/1", "Init:0/1 0/1"]
    assert words[4] == "Init:CrashLoopBackOff 0/1"


def test_an_init_container_that_fails_under_never_fails_the_pod() -> None:
    words = lives(with_init({}, restartPolicy="Never"), 15, **{INIT_EXIT_CODE: "1"})
    assert words[-1] == "Init:Error 0/1"


def test_a_sidecar_runs_beside_the_containers_and_ends_with_them() -> None:
    words = lives(with_init({"restartPolicy": "Always"}), 20, **{DURATION: "5s"})
    assert words[-2:] == ["Running 2/2", "Completed 0/2"]


def test_a_pod_past_its_deadline_fails() -> None:
    async def story(client: Client) -> None:
        await run_pod(client, pod(activeDeadlineSeconds=10))
        await asyncio.sleep(9)
        assert await phase(client) == "Running"
        await asyncio.sleep(2)
        status = await status_of(client)
        assert (status["phase"], status["reason"]) == ("Failed", "DeadlineExceeded")

    simulated(story)


def test_a_readiness_gate_holds_readiness_back_until_it_is_met() -> None:
    async def story(client: Client) -> None:
        await run_pod(client, pod(readinessGates=[{"conditionType": "load-balanced"}]))
        await asyncio.sleep(1)
        ready = next(one for one in (await status_of(client))["conditions"] if one["type"] == "Ready")
        assert (ready["status"], ready["reason"]) == ("False", "ReadinessGatesNotReady")
        met = {"status": {"conditions": [{"type": "load-balanced", "status": "True"}]}}
        await client.patch(f"{PODS}/p/status", met, "strategic-merge-patch+json")
        await asyncio.sleep(1)
        assert {one["type"]: one["status"] for one in (await status_of(client))["conditions"]}["Ready"] == "True"

    simulated(story)


@pytest.mark.parametrize(("shutdown", "code"), [("1s", 143), ("1h", 137)])
def test_a_deleted_pod_says_how_its_containers_ended(shutdown: str, code: int) -> None:
    async def story(client: Client) -> None:
        await bound(client, **{SHUTDOWN: shutdown})
        await asyncio.sleep(1)
        version = (await client.get(PODS)).json["metadata"]["resourceVersion"]
        await client.delete(f"{PODS}/p", {"gracePeriodSeconds": 5})
        path = f"{PODS}?watch=true&resourceVersion={version}"
        async for event in client.watch(path):
            if event["type"] == "DELETED":
                break
        status = event["object"]["status"]
        assert status["phase"] == "Failed"
        assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == code

    simulated(story)


def test_what_an_annotation_says_wrongly_is_told_and_ignored() -> None:
    async def story(client: Client) -> None:
        await bound(client, **{START: "soon", EXIT_CODE: "-1"})
        await asyncio.sleep(1)
        assert await phase(client) == "Running"
        events = (await client.get("/api/v1/namespaces/default/events")).json["items"]
        wrong = [event["message"] for event in events if event["reason"] == "InvalidAnnotation"]
        assert sorted(wrong) == [
            "kubestow.dev/exit-code: '-1' is not a list of exit codes from 0 to 255; it is ignored",
            "kubestow.dev/start: 'soon' is not a duration such as 30s; it is ignored",
        ]

    simulated(story)


def test_the_back_off_doubles_up_to_five_minutes_and_is_forgotten_after_a_long_run() -> None:
    assert [back_off(runs, 1.0) for runs in range(1, 9)] == [0, 10, 20, 40, 80, 160, 300, 300]
    assert back_off(8, 600.0) == 0
