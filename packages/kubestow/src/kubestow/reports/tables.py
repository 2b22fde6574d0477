"""Tables on a terminal, and as HTML in a notebook."""

from __future__ import annotations

import io

from rich.console import Console, RenderableType
from rich.table import Table

__all__ = ["amount_text", "as_html", "plain_table"]

_BYTES, _HUGE_PAGES = ("memory", "ephemeral-storage"), "hugepages-"
_WIDTH = 130


def as_html(tables: RenderableType) -> str:
    """The same tables as HTML."""
    console = Console(file=io.StringIO(), record=True, width=_WIDTH, force_jupyter=False, markup=False)
    console.print(tables)
    return console.export_html(inline_styles=True, code_format="<pre>{code}</pre>")


def plain_table(first: str, *others: str, right: tuple[str, ...] | None = None) -> Table:
    """A table whose columns but the first are aligned to the right, unless ``right`` names others."""
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for index, name in enumerate((first, *others)):
        to_right = index > 0 if right is None else name in right
        table.add_column(name, justify="right" if to_right else "left", overflow="fold", no_wrap=to_right)
    return table


def amount_text(resource: str, amount: int) -> str:
    """An amount of a resource (millicores, bytes or counts) with its unit."""
    if resource == "cpu":
        return f"{amount / 1000:,.1f} cores"
    if resource in _BYTES or resource.startswith(_HUGE_PAGES):
        return f"{amount / 2**30:,.1f} GiB"
    return f"{amount:,}"
