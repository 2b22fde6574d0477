"""What is tried again after a failure, and when: growing pauses, with a random share each. Delays are in seconds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

__all__ = ["Backoff", "jittered"]


def jittered(seconds: float, jitter: float, random: Random) -> float:
    """The delay, longer by a random share of it: up to ``jitter`` times."""
    return seconds * (1 + jitter * random.random())


@dataclass(frozen=True, slots=True)
class Backoff:
    """Delays that grow: the first is ``initial``, each next one ``factor`` times as long, none longer than ``limit``.

    Every delay is then made longer by a random share of at most ``jitter``, so that clients of a server that comes back
    do not all arrive at once.
    """

    initial: float
    factor: float
    jitter: float
    limit: float = float("inf")

    def delays(self, random: Random) -> Iterator[float]:
        """The delays one after the other, without end."""
        delay = self.initial
        while True:
            yield jittered(delay, self.jitter, random)
            delay = min(delay * self.factor, self.limit)
