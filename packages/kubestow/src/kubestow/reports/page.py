"""Reports as self-contained HTML pages.

Text is written by Python and readable without scripts; the interactive figures and long tables are drawn by the script
of the page from data that is embedded as JSON. The page loads nothing: its content security policy allows its own
script and style only, by their hashes. All that comes from the input is escaped, and the script sets text, never
markup.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

from kubestow.reports.markup import Html, bar_chart, element, fragment, line_chart, table
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

#: In a script element only these could end it, begin a comment, or be a line end to an old parser.
_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def as_page(report: Report) -> str:
    """The complete document; without data for figures it has no script."""
    style, scripts, tools, policy = _asset("report.css"), [], [], "default-src 'none';"
    if report.data:
        script = _asset("report.js")
        policy += f" script-src '{_hash(script)}';"
        scripts = [
            element("script", Html(_json(report.data)), type="application/json", id="data"),
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
            return element("p", _inline(text), class_="note" if note else _class(text))
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
    """A text with the element of its role."""
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


def _class(text: str) -> str | None:
    return "names" if isinstance(text, Span) and text.role == "names" else None


def _json(data: Mapping[str, Any]) -> str:
    text = msgspec.json.encode(data).decode()
    for character, escaped in _ESCAPES.items():
        text = text.replace(character, escaped)
    return text


@cache
def _asset(name: str) -> str:
    return files(__package__).joinpath("assets", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
