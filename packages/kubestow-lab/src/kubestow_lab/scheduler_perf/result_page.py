"""Results as one HTML page without scripts or references to other files; the plots are inline SVG."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from kubestow_lab.scheduler_perf.phase import PhaseResult
from kubestow_lab.scheduler_perf.result import BenchmarkResult, WorkloadResult
from kubestow_lab.scheduler_perf.scheduler_metrics import DurationResult

__all__ = ["html_page"]


_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 640, 180, 60, 24
_BARS = 12
_MIB = 1024 * 1024
_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1b1f24; }
table { border-collapse: collapse; margin: .5rem 0 1rem; }
th, td { padding: .2rem .8rem .2rem 0; text-align: right; border-bottom: 1px solid #d8dee4; }
th:first-child, td:first-child { text-align: left; }
h2 { margin-top: 2.5rem; } .note { color: #57606a; } svg { display: block; margin: .5rem 0 1rem; }
svg text { font-size: 11px; fill: #57606a; }
"""

Point = tuple[float, float]


def html_page(result: BenchmarkResult) -> str:
    """The page."""
    machine = result.machine
    load = "unknown" if machine.load_average is None else f"{machine.load_average:.2f}"
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><title>kubestow bench</title>",
        f"<style>{_STYLE}</style><h1>kubestow bench</h1>",
        f"<p class=note>{escape(machine.processor)}, {machine.processors} processors, {escape(machine.system)}, Python"
        f" {escape(machine.python)}, kubestow {escape(result.kubestow)}; load average before the run: {load}</p>",
    ]
    parts += [_failure(name, error) for name, error in result.failures.items()]
    parts += [_phase(workload, phase) for workload in result.workloads for phase in workload.phases]
    return "\n".join(parts) + "\n"


def _failure(name: str, error: str) -> str:
    return f"<p><strong>{escape(name)} failed</strong>: {escape(error)}</p>"


def _phase(workload: WorkloadResult, phase: PhaseResult) -> str:
    title = f"{workload.name} ({phase.name})" if phase.name else workload.name
    parameters = ", ".join(f"{name} = {value}" for name, value in workload.parameters.items())
    parts = [
        f"<h2>{escape(title)}</h2>",
        f"<p class=note>{escape(parameters)}; {escape(workload.cluster)}; {escape(workload.scheduler)}; started"
        f" {escape(workload.started)}</p>",
        _table(("figure", "value"), _figures(phase)),
    ]
    if len(phase.per_second) > 1:
        points = [(second, float(count)) for second, count in enumerate(phase.per_second)]
        parts += ["<h3>Pods bound in each second</h3>", _line_plot(points, "second", "pods/s")]
    if phase.latency_percentiles:
        points = [(percent, 1000 * value) for percent, value in enumerate(phase.latency_percentiles)]
        parts += ["<h3>Creation to bound</h3>", _line_plot(points, "percentile", "ms")]
    if phase.durations:
        parts += ["<h3>Duration of extension points and plugins</h3>", _bar_plot(phase.durations)]
        rows = [
            (
                f"{row.name} {row.plugin}".strip(),
                f"{row.calls:,}",
                *(f"{1e6 * t:,.0f}" for t in (row.mean, row.p50, row.p99)),
            )
            for row in phase.durations
        ]
        parts.append(_table(("duration of", "calls", "mean, us", "p50, us", "p99, us"), rows))
    return "\n".join(parts)


