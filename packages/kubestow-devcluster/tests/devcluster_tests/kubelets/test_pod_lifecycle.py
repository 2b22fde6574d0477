"""The lifecycle of pods on simulated nodes, as ``kubectl get pods`` shows it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from devcluster_tests.client import PODS, Client, pod
from devcluster_tests.kubelet_scenarios import observed_states, phase, run_pod, run_scenario, run_simple_pod, status_of
from kubestow_devcluster.behaviour.pod_behaviour import (
    DURATION,
    EXIT_CODE,
    INIT_DURATION,
    INIT_EXIT_CODE,
    PULL_ERROR,
    READY,
    SHUTDOWN,
    START,
)
from kubestow_devcluster.kubelets.pod_lifecycle import crash_loop_back_off


def observe_pod(new: dict[str, Any], seconds: float, **annotations: str) -> list[str]:
    """The states of a pod over its first seconds on a node."""
    states: list[str] = []

    async def scenario(client: Client) -> None:
        await run_pod(client, new, **annotations)
        states.extend(await observed_states(client, seconds))

    run_scenario(scenario)
    return states


def with_init(*inits: dict[str, Any], **spec: Any) -> dict[str, Any]:
    new = pod(**spec)
    new["spec"]["initContainers"] = [{"name": f"i{number}", "image": "x", **init} for number, init in enumerate(inits)]
    return new


async def reasons(client: Client) -> list[str]:
    """The reasons of all events, oldest first."""
    events = (await client.get("/api/v1/namespaces/default/events")).json["items"]
    return [event["reason"] for event in sorted(events, key=lambda event: int(event["metadata"]["resourceVersion"]))]


def test_the_kubelet_records_events_about_a_pod() -> None:
    async def scenario(client: Client) -> None:
        await run_simple_pod(client)
        await asyncio.sleep(1)
        await client.delete(f"{PODS}/p")
        await asyncio.sleep(1)
        assert await reasons(client) == ["Pulled", "Created", "Started", "Killing"]

    run_scenario(scenario)


def test_a_pod_starts_and_becomes_ready_after_the_annotated_delays() -> None:
    states = observe_pod(pod(), 5, **{START: "1s", READY: "2s"})
    assert states == ["Pending 0/1", "ContainerCreating 0/1", "Running 0/1", "Running 1/1"]


def test_the_initial_delay_of_a_readiness_probe_delays_readiness() -> None:
    new = pod()
    new["spec"]["containers"][0]["readinessProbe"] = {"tcpSocket": {"port": 80}, "initialDelaySeconds": 3}
    assert observe_pod(new, 2)[-1] == "Running 0/1"
    assert observe_pod(new, 4)[-1] == "Running 1/1"


def test_a_pod_annotated_with_never_does_not_become_ready() -> None:
    assert observe_pod(pod(), 60, **{READY: "never"})[-1] == "Running 0/1"


def test_failed_containers_do_not_restart_with_restart_policy_never() -> None:
    states = observe_pod(pod(restartPolicy="Never"), 60, **{DURATION: "2s", EXIT_CODE: "3"})
    assert states[-2:] == ["Running 1/1", "Error 0/1"]


def test_a_container_that_keeps_failing_enters_crash_loop_back_off() -> None:
    async def scenario(client: Client) -> None:
        await run_simple_pod(client, **{DURATION: "1s", EXIT_CODE: "1"})
        states = await observed_states(client, 20)
        assert states[2:6] == ["Running 1/1", "Error 0/1", "Running 1/1", "CrashLoopBackOff 0/1"]
        status = await status_of(client)
        container = status["containerStatuses"][0]
        assert (status["phase"], container["restartCount"]) == ("Running", 2)
        assert container["lastState"]["terminated"]["exitCode"] == 1
        assert container["state"]["waiting"]["message"].startswith("back-off 20s restarting failed container=c pod=p_")
        table = (await client.get(f"{PODS}/p", accept="application/json;as=Table;v=v1;g=meta.k8s.io")).json
        assert table["rows"][0]["cells"][3] == "2 (6s ago)"
        assert (await reasons(client)).count("BackOff") == 2

    run_scenario(scenario)


def test_exit_codes_apply_to_successive_runs() -> None:
    new = pod(restartPolicy="OnFailure")
    states = observe_pod(new, 60, **{DURATION: "1s", EXIT_CODE: "1,0"})
    assert states[-1] == "Completed 0/1"


def test_init_containers_run_one_after_the_other() -> None:
    states = observe_pod(with_init({}, {}), 5, **{INIT_DURATION: "1s"})
    assert states == ["Pending 0/1", "Init:0/2 0/1", "Init:1/2 0/1", "PodInitializing 0/1", "Running 1/1"]


def test_an_init_container_that_keeps_failing_enters_crash_loop_back_off() -> None:
    states = observe_pod(with_init({}), 15, **{INIT_DURATION: "1s", INIT_EXIT_CODE: "1"})
    assert states[:4] == ["Pending 0/1", "Init:0/1 0/1", "Init:Error 0/1", "Init:0/1 0/1"]
    assert states[4] == "Init:CrashLoopBackOff 0/1"


def test_a_failing_init_container_fails_a_pod_with_restart_policy_never() -> None:
    states = observe_pod(with_init({}, restartPolicy="Never"), 15, **{INIT_EXIT_CODE: "1"})
    assert states[-1] == "Init:Error 0/1"


def test_a_sidecar_runs_until_the_main_containers_have_exited() -> None:
    states = observe_pod(with_init({"restartPolicy": "Always"}), 20, **{DURATION: "5s"})
    assert states[-2:] == ["Running 2/2", "Completed 0/2"]


def test_a_pod_fails_at_its_active_deadline() -> None:
    async def scenario(client: Client) -> None:
        await run_pod(client, pod(activeDeadlineSeconds=10))
        await asyncio.sleep(9)
        assert await phase(client) == "Running"
        await asyncio.sleep(2)
        status = await status_of(client)
        assert (status["phase"], status["reason"]) == ("Failed", "DeadlineExceeded")

    run_scenario(scenario)


def test_a_pod_is_not_ready_until_its_readiness_gate_is_true() -> None:
    async def scenario(client: Client) -> None:
        await run_pod(client, pod(readinessGates=[{"conditionType": "load-balanced"}]))
        await asyncio.sleep(1)
        ready = next(one for one in (await status_of(client))["conditions"] if one["type"] == "Ready")
        assert (ready["status"], ready["reason"]) == ("False", "ReadinessGatesNotReady")
        gate_true = {"status": {"conditions": [{"type": "load-balanced", "status": "True"}]}}
        await client.patch(f"{PODS}/p/status", gate_true, "strategic-merge-patch+json")
        await asyncio.sleep(1)
        assert {one["type"]: one["status"] for one in (await status_of(client))["conditions"]}["Ready"] == "True"

    run_scenario(scenario)


@pytest.mark.parametrize(("shutdown", "code"), [("1s", 143), ("1h", 137)])
def test_the_final_status_of_a_deleted_pod_has_the_exit_code(shutdown: str, code: int) -> None:
    async def scenario(client: Client) -> None:
        await run_simple_pod(client, **{SHUTDOWN: shutdown})
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

    run_scenario(scenario)


def test_an_invalid_annotation_is_ignored_and_recorded_as_an_event() -> None:
    async def scenario(client: Client) -> None:
        await run_simple_pod(client, **{START: "soon", EXIT_CODE: "-1"})
        await asyncio.sleep(1)
        assert await phase(client) == "Running"
        events = (await client.get("/api/v1/namespaces/default/events")).json["items"]
        messages = [event["message"] for event in events if event["reason"] == "InvalidAnnotation"]
        assert sorted(messages) == [
            "kubestow.dev/exit-code: '-1' is not a list of exit codes from 0 to 255; it is ignored",
            "kubestow.dev/start: 'soon' is not a duration such as 30s; it is ignored",
        ]

    run_scenario(scenario)


def with_command(*command: str, **spec: Any) -> dict[str, Any]:
    new = pod(**spec)
    new["spec"]["containers"][0]["command"] = list(command)
    return new


@pytest.mark.parametrize(
    ("command", "seconds", "last"),
    [
        (("false",), 60, "Error 0/1"),
        (("true",), 60, "Completed 0/1"),
        (("sleep", "30"), 20, "Running 1/1"),
        (("sleep", "30"), 40, "Completed 0/1"),
        (("sh", "-c", "sleep 5; exit 3"), 20, "Error 0/1"),
        (("sh", "-c", "while true; do work; done"), 60, "Running 1/1"),
    ],
)
def test_a_known_command_ends_as_it_would(command: tuple[str, ...], seconds: float, last: str) -> None:
    assert observe_pod(with_command(*command, restartPolicy="Never"), seconds)[-1] == last


def test_a_failing_command_is_restarted_with_back_off() -> None:
    assert observe_pod(with_command("sh", "-c", "exit 3"), 10)[-1] == "CrashLoopBackOff 0/1"


def test_annotations_take_precedence_over_commands() -> None:
    assert observe_pod(with_command("false"), 10, **{DURATION: "1h"})[-1] == "Running 1/1"


def test_an_init_container_that_sleeps_for_ever_holds_the_pod_back() -> None:
    assert observe_pod(with_init({"command": ["sleep", "infinity"]}), 60)[-1] == "Init:0/1 0/1"
    assert observe_pod(with_init({"command": ["false"]}, restartPolicy="Never"), 10)[-1] == "Init:Error 0/1"


def test_an_image_that_cannot_be_pulled_is_tried_again_until_it_can() -> None:
    async def scenario(client: Client) -> None:
        await run_simple_pod(client, **{PULL_ERROR: "not found"})
        states = await observed_states(client, 30)
        assert states[-2:] == ["ErrImagePull 0/1", "ImagePullBackOff 0/1"]
        status = await status_of(client)
        assert status["phase"] == "Pending"
        assert status["containerStatuses"][0]["state"]["waiting"]["message"] == (
            'Back-off pulling image "x:1": ErrImagePull: not found'
        )
        assert await reasons(client) == ["Pulling", "Failed", "Failed", "BackOff", "Failed"]
        await client.patch(f"{PODS}/p", {"metadata": {"annotations": {PULL_ERROR: None}}})
        await asyncio.sleep(2)
        assert await phase(client) == "Running"

    run_scenario(scenario)


def test_the_initial_delays_of_startup_and_readiness_probe_add_up() -> None:
    new = pod()
    for probe in ("startupProbe", "readinessProbe"):
        new["spec"]["containers"][0][probe] = {"tcpSocket": {"port": 80}, "initialDelaySeconds": 3}
    assert observe_pod(new, 5)[-1] == "Running 0/1"
    assert observe_pod(new, 8)[-1] == "Running 1/1"


@pytest.mark.parametrize(("seconds", "grace", "stops_after"), [(5, 30, 5.2), (60, 10, 10.2), (0, 30, 0.2), (5, 0, 0.2)])
def test_a_pre_stop_hook_sleeps_within_the_grace_period(seconds: int, grace: int, stops_after: float) -> None:
    new = pod()
    new["spec"]["containers"][0]["lifecycle"] = {"preStop": {"sleep": {"seconds": seconds}}}

    async def scenario(client: Client) -> None:
        await run_pod(client, new)
        await asyncio.sleep(1)
        await client.delete(f"{PODS}/p", {"gracePeriodSeconds": grace})
        await asyncio.sleep(max(stops_after - 0.1, 0.0))
        assert await phase(client) == ("Running" if grace else "deleted")
        await asyncio.sleep(0.2)
        assert await phase(client) == "deleted"

    run_scenario(scenario)


def test_the_back_off_doubles_up_to_five_minutes_and_is_reset_by_a_long_run() -> None:
    assert [crash_loop_back_off(runs, 1.0) for runs in range(1, 9)] == [0, 10, 20, 40, 80, 160, 300, 300]
    assert crash_loop_back_off(8, 600.0) == 0
