"""Reports on a terminal, by rich, and the same as HTML in a notebook; as Markdown; and results as JSON and YAML.

Names and messages that come from the input are code spans in Markdown: in these it has no syntax, and a forge makes no
link and mentions no user. rich and yaml take a while to import, so they are imported when something is shown.
"""

from __future__ import annotations

import html
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from kubestow.reports.model import Block, Cards, Details, Heading, Items, Paragraph, Span, Table

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table as RichTable

_WIDTH = 130
_LONGEST_REPR = 200


def printable(text: str) -> str:
    """The text with escapes for characters that control a terminal, such as ESC; the ends of lines stay."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one == "\n" else repr(one)[1:-1] for one in text)


def shortened(text: str, longest: int) -> str:
    """The text, cut with an ellipsis at the end where it has more than so many characters."""
    return text if len(text) <= longest else text[: longest - 1] + "…"


def short_repr(name: str, text: str) -> str:
    """``<Name: text>`` with the first line of a text, of at most 200 characters."""
    line, most = text.partition("\n")[0], _LONGEST_REPR - len(name) - len("<: >")
    return f"<{name}: {shortened(line, most)}>"


class Displayed:
    """A result that is shown as blocks: by rich, on a terminal, and in notebooks.

    Its repr is short whatever its size, so a data class that derives from it has none generated (``repr=False``).
    """

    __slots__ = ()

    def blocks(self) -> Iterable[Block]:
        """What people see of the result."""
        raise NotImplementedError

    def __repr__(self) -> str:
        """The class and the first sentence that is shown."""
        texts = (str(block.text) for block in self.blocks() if isinstance(block, Paragraph))
        return short_repr(type(self).__name__, next(filter(None, texts), ""))

    def __rich__(self) -> RenderableType:
        return renderable(self.blocks())

    def _repr_html_(self) -> str:
        from rich.console import Console

        console = Console(file=io.StringIO(), record=True, width=_WIDTH, force_jupyter=False, markup=False)
        console.print(self)
        return console.export_html(inline_styles=True, code_format="<pre>{code}</pre>")


@dataclass(frozen=True, slots=True, repr=False)
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
            yield Text(printable(text))
        case Table():
            yield _table(block)
        case Cards(figures):
            yield from (Text(printable(f"{label}: {value}")) for label, value in figures)
        case Items(texts):
            yield from (Text(printable(f"{number}. {text}")) for number, text in enumerate(texts, 1))
        case Details(summary, blocks):
            yield Text(printable(" ".join(summary)))
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
        cells = [Text(printable(str(cell)), style="red" if red else "") for cell, red in zip(row, worse, strict=True)]
        shown.add_row(*cells, style="bold" if found.total and number == len(found.rows) else None)
    return shown


def as_markdown(blocks: Iterable[Block]) -> str:
    """The headings, paragraphs, tables and details, with an empty line after each."""
    return "\n".join(line for block in blocks for line in _lines(block)) + "\n"


def as_json(data: Any) -> str:
    """Plain data or structs as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(data), indent=2).decode()


def as_yaml(data: Any) -> str:
    """Plain data or structs as YAML, with keys in their order."""
    import yaml  # takes a while to import

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    return str(yaml.dump(msgspec.to_builtins(data), Dumper=dumper, sort_keys=False, width=120))


def _lines(block: Block) -> Iterator[str]:
    match block:
        case Heading(text):
            yield f"### {_inline(text)}"
        case Paragraph(text):
            yield _inline(text)
        case Table():
            yield f"| {' | '.join(block.headings)} |"
            yield f"|{'---|' * len(block.headings)}"
            for row in block.rows:
                yield f"| {' | '.join(map(_inline, row))} |"
        case Details(summary, blocks):
            yield f"<details><summary>{html.escape(' '.join(summary))}</summary>"
            yield ""
            for inner in blocks:
                yield from _lines(inner)
            yield "</details>"
        case _:
            raise TypeError(f"Markdown has no form for {type(block).__name__}")
    yield ""


def _inline(text: str) -> str:
    match text.role if isinstance(text, Span) else "":
        case "code":
            return code_span(text)
        case "strong":
            return f"**{text}**"
        case "failed":
            return f":x: {text}"
        case "passed":
            return f":white_check_mark: {text}"
    return text


def code_span(text: str) -> str:
    """The text as a code span that is safe in a table; empty for an empty text."""
    text = re.sub(r"[\s\x00-\x1f\x7f-\x9f\u2028\u2029]+", " ", text).strip()
    if not text:
        return ""
    fence = "`" * (1 + max((len(run) for run in re.findall(r"`+", text)), default=0))
    inner = text.replace("\\|", "\\ |").replace("|", "\\|")  # a backslash before it would be what is escaped
    return f"{fence} {inner} {fence}" if "`" in text else f"{fence}{inner}{fence}"
