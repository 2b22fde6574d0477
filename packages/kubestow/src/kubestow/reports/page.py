"""The page around a report: head, style, script, and the data that the script draws."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

from kubestow.reports.markup import Html, element, fragment
from kubestow.version import VERSION

__all__ = ["figure_section", "page", "section"]

#: In a script element only these could end it, begin a comment, or be a line end to an old parser.
_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def page(title: str, subtitle: str, sections: Sequence[Html], data: Mapping[str, Any]) -> str:
    """The complete document."""
    style, script = _asset("report.css"), _asset("report.js")
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; base-uri 'none';"
        " form-action 'none'"
    )
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="referrer", content="no-referrer"),
        element("meta", name="generator", content=f"kubestow {VERSION}"),
        element("title", title),
        element("style", Html(style)),
    )
    header = element(
        "header",
        element("h1", title),
        element("p", subtitle, class_="note"),
        element("button", "Light or dark", type="button", id="theme", hidden=""),
    )
    note = element("noscript", element("p", "The charts, the node map and long tables need JavaScript.", class_="note"))
    body = element(
        "body",
        header,
        element("main", note, *sections),
        element("script", Html(_json(data)), type="application/json", id="data"),
        element("script", Html(script)),
    )
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


def section(title: str, *children: str, anchor: str | None = None) -> Html:
    """A section with a heading."""
    return element("section", element("h2", title), *children, id=anchor)


def figure_section(title: str, note: str, kind: str, **attributes: str) -> Html:
    """A section whose figure ``kind`` the script draws; hidden without the script."""
    content = fragment(element("h2", title), element("p", note, class_="note"), element("div", class_="figure"))
    return element("section", content, hidden="", data_figure=kind, **attributes)


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
