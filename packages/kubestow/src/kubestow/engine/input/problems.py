"""Problems of input: objects that were left out, with their file and position.

One unusable object does not spoil a dump of thousands, so it is left out, reported and counted. With ``strict``, the
first problem refuses the whole input. A file that does not parse is always refused: it may be truncated, and half a
cluster would give wrong results.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kubestow.errors import InputError

__all__ = ["Problem", "Problems"]


@dataclass(frozen=True, slots=True)
class Problem:
    """Why an object was left out: its file, its ``place`` there (a line or ``items[3]``), and what is wrong."""

    subject: str
    place: str
    text: str

    def __str__(self) -> str:
        """One line: file, place, problem."""
        return f"{self.subject}: {self.place}: {self.text}" if self.place else f"{self.subject}: {self.text}"


class Problems:
    """The problems found so far; the first one is raised as InputError if ``strict``."""

    def __init__(self, *, strict: bool = False) -> None:
        self.strict = strict
        self._found: list[Problem] = []

    def report(self, subject: str, place: str, text: str) -> None:
        """Keep a problem. Raises InputError if strict."""
        if self.strict:
            raise InputError(subject, text, place=place)
        self._found.append(Problem(subject, place, text))

    def __iter__(self) -> Iterator[Problem]:
        """In the order in which they were found."""
        return iter(self._found)

    def __len__(self) -> int:
        """How many there are."""
        return len(self._found)
