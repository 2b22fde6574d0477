"""The journal: what changed in the cluster, on which row, in order; and which cached results that makes invalid.

A cache of results per row keeps the :class:`Generation` of the cluster as of its last refresh, and later recomputes
only the rows that have changed since. The :class:`ChangeWindow` reads these changes from the journal, as event bits per
row of the node table; an :class:`InvalidationMask` says which of the bits invalidate the result of one row and which
all results. The journal is bounded: a cache whose position is no longer covered recomputes all rows. Entries are two
arrays, so that thousands of them are searched with a few array operations.

Changes made by a simulation are written to a branch, which is rolled back with them. Relative to a position before the
branch, no row has changed after the rollback; relative to a position on the branch, the rows changed before that
position have changed back. The entry ROLLED_BACK, which concerns no row, marks the end of a branch for caches that
share results: one of them may have refreshed a shared result on the branch, so the others have to check the position of
each of their results.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import NamedTuple, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.changes.events import POD_BITS, Action
from kubestow.errors import KubestowError

#: Stands for all rows at once: a change that belongs to no single node.
EVERY_ROW = -1

#: The bits of an entry that says that changes have been made and undone; no event has this bit.
ROLLED_BACK = 1 << 62

ANY_CHANGE = -1
"""Event bits that any set of changes meets, the empty one of a new scheduling cycle included."""
RESULT_CHANGES = ROLLED_BACK | 1 << 64
"""The bits that may invalidate any cached result, besides its mask: changes that were rolled back, or are not known."""
_NEW_CYCLE = 1 << 65

#: With more rows than one in so many invalidated, all are computed again.
_PARTIAL_REFRESH_SHARE = 8
FEW_ROWS = 32
"""Up to this many rows are handled one after another, in Python, where that is a loop over numbers."""

_KEPT = 8192
#: Branch n has the positions from n << 48 on; the trunk is number 0.
_OFFSET_BITS = 48
_OFFSET = (1 << _OFFSET_BITS) - 1
_ADD_OR_DELETE = int(Action.ADD | Action.DELETE)

#: More entries than this are looked through with NumPy; where the bits of each need no look, more than the second.
_FEW, _FEW_ALIKE = 64, 256


class Changes:
    """Entries of the journal, oldest first: what changed as event bits (``bits``), and on which row (``rows``)."""

    __slots__ = ("_lists", "_rows_with", "bits", "rows", "union")

    def __init__(self, rows: array[int], bits: array[int]) -> None:
        self.rows, self.bits = rows, bits
        #: The bits of all entries.
        self.union = (
            int(np.bitwise_or.reduce(np.frombuffer(bits, np.int64))) if len(rows) > _FEW else reduce(or_, bits, 0)
        )
        #: The results of :meth:`rows_with` and :meth:`list_rows`, by those of the bits that occur: most plugins ask for
        #: the same rows.
        self._rows_with: dict[int, NDArray[np.int64]] = {}
        self._lists: dict[int, list[int] | None] = {}

    def list_rows(self, wanted: int, most: int) -> list[int] | None:
        """The rows of the entries that have one of the wanted bits, each once; the list is not to be changed.

        None when there are more than ``most``, or when EVERY_ROW is one of them.
        """
        key = self.union & wanted
        if key not in self._lists:
            found: Iterable[int]
            if key == self.union and len(self.rows) <= _FEW_ALIKE:  # most often all are of the wanted kind
                found = self.rows
            elif len(self.rows) <= _FEW:
                found = [row for row, bits in zip(self.rows, self.bits, strict=True) if bits & wanted]
            else:
                many = self.rows_with(wanted)
                if len(many) > most:
                    return None
                found = many.tolist()
            distinct = dict.fromkeys(found)
            self._lists[key] = None if EVERY_ROW in distinct else list(distinct)
        rows = self._lists[key]
        return None if rows is None or len(rows) > most else rows

    def rows_with(self, wanted: int) -> NDArray[np.int64]:
        """The rows of the entries that have one of the wanted bits, EVERY_ROW included: sorted, each once, int64."""
        key = self.union & wanted
        known = self._rows_with.get(key)
        if known is not None:
            return known
        rows, bits = np.frombuffer(self.rows, np.int64), np.frombuffer(self.bits, np.int64)
        found = rows[(bits & wanted) != 0]
        marked = np.zeros(int(found.max(initial=EVERY_ROW)) + 2, np.bool_)
        marked[found + 1] = True
        result = self._rows_with[key] = np.flatnonzero(marked) - 1
        return result


class _Branch(NamedTuple):
    """The entries written under one simulation; ``base`` is the position at which it began."""

    number: int
    base: int
    rows: array[int]
    bits: array[int]


class Journal:
    """A bounded list of ``(row, bits)``. Equal positions stand for equal states of the cluster."""

    def __init__(self) -> None:
        self._rows, self._bits = array("q"), array("q")
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
            branch.rows.append(row)
            branch.bits.append(bits)
            self.position = (branch.number << _OFFSET_BITS) + len(branch.rows)
            return
        self._rows.append(row)
        self._bits.append(bits)
        self.position += 1
        if len(self._rows) > 2 * _KEPT:
            self._rows, self._bits = self._rows[_KEPT:], self._bits[_KEPT:]
            self._dropped += _KEPT

    def since(self, position: int) -> Changes | None:
        """The changes from a position to now, None when they are no longer known."""
        if position > _OFFSET:
            return self._since_on_branch(position >> _OFFSET_BITS, position & _OFFSET)
        start = position - self._dropped
        if start < 0:
            return None
        rows, bits = self._rows[start:], self._bits[start:]
        for branch in self._branches:
            rows.extend(branch.rows)
            bits.extend(branch.bits)
        return Changes(rows, bits)

    def _since_on_branch(self, number: int, offset: int) -> Changes | None:
        for depth, branch in enumerate(self._branches):
            if branch.number == number:
                rows, bits = branch.rows[offset:], branch.bits[offset:]
                for inner in self._branches[depth + 1 :]:
                    rows.extend(inner.rows)
                    bits.extend(inner.bits)
                return Changes(rows, bits)
        rolled_back = self._rolled_back.get(number)
        later = None if rolled_back is None else self.since(rolled_back.base)
        if rolled_back is None or later is None:
            return None
        # What was added up to the position has been deleted again, and the other way round.
        reversed_bits = np.array(rolled_back.bits[:offset], np.int64)
        reversed_bits[(reversed_bits & _ADD_OR_DELETE) != 0] |= _ADD_OR_DELETE
        return Changes(rolled_back.rows[:offset] + later.rows, array("q", reversed_bits.tobytes()) + later.bits)

    # -- branches ------------------------------------------------------------------------------------------------

    def begin_branch(self) -> None:
        """Begin a branch at the current position, inside those that have not ended yet."""
        self._branch_count += 1
        self._branches.append(_Branch(self._branch_count, self.position, array("q"), array("q")))

    def roll_back(self, depth: int, undone: int) -> None:
        """End the branch of this depth (1: the outermost), and those inside it, and return to where it began.

        ``undone`` are the bits of the changes that have been undone; the branch's other changes are written again.
        """
        lasting = ~(undone | ROLLED_BACK)
        while len(self._branches) >= depth:
            branch = self._branches.pop()
            self.position = branch.base
            if len(branch.rows):
                self._keep_rolled_back(branch)
                self.write(EVERY_ROW, ROLLED_BACK)
            for row, bits in zip(branch.rows, branch.bits, strict=True):
                if bits & lasting:
                    self.write(row, bits)

    def _keep_rolled_back(self, branch: _Branch) -> None:
        self._rolled_back[branch.number] = branch
        self._rolled_back_entries += len(branch.rows)
        while self._rolled_back_entries > _KEPT:
            oldest = self._rolled_back.pop(next(iter(self._rolled_back)))
            self._rolled_back_entries -= len(oldest.rows)


@dataclass(frozen=True, slots=True)
class InvalidationMask:
    """The event bits that invalidate the results of one row, and those that invalidate the results of all rows."""

    row_bits: int = 0
    all_bits: int = 0

    def __or__(self, other: InvalidationMask) -> InvalidationMask:
        """The mask for results that depend on both."""
        return InvalidationMask(self.row_bits | other.row_bits, self.all_bits | other.all_bits)

    @property
    def bits(self) -> int:
        """The event bits that invalidate any result."""
        return self.row_bits | self.all_bits

    @property
    def includes_pods(self) -> bool:
        """Whether any change of a pod on a node invalidates results."""
        return bool(self.bits & POD_BITS)


class Generation(msgspec.Struct, frozen=True, gc=False):
    """A state of the cluster: a position in its journal, and the version of the set of nodes."""

    position: int
    structure: int


NEVER = Generation(-1, -1)
"""The generation of results that have not been computed yet."""


class Rows(Protocol):
    """A table with rows, of which the journal tells what has changed."""

    structure: int

    def __len__(self) -> int:
        """The number of rows."""


class ChangeWindow:
    """The generation that results are brought up to, and what has changed since those that they were computed in.

    Every scheduling cycle begins a new window, which ends when the cluster changes. A cluster has one for all caches of
    results, so that the journal is read once per earlier generation.
    """

    __slots__ = ("_changes", "_journal", "_most_rows", "_table", "generation")

    def __init__(self, journal: Journal, table: Rows) -> None:
        self._journal, self._table = journal, table
        self.generation = Generation(journal.position, table.structure)
        #: By the position in the journal from which on they are listed; None where that is no longer covered.
        self._changes: dict[int, Changes | None] = {}
        #: With more invalid rows than this, all are computed again.
        self._most_rows = len(table) // _PARTIAL_REFRESH_SHARE

    def begin(self) -> Generation:
        """Go on to the present generation of the cluster, which is returned."""
        if self.generation.position != self._journal.position or self.generation.structure != self._table.structure:
            self.generation = Generation(self._journal.position, self._table.structure)
            self._changes = {}
            self._most_rows = len(self._table) // _PARTIAL_REFRESH_SHARE
        return self.generation

    @property
    def is_outdated(self) -> bool:
        """Whether the cluster has changed since :meth:`begin`."""
        return self.generation.position != self._journal.position or self.generation.structure != self._table.structure

    def is_undone(self, since: Generation) -> bool:
        """Whether all changes since a generation have been undone, so that what was computed in it holds."""
        return not self.bits(since) & ~(ROLLED_BACK | _NEW_CYCLE)

    def bits(self, since: Generation) -> int:
        """The event bits of all changes since a generation, ANY_CHANGE when they are not known.

        A result whose bits these do not meet is still valid. The bits are never 0, so that results that are valid for
        one scheduling cycle only can be marked with ANY_CHANGE.
        """
        changes = self._changes.get(since.position) or self._read_changes(since)
        return ANY_CHANGE if changes is None else changes.union | _NEW_CYCLE

    def invalid_rows(self, since: Generation, mask: InvalidationMask, most: int | None = None) -> list[int] | None:
        """The rows whose results of a generation are no longer valid; None when all are better computed again.

        That is the case with more than ``most`` of them, if given, and always with a large share of all rows. Masks
        that select the same changes get the same list, which is not to be changed.
        """
        if since.position == self.generation.position:
            return []
        changes = self._changes.get(since.position) or self._read_changes(since)
        if changes is None or changes.union & mask.all_bits:
            return None
        row_bits = mask.row_bits
        if not changes.union & row_bits:
            return []
        most_rows = self._most_rows
        return changes.list_rows(row_bits, most_rows if most is None or most > most_rows else most)

    def _read_changes(self, since: Generation) -> Changes | None:
        """The changes since a generation, None when they are not known."""
        if since.structure != self.generation.structure:
            return None
        position = since.position
        if position not in self._changes:
            self._changes[position] = self._journal.since(position)
        return self._changes[position]


class UndoLog:
    """Calls that undo the changes since the start of the active simulations, with a mark for each of these.

    While a simulation is active every writer of pods and nominations appends a call that undoes its change exactly,
    order included. The calls run in reverse order, so each runs on the cluster in the state directly after its change.
    """

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
