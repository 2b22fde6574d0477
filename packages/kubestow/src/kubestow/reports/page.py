"""Reports as self-contained HTML pages.

Text is written by Python and readable without scripts; the interactive figures and long tables are drawn by the script
of the page from data that is embedded as JSON. The page loads nothing: its content security policy allows its own
script and style only, by their hashes. Elements escape all that comes from the input (:mod:`.elements`), and the script
sets text, never markup.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files

import msgspec

from kubestow.reports.charts import area_rows, bar_chart, gantt, line_chart
from kubestow.reports.elements import Element, element
from kubestow.reports.model import (
    AreaRows,
    BarChart,
    Block,
    Cards,
    Details,
    Figure,
    Gantt,
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


def table(
    header: Sequence[str],
    rows: Iterable[Sequence[Element | str]],
    *,
    numbers: Iterable[int] = (),
    caption: str = "",
) -> Element:
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


#: In a script element only these could end it, begin a comment, or be a line end to an old parser.
_ESCAPES = str.maketrans({character: f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"})


def as_page(report: Report) -> str:
    """The complete document; without data for figures it has no script."""
    style, scripts, tools, policy = _asset("report.css") + _asset("charts.css"), [], [], "default-src 'none';"
    if report.data:
        script, data = _asset("report.js"), msgspec.json.encode(report.data).decode().translate(_ESCAPES)
        policy += f" script-src '{_hash(script)}';"
        scripts = [
            element("script", data, type="application/json", id="data"),
            element("script", script),
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
        element("style", style),
    )
    header = element("header", element("h1", report.title), element("p", report.subtitle, class_="note"), *tools)
    body = element("body", header, element("main", *notes, *map(_section, report.sections)), *scripts)
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en').markup}\n"


def _section(found: Section | Figure) -> Element:
    """A section; that of a figure is hidden without the script."""
    heading = element("h2", found.title)
    if isinstance(found, Section):
        return element("section", heading, *map(block_element, found.blocks), id=found.anchor)
    note, figure = element("p", found.note, class_="note"), element("div", class_="figure")
    return element("section", heading, note, figure, hidden="", data_figure=found.kind, id=found.anchor)


def block_element(block: Block) -> Element:
    """The element that shows a block of a report."""
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
            line = [part for text in summary for part in (_inline(text), " ")]
            below = [element("p", explanation)] if explanation is not None else []
            return element("details", element("summary", *line, *below), *map(block_element, blocks))
        case LineChart():
            return line_chart(block)
        case BarChart():
            return bar_chart(block)
        case AreaRows():
            return area_rows(block)
        case Gantt():
            return gantt(block)


def _cell(text: str) -> Element | str:
    if "\n" not in text:
        return _inline(text)
    return element("ul", *(element("li", line) for line in text.split("\n")), class_="plain")


def _inline(text: str) -> Element | str:
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
