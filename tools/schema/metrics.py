"""Writes what Kubernetes defines of the metrics of a scheduler, in each minor version.

    python -m tools.schema.metrics DIRECTORY 31=SOURCES ... 37=SOURCES

It writes ``kubernetes_metrics.json`` in DIRECTORY. SOURCES are Kubernetes' sources (Apache-2.0) of a minor version, of
which ``test/instrumentation`` and ``pkg/scheduler/metrics`` are read. The first has two lists: of the metrics that are
BETA or STABLE, which Kubernetes' tests keep up to date, and for its documentation of all metrics, which may be a
version behind. So the code of the scheduler decides which of its metrics a version has, and the newest list has their
labels and buckets. Help texts are kubestow's own: they say what is measured here.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import yaml

_STABLE, _ALL = "testdata/stable-metrics-list.yaml", "documentation/documentation-list.yaml"
#: The literal names in the definitions of metrics.
_NAME_IN_CODE = re.compile(r'Name:\s+"([a-z_]+)"')
_NAMES = (
    "authentication_duration_seconds",
    "authorization_attempts_total",
    "authorization_duration_seconds",
    "dynamic_resource_allocation_resourceclaim_creates_total",
    "kubernetes_feature_enabled",
    "kubernetes_healthcheck",
    "kubernetes_healthchecks_total",
    "leader_election_master_status",
    "rest_client_request_duration_seconds",
    "rest_client_requests_total",
    "scheduler_async_api_call_execution_duration_seconds",
    "scheduler_async_api_call_execution_total",
    "scheduler_cache_size",
    "scheduler_dra_bindingconditions_allocations_total",
    "scheduler_dra_bindingconditions_wait_duration_seconds",
    "scheduler_event_handling_duration_seconds",
    "scheduler_framework_extension_point_duration_seconds",
    "scheduler_goroutines",
    "scheduler_inflight_events",
    "scheduler_pending_async_api_calls",
    "scheduler_pending_pods",
    "scheduler_permit_wait_duration_seconds",
    "scheduler_plugin_evaluation_total",
    "scheduler_plugin_execution_duration_seconds",
    "scheduler_pod_scheduled_after_flush_total",
    "scheduler_pod_scheduling_attempts",
    "scheduler_pod_scheduling_duration_seconds",
    "scheduler_pod_scheduling_sli_duration_seconds",
    "scheduler_podgroup_schedule_attempts_total",
    "scheduler_podgroup_scheduling_algorithm_duration_seconds",
    "scheduler_podgroup_scheduling_attempt_duration_seconds",
    "scheduler_preemption_attempts_total",
    "scheduler_preemption_evaluation_duration_seconds",
    "scheduler_preemption_execution_duration_seconds",
    "scheduler_preemption_goroutines_duration_seconds",
    "scheduler_preemption_goroutines_execution_total",
    "scheduler_preemption_pdb_violations_total",
    "scheduler_preemption_victims",
    "scheduler_preemption_workload_disruptions",
    "scheduler_queue_incoming_entities_total",
    "scheduler_queue_incoming_pods_total",
    "scheduler_queued_entities",
    "scheduler_queueing_hint_execution_duration_seconds",
    "scheduler_resourceclaim_creates_total",
    "scheduler_schedule_attempts_total",
    "scheduler_scheduler_cache_size",
    "scheduler_scheduling_algorithm_duration_seconds",
    "scheduler_scheduling_attempt_duration_seconds",
    "scheduler_unschedulable_pods",
    "scheduler_volume_scheduling_stage_error_total",
    "scheduler_workload_preemption_attempts_total",
    "scheduler_workload_preemption_victims",
)
_OF_DEVICES = ["driver", "profile", "status"]
_OF_PREEMPTION = {
    "type": "Histogram",
    "labels": ["preemptor", "result"],
    "buckets": [0.001 * 2**power for power in range(16)],
}
#: What the lists lack of the metrics that the scheduler's code defines.
_UNLISTED: dict[str, dict[str, Any]] = {
    "scheduler_dra_bindingconditions_allocations_total": {"type": "Counter", "labels": _OF_DEVICES},
    "scheduler_dra_bindingconditions_wait_duration_seconds": {
        "type": "Histogram",
        "labels": _OF_DEVICES,
        "buckets": [0.1 * 2**power for power in range(14)],
    },
    "scheduler_preemption_evaluation_duration_seconds": _OF_PREEMPTION,
    "scheduler_preemption_execution_duration_seconds": _OF_PREEMPTION,
    "scheduler_preemption_pdb_violations_total": {"type": "Counter", "labels": ["preemptor"]},
    "scheduler_preemption_workload_disruptions": {
        "type": "Histogram",
        "labels": ["preemptor"],
        "buckets": [2**power for power in range(11)],
    },
    "scheduler_queue_incoming_entities_total": {"type": "Counter", "labels": ["event", "queue", "type"]},
    "scheduler_queued_entities": {"type": "Gauge", "labels": ["queue", "type"]},
    "scheduler_workload_preemption_attempts_total": {"type": "Counter", "labels": ["result"]},
    "scheduler_workload_preemption_victims": {"type": "Histogram", "buckets": [2**power for power in range(11)]},
}
_ABOUT = {
    "source": "kubernetes 1.31 to 1.37, test/instrumentation and pkg/scheduler/metrics",
    "license": "Apache-2.0",
    "copyright": "The Kubernetes Authors",
    "generator": "tools/schema/metrics.py",
}


Metrics = dict[str, dict[str, Any]]


def main(directory: Path, sources: dict[int, Path]) -> None:
    """Write the file. Raises SystemExit if no minor version has a metric."""
    newest: Metrics = dict(_UNLISTED)
    versions: dict[str, list[tuple[int, str | None]]] = {name: [] for name in _NAMES}
    for minor, kubernetes in sorted(sources.items()):
        listed = _listed(kubernetes / "test/instrumentation")
        newest |= listed
        named = _named_in_code(kubernetes / "pkg/scheduler/metrics/metrics.go")
        for name, changes in versions.items():
            exists = name in named or (name in listed and name not in _ever_named(sources.values()))
            stability = newest.get(name, {}).get("stabilityLevel", "ALPHA") if exists else None
            if stability != (changes[-1][1] if changes else None):
                changes.append((minor, stability))
    if missing := [name for name in _NAMES if name not in newest]:
        raise SystemExit(f"no minor version has {', '.join(missing)}")
    lines = ",\n".join(f'"{name}": {json.dumps(_definition(newest[name], versions[name]))}' for name in _NAMES)
    text = f'{{\n"about": {json.dumps(_ABOUT, indent=1)},\n"metrics": {{\n{lines}\n}}\n}}\n'
    (directory / "kubernetes_metrics.json").write_text(text, encoding="utf-8")


def _listed(instrumentation: Path) -> Metrics:
    """The metrics in the lists of a version, by full name."""
    found: Metrics = {}
    for file in (_ALL, _STABLE):
        for metric in yaml.safe_load((instrumentation / file).read_text(encoding="utf-8")):
            parts = (metric.get("namespace"), metric.get("subsystem"), metric["name"])
            found["_".join(part for part in parts if part)] = metric
    return found


@cache
def _named_in_code(file: Path) -> frozenset[str]:
    """The full names of the metrics that the scheduler's own code defines."""
    return frozenset(f"scheduler_{name}" for name in _NAME_IN_CODE.findall(file.read_text(encoding="utf-8")))


def _ever_named(sources: Iterable[Path]) -> set[str]:
    """The metrics that the code of some version defines, so that the code decides about them in all versions."""
    return {name for each in sources for name in _named_in_code(each / "pkg/scheduler/metrics/metrics.go")}


def _definition(metric: dict[str, Any], versions: list[tuple[int, str | None]]) -> dict[str, Any]:
    definition = {"type": metric["type"], "versions": versions}
    if labels := metric.get("labels"):
        definition["labels"] = labels
    if buckets := metric.get("buckets"):
        definition["buckets"] = _without_rounding_errors([float(bound) for bound in buckets])
    return definition


def _without_rounding_errors(bounds: list[float]) -> list[float]:
    """Each bound as a power of the factor between two; in the lists they are products of the bound before."""
    start, factor = bounds[0], round(bounds[1] / bounds[0], 6)
    powers = [start * factor**power for power in range(len(bounds))]
    return powers if all(map(math.isclose, bounds, powers)) else bounds


if __name__ == "__main__":
    main(
        Path(sys.argv[1]), {int(minor): Path(path) for minor, _, path in (each.partition("=") for each in sys.argv[2:])}
    )
