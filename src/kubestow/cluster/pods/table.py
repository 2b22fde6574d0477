"""The pod table: the pods on nodes as columns, one slot per pod.

Preemption considers the low-priority pods of all nodes at once, so what it needs of a pod (priority, start time,
requests) is kept in arrays. A pod keeps its slot until it is removed; slots are reused. The slots of a row of the node
table are in the order in which kube-scheduler keeps the pods of a node, which decides between equally important
victims. :class:`PodChanges` are pods of a table that hypothetical rows lose or gain.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.pods.shapes import PodInfo

__all__ = ["NOT_STARTED", "PodChanges", "PodTable", "offsets_of"]

#: The start time of a pod without one: later than any other.
NOT_STARTED = 2**63 - 1

_FIRST_CAPACITY = 8
#: Up to this many resources have columns even if no pod requests them.
_FEW_RESOURCES = 64
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def _nanoseconds(time: datetime | None) -> int:
    return NOT_STARTED if time is None else (time - _EPOCH) // _MICROSECOND * 1000


def offsets_of(lengths: NDArray[np.intp] | NDArray[np.bool_]) -> NDArray[np.intp]:
    """The offsets (intp) of consecutive runs of these lengths: run i is ``offsets[i]:offsets[i + 1]``."""
    offsets = np.zeros(len(lengths) + 1, np.intp)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


class PodTable:
    """Pods by slot, and the slots of each row.

    Columns are read by slot; they are replaced when the table grows, so they must not be kept.
    """

    def __init__(self) -> None:
        #: ``spec.priority``, int64 by slot.
        self.priority = np.zeros(_FIRST_CAPACITY, np.int64)
        #: ``status.startTime`` in nanoseconds since 1970, NOT_STARTED if unset, int64 by slot.
        self.start_time = np.zeros(_FIRST_CAPACITY, np.int64)
        #: CPU requests in millicores, with the default for pods without one, int64 by slot.
        self.nonzero_cpu = np.zeros(_FIRST_CAPACITY, np.int64)
        #: Memory requests in bytes, with the default for pods without one, int64 by slot.
        self.nonzero_memory = np.zeros(_FIRST_CAPACITY, np.int64)
        self._requested: dict[str, NDArray[np.int64]] = {}
        self._zeros = np.zeros(_FIRST_CAPACITY, np.int64)
        self._most_resources = _FEW_RESOURCES
        self._infos: list[PodInfo | None] = [None] * _FIRST_CAPACITY
        self._free = list(range(_FIRST_CAPACITY))
        self._slots: dict[str, int] = {}
        self._by_row: list[list[int]] = []

    def requested(self, resource: str) -> NDArray[np.int64]:
        """The requests of a resource (millicores, bytes or counts), int64 by slot."""
        return self._requested.get(resource, self._zeros)

    def slot(self, uid: str) -> int | None:
        """The slot of a pod, None when it has none."""
        return self._slots.get(uid)

    def info(self, slot: int) -> PodInfo:
        """The pod in a slot."""
        info = self._infos[slot]
        assert info is not None
        return info

    # -- rows ----------------------------------------------------------------------------------------------------

    def slots_on(self, rows: Sequence[int]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """The slots (intp) of the pods on some rows, row by row, and the rows' offsets (see :func:`offsets_of`)."""
        by_row = self._by_row
        runs = [by_row[row] for row in rows]
        offsets = offsets_of(np.fromiter(map(len, runs), np.intp, len(runs)))
        return np.fromiter(chain.from_iterable(runs), np.intp, int(offsets[-1])), offsets

    def slots(self, row: int) -> list[int]:
        """The slots of the pods on a row, in order."""
        return list(self._by_row[row])

    def restore_slots(self, row: int, slots: list[int]) -> None:
        """Restore an order of the pods on a row that :meth:`slots` returned."""
        self._by_row[row] = slots

    def append_row(self) -> None:
        """Append a row without pods."""
        self._by_row.append([])

    def remove_row(self, row: int) -> None:
        """Remove a row and its pods; the last row takes its number."""
        for slot in list(self._by_row[row]):
            self.remove(row, self.info(slot).uid)
        self._by_row[row] = self._by_row[-1]
        self._by_row.pop()

    def add(self, row: int, info: PodInfo) -> None:
        """Append a pod to a row."""
        self._by_row[row].append(self.allocate(info))

    def allocate(self, info: PodInfo) -> int:
        """Give a pod a slot without putting it on a row; the slot is returned."""
        if not self._free:
            self._grow()
        slot = self._slots[info.uid] = self._free.pop()
        self._infos[slot] = info
        self.priority[slot] = info.priority
        self.start_time[slot] = _nanoseconds(info.status.start_time)
        self.nonzero_cpu[slot], self.nonzero_memory[slot] = info.nonzero_requests
        requests = info.requests
        for resource, column in self._requested.items():
            column[slot] = requests.get(resource, 0)
        for resource in requests.keys() - self._requested.keys():
            self._add_resource(resource)[slot] = requests[resource]
        return slot

    def _add_resource(self, resource: str) -> NDArray[np.int64]:
        """Make the column of a resource; when there are many, drop those of resources that no pod requests any more."""
        if len(self._requested) >= self._most_resources:
            requested = {name for info in self._infos if info is not None for name in info.requests}
            self._requested = {name: column for name, column in self._requested.items() if name in requested}
            self._most_resources = max(_FEW_RESOURCES, 2 * len(self._requested))
        column = self._requested[resource] = np.zeros(len(self._infos), np.int64)
        return column

    def replace(self, info: PodInfo) -> bool:
        """Replace a pod by a newer state with the same requests and priority; whether its start time has changed."""
        slot = self._slots[info.uid]
        self._infos[slot] = info
        before, now = int(self.start_time[slot]), _nanoseconds(info.status.start_time)
        self.start_time[slot] = now
        return before != now

    def remove(self, row: int, uid: str) -> None:
        """Remove a pod from a row. QUIRK (semantics 7.4): the last pod of the row takes its place."""
        slot = self._slots.pop(uid)
        on_row = self._by_row[row]
        on_row[on_row.index(slot)] = on_row[-1]
        on_row.pop()
        self._infos[slot] = None
        self._free.append(slot)

    def _grow(self) -> None:
        """Double the number of slots."""
        size = len(self._infos)
        self._free.extend(range(size, 2 * size))
        self._infos += [None] * size
        self.priority, self.start_time = _doubled(self.priority), _doubled(self.start_time)
        self.nonzero_cpu, self.nonzero_memory = _doubled(self.nonzero_cpu), _doubled(self.nonzero_memory)
        self._zeros = _doubled(self._zeros)
        self._requested = {resource: _doubled(column) for resource, column in self._requested.items()}


