"""The journal: what changed in the cluster, on which row, in order.

A cache of results per row keeps the journal's position as of its last refresh, and later recomputes only the rows that
have changed since. The journal is bounded: a cache whose position is no longer covered recomputes all rows. Entries are
kept as two arrays, so that thousands of them are searched with a few array operations.

Changes made by a simulation are written to a branch, which is rolled back with them. Relative to a position before the
branch, no row has changed after the rollback; relative to a position on the branch, the rows changed before that
position have changed back. The entry ROLLED_BACK, which concerns no row, marks the end of a branch for caches that
share results: one of them may have refreshed a shared result on the branch, so the others have to check the position of
each of their results.

The undo log: calls that undo the changes since the start of the active simulations.

While a simulation is active every writer of pods and nominations appends a call that undoes its change exactly, order
included. The calls run in reverse order, so each runs on the cluster in the state directly after its change.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.changes.events import Action
from kubestow.errors import KubestowError

#: Stands for all rows at once: a change that belongs to no single node.
EVERY_ROW = -1

#: The bits of an entry that says that changes have been made and undone; no event has this bit.
ROLLED_BACK = 1 << 62

_KEPT = 8192
#: Branch n has the positions from n << 48 on; the trunk is number 0.
_OFFSET_BITS = 48
_OFFSET = (1 << _OFFSET_BITS) - 1
_ADD_OR_DELETE = int(Action.ADD | Action.DELETE)
Entry = tuple[int, int]

#: More entries than this are looked through with NumPy.
_FEW = 64


class Changes:
    """Entries of the journal, oldest first: what changed as event bits (``bits``), and on which row (``rows``)."""

    __slots__ = ("_rows_with", "bits", "few", "rows", "union")

    def __init__(self, rows: array[int] | None = None, bits: array[int] | None = None) -> None:
        self.rows = array("q") if rows is None else rows
        self.bits = array("q") if bits is None else bits
        #: The entries as ``(row, bits)``, None if there are so many that array operations are faster; and the bits of
        #: all entries. Both as of the last :meth:`summarize`.
        self.few: list[Entry] | None = None
        self.union = 0
        #: The latest result of :meth:`rows_with`, for these bits: several plugins ask for the same.
        self._rows_with: tuple[int, NDArray[np.int64]] | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Entry]:
        return zip(self.rows, self.bits, strict=True)

    def append(self, row: int, bits: int) -> None:
        """Add an entry."""
        self.rows.append(row)
        self.bits.append(bits)

    def extend(self, later: Changes) -> None:
        """Add later entries."""
        self.rows.extend(later.rows)
        self.bits.extend(later.bits)

    def from_(self, start: int) -> Changes:
        """A copy of the entries from a position on."""
        return Changes(self.rows[start:], self.bits[start:])

    def undone(self, end: int) -> Changes:
        """The reversals of the entries up to a position: what was added is deleted again, and the other way round."""
        bits = np.array(self.bits[:end], np.int64)
        bits[(bits & _ADD_OR_DELETE) != 0] |= _ADD_OR_DELETE
        return Changes(self.rows[:end], array("q", bits.tobytes()))

    def summarize(self) -> Changes:
        """Fill in :attr:`few` and :attr:`union` when all entries have been added; the changes are returned."""
        if len(self.rows) > _FEW:
            self.union = int(np.bitwise_or.reduce(np.frombuffer(self.bits, np.int64)))
        else:
            self.few = list(zip(self.rows, self.bits, strict=True))
            for bits in self.bits:
                self.union |= bits
        return self

    def rows_with(self, wanted: int) -> NDArray[np.int64]:
        """The rows of the entries that have one of the wanted bits, EVERY_ROW included: sorted, each once, int64."""
        if self._rows_with is not None and self._rows_with[0] == wanted:
            return self._rows_with[1]
        rows, bits = np.frombuffer(self.rows, np.int64), np.frombuffer(self.bits, np.int64)
        found = rows[(bits & wanted) != 0]
        marked = np.zeros(int(found.max(initial=EVERY_ROW)) + 2, np.bool_)
        marked[found + 1] = True
        result = np.flatnonzero(marked) - 1
        self._rows_with = wanted, result
        return result


class _Branch(NamedTuple):
    """The entries written under one simulation; ``base`` is the position at which it began."""

    number: int
    base: int
    entries: Changes


class Journal:
    """A bounded list of ``(row, bits)``. Equal positions stand for equal states of the cluster."""

    def __init__(self) -> None:
        self._entries = Changes()
        self._dropped = 0
        self._branches: list[_Branch] = []
        self._branch_count = 0
        self._rolled_back: dict[int, _Branch] = {}
        self._rolled_back_entries = 0
        #: The current position, after all entries.
        self.position = 0

    def write(self, row: int, bits: int) -> None:
        """Record that a row (or EVERY_ROW) changed in the ways that ``bits`` names."""
        if self._branches:
            branch = self._branches[-1]
            branch.entries.append(row, bits)
            self.position = (branch.number << _OFFSET_BITS) + len(branch.entries)
            return
        self._entries.append(row, bits)
        self.position += 1
        if len(self._entries) > 2 * _KEPT:
            self._entries = self._entries.from_(_KEPT)
            self._dropped += _KEPT

    def since(self, position: int) -> Changes | None:
        """The changes from a position to now, None when they are no longer known."""
        if position > _OFFSET:
            entries = self._since_on_branch(position)
            return None if entries is None else entries.summarize()
        start = position - self._dropped
        if start < 0:
            return None
        changes = self._entries.from_(start)
        for branch in self._branches:
            changes.extend(branch.entries)
        return changes.summarize()

    def _since_on_branch(self, position: int) -> Changes | None:
        number, offset = position >> _OFFSET_BITS, position & _OFFSET
        for depth, branch in enumerate(self._branches):
            if branch.number == number:
                entries = branch.entries.from_(offset)
                for inner in self._branches[depth + 1 :]:
                    entries.extend(inner.entries)
                return entries
        rolled_back = self._rolled_back.get(number)
        later = None if rolled_back is None else self.since(rolled_back.base)
        if rolled_back is None or later is None:
            return None
        entries = rolled_back.entries.undone(offset)
        entries.extend(later)
        return entries

    # -- branches ------------------------------------------------------------------------------------------------

    def branch(self) -> None:
        """Begin a branch at the current position, inside those that have not ended yet."""
        self._branch_count += 1
        self._branches.append(_Branch(self._branch_count, self.position, Changes()))

    def roll_back(self, depth: int, undone: int) -> None:
        """End the branch of this depth (1: the outermost), and those inside it, and return to where it began.

        ``undone`` are the bits of the changes that have been undone; the branch's other changes are written again.
        """
        lasting = ~(undone | ROLLED_BACK)
        while len(self._branches) >= depth:
            branch = self._branches.pop()
            self.position = branch.base
            if len(branch.entries):
                self._keep_rolled_back(branch)
                self.write(EVERY_ROW, ROLLED_BACK)
            for row, bits in branch.entries:
                if bits & lasting:
                    self.write(row, bits)

    def _keep_rolled_back(self, branch: _Branch) -> None:
        self._rolled_back[branch.number] = branch
        self._rolled_back_entries += len(branch.entries)
        while self._rolled_back_entries > _KEPT:
            oldest = self._rolled_back.pop(next(iter(self._rolled_back)))
            self._rolled_back_entries -= len(oldest.entries)


class UndoLog:
    """A stack of calls, with a mark for each active simulation."""

    def __init__(self) -> None:
        self._calls: list[Callable[[], None]] = []
        self._marks: list[int] = []
        #: Whether changes have to be appended.
        self.active = False

    def append(self, undo: Callable[[], None]) -> None:
        """Add the call that undoes a change."""
        self._calls.append(undo)

    def begin(self) -> int:
        """Begin a simulation inside those that are active already; its depth is returned: 1 for the outermost."""
        self._marks.append(len(self._calls))
        self.active = True
        return len(self._marks)

    def roll_back(self, depth: int) -> None:
        """Undo everything since the simulation of this depth began, and end it.

        Raises KubestowError when it is not the innermost: its block was left while one inside it was suspended.
        """
        is_innermost = depth == len(self._marks)
        if depth <= len(self._marks):
            mark = self._marks[depth - 1]
            del self._marks[depth - 1 :]
            self.active = False  # what the calls do must not be undone in turn
            while len(self._calls) > mark:
                self._calls.pop()()
            self.active = bool(self._marks)
        if not is_innermost:
            raise KubestowError("simulations overlap: a simulate() block must not be suspended by an await")
