"""Results for people: tables on a terminal, and one HTML page with plots and without scripts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kubestow.reports.model import BarChart, Block, Heading, LineChart, Paragraph, Report, Section, Span, Table
from kubestow.reports.page import as_page
from kubestow_lab.scheduler_perf.benchmark_result import BenchmarkResult, ResultComparison, WorkloadResult
from kubestow_lab.scheduler_perf.phase import PhaseResult
from kubestow_lab.scheduler_perf.scheduler_metrics import DurationResult

#: The rows of a workload's table of durations on a terminal, and the bars of its plot.
_DURATIONS = 12
_MIB = 1024 * 1024


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
                yield from (Paragraph(f"\n{_title(workload, phase)}"), _durations(phase.durations))
    for name, error in result.failures.items():
        yield Paragraph(f"{name}: failed: {error}")


def comparison_blocks(comparison: ResultComparison) -> Iterator[Block]:
    """Two results side by side."""
    table = Table(
        "workload", "figure", "first", "second", "second / first", "", right=("first", "second", "second / first")
    )
    for row in comparison.rows:
        ratio = "-" if row.ratio is None else f"{row.ratio:.3f}"
        verdict = Span(f"{row.worse_by:+.1%} worse", "worse") if row in comparison.regressions else ""
        table.add(row.workload, row.figure, f"{row.first:,.4g}", f"{row.second:,.4g}", ratio, verdict)
    yield table
    for name in comparison.unmatched:
        yield Paragraph(f"only in one of the results: {name}")


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


def _durations(durations: Sequence[DurationResult]) -> Table:
    table = Table("duration of", "plugin", "calls", "mean", "p50", "p99", right=("calls", "mean", "p50", "p99"))
    for row in durations[:_DURATIONS]:
        table.add(row.name, row.plugin, f"{row.calls:,}", _time(row.mean), _time(row.p50), _time(row.p99))
    return table


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
