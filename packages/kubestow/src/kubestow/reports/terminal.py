"""Reports on a terminal, by rich, and the same as HTML in a notebook.

rich takes a while to import, so it is imported when something is shown.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kubestow.reports.model import Block, Cards, Details, Heading, Items, Paragraph, Span, Table

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table as RichTable

_WIDTH = 130


class Displayed:
    """A result that is shown as blocks: by rich, on a terminal, and in notebooks."""

    __slots__ = ()

    def blocks(self) -> Iterable[Block]:
        """What people see of the result."""
        raise NotImplementedError

    def __rich__(self) -> RenderableType:
        return renderable(self.blocks())

    def _repr_html_(self) -> str:
        from rich.console import Console

        console = Console(file=io.StringIO(), record=True, width=_WIDTH, force_jupyter=False, markup=False)
        console.print(self)
        return console.export_html(inline_styles=True, code_format="<pre>{code}</pre>")


@dataclass(frozen=True, slots=True)
class View(Displayed):
    """Blocks that are shown as they are."""

    content: Sequence[Block]

    def blocks(self) -> Sequence[Block]:
        return self.content


def renderable(blocks: Iterable[Block]) -> RenderableType:
    """What rich can print of the blocks; charts are left out."""
    from rich.console import Group

    return Group(*(part for block in blocks for part in _parts(block)))


def _parts(block: Block) -> Iterator[RenderableType]:
    from rich.text import Text

    match block:
        case Paragraph(text) | Heading(text):
            yield Text(text)
        case Table():
            yield _table(block)
        case Cards(figures):
            yield from (Text(f"{label}: {value}") for label, value in figures)
        case Items(texts):
            yield from (Text(f"{number}. {text}") for number, text in enumerate(texts, 1))
        case Details(summary, blocks):
            yield Text(" ".join(summary))
            yield renderable(blocks)


def _table(found: Table) -> RichTable:
    from rich.table import Table as RichTable
    from rich.text import Text

    shown = RichTable(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for index, heading in enumerate(found.headings):
        right = found.is_right(index)
        shown.add_column(heading, justify="right" if right else "left", overflow="fold", no_wrap=right)
    for number, row in enumerate(found.rows, 1):
        worse = [isinstance(cell, Span) and cell.role in ("worse", "failed") for cell in row]
        cells = [Text(str(cell), style="red" if red else "") for cell, red in zip(row, worse, strict=True)]
        shown.add_row(*cells, style="bold" if found.total and number == len(found.rows) else None)
    return shown
