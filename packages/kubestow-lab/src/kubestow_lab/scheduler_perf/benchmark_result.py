"""The result of a benchmark as data, JSON, tables, and one HTML page with plots, and the comparison of two results."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from kubestow.api.json_text import UNDECODABLE
from kubestow.errors import InputError
from kubestow.files import read_file
from kubestow.reports.model import BarChart, Block, Heading, LineChart, Paragraph, Report, Section, Span, Table, counted
from kubestow.reports.page import as_page
from kubestow.reports.text import Displayed
from kubestow.version import VERSION
from kubestow_lab.scheduler_perf.phase import PhaseResult

_FORMAT = "kubestow-benchmark/v1"
#: The rows of a workload's table of durations on a terminal, and the bars of its plot.
_DURATIONS = 12
_MIB = 1024 * 1024


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
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        processor = platform.processor()
    else:
        models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
        processor = next(models, platform.machine())
    return Machine(processor, os.cpu_count() or 1, platform.platform(), platform.python_version(), load)


def write_result(result: BenchmarkResult) -> bytes:
    """The result as JSON."""
    return msgspec.json.format(msgspec.json.encode(result)) + b"\n"


def read_result(file: Path) -> BenchmarkResult:
    """A result that was written as JSON. Raises InputError."""
    try:
        result = msgspec.json.decode(read_file(file), type=BenchmarkResult)
    except UNDECODABLE as error:
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


@dataclass(frozen=True, slots=True, repr=False)
class ResultComparison(Displayed):
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

    def __repr__(self) -> str:
        """The numbers of figures, and of those that are worse."""
        return f"<ResultComparison: {counted(len(self.rows), 'figure')}, {len(self.regressions):,} worse>"

    def blocks(self) -> Iterator[Block]:
        """Both results side by side."""
        figures = ("first", "second", "second / first")
        table = Table("workload", "figure", *figures, "", right=figures)
        for row in self.rows:
            ratio = "-" if row.ratio is None else f"{row.ratio:.3f}"
            verdict = Span(f"{row.worse_by:+.1%} worse", "worse") if row in self.regressions else ""
            table.add(row.workload, row.figure, f"{row.first:,.4g}", f"{row.second:,.4g}", ratio, verdict)
        yield table
        for name in self.unmatched:
            yield Paragraph(f"only in one of the results: {name}")


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
        yield ComparedFigure(name, "peak memory, MiB", usage.peak_memory / _MIB, other.peak_memory / _MIB, decides=True)


# -- for people --------------------------------------------------------------------------------------------------------


def result_blocks(result: BenchmarkResult) -> Iterator[Block]:
    """Throughput, latency and cost of all phases, then the durations of each."""
    machine = result.machine
    yield Paragraph(
        f"{machine.processor}, {machine.processors} processors, Python {machine.python}; load average before the run:"
        f" {_load(result)}"
    )
    headings = ("pods", "pods/s", "of one-second windows", "creation to bound", "CPU", "per pod", "memory")
    table = Table("workload", *headings)
    for workload in result.workloads:
        for phase in workload.phases:
            table.add(*_cells(workload, phase))
    if table.rows:
        yield table
        yield Paragraph("of one-second windows: p50 / p90 / p99 pods/s; creation to bound: p50 / p90 / p99")
    for workload in result.workloads:
        for problem in workload.left_out_feature_gates:
            yield Paragraph(f"{workload.name}: not applied: {problem}")
        for phase in workload.phases:
            if phase.durations:
                yield Paragraph(f"\n{_title(workload, phase)}")
                times = ("mean", "p50", "p99")
                durations = Table("duration of", "plugin", "calls", *times, right=("calls", *times))
                for row in phase.durations[:_DURATIONS]:
                    durations.add(row.name, row.plugin, f"{row.calls:,}", *map(_time, (row.mean, row.p50, row.p99)))
                yield durations
    for name, error in result.failures.items():
        yield Paragraph(f"{name}: failed: {error}")


def html_page(result: BenchmarkResult) -> str:
    """The page: the figures of each phase, with plots of its throughput, latency and durations."""
    machine = result.machine
    subtitle = (
        f"{machine.processor}, {machine.processors} processors, {machine.system}, Python {machine.python}, kubestow"
        f" {result.kubestow}; load average before the run: {_load(result)}"
    )
    sections = [
        Section(f"{name} failed", [Paragraph(Span(error, "failed"))]) for name, error in result.failures.items()
    ]
    sections += [
        Section(_title(workload, phase), list(_phase(workload, phase)))
        for workload in result.workloads
        for phase in workload.phases
    ]
    return as_page(Report("kubestow bench", subtitle, sections))


def _load(result: BenchmarkResult) -> str:
    return "unknown" if result.machine.load_average is None else f"{result.machine.load_average:.2f}"


def _title(workload: WorkloadResult, phase: PhaseResult) -> str:
    return f"{workload.name} ({phase.name})" if phase.name else workload.name


def _cells(workload: WorkloadResult, phase: PhaseResult) -> Iterator[str]:
    yield _title(workload, phase)
    yield f"{phase.pods:,}"
    yield f"{phase.throughput:,.0f}"
    windows, latency, usage = phase.windows, phase.latency, phase.scheduler
    yield "-" if windows is None else f"{windows.p50:,.0f} / {windows.p90:,.0f} / {windows.p99:,.0f}"
    yield "-" if latency is None else " / ".join(map(_time, (latency.p50, latency.p90, latency.p99)))
    yield "-" if usage is None else f"{usage.cpu_seconds:.2f} s"
    yield "-" if usage is None or usage.cpu_seconds_per_pod is None else _time(usage.cpu_seconds_per_pod)
    yield "-" if usage is None or usage.peak_memory is None else f"{usage.peak_memory / _MIB:,.0f} MiB"


def _time(seconds: float) -> str:
    if seconds < 0.001:
        return f"{seconds * 1e6:,.0f} us"
    return f"{seconds * 1e3:,.2f} ms" if seconds < 1 else f"{seconds:,.2f} s"


def _phase(workload: WorkloadResult, phase: PhaseResult) -> Iterator[Block]:
    parameters = ", ".join(f"{name} = {value}" for name, value in workload.parameters.items())
    note = f"{parameters}; {workload.cluster}; {workload.scheduler}; started {workload.started}"
    yield from (Paragraph(note, note=True), _figures(phase))
    if len(phase.per_second) > 1:
        points = [(float(second), float(count)) for second, count in enumerate(phase.per_second)]
        yield from (Heading("Pods bound in each second"), LineChart(points, "second", "pods/s"))
    if phase.latency_percentiles:
        points = [(float(percent), 1000 * value) for percent, value in enumerate(phase.latency_percentiles)]
        yield from (Heading("Creation to bound"), LineChart(points, "percentile", "ms"))
    if phase.durations:
        yield Heading("Duration of extension points and plugins")
        longest = phase.durations[:_DURATIONS]
        bars = [(f"{row.name} {row.plugin}".strip(), row.mean, f"{1e6 * row.mean:,.0f} us") for row in longest]
        yield BarChart(bars, "mean durations")
        table = Table("duration of", "calls", "mean, us", "p50, us", "p99, us")
        for row in phase.durations:
            times = (f"{1e6 * time:,.0f}" for time in (row.mean, row.p50, row.p99))
            table.add(f"{row.name} {row.plugin}".strip(), f"{row.calls:,}", *times)
        yield table


def _figures(phase: PhaseResult) -> Table:
    table = Table("figure", "value")
    table.add("pods bound", f"{phase.pods:,}")
    table.add("seconds", f"{phase.seconds:.2f}")
    table.add("pods/s", f"{phase.throughput:,.1f}")
    if (w := phase.windows) is not None:
        table.add("one-second windows: mean, p50, p90, p99", f"{w.mean:,.1f}, {w.p50:,}, {w.p90:,}, {w.p99:,}")
    if (s := phase.scheduler_perf) is not None:
        text = f"{s.mean:,.1f}, {s.p50:,.1f}, {s.p90:,.1f}, {s.p99:,.1f}"
        table.add("as scheduler_perf samples: mean, p50, p90, p99", text)
    if phase.latency is not None:
        text = ", ".join(f"{1000 * value:,.1f}" for value in (phase.latency.p50, phase.latency.p90, phase.latency.p99))
        table.add("creation to bound, ms: p50, p90, p99", text)
    if (usage := phase.scheduler) is not None:
        table.add("CPU time of the scheduler, s", f"{usage.cpu_seconds:.2f}")
        if usage.cpu_seconds_per_pod is not None:
            table.add("CPU time per bound pod, ms", f"{1000 * usage.cpu_seconds_per_pod:.3f}")
        if usage.peak_memory is not None:
            of = "" if usage.peak_is_of_phase else " (of the whole process)"
            table.add(f"peak memory of the scheduler, MiB{of}", f"{usage.peak_memory / _MIB:,.0f}")
    return table
