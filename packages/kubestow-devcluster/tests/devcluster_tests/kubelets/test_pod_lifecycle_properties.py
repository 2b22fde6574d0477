"""Invariants of the pod lifecycle, for all combinations of containers and behaviours."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kubestow_devcluster.apiserver.kinds.object_fields import update_pod_condition
from kubestow_devcluster.behaviour.pod_behaviour import PodBehaviour
from kubestow_devcluster.kubelets.pod_lifecycle import apply_step, next_step, terminate_pod

START = datetime(2026, 1, 1, tzinfo=UTC)
STEPS = 40

seconds = st.sampled_from([0.0, 0.2, 1.0, 5.0, 700.0])
codes = st.lists(st.sampled_from([0, 0, 1, 137]), min_size=1, max_size=3).map(tuple)
behaviours = st.builds(
    PodBehaviour,
    start=seconds,
    ready=st.none() | seconds | st.just(float("inf")),
    duration=st.none() | seconds,
    exit_codes=st.none() | codes,
    init_duration=seconds,
    init_exit_codes=codes,
)


@st.composite
def pods(draw: st.DrawFn) -> dict[str, Any]:
    containers = [{"name": f"c{number}"} for number in range(draw(st.integers(1, 3)))]
    inits: list[dict[str, Any]] = [{"name": f"i{number}"} for number in range(draw(st.integers(0, 3)))]
    for init in inits:
        if draw(st.booleans()):
            init["restartPolicy"] = "Always"
    spec: dict[str, Any] = {
        "containers": containers,
        "restartPolicy": draw(st.sampled_from(["Always", "OnFailure", "Never"])),
    }
    if inits:
        spec["initContainers"] = inits
    if draw(st.booleans()):
        spec["activeDeadlineSeconds"] = draw(st.sampled_from([1, 60]))
    if draw(st.booleans()):
        spec["readinessGates"] = [{"conditionType": "gate"}]
    return {"metadata": {"name": "p", "namespace": "default", "uid": "u"}, "spec": spec, "status": {"phase": "Pending"}}


def format_time(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


def is_ready(pod: dict[str, Any]) -> bool:
    return any(
        condition["type"] == "Ready" and condition["status"] == "True"
        for condition in pod["status"].get("conditions") or ()
    )


def restarts(pod: dict[str, Any]) -> list[int]:
    status = pod["status"]
    return [
        container["restartCount"]
        for container in (*status.get("initContainerStatuses", ()), *status["containerStatuses"])
    ]


@given(pods(), behaviours, st.integers(0, STEPS))
def test_steps_make_progress_and_do_not_spin(pod: dict[str, Any], behaviour: PodBehaviour, gate_after: int) -> None:
    now, waited, immediate_steps, restarts_before = START, 0.0, 0, [0] * 9
    for number in range(STEPS):
        step = next_step(pod, behaviour, now)
        if step is None:
            break
        assert step.delay >= 0
        immediate_steps = immediate_steps + 1 if step.delay < 0.2 else 0
        assert immediate_steps < 12, "steps without delay would keep the kubelet busy"
        waited += step.delay
        now = START + timedelta(seconds=waited)
        apply_step(pod, step, behaviour, format_time(now))
        restarts_after = restarts(pod)
        assert all(old <= new for old, new in zip(restarts_before, restarts_after, strict=False))
        restarts_before = restarts_after
        if number == gate_after:
            update_pod_condition(pod["status"], {"type": "gate", "status": "True"}, format_time(now))
    if is_ready(pod):
        assert pod["status"]["phase"] == "Running"
        assert all(
            container["ready"] and "running" in container["state"] for container in pod["status"]["containerStatuses"]
        )


@given(pods(), behaviours, st.integers(0, STEPS))
def test_a_terminated_pod_has_no_running_container_and_no_next_step(
    pod: dict[str, Any], behaviour: PodBehaviour, steps: int
) -> None:
    now = START
    for _ in range(steps):
        step = next_step(pod, behaviour, now)
        if step is None:
            break
        now += timedelta(seconds=step.delay)
        apply_step(pod, step, behaviour, format_time(now))
    terminate_pod(pod, format_time(now))
    assert pod["status"]["phase"] in ("Succeeded", "Failed")
    assert next_step(pod, behaviour, now) is None
    assert not is_ready(pod)
    assert all("terminated" in container["state"] for container in pod["status"].get("containerStatuses", ()))
