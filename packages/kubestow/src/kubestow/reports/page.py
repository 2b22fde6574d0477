"""Reports as self-contained HTML pages.

Text is written by Python and readable without scripts; the interactive figures and long tables are drawn by the script
of the page from data that is embedded as JSON. The page loads nothing: its content security policy allows its own
script and style only, by their hashes. All that comes from the input is escaped, because HTML is built from elements
only, and the script sets text, never markup.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Sequence
from functools import cache
from html import escape
from importlib.resources import files

import msgspec

from kubestow.reports.model import (
    BarChart,
    Block,
    Cards,
    Details,
    Figure,
    Heading,
    Items,
    LineChart,
    Paragraph,
    Report,
    Section,
    Span,
    Table,
)
from kubestow.version import VERSION

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


#: In a script element only these could end it, begin a comment, or be a line end to an old parser.
_ESCAPES = str.maketrans({character: f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"})


def as_page(report: Report) -> str:
    """The complete document; without data for figures it has no script."""
    style, scripts, tools, policy = _asset("report.css"), [], [], "default-src 'none';"
    if report.data:
        script, data = _asset("report.js"), msgspec.json.encode(report.data).decode().translate(_ESCAPES)
        policy += f" script-src '{_hash(script)}';"
        scripts = [
            element("script", Html(data), type="application/json", id="data"),
            element("script", Html(script)),
        ]
        tools = [element("button", "Light or dark", type="button", id="theme", hidden="")]
        missing = "The charts, the node map and long tables need JavaScript."
        notes = [element("noscript", element("p", missing, class_="note"))]
    else:
        notes = []
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element(
            "meta",
            http_equiv="Content-Security-Policy",
            content=f"{policy} style-src '{_hash(style)}'; base-uri 'none'; form-action 'none'",
        ),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="referrer", content="no-referrer"),
        element("meta", name="generator", content=f"kubestow {VERSION}"),
        element("title", report.title),
        element("style", Html(style)),
    )
    header = element("header", element("h1", report.title), element("p", report.subtitle, class_="note"), *tools)
    body = element("body", header, element("main", *notes, *map(_section, report.sections)), *scripts)
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


def _section(found: Section | Figure) -> Html:
    """A section; that of a figure is hidden without the script."""
    heading = element("h2", found.title)
    if isinstance(found, Section):
        return element("section", heading, *map(_block, found.blocks), id=found.anchor)
    note, figure = element("p", found.note, class_="note"), element("div", class_="figure")
    return element("section", heading, note, figure, hidden="", data_figure=found.kind, id=found.anchor)


def _block(block: Block) -> Html:
    match block:
        case Paragraph(text, note):
            is_names = isinstance(text, Span) and text.role == "names"
            return element("p", _inline(text), class_="note" if note else "names" if is_names else None)
        case Heading(text):
            return element("h3", text)
        case Table():
            numbers = [column for column in range(len(block.headings)) if block.is_right(column)]
            rows = ([_cell(cell) for cell in row] for row in block.rows)
            return table(block.headings, rows, numbers=numbers, caption=block.caption)
        case Cards(figures):
            cards = [element("div", element("dt", label), element("dd", value)) for label, value in figures]
            return element("dl", *cards, class_="cards")
        case Items(texts):
            return element("ol", *(element("li", text) for text in texts))
        case Details(summary, blocks, explanation):
            line = fragment(*(part for text in summary for part in (_inline(text), " ")))
            below = [element("p", explanation)] if explanation is not None else []
            return element("details", element("summary", line, *below), *map(_block, blocks))
        case LineChart():
            return line_chart(block)
        case BarChart():
            return bar_chart(block)


def _cell(text: str) -> str:
    if "\n" not in text:
        return _inline(text)
    return element("ul", *(element("li", line) for line in text.split("\n")), class_="plain")


def _inline(text: str) -> str:
    if not isinstance(text, Span):
        return text
    match text.role:
        case "code":
            return element("code", text)
        case "strong":
            return element("b", text)
        case "names":
            return text
    return element("span", text, class_=text.role or None, title=text.hint or None)


@cache
def _asset(name: str) -> str:
    return files(__package__).joinpath("assets", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
