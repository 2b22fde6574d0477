"""Results as tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from kubestow_lab.scheduler_perf.phase import PhaseResult
from kubestow_lab.scheduler_perf.result import BenchmarkResult, Comparison, WorkloadResult
from kubestow_lab.scheduler_perf.scheduler_metrics import DurationResult

__all__ = ["print_comparison", "print_result"]


#: The rows of a workload's table of durations.
_DURATION_ROWS = 12
_MIB = 1024 * 1024


def print_result(console: Console, result: BenchmarkResult) -> None:
    """Print throughput, latency and cost of all phases, then the durations of each."""
    machine = result.machine
    load = "unknown" if machine.load_average is None else f"{machine.load_average:.2f}"
    console.print(
        f"{escape(machine.processor)}, {machine.processors} processors, Python {machine.python}; load average before"
        f" the run: {load}"
    )
    table = Table(
        "workload", "pods", "pods/s", "of one-second windows", "creation to bound", "CPU", "per pod", "memory"
    )
    for workload in result.workloads:
        for phase in workload.phases:
            table.add_row(*_cells(workload, phase))
    if table.rows:
        console.print(table)
        console.print("of one-second windows: p50 / p90 / p99 pods/s; creation to bound: p50 / p90 / p99")
    for workload in result.workloads:
        for problem in workload.left_out_feature_gates:
            console.print(f"{escape(workload.name)}: not applied: {escape(problem)}")
        for phase in workload.phases:
            if phase.durations:
                console.print(_durations(_title(workload, phase), phase.durations))
    for name, error in result.failures.items():
        console.print(f"{escape(name)}: failed: {escape(error)}")


def _title(workload: WorkloadResult, phase: PhaseResult) -> str:
    return f"{workload.name} ({phase.name})" if phase.name else workload.name


def _cells(workload: WorkloadResult, phase: PhaseResult) -> Iterator[str]:
    yield escape(_title(workload, phase))
    yield f"{phase.pods:,}"
    yield f"{phase.throughput:,.0f}"
    windows, latency, usage = phase.windows, phase.latency, phase.scheduler
    yield "-" if windows is None else f"{windows.p50:,.0f} / {windows.p90:,.0f} / {windows.p99:,.0f}"
    yield "-" if latency is None else " / ".join(map(_time, (latency.p50, latency.p90, latency.p99)))
    yield "-" if usage is None else f"{usage.cpu_seconds:.2f} s"
    yield "-" if usage is None or usage.cpu_seconds_per_pod is None else _time(usage.cpu_seconds_per_pod)
    yield "-" if usage is None or usage.peak_memory is None else f"{usage.peak_memory / _MIB:,.0f} MiB"


def _durations(title: str, durations: list[DurationResult]) -> Table:
    table = Table("duration of", "plugin", "calls", "mean", "p50", "p99", title=escape(title), title_justify="left")
    for row in durations[:_DURATION_ROWS]:
        table.add_row(row.name, row.plugin, f"{row.calls:,}", _time(row.mean), _time(row.p50), _time(row.p99))
    return table


def _time(seconds: float) -> str:
    if seconds < 0.001:
        return f"{seconds * 1e6:,.0f} us"
    return f"{seconds * 1e3:,.2f} ms" if seconds < 1 else f"{seconds:,.2f} s"


def print_comparison(console: Console, comparison: Comparison) -> None:
    """Print two results side by side."""
    table = Table("workload", "figure", "first", "second", "second / first", "")
    for row in comparison.rows:
        ratio = "-" if row.ratio is None else f"{row.ratio:.3f}"
        verdict = f"[red]{row.worse_by:+.1%} worse[/red]" if row in comparison.regressions else ""
        table.add_row(escape(row.workload), row.figure, f"{row.first:,.4g}", f"{row.second:,.4g}", ratio, verdict)
    console.print(table)
    for name in comparison.unmatched:
        console.print(f"only in one of the results: {escape(name)}")