def _figures(phase: PhaseResult) -> list[tuple[str, str]]:
    figures = [
        ("pods bound", f"{phase.pods:,}"),
        ("seconds", f"{phase.seconds:.2f}"),
        ("pods/s", f"{phase.throughput:,.1f}"),
    ]
    if phase.windows is not None:
        w = phase.windows
        figures.append(("one-second windows: mean, p50, p90, p99", f"{w.mean:,.1f}, {w.p50:,}, {w.p90:,}, {w.p99:,}"))
    if phase.scheduler_perf is not None:
        s = phase.scheduler_perf
        text = f"{s.mean:,.1f}, {s.p50:,.1f}, {s.p90:,.1f}, {s.p99:,.1f}"
        figures.append(("as scheduler_perf samples: mean, p50, p90, p99", text))
    if phase.latency is not None:
        text = ", ".join(f"{1000 * value:,.1f}" for value in (phase.latency.p50, phase.latency.p90, phase.latency.p99))
        figures.append(("creation to bound, ms: p50, p90, p99", text))
    usage = phase.scheduler
    if usage is not None:
        figures.append(("CPU time of the scheduler, s", f"{usage.cpu_seconds:.2f}"))
        if usage.cpu_seconds_per_pod is not None:
            figures.append(("CPU time per bound pod, ms", f"{1000 * usage.cpu_seconds_per_pod:.3f}"))
        if usage.peak_memory is not None:
            of = "" if usage.peak_is_of_phase else " (of the whole process)"
            figures.append((f"peak memory of the scheduler, MiB{of}", f"{usage.peak_memory / _MIB:,.0f}"))
    return figures


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(cell)}" for cell in header)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}" for cell in row) for row in rows)
    return f"<table><tr>{head}{body}</table>"


def _line_plot(points: Sequence[Point], x_label: str, y_label: str) -> str:
    """A line through the points, from zero to the largest value of each axis."""
    largest_x, largest_y = (max(point[axis] for point in points) or 1.0 for axis in (0, 1))
    width, height = _WIDTH - _LEFT - 10, _HEIGHT - _BOTTOM - 10

    def place(x: float, y: float) -> str:
        return f"{_LEFT + width * x / largest_x:.1f},{10 + height * (1 - y / largest_y):.1f}"

    line = " ".join(place(x, y) for x, y in points)
    base = _HEIGHT - _BOTTOM
    return (
        f'<svg width="{_WIDTH}" height="{_HEIGHT}" role="img" aria-label="{escape(y_label)} by {escape(x_label)}">'
        f'<path d="M{_LEFT},10 V{base} H{_WIDTH - 10}" fill="none" stroke="#8c959f"/>'
        f'<polyline points="{line}" fill="none" stroke="#0969da" stroke-width="1.5"/>'
        f'<text x="{_LEFT - 6}" y="16" text-anchor="end">{largest_y:,.4g}</text>'
        f'<text x="{_LEFT - 6}" y="{base}" text-anchor="end">0</text>'
        f'<text x="4" y="{_HEIGHT // 2}">{escape(y_label)}</text>'
        f'<text x="{_LEFT}" y="{_HEIGHT - 6}">0</text>'
        f'<text x="{_WIDTH - 10}" y="{_HEIGHT - 6}" text-anchor="end">{largest_x:,.4g} ({escape(x_label)})</text></svg>'
    )


def _bar_plot(durations: Sequence[DurationResult]) -> str:
    """The mean durations as bars, the largest sums first."""
    rows = durations[:_BARS]
    largest = max(row.mean for row in rows) or 1.0
    height, left, width = 20 * len(rows) + 4, 300, _WIDTH - 300 - 90
    bars = []
    for number, row in enumerate(rows):
        y, length = 20 * number + 4, max(1.0, width * row.mean / largest)
        label = escape(f"{row.name} {row.plugin}".strip())
        bars.append(
            f'<text x="{left - 8}" y="{y + 12}" text-anchor="end">{label}</text>'
            f'<rect x="{left}" y="{y}" width="{length:.1f}" height="15" fill="#0969da"/>'
            f'<text x="{left + length + 6:.1f}" y="{y + 12}">{1e6 * row.mean:,.0f} us</text>'
        )
    return f'<svg width="{_WIDTH}" height="{height}" role="img" aria-label="mean durations">{"".join(bars)}</svg>'
