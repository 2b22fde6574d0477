"""The model of a report: text, tables and figures in sections, which the renderers show in their forms.

Products fill it with text that is ready to be read. :mod:`kubestow.reports.text` shows it with rich,
:mod:`kubestow.reports.text` writes Markdown, and :mod:`kubestow.reports.page` self-contained HTML pages.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_BYTES, _HUGE_PAGES = ("memory", "ephemeral-storage"), "hugepages-"


class Span(str):
    """Text with a role.

    The role is ``code`` for names of the input, ``names`` for long lists of them, ``strong``, or says what the text
    means: ``better``, ``worse``, ``passed``, ``failed``. ``hint`` explains the text where there is a pointer. Forms
    without markup show the text alone.
    """

    __slots__ = ("hint", "role")
    role: str
    hint: str

    def __new__(cls, text: str, role: str = "", *, hint: str = "") -> Span:
        span = super().__new__(cls, text)
        span.role, span.hint = role, hint
        return span


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph; a ``note`` is less important than the text around it."""

    text: str
    note: bool = False


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading within a section."""

    text: str


#: A number with a unit, or one of several; what stands for no number.
_NUMBER = re.compile(r"[+-]?\d[\d,.]*( of \d[\d,.]*)?( ?(%|[A-Za-zµ]+))?")
_NO_NUMBERS = ("", "-", "…")


class Table:
    """A table of texts: columns of numbers are aligned to the right, or those that ``right`` names.

    Units are part of the headings or the cells. In forms with markup a cell of several lines is a list, and ``caption``
    says what the table is about. With ``total`` the last row sums up the others.
    """

    __slots__ = ("_right", "caption", "headings", "rows", "total")

    def __init__(
        self, *headings: str, right: Collection[str] | None = None, caption: str = "", total: bool = False
    ) -> None:
        self.headings = headings
        self._right = None if right is None else frozenset(right)
        self.caption, self.total = caption or headings[0], total
        self.rows: list[Sequence[str]] = []

    def add(self, *cells: str) -> None:
        """Add a row with a cell for each column. Raises ValueError for another number of cells."""
        if len(cells) != len(self.headings):
            raise ValueError(f"expected {len(self.headings)} cells, got {len(cells)}")
        self.rows.append(cells)

    def is_right(self, column: int) -> bool:
        """Whether the column with this index is aligned to the right."""
        if self._right is not None:
            return self.headings[column] in self._right
        cells = [row[column] for row in self.rows if row[column] not in _NO_NUMBERS]
        return column > 0 and bool(cells) and all(map(_NUMBER.fullmatch, cells))


@dataclass(frozen=True, slots=True)
class Cards:
    """The most important figures, with their labels: ``(label, value)``."""

    figures: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Items:
    """A numbered list."""

    texts: Sequence[str]


@dataclass(frozen=True, slots=True)
class Details:
    """Blocks that are shown on demand, below a line of spans and an optional explanation of it."""

    summary: Sequence[str]
    blocks: Sequence[Block]
    explanation: str | None = None


@dataclass(frozen=True, slots=True)
class LineChart:
    """A line through the points ``(x, y)``, from zero to the largest value of each axis."""

    points: Sequence[tuple[float, float]]
    x_label: str
    y_label: str


@dataclass(frozen=True, slots=True)
class BarChart:
    """A bar for each ``(label, value, text)``; the text stands at its end."""

    bars: Sequence[tuple[str, float, str]]
    label: str


@dataclass(frozen=True, slots=True)
class AreaRow:
    """A row of :class:`AreaRows`: areas ``(series, values)``, each on top of those before it, and a line over them."""

    label: str
    areas: Sequence[tuple[int, Sequence[float]]]
    line: Sequence[float] = ()


@dataclass(frozen=True, slots=True)
class AreaRows:
    """Rows over one axis of time, from 0 to 1 in height.

    ``edges`` are times in seconds: values hold from one to the next, so there is one value less. An area has the colour
    of its series, which ``series`` names by index; without a name it is not in the key. ``now`` is marked.
    """

    label: str
    edges: Sequence[float]
    rows: Sequence[AreaRow]
    series: Sequence[str] = ()
    now: float | None = None


@dataclass(frozen=True, slots=True)
class Period:
    """A bar of a Gantt chart: its row by index, from when to when (seconds), and the series by which it is coloured.

    ``text`` explains it where there is a pointer. One that ``is_planned`` has not begun, and is drawn as an outline.
    """

    row: int
    start: float
    end: float
    series: int
    name: str
    text: str
    is_planned: bool = False


@dataclass(frozen=True, slots=True)
class Gantt:
    """Rows with periods over an axis from a time to another one, in seconds.

    ``series`` names the colours, without a name one is not in the key. ``now`` is marked.
    """

    label: str
    rows: Sequence[str]
    periods: Sequence[Period]
    axis: tuple[float, float]
    series: Sequence[str] = ()
    now: float | None = None


@dataclass(frozen=True, slots=True)
class Section:
    """Blocks below a heading."""

    title: str
    blocks: Sequence[Block]
    anchor: str | None = None


@dataclass(frozen=True, slots=True)
class Figure:
    """A section with an interactive figure: ``kind`` says what the script draws from the data of the report."""

    title: str
    note: str
    kind: str
    anchor: str | None = None


@dataclass(frozen=True, slots=True)
class PluginReport:
    """What a plugin adds to the report of a simulation: sections, the most important first, and ``data`` for JSON."""

    sections: Sequence[Section]
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Report:
    """A report of its own page; ``data`` is what its figures show, empty for a report without :class:`Figure`."""

    title: str
    subtitle: str
    sections: Sequence[Section | Figure]
    data: Mapping[str, Any] = field(default_factory=dict)


Block = Paragraph | Heading | Table | Cards | Items | Details | LineChart | BarChart | AreaRows | Gantt
"""A part of a section."""


def counted(count: int, singular: str, plural: str = "") -> str:
    """``1 pod``, ``1,213 pods``; the plural is with an s unless it is given, such as ``pods are``."""
    return f"{count:,} {singular if count == 1 else plural or singular + 's'}"


def amount_text(resource: str, amount: int) -> str:
    """An amount of a resource (millicores, bytes or counts) with its unit."""
    if resource == "cpu":
        return f"{amount / 1000:,.1f} cores"
    if resource in _BYTES or resource.startswith(_HUGE_PAGES):
        return f"{amount / 2**30:,.1f} GiB"
    return f"{amount:,}"
