"""A record under two schedulers: what each would have decided of what has happened in a cluster.

Nodes, volumes and pods come and go as recorded, and the scheduler decides instead of the recorded one
(:mod:`kubestow.flight_record.redecision`). There is no simulated time line, so the metrics are those of pods alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kubestow.engine.pipeline.offline_scheduler import SchedulerOptions
from kubestow.flight_record.redecision import PodComparison, Redecision, redecide
from kubestow.flight_record.segment import Segment
from kubestow.plugins.registry import find_pod_group_apis
from kubestow_lab.simulation.outcomes import OutcomeState, PodOutcome
from kubestow_lab.simulation.plugin_failures import PluginFailure, collect_failures


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """What became of the pods of a record under one scheduler, as a simulation's result has it."""

    outcomes: tuple[PodOutcome, ...]
    run: Mapping[str, Any]
    remarks: tuple[str, ...] = ()
    plugin_failures: tuple[PluginFailure, ...] = ()


def run_record(segment: Segment, options: SchedulerOptions) -> RecordedRun:
    """Decide a record again. Raises ConfigurationError and PluginError. Must not be called on a running event loop."""
    registry, configuration = options.registry(), options.read_configuration()
    with collect_failures() as collected:
        found = redecide(segment, configuration, registry, options.gates, find_pod_group_apis())
    run = {"emulatedVersion": str(options.gates.minor), "seconds": round(found.seconds, 6)}
    return RecordedRun(tuple(map(_outcome, found.pods)), run, tuple(_remarks(found, segment)), collected.failures)


def _outcome(pod: PodComparison) -> PodOutcome:
    namespace, _, name = pod.pod.partition("/")
    state = OutcomeState.RUNNING if pod.redecided else OutcomeState.PENDING
    if pod.is_victim:
        state = OutcomeState.PREEMPTED
    message = pod.message if state is OutcomeState.PENDING else ""
    return PodOutcome(namespace, name, pod.owner, 0, 0.0, state, pod.redecided, message=message)


def _remarks(found: Redecision, segment: Segment) -> Sequence[str]:
    remarks = [*found.remarks]
    if segment.header.snapshot is not None:
        remarks.append("decided again from the cluster at the beginning of this file, which continues another one")
    if found.damage is not None:
        remarks.append(f"the record is used up to a defect: {found.damage}")
    return remarks
