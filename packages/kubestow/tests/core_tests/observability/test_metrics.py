"""Every metric changes with what it measures, and a scrape has the format that Prometheus expects."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Awaitable, Callable
from importlib.resources import files
from typing import Any

import msgspec
import pytest

from core_tests.observability.harness import Observed, observe, samples
from core_tests.scheduling.api_calls.harness import ScriptedCluster
from kubestow import observability as observability_package
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.config import FeatureGates
from kubestow.errors import APIError, PluginError
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.interface import Permission, PermitPlugin
from kubestow.framework.status import Status
from kubestow.observability.metrics_recorder import MetricsRecorder
from kubestow.observability.observability import Observability
from kubestow.process import WallClock
from kubestow.testing import node, nodes, pod
from kubestow.testing.devices import device_class, slice_of

Scenario = Callable[[Observed], Awaitable[None]]


class WaitOnPermit(PermitPlugin):
    """Every pod waits on permit until a timeout of one second."""

    name = "WaitOnPermit"

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Permission:
        return Permission.wait(1.0)


async def a_pod_is_bound(observed: Observed) -> None:
    observed.harness.cluster.put(pod("small", cpu="1"))
    await observed.harness.settle()
    assert observed.harness.node_of("small")


async def many_pods_are_bound(observed: Observed) -> None:
    for number in range(30):
        observed.harness.cluster.put(pod(f"p{number}", cpu="10m"))
    await observed.harness.settle()


async def a_pod_fits_nowhere(observed: Observed) -> None:
    observed.harness.cluster.put(pod("big", cpu="100"))
    await observed.harness.settle()


async def a_pod_is_gated(observed: Observed) -> None:
    observed.harness.cluster.put(pod("gated", gates=["quota"]))
    await observed.harness.settle()


async def a_bind_fails(observed: Observed) -> None:
    observed.harness.cluster.bind_failures.append(APIError(403, "Forbidden", "no"))
    observed.harness.cluster.put(pod("small", cpu="1"))
    await observed.harness.settle()


async def a_node_is_added_for_an_unschedulable_pod(observed: Observed) -> None:
    await a_pod_fits_nowhere(observed)
    observed.harness.cluster.put(node("huge", cpu="200"))
    await observed.harness.settle()
    assert observed.harness.node_of("big") == "huge"


async def a_pod_preempts_another(observed: Observed) -> None:
    observed.harness.cluster.put(pod("low", cpu="4", priority=0))
    await observed.harness.settle()
    observed.harness.cluster.put(pod("high", cpu="4", priority=10))
    await observed.harness.advance(2)
    assert observed.harness.node_of("high") == "n"


async def a_pod_is_bound_to_one_of_two_nodes(observed: Observed) -> None:
    observed.harness.cluster.put(node("other"))
    await a_pod_is_bound(observed)


POINT = "framework_extension_point_duration_seconds"
CHANGES: list[tuple[Scenario, str, dict[str, str]]] = [
    (a_pod_is_bound, "schedule_attempts_total", {"result": "scheduled", "profile": "default-scheduler"}),
    (a_pod_fits_nowhere, "schedule_attempts_total", {"result": "unschedulable"}),
    (a_bind_fails, "schedule_attempts_total", {"result": "error"}),
    (a_pod_is_bound, "scheduling_attempt_duration_seconds_count", {"result": "scheduled"}),
    (a_pod_is_bound, "scheduling_algorithm_duration_seconds_count", {}),
    (a_pod_is_bound, "pod_scheduling_sli_duration_seconds_count", {"attempts": "1"}),
    (a_node_is_added_for_an_unschedulable_pod, "pod_scheduling_sli_duration_seconds_count", {"attempts": "2"}),
    (a_pod_is_bound, "pod_scheduling_attempts_count", {}),
    (a_pod_is_bound, "queue_incoming_pods_total", {"queue": "active", "event": "UnschedulablePodAdd"}),
    (a_pod_fits_nowhere, "queue_incoming_pods_total", {"queue": "unschedulable", "event": "ScheduleAttemptFailure"}),
    (a_bind_fails, "queue_incoming_pods_total", {"queue": "backoff", "event": "ScheduleAttemptFailure"}),
    (a_node_is_added_for_an_unschedulable_pod, "queue_incoming_pods_total", {"queue": "backoff", "event": "NodeAdd"}),
    (
        a_node_is_added_for_an_unschedulable_pod,
        "queue_incoming_pods_total",
        {"queue": "active", "event": "PopFromBackoffQ"},
    ),
    (a_pod_is_gated, "queue_incoming_pods_total", {"queue": "unschedulable", "event": "UnschedulablePodAdd"}),
    (
        a_node_is_added_for_an_unschedulable_pod,
        "queueing_hint_execution_duration_seconds_count",
        {"event": "NodeAdd", "hint": "Queue"},
    ),
    (a_pod_is_bound, "event_handling_duration_seconds_count", {"event": "UnschedulablePodAdd"}),
    (a_pod_is_bound, "event_handling_duration_seconds_count", {"event": "AssignedPodAdd"}),
    *[
        (
            a_pod_is_bound_to_one_of_two_nodes,
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
    (a_pod_is_gated, "pending_pods", {"queue": "gated"}),
    (a_pod_fits_nowhere, "pending_pods", {"queue": "unschedulable"}),
    (a_bind_fails, "pending_pods", {"queue": "backoff"}),
    (a_pod_fits_nowhere, "unschedulable_pods", {"plugin": "NodeResourcesFit", "profile": "default-scheduler"}),
    (a_pod_is_bound_to_one_of_two_nodes, "cache_size", {"type": "nodes"}),
    (a_pod_is_bound, "cache_size", {"type": "pods"}),
]


@pytest.mark.parametrize(("scenario", "name", "labels"), CHANGES, ids=lambda value: getattr(value, "__name__", None))
def test_a_metric_changes_with_what_it_measures(scenario: Scenario, name: str, labels: dict[str, str]) -> None:
    async def compare(observed: Observed) -> None:
        before = observed.value(f"scheduler_{name}", **labels)
        await scenario(observed)
        assert observed.value(f"scheduler_{name}", **labels) > before

    observe(compare, node("n", cpu="4"))


def test_writes_are_pending_until_the_response() -> None:
    async def scenario(observed: Observed) -> None:
        observed.harness.cluster.put(pod("big", cpu="100"))
        observed.harness.cluster.put(pod("small", cpu="1"))
        await observed.harness.settle()
        for kind in ("pod_status_patch", "pod_binding"):
            assert observed.value("scheduler_pending_async_api_calls", call_type=kind) == 1
        await observed.harness.advance(2)
        assert observed.value("scheduler_pending_async_api_calls") == 0

    observe(scenario, node("n", cpu="4"), cluster=ScriptedCluster())


def test_the_permit_wait_duration_is_recorded_at_its_end() -> None:
    async def scenario(observed: Observed) -> None:
        observed.harness.cluster.put(pod("waiting"))
        await observed.harness.settle()
        assert observed.value("scheduler_goroutines", operation="binding") == 1
        assert observed.value("scheduler_cache_size", type="assumed_pods") == 1
        assert observed.value("scheduler_inflight_events", event="PodPopped") == 1
        await observed.harness.advance(1.5)
        assert observed.value("scheduler_permit_wait_duration_seconds_count", result="Unschedulable") == 1
        assert 0.9 < observed.value("scheduler_permit_wait_duration_seconds_sum") < 1.1

    enabled = {"schedulerName": "default-scheduler", "plugins": {"permit": {"enabled": [{"name": "WaitOnPermit"}]}}}
    observe(scenario, node("n"), plugins=[WaitOnPermit], profiles=[enabled])


def test_a_pod_scheduled_after_the_flush_is_counted() -> None:
    async def scenario(observed: Observed) -> None:
        await a_pod_fits_nowhere(observed)
        observed.harness.scheduler.handlers._move = lambda *args, **kwargs: None  # type: ignore[method-assign]
        observed.harness.cluster.put(node("huge", cpu="200"))
        await observed.harness.advance(400)
        assert observed.harness.node_of("big") == "huge"
        assert observed.value("scheduler_pod_scheduled_after_flush_total") == 1

    observe(scenario, node("n", cpu="4"))


def test_durations_are_those_of_the_injected_clock() -> None:
    async def scenario(observed: Observed) -> None:
        await a_pod_fits_nowhere(observed)
        await observed.harness.advance(100)
        observed.harness.cluster.put(node("huge", cpu="200"))
        await observed.harness.settle()
        seconds = observed.value("scheduler_pod_scheduling_sli_duration_seconds_sum", attempts="2")
        assert 100 < seconds < 101

    observe(scenario, node("n", cpu="4"))


def test_every_help_text_has_a_stability_level() -> None:
    async def scenario(observed: Observed) -> None:
        lines = observed.observability.scrape()[0].decode().splitlines()
        helps = [line for line in lines if line.startswith(("# HELP scheduler_", "# HELP kubernetes_"))]
        assert len(helps) > 20
        assert all(line.split(" ", 3)[3].startswith(("[STABLE] ", "[BETA] ", "[ALPHA] ")) for line in helps)

    observe(scenario, node("n"))


def test_metrics_that_kubernetes_defines_are_of_the_type_that_it_says() -> None:
    types = msgspec.json.decode((files(observability_package) / "kubernetes_metrics.json").read_bytes())["metrics"]
    families = {family.name: family for family in Observability(WallClock(), FeatureGates()).metrics.families}
    own = {
        "kubernetes_build_info",
        "kubestow_event_handler_failures_total",
        "kubestow_events_dropped_total",
        "kubestow_traced_attempts_total",
        "kubestow_log_lines_dropped_total",
        "kubestow_partition_hand_overs_total",
        "kubestow_partition_held",
        "kubestow_partition_offers_total",
        "kubestow_slow_attempts_total",
        "kubestow_undecodable_objects",
        "kubestow_watch_broken_seconds",
    }
    assert families.keys() - types.keys() == own
    for name in families.keys() & types.keys():
        assert type(families[name]).__name__ == types[name]["type"]


def test_a_reset_sets_all_metrics_to_zero() -> None:
    async def scenario(observed: Observed) -> None:
        await a_pod_is_bound(observed)
        observed.observability.metrics.reset()
        assert observed.value("scheduler_schedule_attempts_total") == 0
        assert observed.value("scheduler_scheduling_algorithm_duration_seconds_count") == 0

    observe(scenario, node("n"))


def test_a_feature_gate_is_exposed_with_its_stage() -> None:
    async def scenario(observed: Observed) -> None:
        assert observed.value("kubernetes_feature_enabled", name="SchedulerPopFromBackoffQ", stage="BETA") == 1
        assert observed.value("kubernetes_feature_enabled", name="GangScheduling", stage="ALPHA") == 0

    observe(scenario)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool (Debian package prometheus) is not installed")
def test_promtool_accepts_the_metrics() -> None:
    async def scenario(observed: Observed) -> None:
        await many_pods_are_bound(observed)
        scrapes.extend(
            scrape()[0] for scrape in (observed.observability.scrape, observed.observability.scrape_resources)
        )

    scrapes: list[bytes] = []
    observe(scenario, *nodes(3))
    for text in scrapes:
        checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, check=False)
        assert (checked.returncode, checked.stderr.decode()) == (0, "")


def test_pod_resources_are_requests_and_limits() -> None:
    async def scenario(observed: Observed) -> None:
        containers: list[dict[str, Any]] = [
            {"name": "c", "resources": {"requests": {"cpu": "250m"}, "limits": {"cpu": "1", "memory": "1Gi"}}}
        ]
        observed.harness.cluster.put(pod("a", priority=7, spec={"containers": containers}))
        await observed.harness.settle()
        scraped = samples(observed.observability.scrape_resources()[0])
        by_resource = {
            (name, dict(labels)["resource"], dict(labels)["unit"], dict(labels)["node"]): value
            for (name, labels), value in scraped.items()
        }
        assert by_resource == {
            ("kube_pod_resource_request", "cpu", "cores", "n"): 0.25,
            ("kube_pod_resource_limit", "cpu", "cores", "n"): 1.0,
            ("kube_pod_resource_limit", "memory", "bytes", "n"): 2.0**30,
        }

    observe(scenario, node("n"))


def test_leadership_is_exposed_before_there_is_a_scheduler() -> None:
    async def scenario(observed: Observed) -> None:
        assert observed.value("leader_election_master_status", name="kube-scheduler") == 1

    observe(scenario)
    starting = samples(Observability(WallClock(), FeatureGates()).scrape()[0])
    assert starting["leader_election_master_status", frozenset({("name", "kube-scheduler")})] == 0


def test_disabled_metrics_are_not_exposed() -> None:
    observability = Observability(WallClock(), FeatureGates(), disabled_metrics=["scheduler_preemption_victims"])
    assert "scheduler_preemption_victims" not in observability.scrape()[0].decode()


def test_label_values_that_are_not_allowed_become_unexpected() -> None:
    allowed = {"scheduler_queue_incoming_pods_total": {"event": frozenset({"NodeAdd"})}}
    metrics = Observability(WallClock(), FeatureGates(), allowed_labels=allowed).metrics
    for event in ("NodeAdd", "NodeUpdate", "NodeDelete"):
        metrics.incoming_pods.labels(event, "active").value += 1
    collected = metrics.incoming_pods.collect().samples
    assert {sample.labels["event"]: sample.value for sample in collected} == {"NodeAdd": 1, "unexpected": 2}


def test_requests_to_the_api_server_are_counted_by_outcome() -> None:
    observability = Observability(WallClock(), FeatureGates())
    observability.metrics.record_client_request("GET", "api:6443", "200", 0.01)
    observability.metrics.record_client_request("GET", "api:6443", "<error>", 30.0)
    scraped = samples(observability.scrape()[0])
    labels = {("method", "GET"), ("host", "api:6443")}
    assert scraped["rest_client_requests_total", frozenset({*labels, ("code", "200")})] == 1
    assert scraped["rest_client_requests_total", frozenset({*labels, ("code", "<error>")})] == 1


def test_the_accept_header_selects_openmetrics() -> None:
    body, content_type = Observability(WallClock(), FeatureGates()).scrape(
        "application/openmetrics-text; version=1.0.0"
    )
    assert content_type.startswith("application/openmetrics-text")
    assert body.endswith(b"# EOF\n")


def test_claims_created_for_extended_resources_are_counted() -> None:
    async def scenario(observed: Observed) -> None:
        observed.harness.cluster.put(pod("p", requests={"example.com/gpu": "1"}))
        await observed.harness.settle()
        assert observed.harness.node_of("p") == "n"
        assert observed.value("scheduler_resourceclaim_creates_total", status="success") == 1

    observe(scenario, node("n"), device_class("gpu", extendedResourceName="example.com/gpu"), slice_of("d0", node="n"))


def test_volume_binding_errors_are_counted_by_stage() -> None:
    recorder = MetricsRecorder(Observability(WallClock(), FeatureGates()).metrics)
    observer = recorder.plugin_observer("default-scheduler")
    observer.plugin_called("VolumeBinding", "PreBind", Status.error("no"), 1.0)
    observer.plugin_called("VolumeBinding", "Reserve", PluginError("VolumeBinding", "Reserve", "no"), 1.0)
    observer.plugin_called("VolumeBinding", "Filter", Status.unschedulable("no"), 1.0)
    errors = recorder.metrics.volume_stage_errors
    assert [errors.labels(stage).value for stage in ("predicate", "assume", "bind")] == [0, 1, 1]
