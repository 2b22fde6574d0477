"""The charts of reports as SVG, which need no script: lines, bars, areas over time, and Gantt charts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kubestow.reports.elements import Element, element
from kubestow.reports.model import AreaRow, AreaRows, BarChart, Gantt, LineChart, Period

#: The sizes of a chart, and the space for the labels of its axes, in pixels.
_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 640, 180, 60, 24
_BAR, _BAR_LEFT, _BAR_RIGHT = 20, 300, 90
#: Of charts with rows over time: their width, the space for the labels of rows, and the characters of these.
_WIDE, _WIDE_LEFT, _WIDE_RIGHT, _MOST_CHARACTERS = 1100, 220, 12, 34
_AREA_ROW, _LEAST_ROW, _LANE, _ROW_GAP = 22, 15, 7, 3
#: A period of at least so many pixels has its text inside, as far as it fits; a character takes so many.
_LEAST_TEXT, _CHARACTER = 46, 6.2
#: There are so many colours, in charts.css.
_COLOURS = 8
_TICKS = 8
_UNITS = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"), (1.0, "s"))
_STEPS = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1_200, 1_800, 3_600, 7_200, 14_400, 21_600, 43_200)


def line_chart(chart: LineChart) -> Element:
    """A line over its axes."""
    largest_x, largest_y = (max(point[axis] for point in chart.points) or 1.0 for axis in (0, 1))
    width, base, right = _WIDTH - _LEFT - 10, _HEIGHT - _BOTTOM, _WIDTH - 10
    line = " ".join(
        f"{_LEFT + width * x / largest_x:.1f},{10 + (base - 10) * (1 - y / largest_y):.1f}" for x, y in chart.points
    )
    return _chart(
        _HEIGHT,
        f"{chart.y_label} by {chart.x_label}",
        element("path", d=f"M{_LEFT},10 V{base} H{right}", fill="none", class_="axis"),
        element("polyline", points=line, class_="line"),
        _label(_LEFT - 6, 16, f"{largest_y:,.4g}", anchor="end"),
        _label(_LEFT - 6, base, "0", anchor="end"),
        _label(4, _HEIGHT // 2, chart.y_label),
        _label(_LEFT, _HEIGHT - 6, "0"),
        _label(right, _HEIGHT - 6, f"{largest_x:,.4g} ({chart.x_label})", anchor="end"),
    )


def bar_chart(chart: BarChart) -> Element:
    """A horizontal bar below the other for each value."""
    largest = max(value for _, value, _ in chart.bars) or 1.0
    parts = []
    for number, (label, value, text) in enumerate(chart.bars):
        y, length = _BAR * number + 4, max(1.0, (_WIDTH - _BAR_LEFT - _BAR_RIGHT) * value / largest)
        parts += [
            _label(_BAR_LEFT - 8, y + 12, label, anchor="end"),
            element("rect", x=f"{_BAR_LEFT}", y=f"{y}", width=f"{length:.1f}", height=f"{_BAR - 5}", class_="amount"),
            _label(_BAR_LEFT + length + 6, y + 12, text),
        ]
    return _chart(_BAR * len(chart.bars) + 4, chart.label, *parts)


def area_rows(chart: AreaRows) -> Element:
    """A row of stacked areas below the other, over one axis of time."""
    axis = _TimeAxis(chart.edges[0], chart.edges[-1])
    parts: list[Element] = []
    top = 2.0
    for row in chart.rows:
        parts += [_row_label(row.label, top + _AREA_ROW / 2), *_areas(row, chart.edges, axis, top)]
        top += _AREA_ROW + _ROW_GAP
    return _rows_over_time(chart.label, chart.series, axis, top, parts, chart.now)


def gantt(chart: Gantt) -> Element:
    """A row of periods below the other, over one axis of time; periods that overlap are in lanes of their row."""
    axis = _TimeAxis(*chart.axis)
    by_row: list[list[Period]] = [[] for _ in chart.rows]
    for period in chart.periods:
        by_row[period.row].append(period)
    parts: list[Element] = []
    top = 2.0
    for label, periods in zip(chart.rows, by_row, strict=True):
        lanes = list(_lanes(periods, axis.pixel))
        count = 1 + max((lane for lane, _ in lanes), default=0)
        height = max(_LEAST_ROW, _LANE * count)
        parts.append(element("rect", **_box(_WIDE_LEFT, top, axis.width, height), class_="ground"))
        parts.append(_row_label(label, top + height / 2))
        for lane, period in lanes:
            parts += _period(period, axis, top + height * lane / count, height / count)
        top += height + _ROW_GAP
    return _rows_over_time(chart.label, chart.series, axis, top, parts, chart.now)


class _TimeAxis:
    """Where times are on the horizontal axis of a chart with rows."""

    def __init__(self, first: float, last: float) -> None:
        self.first, self.last = first, max(last, first + 1.0)
        self.width = float(_WIDE - _WIDE_LEFT - _WIDE_RIGHT)

    @property
    def pixel(self) -> float:
        """The seconds that one takes."""
        return (self.last - self.first) / self.width

    def x(self, time: float) -> float:
        return _WIDE_LEFT + self.width * (min(max(time, self.first), self.last) - self.first) / (self.last - self.first)

    def ticks(self) -> Iterator[tuple[float, str]]:
        """At most so many round times, and their texts in one unit."""
        long = (self.last - self.first) / _TICKS
        days = -(-long // 86_400)
        step = float(next((each for each in _STEPS if each >= long), 86_400 * days))
        size, unit = next((size, unit) for size, unit in _UNITS if step >= size)
        time = step * -(-self.first // step)
        while time <= self.last:
            yield time, "0" if not time else f"{time / size:,g} {unit}"
            time += step


def _rows_over_time(
    label: str, series: Sequence[str], axis: _TimeAxis, bottom: float, parts: Sequence[Element], now: float | None
) -> Element:
    """The rows with their axis and a mark at the present, below a key of the colours; it scrolls on a narrow screen."""
    grid: list[Element] = []
    for time, text in axis.ticks():
        x = axis.x(time)
        grid += [_line(x, 0.0, bottom, "axis"), _label(x, round(bottom + 13), text, anchor="middle")]
    marks = [] if now is None or not axis.first <= now <= axis.last else [_line(axis.x(now), 0.0, bottom, "now")]
    svg = element(
        "svg",
        *grid,
        *parts,
        *marks,
        viewBox=f"0 0 {_WIDE} {bottom + 18:.0f}",
        role="img",
        aria_label=label,
        class_="wide",
    )
    keys = [element("li", _swatch(index), name) for index, name in enumerate(series) if name]
    legend = [element("ul", *keys, class_="series")] if keys else []
    scrolled = element("div", svg, class_="scroll", tabindex="0", role="region", aria_label=label)
    return element("div", element("p", label, class_="note"), *legend, scrolled, class_="rows")


def _areas(row: AreaRow, edges: Sequence[float], axis: _TimeAxis, top: float) -> Iterator[Element]:
    yield element("rect", **_box(_WIDE_LEFT, top, axis.width, _AREA_ROW), class_="ground")
    below = [0.0] * (len(edges) - 1)
    for series, values in row.areas:
        above = [low + value for low, value in zip(below, values, strict=True)]
        if any(values):
            outline = [*_steps(above, edges, axis, top), *reversed([*_steps(below, edges, axis, top)])]
            title = element("title", f"{row.label}: at most {max(values):.0%}")
            yield element("path", title, d=f"M{' L'.join(outline)} Z", class_=_colour(series))
        below = above
    if row.line:
        yield element("polyline", points=" ".join(_steps(row.line, edges, axis, top)), class_="level")


def _steps(values: Sequence[float], edges: Sequence[float], axis: _TimeAxis, top: float) -> Iterator[str]:
    """The corners of the line through values that hold from an edge to the next one."""
    former = ""
    for index, value in enumerate(values):
        y = f"{top + _AREA_ROW * (1 - min(1.0, max(0.0, value))):.1f}"
        if y != former:
            if former:
                yield f"{axis.x(edges[index]):.1f},{former}"
            yield f"{axis.x(edges[index]):.1f},{y}"
        former = y
    yield f"{axis.x(edges[len(values)]):.1f},{former}"


def _lanes(periods: Sequence[Period], overlap: float) -> Iterator[tuple[int, Period]]:
    """Each period with a lane that is free at its start: that of a former one of its name, else the first.

    An ``overlap`` of at most so many seconds cannot be seen, and is none.
    """
    last: list[Period] = []
    for period in sorted(periods, key=lambda each: (each.start, each.end)):
        free = [lane for lane, former in enumerate(last) if former.end <= period.start + overlap]
        same = (lane for lane in free if last[lane].name == period.name)
        lane = next(same, free[0] if free else len(last))
        last[lane : lane + 1] = [period]
        yield lane, period


def _period(period: Period, axis: _TimeAxis, top: float, height: float) -> Iterator[Element]:
    x, width = axis.x(period.start), axis.x(period.end) - axis.x(period.start)
    colour = f"{_colour(period.series)} planned" if period.is_planned else _colour(period.series)
    box = _box(x, top + 0.5, max(0.8, width), max(1.0, height - 1.0))
    yield element("rect", element("title", period.text), **box, class_=colour)
    if width >= _LEAST_TEXT and height >= _LEAST_ROW - 3:
        text = _shortened(period.name, int((width - 6) / _CHARACTER))
        yield element("text", text, x=f"{x + 3:.1f}", y=f"{top + height / 2 + 3.5:.1f}", class_="inside")


def _row_label(text: str, middle: float) -> Element:
    shown = _shortened(text, _MOST_CHARACTERS)
    title = [element("title", text)] if shown != text else []
    return element("text", shown, *title, x=f"{_WIDE_LEFT - 8}", y=f"{middle + 4:.1f}", text_anchor="end")


def _swatch(series: int) -> Element:
    square = element("rect", width="8", height="8", rx="2", class_=_colour(series))
    return element("svg", square, class_="swatch", viewBox="0 0 8 8", aria_hidden="true")


def _line(x: float, top: float, bottom: float, name: str) -> Element:
    return element("line", x1=f"{x:.1f}", x2=f"{x:.1f}", y1=f"{top:.1f}", y2=f"{bottom:.1f}", class_=name)


def _box(x: float, y: float, width: float, height: float) -> dict[str, str]:
    return {"x": f"{x:.1f}", "y": f"{y:.1f}", "width": f"{width:.1f}", "height": f"{height:.1f}"}


def _colour(series: int) -> str:
    return f"series-{series % _COLOURS}"


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: max(0, most - 1)]}…"


def _chart(height: int, label: str, *parts: Element) -> Element:
    return element("svg", *parts, width=f"{_WIDTH}", height=f"{height}", role="img", aria_label=label)


def _label(x: float, y: int, text: str, *, anchor: str | None = None) -> Element:
    return element("text", text, x=f"{x:.1f}", y=f"{y}", text_anchor=anchor)
