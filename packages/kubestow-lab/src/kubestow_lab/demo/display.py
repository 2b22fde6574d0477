"""The console output of the demo: live progress while pods are scheduled, and a report at the end.

On a terminal the progress is redrawn in place; elsewhere (a log, CI) one line is printed every two seconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from kubestow.reports.model import counted
from kubestow.scheduling.queued_pod import Place
from kubestow_lab.demo.demo_run import DemoProgress, DemoResult
from kubestow_lab.workloads.report import Summary, Utilisation
from kubestow_lab.workloads.workload import Workload

_NAMES = {
    "cpu": "CPU",
    "memory": "memory",
    "nvidia.com/gpu": "whole GPUs",
    "kubestow.dev/gpu-milli": "GPU (thousandths)",
    "pods": "pods",
}
_SPARKS = " ▁▂▃▄▅▆▇█"
_LINE_INTERVAL = 2.0
_GROUPS_SHOWN = 12


class Display:
    """Prints a run to a console."""

    def __init__(self, console: Console, workload: Workload) -> None:
        self._console = console
        self._workload = workload
        self._live: Live | None = None
        self._rates: deque[float] = deque(maxlen=40)
        self._last = (0.0, 0)
        self._next_line = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Print the title of the run, and its live progress within the context."""
        self._console.print(f"[bold]{self._workload.title}[/bold]")
        self._console.print(f"[dim]{self._workload.attribution}[/dim]")
        if not self._console.is_terminal:
            yield
            return
        with Live(console=self._console, refresh_per_second=10, transient=True) as self._live:
            yield

    def show(self, progress: DemoProgress) -> None:
        """Update the progress."""
        since, bound = self._last
        if progress.elapsed - since >= 0.25:
            self._rates.append((progress.bound - bound) / (progress.elapsed - since))
            self._last = (progress.elapsed, progress.bound)
        if self._live is not None:
            self._live.update(self._panel(progress))
        elif progress.elapsed >= self._next_line:
            self._next_line = progress.elapsed + _LINE_INTERVAL
            rate, waiting = self._rates[-1] if self._rates else 0.0, sum(progress.waiting.values())
            self._console.print(
                f"{progress.elapsed:5.1f} s  submitted {progress.submitted:>6,}  placed {progress.bound:>6,}"
                f"  waiting {waiting:>6,}  {rate:>6,.0f} pods/s  nodes in use {progress.nodes_used:,}",
                highlight=False,
            )

    def _panel(self, progress: DemoProgress) -> RenderableType:
        table = Table.grid(padding=(0, 2))
        table.add_column(justify="right", style="dim", min_width=18)
        table.add_column(ratio=1)
        table.add_column(justify="right")
        table.add_row("pods placed", _bar(progress.bound, progress.pods), f"{progress.bound:,} of {progress.pods:,}")
        table.add_row("nodes in use", _bar(progress.nodes_used, progress.nodes), f"{progress.nodes_used:,}")
        for resource, share in progress.utilisation.items():
            table.add_row(_NAMES.get(resource, resource), _bar(share, 1.0), f"{share:.1%}")
        waiting = progress.waiting
        queue = "   ".join(
            f"{name} {waiting[place]:,}"
            for name, place in (
                ("ready", Place.ACTIVE),
                ("backing off", Place.BACKOFF),
                ("unschedulable", Place.UNSCHEDULABLE),
                ("gated", Place.GATED),
                ("in flight", Place.IN_FLIGHT),
            )
        )
        table.add_row("queue", queue, "")
        rate, highest = self._rates[-1] if self._rates else 0.0, max(self._rates, default=0.0) or 1.0
        sparkline = "".join(_SPARKS[round(value / highest * (len(_SPARKS) - 1))] for value in self._rates)
        table.add_row("pods per second", Text(sparkline, style="cyan"), f"{rate:,.0f}")
        return Panel(table, title=f"{progress.elapsed:.1f} s", border_style="dim")

    def print_report(self, result: DemoResult) -> None:
        """Print the report of a finished run."""
        summary = result.summary
        rate = summary.placed / result.seconds if result.seconds else 0.0
        self._console.print()
        self._console.print(
            f"[bold green]{summary.placed:,} of {counted(summary.pods, 'pod')} placed[/bold green] on "
            f"{summary.nodes_used:,} of {counted(summary.nodes, 'node')} in {result.seconds:.1f} s "
            f"([bold]{rate:,.0f} pods/s[/bold])",
            highlight=False,
        )
        if result.evicted:
            evicted = counted(result.evicted, "pod was", "pods were")
            self._console.print(f"{evicted} evicted by preemption")
        latencies = Text("no latencies: no pod was bound")
        if (latency := summary.latency) is not None:
            latencies = Text(
                f"scheduling latency: median {_seconds(latency.p50)}, 90th percentile {_seconds(latency.p90)}, "
                f"99th percentile {_seconds(latency.p99)}, maximum {_seconds(latency.maximum)}\n"
            )
        self._console.print(Group(_utilisation(summary.utilisation), latencies))
        if summary.pending:
            self._console.print(_pending(summary))
        if not result.completed:
            conclusion = Text("The time limit was reached before the queue was idle.", style="bold red")
        elif summary.feasible_pending:
            feasible = counted(
                len(summary.feasible_pending),
                "pending pod has a feasible node.",
                "pending pods have a feasible node.",
            )
            conclusion = Text(feasible, style="bold red")
        else:
            conclusion = Text("No pending pod has a feasible node.", style="green")
        self._console.print(conclusion)


def _bar(done: float, total: float) -> ProgressBar:
    return ProgressBar(total=max(total, 1e-9), completed=done, width=40)


def _utilisation(utilisation: tuple[Utilisation, ...]) -> RenderableType:
    table = Table(title="requested resources", title_justify="left", box=None, header_style="dim")
    table.add_column("resource")
    table.add_column("")
    table.add_column("share", justify="right")
    table.add_column("requested", justify="right")
    table.add_column("allocatable", justify="right")
    for entry in utilisation:
        table.add_row(
            _NAMES.get(entry.resource, entry.resource),
            ProgressBar(total=1.0, completed=entry.share, width=30),
            f"{entry.share:.1%}",
            _amount(entry.resource, entry.requested),
            _amount(entry.resource, entry.allocatable),
        )
    return table


def _amount(resource: str, amount: int) -> str:
    if resource == "cpu":
        return f"{amount / 1000:,.0f} cores"
    if resource == "memory":
        return f"{amount / 2**40:,.1f} TiB"
    return f"{amount:,}"


def _seconds(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def _pending(summary: Summary) -> RenderableType:
    total = sum(len(group.pods) for group in summary.pending)
    table = Table(title=counted(total, "pending pod"), title_justify="left", box=None, header_style="dim")
    table.add_column("pods", justify="right")
    table.add_column("requests")
    table.add_column("reason")
    for group in summary.pending[:_GROUPS_SHOWN]:
        lines = [Text(group.explanation)]
        if group.message:
            lines.append(Text(group.message, style="dim"))
        if group.feasible:
            feasible = f"{len(group.feasible):,} with a feasible node: {group.feasible[0]}"
            lines.append(Text(feasible, style="bold red"))
        table.add_row(f"{len(group.pods):,}", group.requests, Group(*lines))
    rest = summary.pending[_GROUPS_SHOWN:]
    if rest:
        table.add_row(f"{sum(len(group.pods) for group in rest):,}", f"in {len(rest)} smaller groups", "")
    return table
