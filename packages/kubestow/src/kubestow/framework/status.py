"""What a plugin returns: a status for the pod, or a verdict over many nodes at once.

The codes and their meanings are kube-scheduler's (semantics 4.1). A :class:`Verdict` is compact: one small number per
row, 0 where the node passes, otherwise a key of its legend. The legend maps keys to statuses, and is only read when a
rejection has to be explained.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray


class Code(Enum):
    """The kind of a status; the value is kube-scheduler's name for it."""

    SUCCESS = "Success"
    ERROR = "Error"
    UNSCHEDULABLE = "Unschedulable"
    UNSCHEDULABLE_AND_UNRESOLVABLE = "UnschedulableAndUnresolvable"
    WAIT = "Wait"
    SKIP = "Skip"
    PENDING = "Pending"

    @property
    def is_rejection(self) -> bool:
        """Whether the pod was rejected, as opposed to an error."""
        return self in _REJECTIONS


_REJECTIONS = frozenset({Code.UNSCHEDULABLE, Code.UNSCHEDULABLE_AND_UNRESOLVABLE, Code.PENDING})


@dataclass(frozen=True, slots=True)
class Status:
    """A code and the reasons for it; ``plugin`` names the plugin that returned it, and is set by the runtime."""

    code: Code
    reasons: tuple[str, ...] = ()
    plugin: str = ""

    @classmethod
    def unschedulable(cls, *reasons: str) -> Status:
        """A rejection that preempting other pods may resolve."""
        return cls(Code.UNSCHEDULABLE, reasons)

    @classmethod
    def unresolvable(cls, *reasons: str) -> Status:
        """A rejection that preempting other pods cannot resolve."""
        return cls(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, reasons)

    @classmethod
    def error(cls, *reasons: str) -> Status:
        """An internal failure; the pod is retried after a backoff."""
        return cls(Code.ERROR, reasons)

    @classmethod
    def skip(cls) -> Status:
        """Nothing to do for this pod."""
        return SKIP

    @property
    def ok(self) -> bool:
        """Whether this is a success."""
        return self.code is Code.SUCCESS

    @property
    def message(self) -> str:
        """The reasons in one line."""
        return ", ".join(self.reasons)

    def by(self, plugin: str) -> Status:
        """The status as returned by this plugin."""
        return Status(self.code, self.reasons, plugin)

    def without_plugin(self) -> Status:
        """The status as if by no plugin, so that no plugin's events requeue the pod: it is retried after a backoff."""
        return self.by("")


SUCCESS = Status(Code.SUCCESS)
SKIP = Status(Code.SKIP)


def aggregate(messages: Sequence[str]) -> str:
    """Several messages, at least one, in one line, as ``utilerrors.Aggregate`` writes them."""
    return messages[0] if len(messages) == 1 else f"[{', '.join(messages)}]"


Legend = Callable[[int], Status]
"""Maps the keys of a verdict to statuses."""

#: Keys below this are counted rather than sorted.
_FEW_KEYS = 4096


class Verdict:
    """The result of Filter.

    ``keys`` is int32, one per node: 0 passes, any other key stands for a status of the legend. In a plugin with cached
    results, a key must stand for the same status in all verdicts on pods of one signature. ``has_errors`` is set when
    some status may be an ERROR, which ends the cycle.
    """

    __slots__ = ("has_errors", "keys", "legend")

    def __init__(self, keys: NDArray[np.int32], legend: Legend, *, has_errors: bool = False) -> None:
        self.keys = keys
        self.legend = legend
        self.has_errors = has_errors

    @classmethod
    def rejecting(cls, where: NDArray[np.bool_], status: Status) -> Verdict:
        """A verdict that rejects the nodes where the array (bool, one per node) is true, all with one status."""
        return cls(where.astype(np.int32), lambda _: status, has_errors=status.code is Code.ERROR)

    @classmethod
    def of(cls, keys: NDArray[np.int32], statuses: Mapping[int, Status]) -> Verdict:
        """A verdict that rejects the nodes with a key other than 0, each with the status of its key."""
        errors = any(status.code is Code.ERROR for status in statuses.values())
        return cls(keys, statuses.__getitem__, has_errors=errors)

    @property
    def passes(self) -> NDArray[np.bool_]:
        """Where the nodes pass, bool."""
        return np.equal(self.keys, 0)

    def __len__(self) -> int:
        return len(self.keys)

    def status(self, position: int) -> Status:
        """The status of the node at a position."""
        key = int(self.keys[position])
        return self.legend(key) if key else SUCCESS

    def tally(self, where: NDArray[np.bool_]) -> list[tuple[Status, int, int]]:
        """Each distinct status among some of the nodes (bool), with the number of nodes that have it, and its key."""
        some = self.keys[where]
        if len(some) and some.min() >= 0 and some.max() < _FEW_KEYS:
            totals = np.bincount(some)
            keys = np.flatnonzero(totals)
            counts = totals[keys]
        else:
            keys, counts = np.unique(some, return_counts=True)
        counted = zip(keys.tolist(), counts.tolist(), strict=True)
        return [(self.legend(key), count, key) for key, count in counted if key]

    def by_status(self, where: NDArray[np.bool_]) -> Iterator[tuple[Status, NDArray[np.bool_]]]:
        """Each distinct status among some of the nodes (bool), with the nodes that have it (bool)."""
        for status, _, key in self.tally(where):
            yield status, where & np.equal(self.keys, key)
