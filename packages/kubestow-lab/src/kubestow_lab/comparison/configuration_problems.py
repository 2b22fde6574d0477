"""Configurations that have to be edited before they can be compared, in one table.

A minor version of Kubernetes knows other fields, plugins and feature gates than the next, so one file can be right for
the baseline and wrong for the candidate. All mistakes of both sides are found in one pass, as ``kubestow config check``
finds them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import structs

from kubestow.config import FieldError
from kubestow.reports.model import Block, Paragraph, Span, Table, counted
from kubestow.reports.text import Displayed
from kubestow.rules.minors import Minor


@dataclass(frozen=True, slots=True)
class SideProblems:
    """The mistakes of one side's configuration, in the order of its text; ``role`` is baseline or candidate."""

    role: str
    file: str
    minor: Minor
    errors: Sequence[FieldError]


@dataclass(frozen=True, slots=True, repr=False)
class ConfigurationProblems(Displayed):
    """The sides whose configuration is invalid; at least one."""

    sides: Sequence[SideProblems]

    @property
    def headline(self) -> str:
        """How much has to be edited where, in one sentence."""
        texts = [
            f"{found.file} ({found.role}, Kubernetes {found.minor}) has {counted(len(found.errors), 'problem')}"
            for found in self.sides
        ]
        return "; ".join(texts)

    def table(self) -> Table:
        """What must be edited: a row for each mistake, with its place; one that both sides have is in one row."""
        rows: dict[tuple[str, str, str], list[str]] = {}
        for found in self.sides:
            for error in found.errors:
                place = f"{found.file}:{error.line}:{error.column}" if error.line else found.file
                rows.setdefault((place, error.path, error.message), []).append(f"{found.role} ({found.minor})")
        table = Table("where", "field", "must be edited", "in", right=())
        for (place, path, message), roles in rows.items():
            table.add(*(Span(text, "code") for text in (place, path, message)), ", ".join(dict.fromkeys(roles)))
        return table

    def blocks(self) -> Iterator[Block]:
        """The sentence and the table."""
        yield Paragraph(self.headline)
        yield self.table()

    def as_json(self) -> dict[str, Any]:
        """The mistakes of each side as data for JSON."""
        return {
            "kind": "ConfigurationProblems",
            "configurations": [
                {
                    "role": found.role,
                    "file": found.file,
                    "emulatedVersion": str(found.minor),
                    "errors": [structs.asdict(error) for error in found.errors],
                }
                for found in self.sides
            ],
        }
