"""Writes the tables of docs/traces.md: the formats, and what is assumed of each, from the code's own declarations.

python -m tools.site.traces
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

from kubestow_lab.traces.formats import FORMATS
from kubestow_lab.traces.trace import Assumptions

PAGE = Path(__file__).parents[2] / "docs" / "traces.md"
_CLUSTERDATA = "git clone --depth 1 https://github.com/alibaba/clusterdata"
#: What is written between these comments of the page.
_PART = "<!-- {0}: python -m tools.site.traces -->\n{1}\n<!-- end of {0} -->"


def page(text: str) -> str:
    """The page with its tables written anew."""
    for name, lines in (("formats", _formats()), ("assumptions", _assumptions())):
        pattern = re.escape(_PART.format(name, "@")).replace("@", ".*?")
        table = _PART.format(name, "\n".join(lines))
        text, count = re.subn(pattern, lambda _, table=table: table, text, flags=re.DOTALL)  # type: ignore[misc]
        if count != 1:
            raise ValueError(f"{PAGE.name} has {count} places for its {name}, expected one")
    return text


def _formats() -> Iterator[str]:
    yield "| `--trace` | What it reads | Get the data |"
    yield "|---|---|---|"
    openb = "openb=FOLDER` or `FOLDER"
    lists = "Alibaba's GPU cluster of 2023, with `--pod-list` and `--node-list`"
    yield f"| `{openb}` | {lists} | `{_CLUSTERDATA}`, folder `cluster-trace-gpu-v2023/csv` |"
    for each in FORMATS.values():
        path = "FILE" if each.name == "swf" else "FOLDER"
        yield f"| `{each.name}={path}` | {each.title} | `{each.download}` |"
    yield "| `csv=FILE` | any table, with `--mapping` | |"


def _assumptions() -> Iterator[str]:
    common = {each.name for each in fields(Assumptions)}
    yield "| Trace | Key and default | Meaning |"
    yield "|---|---|---|"
    yield from _rows("all but openb", Assumptions, set())
    for each in FORMATS.values():
        yield from _rows(f"`{each.name}`", each.assumptions, common)


def _rows(title: str, assumptions: type[Assumptions], without: set[str]) -> Iterator[str]:
    for each in fields(assumptions):
        if each.name not in without:
            default = (
                str(each.default).lower() if isinstance(each.default, bool) else f"{each.default}".removesuffix(".0")
            )
            yield f"| {title} | `{each.name.replace('_', '-')}={default}` | {each.metadata['meaning']} |"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
