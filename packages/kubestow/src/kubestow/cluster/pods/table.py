"""The pod table: the pods on nodes as columns, one slot per pod.

Preemption considers the low-priority pods of all nodes at once, so the properties of pods that it needs (priority,
start time, requests, shape) are kept in arrays. A pod keeps its slot until it is removed; slots are reused. The slots
of a row of the node table are in the order in which kube-scheduler keeps the pods of a node, which decides between
equally important victims. :class:`PodChanges` are pods of a table that hypothetical rows lose or gain.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.pods.caches import BoundedCache
from kubestow.cluster.pods.shapes import PodInfo, Shape

#: The start time of a pod without one: later than any other.
NOT_STARTED = 2**63 - 1

_FIRST_CAPACITY = 8
#: Up to this many resources have columns even if no pod requests them.
_FEW_RESOURCES = 64
#: The number of functions of a shape whose values are kept for the pods of a hypothesis.
_MAX_FUNCTIONS = 64
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def _microseconds(time: datetime | None) -> int:
    return NOT_STARTED if time is None else (time - _EPOCH) // _MICROSECOND


def offsets_of(lengths: NDArray[np.intp] | NDArray[np.bool_]) -> NDArray[np.intp]:
    """The offsets (intp) of consecutive runs of these lengths: run i is ``offsets[i]:offsets[i + 1]``."""
    offsets = np.zeros(len(lengths) + 1, np.intp)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


class PodTable:
    """Pods by slot, and the slots of each row.

    Columns are read by slot; they are replaced when the table grows, so they must not be kept. Only preemption and
    hypothetical rows read them, so a pod is entered into them when one of them is read for the first time after it has
    been added: most pods come and go without that.
    """

    def __init__(self) -> None:
        self._priority = np.zeros(_FIRST_CAPACITY, np.int64)
        self._start_time = np.zeros(_FIRST_CAPACITY, np.int64)
        self._nonzero_cpu = np.zeros(_FIRST_CAPACITY, np.int64)
        self._nonzero_memory = np.zeros(_FIRST_CAPACITY, np.int64)
        self._shape_number = np.zeros(_FIRST_CAPACITY, np.intp)
        self._shapes = _NumberedShapes()
        self._extreme_pods = 0
        #: The slots whose pods have not been entered into the columns yet.
        self._unentered: dict[int, None] = {}
        self._requested: dict[str, NDArray[np.int64]] = {}
        self._zeros = np.zeros(_FIRST_CAPACITY, np.int64)
        self._most_resources = _FEW_RESOURCES
        self._infos: list[PodInfo | None] = [None] * _FIRST_CAPACITY
        self._free = list(range(_FIRST_CAPACITY))
        self._slots: dict[str, int] = {}
        #: How many pods there are of each priority.
        self._of_priority: dict[int, int] = {}
        #: 64-bit integers in memory of their own, which :meth:`slots_on` joins as bytes.
        self._by_row: list[array[int]] = []

    # -- columns -------------------------------------------------------------------------------------------------

    @property
    def priority(self) -> NDArray[np.int64]:
        """``spec.priority``, int64 by slot."""
        self._enter_pods()
        return self._priority

    @property
    def start_time(self) -> NDArray[np.int64]:
        """``status.startTime`` in microseconds since 1970, NOT_STARTED if unset, int64 by slot."""
        self._enter_pods()
        return self._start_time

    @property
    def nonzero_cpu(self) -> NDArray[np.int64]:
        """CPU requests in millicores, with the default for pods without one, int64 by slot."""
        self._enter_pods()
        return self._nonzero_cpu

    @property
    def nonzero_memory(self) -> NDArray[np.int64]:
        """Memory requests in bytes, with the default for pods without one, int64 by slot."""
        self._enter_pods()
        return self._nonzero_memory

    @property
    def shape_number(self) -> NDArray[np.intp]:
        """The number of the pod's shape, intp by slot; see :attr:`shapes`."""
        self._enter_pods()
        return self._shape_number

    @property
    def shapes(self) -> _NumberedShapes:
        """The shapes of the pods, by number."""
        self._enter_pods()
        return self._shapes

    @property
    def extreme_pods(self) -> int:
        """The number of pods with requests that are negative or beyond 2**53."""
        self._enter_pods()
        return self._extreme_pods

    @property
    def resources(self) -> Collection[str]:
        """The resources that pods of the table request, and maybe others."""
        self._enter_pods()
        return self._requested.keys()

    def requested(self, resource: str) -> NDArray[np.int64]:
        """The requests of a resource (millicores, bytes or counts), int64 by slot."""
        self._enter_pods()
        return self._requested.get(resource, self._zeros)

    def _enter_pods(self) -> None:
        """Enter the pods that have been added since the columns were last read."""
        if self._unentered:
            unentered, self._unentered = self._unentered, {}
            for slot in unentered:
                self._enter(slot, self.info(slot))

    def _enter(self, slot: int, info: PodInfo) -> None:
        self._priority[slot] = info.priority
        self._start_time[slot] = _microseconds(info.status.start_time)
        self._nonzero_cpu[slot], self._nonzero_memory[slot] = info.nonzero_requests
        self._shape_number[slot] = self._shapes.add(info.shape)
        self._extreme_pods += info.has_extreme_requests
        requests = info.requests
        for resource, column in self._requested.items():
            column[slot] = requests.get(resource, 0)
        for resource in requests.keys() - self._requested.keys():
            self._add_resource(resource)[slot] = requests[resource]

    # -- pods ----------------------------------------------------------------------------------------------------

    def slot(self, uid: str) -> int | None:
        """The slot of a pod, None when it has none."""
        return self._slots.get(uid)

    def info(self, slot: int) -> PodInfo:
        """The pod in a slot."""
        info = self._infos[slot]
        assert info is not None
        return info

    def has_pod_below(self, priority: int) -> bool:
        """Whether any pod has a lower priority."""
        return any(each < priority for each in self._of_priority)

    # -- rows ----------------------------------------------------------------------------------------------------

    def slots_on(self, rows: Sequence[int]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """The slots (intp) of the pods on some rows, row by row, and the rows' offsets (see :func:`offsets_of`)."""
        by_row = self._by_row
        runs = [by_row[row] for row in rows]
        offsets = offsets_of(np.fromiter(map(len, runs), np.intp, len(runs)))
        return np.frombuffer(b"".join(runs), np.int64).astype(np.intp, copy=False), offsets

    def slots(self, row: int) -> array[int]:
        """A copy of the slots of the pods on a row, in order."""
        return self._by_row[row][:]

    def restore_slots(self, row: int, slots: array[int]) -> None:
        """Restore an order of the pods on a row that :meth:`slots` returned."""
        self._by_row[row] = slots

    def append_row(self) -> None:
        """Append a row without pods."""
        self._by_row.append(array("q"))

    def remove_row(self, row: int) -> None:
        """Remove a row and its pods; the last row takes its number."""
        for slot in list(self._by_row[row]):
            self.remove(row, self.info(slot).uid)
        self._by_row[row] = self._by_row[-1]
        self._by_row.pop()

    def add(self, info: PodInfo, row: int | None) -> int:
        """Give a pod a slot, which is returned, and append it to a row unless that is None."""
        if not self._free:
            self._grow()
        slot = self._slots[info.uid] = self._free.pop()
        if row is not None:
            self._by_row[row].append(slot)
        self._infos[slot] = info
        self._of_priority[info.priority] = self._of_priority.get(info.priority, 0) + 1
        self._unentered[slot] = None
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
        before, now = self.info(slot).status.start_time, info.status.start_time
        self._infos[slot] = info
        if before == now:
            return False
        if slot not in self._unentered:
            self._start_time[slot] = _microseconds(now)
        return True

    def remove(self, row: int, uid: str) -> None:
        """Remove a pod from a row. QUIRK (semantics 7.4): the last pod of the row takes its place."""
        slot = self._slots.pop(uid)
        on_row = self._by_row[row]
        on_row[on_row.index(slot)] = on_row[-1]
        on_row.pop()
        info = self.info(slot)
        self._of_priority[info.priority] -= 1
        if not self._of_priority[info.priority]:
            del self._of_priority[info.priority]
        if slot in self._unentered:
            del self._unentered[slot]
        else:
            self._shapes.remove(info.shape)
            self._extreme_pods -= info.has_extreme_requests
        self._infos[slot] = None
        self._free.append(slot)

    def _grow(self) -> None:
        """Double the number of slots."""
        size = len(self._infos)
        self._free.extend(range(size, 2 * size))
        self._infos += [None] * size
        self._priority, self._start_time = _doubled(self._priority), _doubled(self._start_time)
        self._nonzero_cpu, self._nonzero_memory = _doubled(self._nonzero_cpu), _doubled(self._nonzero_memory)
        self._shape_number, self._zeros = _doubled(self._shape_number), _doubled(self._zeros)
        self._requested = {resource: _doubled(column) for resource, column in self._requested.items()}


def _doubled(column: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate((column, np.zeros_like(column)))


class _NumberedShapes:
    """The shapes of the pods in a table, each with a number; the number of a shape without pods is reused."""

    def __init__(self) -> None:
        #: By number; None for a number that is not in use.
        self.by_number: list[Shape | None] = []
        #: The number of each shape, and of its pods.
        self._entries: dict[Shape, list[int]] = {}
        self._free: list[int] = []

    def add(self, shape: Shape) -> int:
        """Count one more pod of a shape; its number is returned."""
        entry = self._entries.get(shape)
        if entry is None:
            if not self._free:
                self._free.append(len(self.by_number))
                self.by_number.append(None)
            entry = self._entries[shape] = [self._free.pop(), 0]
            self.by_number[entry[0]] = shape
        entry[1] += 1
        return entry[0]

    def remove(self, shape: Shape) -> None:
        """Count one pod of a shape less."""
        entry = self._entries[shape]
        entry[1] -= 1
        if not entry[1]:
            del self._entries[shape]
            self.by_number[entry[0]] = None
            self._free.append(entry[0])


class _ShapeFunctions:
    """Functions of the shapes of some pods, called once per distinct shape. The table must not change meanwhile."""

    def __init__(self, table: PodTable, slots: NDArray[np.intp]) -> None:
        self._table, self._slots = table, slots
        #: The values by function; empty for a function that is 0 for every shape.
        self._values: BoundedCache[Callable[[Shape], int], NDArray[np.int64]] = BoundedCache(_MAX_FUNCTIONS)

    @cached_property
    def _numbers(self) -> NDArray[np.intp]:
        occurs = np.zeros(len(self._table.shapes.by_number), np.bool_)
        occurs[self._table.shape_number[self._slots]] = True
        return np.flatnonzero(occurs)

    @property
    def shapes(self) -> list[Shape]:
        """The distinct shapes."""
        by_number = self._table.shapes.by_number
        return [shape for number in self._numbers.tolist() if (shape := by_number[number]) is not None]

    def values(self, function: Callable[[Shape], int]) -> NDArray[np.int64] | None:
        """The values of a function by the number of the shape, int64; None if it is 0 for every shape."""
        values = self._values.get(function)
        if values is None:
            of_shapes = np.fromiter(map(function, self.shapes), np.int64, len(self._numbers))
            values = np.zeros(len(self._table.shapes.by_number) if of_shapes.any() else 0, np.int64)
            if len(values):
                values[self._numbers] = of_shapes
            self._values.put(function, values)
        return values if len(values) else None


class PodChanges:
    """Pods that hypothetical rows lose (sign -1) or gain (+1): one run of slots of a pod table per row.

    ``slots`` are intp, row by row; ``offsets`` (intp, one more than rows) delimit the runs. Rows that lose pods may
    have lost others, too, and gained them again, as in the reprieve of potential victims: see :meth:`without`.
    Selections share the values of functions of the shapes, which hold until the table changes.
    """

    def __init__(
        self,
        pods: PodTable,
        slots: NDArray[np.intp],
        offsets: NDArray[np.intp],
        sign: int,
        functions: _ShapeFunctions | None = None,
    ) -> None:
        self.table = pods
        self.slots = slots
        self.offsets = offsets
        self.sign = sign
        self._functions = functions or _ShapeFunctions(pods, slots)
        #: All pods that were removed, and the positions of the rows among theirs (None: the same rows).
        self._all_removed: PodChanges | None = None
        self._removed_from: NDArray[np.intp] | None = None

    @classmethod
    def of(cls, pods_by_row: Sequence[Sequence[PodInfo]], sign: int) -> PodChanges:
        """The changes by these pods of each row, which need not be placed."""
        offsets = offsets_of(np.fromiter(map(len, pods_by_row), np.intp, len(pods_by_row)))
        table = PodTable()
        slots = [table.add(info, None) for info in chain.from_iterable(pods_by_row)]
        return cls(table, np.array(slots, np.intp), offsets, sign)

    def select(self, rows: NDArray[np.intp]) -> PodChanges:
        """The changes of some of the rows, in the order given (positions, intp)."""
        lengths = self.lengths[rows]
        offsets = offsets_of(lengths)
        entries = np.repeat(self.offsets[rows] - offsets[:-1], lengths) + np.arange(offsets[-1])
        selected = PodChanges(self.table, self.slots[entries], offsets, self.sign, self._functions)
        selected._all_removed = self._all_removed
        selected._removed_from = rows if self._removed_from is None else self._removed_from[rows]
        return selected

    def among(self, entries: NDArray[np.bool_]) -> PodChanges:
        """The changes by only some of the pods (bool, one per pod), for the same rows."""
        offsets = offsets_of(entries)[self.offsets]
        return PodChanges(self.table, self.slots[entries], offsets, self.sign, self._functions)

    def without(self, returned: NDArray[np.bool_]) -> PodChanges:
        """The changes after all of these pods have been removed, and then some (bool, one per pod) added again."""
        changes = self.among(~returned)
        changes._all_removed = self
        return changes

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

    @property
    def shapes(self) -> list[Shape]:
        """The distinct shapes of the pods, and maybe others: of the changes that these were selected from."""
        return self._functions.shapes

    @cached_property
    def _shape_numbers(self) -> NDArray[np.intp]:
        return self.table.shape_number[self.slots]

    def count(self) -> NDArray[np.int64]:
        """The change of the number of pods on each row, int64."""
        return self.lengths.astype(np.int64) * self.sign

    def sums(self, column: NDArray[np.int64]) -> NDArray[np.int64]:
        """The change of each row's sum of a column of the table, int64."""
        return self._summed(column[self.slots])

    def sums_of(self, function: Callable[[Shape], int]) -> NDArray[np.int64]:
        """The change of each row's sum of a function of the pod's shape, int64.

        The function is called once per distinct shape for these changes and all their selections, as long as it is the
        same function, or an equal one such as a bound method.
        """
        values = self._functions.values(function)
        return np.zeros(len(self.lengths), np.int64) if values is None else self._summed(values[self._shape_numbers])

    def sums_of_requests(self, resource: str, kind: Callable[[Shape], bool]) -> NDArray[np.int64]:
        """The change of each row's requests of a resource by pods of some kind, int64; see :meth:`sums_of`."""
        return self._summed(self.table.requested(resource)[self.slots] * self.values_of(kind))

    def values_of(self, function: Callable[[Shape], int]) -> NDArray[np.int64]:
        """A function of each pod's shape, int64, called as by :meth:`sums_of`."""
        values = self._functions.values(function)
        return np.zeros(len(self.slots), np.int64) if values is None else values[self._shape_numbers]

    def sums_removed(self, function: Callable[[Shape], int]) -> NDArray[np.int64]:
        """The sums of a function for removed pods (sign -1), with those that were removed and added again."""
        if self._all_removed is None:
            return self.sums_of(function)
        sums = self._all_removed._kept_sums_of(function)
        return sums if self._removed_from is None else sums[self._removed_from]

    def _kept_sums_of(self, function: Callable[[Shape], int]) -> NDArray[np.int64]:
        kept = self._sums.get(function)
        return self._sums.put(function, self.sums_of(function)) if kept is None else kept

    @cached_property
    def _sums(self) -> BoundedCache[Callable[[Shape], int], NDArray[np.int64]]:
        return BoundedCache(_MAX_FUNCTIONS)

    def _summed(self, amounts: NDArray[np.int64]) -> NDArray[np.int64]:
        # Differences of a running total: exact in int64, and rows without pods need no special case.
        total = np.zeros(len(amounts) + 1, np.int64)
        np.cumsum(amounts, out=total[1:])
        at = total[self.offsets]
        return (at[1:] - at[:-1]) * self.sign
