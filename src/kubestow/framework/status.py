"""What a plugin answers: a status for the pod, or a verdict over many nodes at once.

The codes and their meanings are kube-scheduler's (semantics 4.1). A :class:`Verdict` is compact: one small number per
row, 0 where the node passes, otherwise a key into a legend of :class:`Status` that is only read when somebody wants to
know why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

__all__ = ["SUCCESS", "Code", "Legend", "Status", "Verdict"]


class Code(Enum):
    """What a status means; the value is its name in the reference."""

    SUCCESS = "Success"
    ERROR = "Error"
    UNSCHEDULABLE = "Unschedulable"
    UNSCHEDULABLE_AND_UNRESOLVABLE = "UnschedulableAndUnresolvable"
    WAIT = "Wait"
    SKIP = "Skip"
    PENDING = "Pending"

    @property
    def is_rejection(self) -> bool:
        """Whether the pod was refused (and not merely failed)."""
        return self in _REJECTIONS


_REJECTIONS = frozenset({Code.UNSCHEDULABLE, Code.UNSCHEDULABLE_AND_UNRESOLVABLE, Code.PENDING})


@dataclass(frozen=True, slots=True)
class Status:
    """A code and the reasons for it; ``plugin`` is who said so, filled in by the runtime."""

    code: Code
    reasons: tuple[str, ...] = ()
    plugin: str = ""

    @classmethod
    def unschedulable(cls, *reasons: str) -> Status:
        """Refused; preempting other pods may help."""
        return cls(Code.UNSCHEDULABLE, reasons)

    @classmethod
    def unresolvable(cls, *reasons: str) -> Status:
        """Refused; preempting other pods cannot help."""
        return cls(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, reasons)

    @classmethod
    def error(cls, *reasons: str) -> Status:
        """An internal failure; the pod is tried again with backoff."""
        return cls(Code.ERROR, reasons)

    @classmethod
    def skip(cls) -> Status:
        """Nothing to do for this pod."""
        return cls(Code.SKIP)

    @property
    def ok(self) -> bool:
        """Whether this is a success."""
        return self.code is Code.SUCCESS

    @property
    def message(self) -> str:
        """The reasons in one line."""
        return ", ".join(self.reasons)

    def by(self, plugin: str) -> Status:
        """The same status, said by a plugin."""
        return Status(self.code, self.reasons, plugin)


SUCCESS = Status(Code.SUCCESS)

Legend = Callable[[int], Status]

_FEW_KEYS = 4096


class Verdict:
    """What a filter says of the nodes it was asked about.

    ``keys`` is int32, one per node: 0 passes, anything else names a status of the legend. For one pod a key must mean
    the same in every verdict of a plugin whose answers are remembered. ``has_errors`` says that some status may be an
    ERROR, which fails the whole cycle.
    """

    __slots__ = ("has_errors", "keys", "legend")

    def __init__(self, keys: NDArray[np.int32], legend: Legend, *, has_errors: bool = False) -> None:
        self.keys = keys
        self.legend = legend
        self.has_errors = has_errors

    @classmethod
    def rejecting(cls, where: NDArray[np.bool_], status: Status) -> Verdict:
        """Rejects the nodes where the array is true, all with the same status."""
        return cls(where.astype(np.int32), lambda _: status, has_errors=status.code is Code.ERROR)

    @classmethod
    def of(cls, keys: NDArray[np.int32], statuses: Mapping[int, Status]) -> Verdict:
        """Rejects nodes with a key other than 0, each with the status of its key."""
        errors = any(status.code is Code.ERROR for status in statuses.values())
        return cls(keys, statuses.__getitem__, has_errors=errors)

    @property
    def passes(self) -> NDArray[np.bool_]:
        """Where the nodes pass, bool."""
        return np.equal(self.keys, 0)

    def __len__(self) -> int:
        return len(self.keys)

    def status(self, position: int) -> Status:
        """What is said of one node."""
        key = int(self.keys[position])
        return self.legend(key) if key else SUCCESS

    def tally(self, where: NDArray[np.bool_]) -> Iterator[tuple[Status, int]]:
        """Each distinct status among some of the nodes (bool), with the number of nodes that got it."""
        for key, count in self._counted(where):
            if key:
                yield self.legend(key), count

    def by_status(self, where: NDArray[np.bool_]) -> Iterator[tuple[Status, NDArray[np.bool_]]]:
        """Each distinct status among some of the nodes (bool), with those of the nodes that got it."""
        for key, _ in self._counted(where):
            if key:
                yield self.legend(key), where & np.equal(self.keys, key)

    def _counted(self, where: NDArray[np.bool_]) -> list[tuple[int, int]]:
        """Each distinct key among some of the nodes and how often it is there."""
        some = self.keys[where]
        if len(some) and some.min() >= 0 and some.max() < _FEW_KEYS:  # counting small keys is quicker than sorting them
            totals = np.bincount(some)
            return [(key, int(totals[key])) for key in np.flatnonzero(totals).tolist()]
        keys, counts = np.unique(some, return_counts=True)
        return list(zip(keys.tolist(), counts.tolist(), strict=True))