def _doubled(column: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate((column, np.zeros_like(column)))


class PodChanges:
    """Pods that hypothetical rows lose (sign -1) or gain (+1): one run of slots of a pod table per row.

    ``slots`` are intp, row by row; ``offsets`` (intp, one more than rows) delimit the runs.
    """

    def __init__(self, pods: PodTable, slots: NDArray[np.intp], offsets: NDArray[np.intp], sign: int) -> None:
        self.table = pods
        self.slots = slots
        self.offsets = offsets
        self.sign = sign

    @classmethod
    def of(cls, pods_by_row: Sequence[Sequence[PodInfo]], sign: int) -> PodChanges:
        """The changes by these pods of each row, which need not be placed."""
        offsets = offsets_of(np.fromiter(map(len, pods_by_row), np.intp, len(pods_by_row)))
        table = PodTable()
        slots = [table.allocate(info) for info in chain.from_iterable(pods_by_row)]
        return cls(table, np.array(slots, np.intp), offsets, sign)

    def select(self, rows: NDArray[np.intp]) -> PodChanges:
        """The changes of some of the rows, in the order given (positions, intp)."""
        lengths = self.lengths[rows]
        offsets = offsets_of(lengths)
        entries = np.repeat(self.offsets[rows] - offsets[:-1], lengths) + np.arange(offsets[-1])
        return PodChanges(self.table, self.slots[entries], offsets, self.sign)

    def among(self, entries: NDArray[np.bool_]) -> PodChanges:
        """The changes by only some of the pods (bool, one per pod), for the same rows."""
        kept = offsets_of(entries)
        return PodChanges(self.table, self.slots[entries], kept[self.offsets], self.sign)

    def at(self, row: int) -> list[PodInfo]:
        """The pods of one row."""
        return [self.table.info(slot) for slot in self.slots[self.offsets[row] : self.offsets[row + 1]].tolist()]

    @cached_property
    def lengths(self) -> NDArray[np.intp]:
        """The number of pods of each row, intp."""
        return self.offsets[1:] - self.offsets[:-1]

    @cached_property
    def row_of(self) -> NDArray[np.intp]:
        """The position of each pod's row, intp."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)

    @cached_property
    def infos(self) -> list[PodInfo]:
        """The pods of all rows, row by row."""
        return [self.table.info(slot) for slot in self.slots.tolist()]

    def count(self) -> NDArray[np.int64]:
        """The change of the number of pods on each row, int64."""
        return self.lengths.astype(np.int64) * self.sign

    def sums(self, column: NDArray[np.int64]) -> NDArray[np.int64]:
        """The change of each row's sum of a column of the table, int64."""
        return self._summed(column[self.slots])

    def sums_of(self, amount: Callable[[PodInfo], int]) -> NDArray[np.int64]:
        """The change of each row's sum of a function of the pod, int64."""
        return self._summed(np.fromiter(map(amount, self.infos), np.int64, len(self.slots)))

    def _summed(self, amounts: NDArray[np.int64]) -> NDArray[np.int64]:
        # Differences of a running total: exact in int64, and rows without pods need no special case.
        total = np.zeros(len(amounts) + 1, np.int64)
        np.cumsum(amounts, out=total[1:])
        at = total[self.offsets]
        return (at[1:] - at[:-1]) * self.sign
