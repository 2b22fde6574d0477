"""A measured phase: what was bound in it, how fast, and what it cost the scheduler's process."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from kubestow.errors import KubestowError
from kubestow.log_fields import fields
from kubestow_lab.scheduler_perf.pod_tracker import PodTracker
from kubestow_lab.scheduler_perf.scheduler_metrics import (
    DurationResult,
    MetricsSource,
    Snapshot,
    durations_between,
    parse_metrics,
)

_log = logging.getLogger(__name__)


class Distribution(msgspec.Struct, rename="camel", frozen=True):
    """Mean and percentiles of some values."""

    mean: float
    p50: float
    p90: float
    p99: float


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The smallest value that at least ``percent`` of the values do not exceed (nearest rank).

    ``ordered`` is sorted and not empty.
    """
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def distribution(values: Sequence[float]) -> Distribution | None:
    """Mean and percentiles; None without values."""
    if not values:
        return None
    ordered = sorted(values)
    p50, p90, p99 = (percentile(ordered, percent) for percent in (50, 90, 99))
    return Distribution(sum(values) / len(values), p50, p90, p99)


def windows(times: Sequence[float], start: float) -> list[int]:
    """How many of the sorted ``times`` are in each full second from ``start`` to the last of them.

    The last second is not full, so it is left out.
    """
    if not times:
        return []
    counts = [0] * max(0, int(times[-1] - start))
    for time in times:
        second = int(time - start)
        if second < len(counts):
            counts[second] += 1
    return counts


def scheduler_perf_samples(times: Sequence[float], start: float, end: float) -> list[float]:
    """The samples of throughput that scheduler_perf would take, in pods per second.

    It counts once a second. The second in which the first pods are bound only begins the measurement, and seconds
    without a binding are merged with the next one, whose average then counts for each of them.
    """
    samples: list[float] = []
    last_count, last_tick, skipped, count = 0, 0.0, 0, 0
    for number in range(1, int(end - start) + 1):
        tick = start + number
        while count < len(times) and times[count] <= tick:
            count += 1
        if count == last_count:
            skipped += last_count > 0
            continue
        if last_count:
            samples += [(count - last_count) / (tick - last_tick)] * (skipped + 1)
        last_count, last_tick, skipped = count, tick, 0
    return samples


class SchedulerUsage(msgspec.Struct, rename="camel", frozen=True):
    """What the phase cost the scheduler's process: CPU time in seconds, memory in bytes.

    ``peak_is_of_phase`` is False if the peak could not be reset at the start, so that it is that of the whole process.
    """

    cpu_seconds: float
    cpu_seconds_per_pod: float | None
    peak_memory: int | None
    peak_is_of_phase: bool


class PhaseResult(msgspec.Struct, rename="camel", frozen=True):
    """The result of a measured phase. Times are in seconds, throughput in pods per second.

    ``seconds`` runs from the first creation of the phase's pods, or from its start if they existed before, to the last
    binding; ``throughput`` is pods by seconds. ``per_second`` has the pods bound in each full second, ``windows`` their
    distribution. ``scheduler_perf`` has the samples that scheduler_perf would have reported. ``latency`` is from the
    creation of a pod to its binding, and ``latency_percentiles`` the percentiles 0 to 100 of it.
    """

    name: str
    pods: int
    seconds: float
    throughput: float
    windows: Distribution | None = None
    scheduler_perf: Distribution | None = None
    latency: Distribution | None = None
    scheduler: SchedulerUsage | None = None
    per_second: list[int] = []
    latency_percentiles: list[float] = []
    durations: list[DurationResult] = []


@dataclass(frozen=True, slots=True)
class SchedulerProbe:
    """Where the CPU time, the memory and the metrics of the scheduler under test are read."""

    process: ProcessUsage
    cpu_seconds: Callable[[], float | None]
    metrics: MetricsSource | None = None

    async def snapshot(self) -> Snapshot | None:
        """The scheduler's metrics now; None if there are none to read, or they cannot be read."""
        if self.metrics is None:
            return None
        try:
            return parse_metrics(await self.metrics())
        except (KubestowError, ValueError) as error:
            _log.warning("cannot read the metrics of the scheduler: %s", error, extra=fields(err=error))
            return None


@dataclass(frozen=True, slots=True)
class _Start:
    name: str
    namespaces: Sequence[str]
    labels: Mapping[str, str]
    snapshot: Snapshot | None
    peak_was_reset: bool
    cpu: float | None
    time: float


class PhaseCollector:
    """Measures one phase at a time."""

    def __init__(self, tracker: PodTracker, probe: SchedulerProbe) -> None:
        self._tracker, self._probe = tracker, probe
        self._start: _Start | None = None

    @property
    def is_collecting(self) -> bool:
        """Whether a phase has been started and not stopped."""
        return self._start is not None

    async def start(self, name: str, namespaces: Sequence[str], labels: Mapping[str, str]) -> None:
        """Begin a phase that counts the pods of these namespaces and labels."""
        snapshot = await self._probe.snapshot()
        reset = self._probe.process.reset_peak_memory()
        cpu = self._probe.cpu_seconds()
        self._start = _Start(name, namespaces, labels, snapshot, reset, cpu, self._tracker.now())

    async def stop(self) -> PhaseResult:
        """End the phase that was started."""
        start, self._start = self._start, None
        assert start is not None, "no phase was started"
        end, cpu, peak = self._tracker.now(), self._probe.cpu_seconds(), self._probe.process.peak_memory()
        snapshot = await self._probe.snapshot()
        pods = self._tracker.bound_between(start.namespaces, start.labels, start.time, end)
        usage = None
        if cpu is not None and start.cpu is not None:
            spent = cpu - start.cpu
            usage = SchedulerUsage(spent, spent / len(pods) if pods else None, peak, start.peak_was_reset)
        bound = [pod.bound_at for pod in pods]
        created = [pod.created_at for pod in pods if start.time <= pod.created_at <= pod.bound_at]
        begin = min(created) if len(created) == len(pods) and created else start.time
        seconds = bound[-1] - begin if bound else end - start.time
        per_second = windows(bound, begin)
        latencies = sorted(pod.bound_at - pod.created_at for pod in pods if pod.created_at <= pod.bound_at)
        return PhaseResult(
            name=start.name,
            pods=len(pods),
            seconds=seconds,
            throughput=len(pods) / seconds if seconds > 0 else 0.0,
            windows=distribution(per_second),
            scheduler_perf=distribution(scheduler_perf_samples(bound, start.time, end)),
            latency=distribution(latencies),
            scheduler=usage,
            per_second=per_second,
            latency_percentiles=[percentile(latencies, percent) for percent in range(101)] if latencies else [],
            durations=durations_between(start.snapshot, snapshot) if start.snapshot and snapshot else [],
        )


@dataclass(frozen=True, slots=True)
class ProcessUsage:
    """A process whose usage is read; ``pid`` 0 stands for none, with everything unknown."""

    pid: int

    def cpu_seconds(self) -> float | None:
        """CPU time so far, user and system, of all threads; None if there is no such process with readable usage."""
        try:
            fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def peak_memory(self) -> int | None:
        """Peak resident memory in bytes, since the start or the last successful reset."""
        try:
            status = Path(f"/proc/{self.pid}/status").read_text()
        except OSError:
            return None
        return next((int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM")), None)

    def reset_peak_memory(self) -> bool:
        """Begin a new peak; False if the system does not allow it, for example for a process of another user."""
        try:
            Path(f"/proc/{self.pid}/clear_refs").write_text("5")
        except OSError:
            return False
        return True
