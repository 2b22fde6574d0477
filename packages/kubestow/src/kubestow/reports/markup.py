"""HTML that is built from elements, so that text is always escaped."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape

__all__ = ["Html", "element", "fragment", "table"]

_VOID = frozenset({"meta", "input", "br"})
#: Control characters that HTML does not allow, surrogates, and those that change the direction of the text around them.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069]")


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


def _escaped(text: str) -> str:
    return escape(_UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text), quote=True)
