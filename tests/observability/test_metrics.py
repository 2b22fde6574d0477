"""Every metric moves when what it measures happens, and a scrape is what Prometheus expects."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kubestow.cluster.pods.shapes import PodInfo
from kubestow.config import FeatureGates
from kubestow.errors import APIError, PluginError
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.interface import Permission, PermitPlugin
from kubestow.framework.status import Status
from kubestow.observability.metrics_recorder import MetricsRecorder
from kubestow.observability.observability import Observability
from kubestow.testing import node, nodes, pod
from kubestow.wall_clock import WallClock
from tests.observability.watched import Watched, samples, watching
from tests.plugins.dynamic_resources.devices import device_class, slice_of
from tests.scheduling.harness import Server

Story = Callable[[Watched], Awaitable[None]]


class Hesitant(PermitPlugin):
    """Holds every pod back for a second, and then refuses it."""

    name = "Hesitant"

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Permission:
        return Permission.wait(1.0)


async def a_pod_is_bound(watched: Watched) -> None:
    watched.world.cluster.put(pod("small", cpu="1"))
    await watched.world.settles()
    assert watched.world.node_of("small")


async def many_pods_are_bound(watched: Watched) -> None:
    for number in range(30):
        watched.world.cluster.put(pod(f"p{number}", cpu="10m"))
    await watched.world.settles()


async def a_pod_fits_nowhere(watched: Watched) -> None:
    watched.world.cluster.put(pod("big", cpu="100"))
    await watched.world.settles()


async def a_pod_waits_for_a_gate(watched: Watched) -> None:
    watched.world.cluster.put(pod("gated", gates=["quota"]))
    await watched.world.settles()


async def a_bind_fails(watched: Watched) -> None:
    watched.world.cluster.bind_failures.append(APIError(403, "Forbidden", "no"))
    watched.world.cluster.put(pod("small", cpu="1"))
    await watched.world.settles()


async def a_refused_pod_gets_room(watched: Watched) -> None:
    await a_pod_fits_nowhere(watched)
    watched.world.cluster.put(node("huge", cpu="200"))
    await watched.world.settles()
    assert watched.world.node_of("big") == "huge"


async def a_pod_preempts_another(watched: Watched) -> None:
    watched.world.cluster.put(pod("low", cpu="4", priority=0))
    await watched.world.settles()
    watched.world.cluster.put(pod("high", cpu="4", priority=10))
    await watched.world.passes(2)
    assert watched.world.node_of("high") == "n"


async def a_node_is_chosen(watched: Watched) -> None:
    watched.world.cluster.put(node("other"))
    await a_pod_is_bound(watched)


POINT = "framework_extension_point_duration_seconds"
MOVED: list[tuple[Story, str, dict[str, str]]] = [
    (a_pod_is_bound, "schedule_attempts_total", {"result": "scheduled", "profile": "default-scheduler"}),
    (a_pod_fits_nowhere, "schedule_attempts_total", {"result": "unschedulable"}),
    (a_bind_fails, "schedule_attempts_total", {"result": "error"}),
    (a_pod_is_bound, "scheduling_attempt_duration_seconds_count", {"result": "scheduled"}),
    (a_pod_is_bound, "scheduling_algorithm_duration_seconds_count", {}),
    (a_pod_is_bound, "pod_scheduling_sli_duration_seconds_count", {"attempts": "1"}),
    (a_refused_pod_gets_room, "pod_scheduling_sli_duration_seconds_count", {"attempts": "2"}),
    (a_pod_is_bound, "pod_scheduling_attempts_count", {}),
    (a_pod_is_bound, "queue_incoming_pods_total", {"queue": "active", "event": "UnschedulablePodAdd"}),
    (a_pod_fits_nowhere, "queue_incoming_pods_total", {"queue": "unschedulable", "event": "ScheduleAttemptFailure"}),
    (a_bind_fails, "queue_incoming_pods_total", {"queue": "backoff", "event": "ScheduleAttemptFailure"}),
    (a_refused_pod_gets_room, "queue_incoming_pods_total", {"queue": "backoff", "event": "NodeAdd"}),
    (a_refused_pod_gets_room, "queue_incoming_pods_total", {"queue": "active", "event": "PopFromBackoffQ"}),
    (a_pod_waits_for_a_gate, "queue_incoming_pods_total", {"queue": "unschedulable", "event": "UnschedulablePodAdd"}),
    (a_refused_pod_gets_room, "queueing_hint_execution_duration_seconds_count", {"event": "NodeAdd", "hint": "Queue"}),
    (a_pod_is_bound, "event_handling_duration_seconds_count", {"event": "UnschedulablePodAdd"}),
    (a_pod_is_bound, "event_handling_duration_seconds_count", {"event": "AssignedPodAdd"}),
    *[
        (
            a_node_is_chosen,
            f"{POINT}_count",
            {"extension_point": point, "status": code},
        )
        for point, code in {
            "PreEnqueue": "Success",
            "PreFilter": "Success",
            "Filter": "Success",
            "PreScore": "Success",
            "Score": "Success",
            "Reserve": "Success",
            "Permit": "Success",
            "PreBindPreFlight": "Skip",
            "Bind": "Success",
            "PostBind": "Success",
        }.items()
    ],
    (a_pod_fits_nowhere, f"{POINT}_count", {"extension_point": "PostFilter"}),
    (a_bind_fails, f"{POINT}_count", {"extension_point": "Bind", "status": "Error"}),
    (a_bind_fails, f"{POINT}_count", {"extension_point": "Unreserve"}),
    (many_pods_are_bound, "plugin_execution_duration_seconds_count", {"plugin": "NodeResourcesFit"}),
    (many_pods_are_bound, "plugin_execution_duration_seconds_count", {"extension_point": "Bind", "status": "Success"}),
    (a_pod_is_bound, "plugin_evaluation_total", {"plugin": "NodeResourcesFit", "extension_point": "Filter"}),
    (a_pod_preempts_another, "preemption_attempts_total", {}),
    (a_pod_preempts_another, "preemption_victims_count", {}),
    (a_pod_preempts_another, "preemption_goroutines_duration_seconds_count", {"result": "success"}),
    (a_pod_preempts_another, "preemption_goroutines_execution_total", {"result": "success"}),
    (a_pod_is_bound, "async_api_call_execution_total", {"call_type": "pod_binding", "result": "success"}),
    (a_pod_is_bound, "async_api_call_execution_duration_seconds_count", {"call_type": "pod_binding"}),
    (a_bind_fails, "async_api_call_execution_total", {"call_type": "pod_binding", "result": "error"}),
    (a_pod_fits_nowhere, "async_api_call_execution_total", {"call_type": "pod_status_patch", "result": "success"}),
    (a_pod_preempts_another, "async_api_call_execution_total", {"call_type": "pod_deletion", "result": "success"}),
    (a_pod_waits_for_a_gate, "pending_pods", {"queue": "gated"}),
    (a_pod_fits_nowhere, "pending_pods", {"queue": "unschedulable"}),
    (a_bind_fails, "pending_pods", {"queue": "backoff"}),
    (a_pod_fits_nowhere, "unschedulable_pods", {"plugin": "NodeResourcesFit", "profile": "default-scheduler"}),
    (a_node_is_chosen, "cache_size", {"type": "nodes"}),
    (a_pod_is_bound, "cache_size", {"type": "pods"}),
]


@pytest.mark.parametrize(("story", "name", "labels"), MOVED, ids=lambda value: getattr(value, "__name__", None))
def test_a_metric_moves_when_what_it_measures_happens(story: Story, name: str, labels: dict[str, str]) -> None:
    async def told(watched: Watched) -> None:
        before = watched.value(f"scheduler_{name}", **labels)
        await story(watched)
        assert watched.value(f"scheduler_{name}", **labels) > before

    watching(told, node("n", cpu="4"))


def test_writes_are_pending_until_they_are_answered() -> None:
    async def story(watched: Watched) -> None:
        watched.world.cluster.put(pod("big", cpu="100"))
        watched.world.cluster.put(pod("small", cpu="1"))
        await watched.world.settles()
        for kind in ("pod_status_patch", "pod_binding"):
            assert watched.value("scheduler_pending_async_api_calls", call_type=kind) == 1
        await watched.world.passes(2)
        assert watched.value("scheduler_pending_async_api_calls") == 0

    watching(story, node("n", cpu="4"), cluster=Server())


def test_a_pod_that_is_held_back_is_measured_when_that_ends() -> None:
    async def story(watched: Watched) -> None:
        watched.world.cluster.put(pod("held"))
        await watched.world.settles()
        assert watched.value("scheduler_goroutines", operation="binding") == 1
        assert watched.value("scheduler_cache_size", type="assumed_pods") == 1
        assert watched.value("scheduler_inflight_events", event="PodPopped") == 1
        await watched.world.passes(1.5)
        assert watched.value("scheduler_permit_wait_duration_seconds_count", result="Unschedulable") == 1
        assert 0.9 < watched.value("scheduler_permit_wait_duration_seconds_sum") < 1.1

    enabled = {"schedulerName": "default-scheduler", "plugins": {"permit": {"enabled": [{"name": "Hesitant"}]}}}
    watching(story, node("n"), plugins=[Hesitant], profiles=[enabled])


def test_a_pod_scheduled_only_after_five_minutes_shows_that_an_event_was_missed() -> None:
    async def story(watched: Watched) -> None:
        await a_pod_fits_nowhere(watched)
        watched.world.scheduler.handlers._move = lambda *told, **named: None  # type: ignore[method-assign]
        watched.world.cluster.put(node("huge", cpu="200"))
        await watched.world.passes(400)
        assert watched.world.node_of("big") == "huge"
        assert watched.value("scheduler_pod_scheduled_after_flush_total") == 1

    watching(story, node("n", cpu="4"))


def test_the_time_an_attempt_takes_is_that_of_the_injected_clock() -> None:
    async def story(watched: Watched) -> None:
        await a_pod_fits_nowhere(watched)
        await watched.world.passes(100)
        watched.world.cluster.put(node("huge", cpu="200"))
        await watched.world.settles()
        seconds = watched.value("scheduler_pod_scheduling_sli_duration_seconds_sum", attempts="2")
        assert 100 < seconds < 101

    watching(story, node("n", cpu="4"))


def test_every_metric_says_how_stable_it_is() -> None:
    async def story(watched: Watched) -> None:
        lines = watched.observability.scrape()[0].decode().splitlines()
        helps = [line for line in lines if line.startswith(("# HELP scheduler_", "# HELP kubernetes_"))]
        assert len(helps) > 20
        assert all(line.split(" ", 3)[3].startswith(("[STABLE] ", "[BETA] ", "[ALPHA] ")) for line in helps)

    watching(story, node("n"))


def test_a_deleted_history_begins_again_at_nothing() -> None:
    async def story(watched: Watched) -> None:
        await a_pod_is_bound(watched)
        watched.observability.metrics.clear()
        assert watched.value("scheduler_schedule_attempts_total") == 0
        assert watched.value("scheduler_scheduling_algorithm_duration_seconds_count") == 0

    watching(story, node("n"))


def test_a_feature_gate_is_shown_with_its_stage() -> None:
    async def story(watched: Watched) -> None:
        assert watched.value("kubernetes_feature_enabled", name="SchedulerPopFromBackoffQ", stage="BETA") == 1
        assert watched.value("kubernetes_feature_enabled", name="GangScheduling", stage="ALPHA") == 0

    watching(story)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool (Debian's prometheus) is not on this machine")
def test_promtool_finds_nothing_wrong() -> None:
    async def story(watched: Watched) -> None:
        await many_pods_are_bound(watched)
        scrapes.extend(scrape()[0] for scrape in (watched.observability.scrape, watched.observability.scrape_resources))

    scrapes: list[bytes] = []
    watching(story, *nodes(3))
    for text in scrapes:
        checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, check=False)
        assert (checked.returncode, checked.stderr.decode()) == (0, "")


def test_pods_resources_are_what_they_ask_for() -> None:
    async def story(watched: Watched) -> None:
        containers: list[dict[str, Any]] = [
            {"name": "c", "resources": {"requests": {"cpu": "250m"}, "limits": {"cpu": "1", "memory": "1Gi"}}}
        ]
        watched.world.cluster.put(pod("a", priority=7, spec={"containers": containers}))
        await watched.world.settles()
        found = samples(watched.observability.scrape_resources()[0])
        told = {
            (name, dict(labels)["resource"], dict(labels)["unit"], dict(labels)["node"]): value
            for (name, labels), value in found.items()
        }
        assert told == {
            ("kube_pod_resource_request", "cpu", "cores", "n"): 0.25,
            ("kube_pod_resource_limit", "cpu", "cores", "n"): 1.0,
            ("kube_pod_resource_limit", "memory", "bytes", "n"): 2.0**30,
        }

    watching(story, node("n"))


def test_who_leads_is_shown_from_the_start() -> None:
    async def story(watched: Watched) -> None:
        assert watched.value("leader_election_master_status", name="kube-scheduler") == 1

    watching(story)
    starting = samples(Observability(WallClock(), FeatureGates()).scrape()[0])
    assert starting["leader_election_master_status", frozenset({("name", "kube-scheduler")})] == 0


def test_disabled_metrics_are_not_exposed() -> None:
    observability = Observability(WallClock(), FeatureGates(), disabled_metrics=["scheduler_preemption_victims"])
    assert "scheduler_preemption_victims" not in observability.scrape()[0].decode()


def test_label_values_that_are_not_allowed_become_one() -> None:
    allowed = {"scheduler_queue_incoming_pods_total": {"event": frozenset({"NodeAdd"})}}
    metrics = Observability(WallClock(), FeatureGates(), allowed_labels=allowed).metrics
    for event in ("NodeAdd", "NodeUpdate", "NodeDelete"):
        metrics.incoming_pods.at("active", event).value += 1
    told = metrics.incoming_pods.collect().samples
    assert {sample.labels["event"]: sample.value for sample in told} == {"NodeAdd": 1, "unexpected": 2}


def test_requests_to_the_api_server_are_counted_by_outcome() -> None:
    observability = Observability(WallClock(), FeatureGates())
    observability.metrics.answered("GET", "api:6443", "200", 0.01)
    observability.metrics.answered("GET", "api:6443", "<error>", 30.0)
    found = samples(observability.scrape()[0])
    asked = {("method", "GET"), ("host", "api:6443")}
    assert found["rest_client_requests_total", frozenset({*asked, ("code", "200")})] == 1
    assert found["rest_client_requests_total", frozenset({*asked, ("code", "<error>")})] == 1


def test_openmetrics_is_spoken_to_those_who_ask_for_it() -> None:
    body, content_type = Observability(WallClock(), FeatureGates()).scrape(
        "application/openmetrics-text; version=1.0.0"
    )
    assert content_type.startswith("application/openmetrics-text")
    assert body.endswith(b"# EOF\n")


def test_claims_made_for_extended_resources_are_counted() -> None:
    async def story(watched: Watched) -> None:
        watched.world.cluster.put(pod("p", requests={"example.com/gpu": "1"}))
        await watched.world.settles()
        assert watched.world.node_of("p") == "n"
        assert watched.value("scheduler_resourceclaim_creates_total", status="success") == 1

    watching(story, node("n"), device_class("gpu", extendedResourceName="example.com/gpu"), slice_of("d0", node="n"))


def test_failures_of_volume_binding_are_counted_by_stage() -> None:
    recorder = MetricsRecorder(Observability(WallClock(), FeatureGates()).metrics)
    watcher = recorder.of_profile("default-scheduler")
    watcher.asked("VolumeBinding", "PreBind", Status.error("no"), 1.0)
    watcher.asked("VolumeBinding", "Reserve", PluginError("VolumeBinding", "Reserve", "no"), 1.0)
    watcher.asked("VolumeBinding", "Filter", Status.unschedulable("no"), 1.0)
    errors = recorder.metrics.volume_stage_errors
    assert [errors.at(stage).value for stage in ("predicate", "assume", "bind")] == [0, 1, 1]
