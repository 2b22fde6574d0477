"""What holds of every life of a pod, whatever it is made of and however it behaves."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kubestow.devcluster.apiserver.resources.pods import set_condition
from kubestow.devcluster.kubelets.behaviour import Behaviour
from kubestow.devcluster.kubelets.pod_lifecycle import end_pod, next_step, take_step

START = datetime(2026, 1, 1, tzinfo=UTC)
STEPS = 40

seconds = st.sampled_from([0.0, 0.2, 1.0, 5.0, 700.0])
codes = st.lists(st.sampled_from([0, 0, 1, 137]), min_size=1, max_size=3).map(tuple)
behaviours = st.builds(
    Behaviour,
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


def written(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def ready(pod: dict[str, Any]) -> bool:
    return any(one["type"] == "Ready" and one["status"] == "True" for one in pod["status"].get("conditions") or ())


def restarts(pod: dict[str, Any]) -> list[int]:
    status = pod["status"]
    return [one["restartCount"] for one in (*status.get("initContainerStatuses", ()), *status["containerStatuses"])]


@given(pods(), behaviours, st.integers(0, STEPS))
def test_a_life_goes_forward_and_never_spins(pod: dict[str, Any], behaviour: Behaviour, gate_at: int) -> None:
    moment, waited, instant, before = START, 0.0, 0, [0] * 9
    for number in range(STEPS):
        step = next_step(pod, behaviour, moment)
        if step is None:
            break
        assert step.delay >= 0
        instant = instant + 1 if step.delay < 0.2 else 0
        assert instant < 12, "a pod that does not wait for anything would keep its node busy for ever"
        waited += step.delay
        moment = START + timedelta(seconds=waited)
        take_step(pod, step, behaviour, written(moment))
        now = restarts(pod)
        assert all(old <= new for old, new in zip(before, now, strict=False))
        before = now
        if number == gate_at:
            set_condition(pod["status"], {"type": "gate", "status": "True"}, written(moment))
    if ready(pod):
        assert pod["status"]["phase"] == "Running"
        assert all(one["ready"] and "running" in one["state"] for one in pod["status"]["containerStatuses"])


@given(pods(), behaviours, st.integers(0, STEPS))
def test_a_pod_that_is_ended_has_nothing_running_and_nothing_ahead(
    pod: dict[str, Any], behaviour: Behaviour, after: int
) -> None:
    moment = START
    for _ in range(after):
        step = next_step(pod, behaviour, moment)
        if step is None:
            break
        moment += timedelta(seconds=step.delay)
        take_step(pod, step, behaviour, written(moment))
    end_pod(pod, written(moment))
    assert pod["status"]["phase"] in ("Succeeded", "Failed")
    assert next_step(pod, behaviour, moment) is None
    assert not ready(pod)
    assert all("terminated" in one["state"] for one in pod["status"].get("containerStatuses", ()))
