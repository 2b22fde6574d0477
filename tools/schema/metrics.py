"""Writes what Kubernetes defines of the metrics of a scheduler.

    python -m tools.schema.metrics INSTRUMENTATION DIRECTORY

It writes ``kubernetes_metrics.json`` in DIRECTORY. INSTRUMENTATION is ``test/instrumentation`` in Kubernetes' sources
(Apache-2.0), of the minor version that is served. It has two lists: of the metrics that are BETA or STABLE, which
Kubernetes' tests keep up to date, and for its documentation of all metrics, whose stability levels may be older.
Help texts are kubestow's own: they say what is measured here.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import yaml

_STABLE, _ALL = "testdata/stable-metrics-list.yaml", "documentation/documentation-list.yaml"
_NAMES = (
    "authentication_duration_seconds",
    "authorization_attempts_total",
    "authorization_duration_seconds",
    "kubernetes_feature_enabled",
    "kubernetes_healthcheck",
    "kubernetes_healthchecks_total",
    "leader_election_master_status",
    "rest_client_request_duration_seconds",
    "rest_client_requests_total",
    "scheduler_async_api_call_execution_duration_seconds",
    "scheduler_async_api_call_execution_total",
    "scheduler_cache_size",
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
    "scheduler_pod_scheduling_sli_duration_seconds",
    "scheduler_podgroup_schedule_attempts_total",
    "scheduler_podgroup_scheduling_algorithm_duration_seconds",
    "scheduler_podgroup_scheduling_attempt_duration_seconds",
    "scheduler_preemption_attempts_total",
    "scheduler_preemption_goroutines_duration_seconds",
    "scheduler_preemption_goroutines_execution_total",
    "scheduler_preemption_victims",
    "scheduler_queue_incoming_pods_total",
    "scheduler_queueing_hint_execution_duration_seconds",
    "scheduler_resourceclaim_creates_total",
    "scheduler_schedule_attempts_total",
    "scheduler_scheduling_algorithm_duration_seconds",
    "scheduler_scheduling_attempt_duration_seconds",
    "scheduler_unschedulable_pods",
    "scheduler_volume_scheduling_stage_error_total",
)
_ABOUT = {
    "source": "kubernetes 1.36, test/instrumentation",
    "license": "Apache-2.0",
    "copyright": "The Kubernetes Authors",
    "generator": "tools/schema/metrics.py",
}


def main(instrumentation: Path, directory: Path) -> None:
    """Write the file. Raises SystemExit if a metric is missing in ``instrumentation``."""
    found: dict[str, dict[str, Any]] = {}
    for file in (_ALL, _STABLE):
        for metric in yaml.safe_load((instrumentation / file).read_text(encoding="utf-8")):
            parts = (metric.get("namespace"), metric.get("subsystem"), metric["name"])
            found["_".join(part for part in parts if part)] = metric
    if missing := [name for name in _NAMES if name not in found]:
        raise SystemExit(f"{instrumentation} has no {', '.join(missing)}")
    lines = ",\n".join(f'"{name}": {json.dumps(_definition(found[name]))}' for name in _NAMES)
    text = f'{{\n"about": {json.dumps(_ABOUT, indent=1)},\n"metrics": {{\n{lines}\n}}\n}}\n'
    (directory / "kubernetes_metrics.json").write_text(text, encoding="utf-8")


def _definition(metric: dict[str, Any]) -> dict[str, Any]:
    definition = {"type": metric["type"], "stability": metric["stabilityLevel"]}
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
    main(Path(sys.argv[1]), Path(sys.argv[2]))
