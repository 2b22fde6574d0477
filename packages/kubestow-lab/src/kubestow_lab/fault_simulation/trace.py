"""The trace of a run: one line per event. Equal fingerprints mean equal runs."""

from __future__ import annotations

from hashlib import sha256

from kubestow.scheduling.interfaces import Clock


class Trace:
    """Lines, each with its virtual time."""

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
