"""Recordings of scheduler processes: their flight records, and what the faulty plugin drew from the faults."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kubestow.flight_record.entries import Header
from kubestow.flight_record.segment import Chunk, SegmentEncoder
from kubestow_lab.fault_simulation.faults import Fault


@dataclass
class Recording:
    """One start of a process, until it ends or is killed; ``content`` is its record, without the end.

    ``is_full`` tells whether the disk is full, so that a chunk is lost. Implements
    :class:`kubestow.flight_record.recording.SegmentSink`.
    """

    process: str
    faulty_plugin: bool
    draws: list[Any] = field(default_factory=list)
    content: bytes = b""
    is_full: Callable[[], bool] = lambda: False
    _encoder: SegmentEncoder = field(default_factory=SegmentEncoder)

    def begin_segment(self, header: Header) -> None:
        self.content = self._encoder.beginning(header)

    def accept(self, chunk: Chunk) -> bool:
        if self.is_full():
            return False
        self.content += self._encoder.chunk(chunk)
        return True


class _Draws:
    """The random source of the faults, which the faulty plugin uses too."""

    def __init__(self, draw: Any) -> None:
        self._draw = draw

    def random(self) -> float:
        return float(self._draw("random"))

    def choice(self, options: Any) -> Any:
        return self._draw("choice", options)

    def expovariate(self, rate: float) -> float:
        return float(self._draw("expovariate", rate))


class RecordedFaults:
    """The faults as a plugin sees them, with everything that it draws."""

    def __init__(self, faults: Any, draws: list[Any]) -> None:
        self._faults, self._draws = faults, draws
        self.random = _Draws(self._drawn)

    def occurs(self, fault: Fault) -> bool:
        """Whether a fault occurs now."""
        self._draws.append(self._faults.occurs(fault))
        return bool(self._draws[-1])

    def _drawn(self, method: str, *arguments: Any) -> Any:
        self._draws.append(getattr(self._faults.random, method)(*arguments))
        return self._draws[-1]


class ReplayedFaults:
    """The recorded draws, in order."""

    def __init__(self, draws: list[Any]) -> None:
        self._draws = iter(draws)
        self.random = _Draws(self._next)

    def occurs(self, fault: Fault) -> bool:
        """Whether the fault occurred."""
        return bool(self._next())

    def _next(self, *_: Any) -> Any:
        return next(self._draws)
