"""Reports as Markdown, and results as JSON and YAML.

Names and messages that come from the input are code spans in Markdown: in these it has no syntax, and a forge makes no
link and mentions no user.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from kubestow.reports.model import Block, Heading, Paragraph, Span, Table


def as_markdown(blocks: Iterable[Block]) -> str:
    """The headings, paragraphs and tables, with an empty line after each."""
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
