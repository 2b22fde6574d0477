"""What happens in a run: its trace, line by line, and its steps.

A step is what a run does on purpose to its schedulers: a fault, or what users and jobs do. Each has a number, in the
order in which they happen. A run can be repeated with only some of them, which is how a failing run is shrunk. What
depends on a step that is left out is drawn anew, so later steps may be others; the run is deterministic all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass
from hashlib import sha256
from random import Random

from kubestow.scheduling.interfaces import Clock


class Trace:
    """Lines, each with its virtual time. Equal fingerprints mean equal runs."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.lines: list[str] = []

    def now(self) -> float:
        """The virtual time in seconds."""
        return self._clock.monotonic()

    def note(self, actor: str, *what: object) -> None:
        """Add a line."""
        self.lines.append(f"{self.now():10.4f} {actor:10} {' '.join(map(str, what))}")

    @property
    def fingerprint(self) -> str:
        """A digest of all lines."""
        return sha256("\n".join(self.lines).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Step:
    """A step that has happened, at a time in seconds."""

    number: int
    time: float
    what: str


class StepRandom:
    """The random sources of the steps of one actor: one for all, or a new one for each.

    With a new one for each, a step that is left out does not change what is drawn for those after it.
    """

    def __init__(self, first: Random, stream: str, *, is_independent: bool) -> None:
        self._random, self._stream, self._is_independent = first, stream, is_independent
        self._steps = 0

    def next(self) -> Random:
        """The source of the next step."""
        if self._is_independent:
            self._steps += 1
            self._random = Random(f"{self._stream} {self._steps}")
        return self._random


class Steps:
    """Tells whether the next step happens, and keeps those that did. ``kept`` of None keeps all before ``end``."""

    def __init__(self, now: Callable[[], float], kept: Set[int] | None = None, end: int | None = None) -> None:
        self._now, self._kept, self._end = now, kept, end
        self._number = 0
        self.taken: list[Step] = []

    def takes(self, what: str) -> bool:
        """Whether the next step, of which a few words tell what it is, happens."""
        number, self._number = self._number, self._number + 1
        if self._end is not None and number >= self._end:
            return False
        if self._kept is not None and number not in self._kept:
            return False
        self.taken.append(Step(number, self._now(), what))
        return True
