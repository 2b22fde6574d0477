"""HTML that is built from elements, so that text is always escaped: tables, and charts that need no script."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape

from kubestow.reports.model import BarChart, LineChart

_VOID = frozenset({"meta", "input", "br"})
#: Control characters that HTML does not allow, surrogates, and those that change the direction of the text around them.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069]")
#: The sizes of a chart, and the space for the labels of its axes, in pixels.
_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 640, 180, 60, 24
_BAR, _BAR_LEFT, _BAR_RIGHT = 20, 300, 90


class Html(str):
    """Text that is HTML already; any other text is escaped where it is put into an element."""

    __slots__ = ()


def element(tag: str, *children: str, **attributes: str | None) -> Html:
    """An element with children and attributes; None leaves an attribute out, ``_`` stands for ``-`` in its name."""
    written = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{_escaped(value)}"'
        for name, value in attributes.items()
        if value is not None
    )
    if tag in _VOID:
        return Html(f"<{tag}{written}>")
    return Html(f"<{tag}{written}>{fragment(*children)}</{tag}>")


def fragment(*children: str) -> Html:
    """Several children without an element around them."""
    return Html("".join(child if isinstance(child, Html) else _escaped(child) for child in children))


def table(
    header: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Iterable[int] = (), caption: str = ""
) -> Html:
    """A table that can be scrolled on a narrow screen; the columns ``numbers`` are aligned to the right."""
    right = frozenset(numbers)
    classes = ["number" if index in right else None for index in range(len(header))]
    head = [element("th", cell, scope="col", class_=name) for cell, name in zip(header, classes, strict=True)]
    body = [
        element("tr", *(element("td", cell, class_=name) for cell, name in zip(row, classes, strict=True)))
        for row in rows
    ]
    content = element("table", element("thead", element("tr", *head)), element("tbody", *body))
    return element("div", content, class_="scroll", tabindex="0", role="region", aria_label=caption or header[0])


def line_chart(chart: LineChart) -> Html:
    """The chart as SVG."""
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


def bar_chart(chart: BarChart) -> Html:
    """The chart as SVG."""
    largest = max(value for _, value, _ in chart.bars) or 1.0
    parts = []
    for number, (label, value, text) in enumerate(chart.bars):
        y, length = _BAR * number + 4, max(1.0, (_WIDTH - _BAR_LEFT - _BAR_RIGHT) * value / largest)
        parts += [
            _label(_BAR_LEFT - 8, y + 12, label, anchor="end"),
            element("rect", x=f"{_BAR_LEFT}", y=f"{y}", width=f"{length:.1f}", height=f"{_BAR - 5}", class_="bar"),
            _label(_BAR_LEFT + length + 6, y + 12, text),
        ]
    return _chart(_BAR * len(chart.bars) + 4, chart.label, *parts)


def _chart(height: int, label: str, *parts: Html) -> Html:
    return element("svg", *parts, width=f"{_WIDTH}", height=f"{height}", role="img", aria_label=label)


def _label(x: float, y: int, text: str, *, anchor: str | None = None) -> Html:
    return element("text", text, x=f"{x:.1f}", y=f"{y}", text_anchor=anchor)


def _escaped(text: str) -> str:
    return escape(_UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text), quote=True)
