"""Metrics that are not the same in all minor versions."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from core_tests.observability.harness import Observed, observe
from core_tests.scheduling.queue.test_minor_versions import around
from kubestow.api.core import Node
from kubestow.config import FeatureGates
from kubestow.observability.instruments import kubernetes_definition
from kubestow.observability.observability import Observability
from kubestow.process import WallClock
from kubestow.rules.minors import Behaviour, Minor
from kubestow.testing import node, pod
from kubestow.testing.devices import device_class, slice_of


def names(minor: Minor) -> set[str]:
    families = Observability(WallClock(), FeatureGates(minor=minor)).metrics.families
    return {family.name for family in families}


@pytest.mark.parametrize(
    ("name", "first", "last"),
    [
        ("scheduler_pod_scheduling_duration_seconds", 31, 32),
        ("scheduler_scheduler_cache_size", 31, 33),
        ("scheduler_cache_size", 33, 37),
        ("scheduler_inflight_events", 32, 37),
        ("scheduler_preemption_evaluation_duration_seconds", 37, 37),
        ("scheduler_preemption_execution_duration_seconds", 37, 37),
        ("scheduler_preemption_goroutines_execution_total", 32, 37),
        ("scheduler_preemption_pdb_violations_total", 37, 37),
        ("scheduler_preemption_workload_disruptions", 37, 37),
        ("scheduler_async_api_call_execution_total", 34, 37),
        ("scheduler_pending_async_api_calls", 34, 37),
        ("scheduler_resourceclaim_creates_total", 35, 36),
        ("dynamic_resource_allocation_resourceclaim_creates_total", 37, 37),
        ("scheduler_dra_bindingconditions_allocations_total", 36, 37),
        ("scheduler_dra_bindingconditions_wait_duration_seconds", 36, 37),
        ("scheduler_pod_scheduled_after_flush_total", 36, 37),
        ("scheduler_podgroup_schedule_attempts_total", 36, 37),
        ("scheduler_pending_pods", 31, 37),
        ("scheduler_queued_entities", 37, 37),
        ("scheduler_queue_incoming_entities_total", 37, 37),
        ("scheduler_workload_preemption_attempts_total", 37, 37),
        ("scheduler_workload_preemption_victims", 37, 37),
        ("scheduler_volume_scheduling_stage_error_total", 31, 37),
    ],
)
def test_a_metric_is_exposed_in_the_versions_that_have_it(name: str, first: int, last: int) -> None:
    assert [number for number in range(31, 38) if name in names(Minor(number))] == list(range(first, last + 1))


@pytest.mark.parametrize(("minor", "stability"), [(Minor(35), "ALPHA"), (Minor(36), "BETA")])
def test_the_stability_of_a_metric_is_that_of_the_version(minor: Minor, stability: str) -> None:
    for name in ("goroutines", "permit_wait_duration_seconds", "plugin_evaluation_total", "unschedulable_pods"):
        assert kubernetes_definition(f"scheduler_{name}", minor).stability == stability


@pytest.mark.parametrize(("minor", "stability"), [(Minor(36), "ALPHA"), (Minor(37), "BETA")])
def test_two_durations_are_beta_since_1_37(minor: Minor, stability: str) -> None:
    for name in ("scheduling_algorithm_duration_seconds", "plugin_execution_duration_seconds"):
        assert kubernetes_definition(f"scheduler_{name}", minor).stability == stability


def test_the_definitions_of_the_metrics_of_preemption_are_those_of_1_37() -> None:
    durations = tuple(0.001 * 2**power for power in range(16))
    for name in ("evaluation", "execution"):
        definition = kubernetes_definition(f"scheduler_preemption_{name}_duration_seconds", Minor(37))
        assert (definition.labels, definition.buckets) == (("preemptor", "result"), durations)
    disruptions = kubernetes_definition("scheduler_preemption_workload_disruptions", Minor(37))
    assert (disruptions.labels, disruptions.buckets) == (("preemptor",), tuple(2.0**power for power in range(11)))
    assert kubernetes_definition("scheduler_preemption_pdb_violations_total", Minor(37)).labels == ("preemptor",)


def test_created_claims_are_counted_by_admin_access_since_1_37() -> None:
    async def scenario(observed: Observed) -> None:
        observed.harness.cluster.put(pod("p", requests={"example.com/gpu": "1"}))
        await observed.harness.settle()
        name = "dynamic_resource_allocation_resourceclaim_creates_total"
        assert observed.value(name, status="success", admin_access="false") == 1

    devices = device_class("gpu", extendedResourceName="example.com/gpu"), slice_of("d0", node="n")
    observe(scenario, node("n"), *devices, minor=Minor(37))


def test_the_scheduling_duration_is_measured_where_it_exists() -> None:
    async def scenario(observed: Observed) -> None:
        observed.harness.cluster.put(pod("a"))
        await observed.harness.settle()
        assert observed.value("scheduler_pod_scheduling_duration_seconds_count", attempts="1") == 1

    observe(scenario, node("n"), minor=Minor(32))


@around(Behaviour.EVENT_LABELS_NAME_RESOURCE_AND_ACTION)
def test_the_labels_of_events(minor: Minor, has_behaviour: bool) -> None:
    async def scenario(observed: Observed) -> None:
        cluster = observed.harness.cluster
        cluster.put(pod("a"))
        known = cluster.objects(Node)["", "n"]
        cluster.put(replace(known, metadata=replace(known.metadata, labels={"x": "y"})))
        await observed.harness.settle()
        incoming, handled = "scheduler_queue_incoming_pods_total", "scheduler_event_handling_duration_seconds_count"
        assert observed.value(incoming, event="UnschedulablePodAdd" if has_behaviour else "PodAdd") == 1
        assert observed.value(handled, event="UnschedulablePodAdd") == 1
        assert observed.value(handled, event="NodeUpdateNodeLabel" if has_behaviour else "NodeLabelChange") == 1

    observe(scenario, node("n"), minor=minor)


@around(Behaviour.EVENT_LABELS_NAME_UNSCHEDULED_PODS)
def test_the_labels_of_events_of_pods_without_a_node(minor: Minor, has_behaviour: bool) -> None:
    async def scenario(observed: Observed) -> None:
        harness = observed.harness
        harness.cluster.put(pod("a", cpu="100"))
        await harness.settle()
        harness.cluster.put(pod("a", cpu="100", labels={"new": "label"}))
        await harness.settle()
        handled = "scheduler_event_handling_duration_seconds_count"
        added, updated = ("UnscheduledPod", "TargetPod") if has_behaviour else ("UnschedulablePod", "UnschedulablePod")
        assert observed.value("scheduler_queue_incoming_pods_total", event=f"{added}Add") == 1
        assert observed.value(handled, event=f"{added}Add") == 1
        assert observed.value(handled, event=f"{updated}UpdatePodLabel") == 1

    observe(scenario, node("n"), minor=minor)


@around(Behaviour.PRE_BIND_PRE_FLIGHT_IS_MEASURED)
def test_pre_bind_pre_flight_is_an_extension_point(minor: Minor, has_behaviour: bool) -> None:
    async def scenario(observed: Observed) -> None:
        observed.harness.cluster.put(pod("a"))
        await observed.harness.settle()
        name = "scheduler_framework_extension_point_duration_seconds_count"
        assert observed.value(name, extension_point="PreBindPreFlight") == int(has_behaviour)
        assert observed.value(name, extension_point="Bind") == 1

    observe(scenario, node("n"), minor=minor)
