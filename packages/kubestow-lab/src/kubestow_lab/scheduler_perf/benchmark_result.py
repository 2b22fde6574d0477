"""The result of a benchmark as data and its JSON, and the comparison of two results."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from kubestow.errors import InputError
from kubestow.version import VERSION
from kubestow_lab.scheduler_perf.phase import PhaseResult

_FORMAT = "kubestow-benchmark/v1"


class Machine(msgspec.Struct, rename="camel", frozen=True):
    """The machine of the driver: what has to be equal, or at least known, when results are compared.

    ``load_average`` is that of the last minute before the run.
    """

    processor: str
    processors: int
    system: str
    python: str
    load_average: float | None


class WorkloadResult(msgspec.Struct, rename="camel", frozen=True):
    """The result of one workload; ``seconds`` is the whole run, preparation included."""

    name: str
    parameters: dict[str, Any]
    cluster: str
    scheduler: str
    started: str
    seconds: float
    left_out_feature_gates: list[str] = []
    phases: list[PhaseResult] = []


class BenchmarkResult(msgspec.Struct, rename="camel", frozen=True):
    """The results of all workloads of one call. ``failures`` has the error of each workload that failed."""

    machine: Machine
    workloads: list[WorkloadResult]
    failures: dict[str, str] = {}
    kubestow: str = VERSION
    format: str = _FORMAT


def this_machine() -> Machine:
    """The machine of this process."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    return Machine(_processor(), os.cpu_count() or 1, platform.platform(), platform.python_version(), load)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def write_result(result: BenchmarkResult) -> bytes:
    """The result as JSON."""
    return msgspec.json.format(msgspec.json.encode(result)) + b"\n"


def read_result(file: Path) -> BenchmarkResult:
    """A result that was written as JSON. Raises InputError."""
    try:
        result = msgspec.json.decode(file.read_bytes(), type=BenchmarkResult)
    except OSError as error:
        raise InputError(str(file), f"cannot be read: {error.strerror or error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(str(file), f"expected a result of kubestow bench -o json: {error}") from None
    if result.format != _FORMAT:
        raise InputError(str(file), f"expected the format {_FORMAT}, got {result.format!r}")
    return result


@dataclass(frozen=True, slots=True)
class ComparedFigure:
    """One figure of a workload in both results. ``decides`` tells whether it can make the comparison fail."""

    workload: str
    figure: str
    first: float
    second: float
    higher_is_better: bool = False
    decides: bool = False

    @property
    def ratio(self) -> float | None:
        """The second value by the first; None if the first is 0."""
        return self.second / self.first if self.first else None

    @property
    def worse_by(self) -> float:
        """How much worse the second value is, as a fraction of the first; negative if it is better."""
        if self.ratio is None:
            return 0.0
        return 1 - self.ratio if self.higher_is_better else self.ratio - 1


@dataclass(frozen=True, slots=True)
class ResultComparison:
    """All rows; ``regressions`` are those that are worse by more than the limit; ``unmatched`` the workloads that only
    one of the results has."""

    rows: list[ComparedFigure]
    regressions: list[ComparedFigure]
    unmatched: list[str]

    def document(self) -> dict[str, Any]:
        """The comparison as plain data."""
        rows = [
            {
                "workload": row.workload,
                "figure": row.figure,
                "first": row.first,
                "second": row.second,
                "ratio": row.ratio,
                "isRegression": row in self.regressions,
            }
            for row in self.rows
        ]
        return {"rows": rows, "unmatched": self.unmatched}


def compare_results(
    first: BenchmarkResult, second: BenchmarkResult, *, fail_above: float | None = None
) -> ResultComparison:
    """Compare the phases that both results have.

    Throughput, CPU time per pod and peak memory decide: those that are worse by more than the fraction ``fail_above``
    are regressions. Latencies do not, because they depend on how fast the driver creates pods.
    """
    phases, others = _phases(first), _phases(second)
    rows = [row for name, phase in phases.items() if name in others for row in _rows(name, phase, others[name])]
    limit = float("inf") if fail_above is None else fail_above
    regressions = [row for row in rows if row.decides and row.worse_by > limit]
    return ResultComparison(rows, regressions, sorted(phases.keys() ^ others.keys()))


def _phases(result: BenchmarkResult) -> dict[str, PhaseResult]:
    """The phases by a name that is unique in a result."""
    phases: dict[str, PhaseResult] = {}
    for workload in result.workloads:
        for number, phase in enumerate(workload.phases):
            suffix = phase.name or (str(number) if number else "")
            phases[f"{workload.name} ({suffix})" if suffix else workload.name] = phase
    return phases


def _rows(name: str, first: PhaseResult, second: PhaseResult) -> Iterator[ComparedFigure]:
    yield ComparedFigure(name, "pods/s", first.throughput, second.throughput, higher_is_better=True, decides=True)
    if first.latency is not None and second.latency is not None:
        yield ComparedFigure(name, "creation to bound p50, s", first.latency.p50, second.latency.p50)
        yield ComparedFigure(name, "creation to bound p99, s", first.latency.p99, second.latency.p99)
    usage, other = first.scheduler, second.scheduler
    if usage is None or other is None:
        return
    if usage.cpu_seconds_per_pod is not None and other.cpu_seconds_per_pod is not None:
        yield ComparedFigure(
            name, "CPU per pod, ms", usage.cpu_seconds_per_pod * 1e3, other.cpu_seconds_per_pod * 1e3, decides=True
        )
    if usage.peak_memory is not None and other.peak_memory is not None:
        mib = 1024 * 1024
        yield ComparedFigure(name, "peak memory, MiB", usage.peak_memory / mib, other.peak_memory / mib, decides=True)
