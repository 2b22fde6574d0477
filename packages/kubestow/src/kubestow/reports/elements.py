"""Elements of HTML and SVG: as markup for a page, and as plain data for a script that makes the same elements.

All text is escaped, because markup is made of elements only.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

_VOID = frozenset({"meta", "input", "br"})
#: Their content is no markup: it must not contain their end tag.
_RAW = frozenset({"script", "style"})
#: Control characters that HTML does not allow, surrogates, and those that change the direction of the text around them.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069]")


@dataclass(frozen=True, slots=True)
class Element:
    """An element with attributes as ``(name, value)`` and children, which are elements or text."""

    tag: str
    attributes: Sequence[tuple[str, str]]
    children: Sequence[Element | str]

    @property
    def markup(self) -> str:
        """The element in HTML."""
        written = "".join(f' {name}="{_escaped(value)}"' for name, value in self.attributes)
        if self.tag in _VOID:
            return f"<{self.tag}{written}>"
        is_raw = self.tag in _RAW
        content = "".join(
            child.markup if isinstance(child, Element) else child if is_raw else _escaped(child)
            for child in self.children
        )
        return f"<{self.tag}{written}>{content}</{self.tag}>"

    @property
    def data(self) -> list[Any]:
        """The element as ``[tag, attributes, child, …]``, for JSON; text is as readable as in markup."""
        attributes = {name: _readable(value) for name, value in self.attributes}
        children = (child.data if isinstance(child, Element) else _readable(child) for child in self.children)
        return [self.tag, attributes, *children]


def element(tag: str, *children: Element | str, **attributes: str | None) -> Element:
    """An element; an attribute that is None is left out, and ``_`` stands for ``-`` in names."""
    given = [(name.rstrip("_").replace("_", "-"), value) for name, value in attributes.items() if value is not None]
    return Element(tag, given, children)


def _readable(text: str) -> str:
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def _escaped(text: str) -> str:
    return escape(_readable(text), quote=True)
