"""What comes of a conversion: a v1 configuration and remarks, or why there is none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from kubestow.config.field_problems import Problem

__all__ = ["Conversion", "Inexpressible"]


class Conversion(NamedTuple):
    """The data of a v1 configuration; ``remarks`` name what of the old text has become something else, or nothing."""

    data: dict[str, Any]
    remarks: tuple[Problem, ...]


class Inexpressible(Exception):
    """An old configuration says what no v1 configuration can; ``problems`` are all such places."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = problems
        super().__init__("; ".join(map(str, problems)))
