"""The journal: what changed in the cluster, on which row, in order.

A cache of results per row keeps the journal's position as of its last refresh, and later recomputes only the rows that
have changed since. The journal is bounded: a cache whose position is no longer covered recomputes all rows.

Changes made by a simulation are written to a branch, which is rolled back with them. Since a position from before the
branch no row has changed then; since a position on the branch, the rows changed before it have changed back. The entry
ROLLED_BACK, which concerns no row, marks the end of a branch for caches that share results: one of them may have
refreshed a shared result on the branch, so the others have to check the position of each of their results.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from kubestow.cluster.events import Action

__all__ = ["EVERY_ROW", "ROLLED_BACK", "Journal"]

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


@dataclass(slots=True)
class _Branch:
    """The entries written under one simulation; ``base`` is the position at which it began."""

    number: int
    base: int
    entries: list[Entry] = field(default_factory=list)


class Journal:
    """A bounded list of ``(row, bits)``. Equal positions stand for equal states of the cluster."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []
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
            branch.entries.append((row, bits))
            self.position = (branch.number << _OFFSET_BITS) + len(branch.entries)
            return
        self._entries.append((row, bits))
        self.position += 1
        if len(self._entries) > 2 * _KEPT:
            del self._entries[:_KEPT]
            self._dropped += _KEPT

    def since(self, position: int) -> Sequence[Entry] | None:
        """The changes from a position to now, None when they are no longer known."""
        if position > _OFFSET:
            return self._since_on_branch(position)
        start = position - self._dropped
        if start < 0:
            return None
        entries = self._entries[start:]
        for branch in self._branches:
            entries += branch.entries
        return entries

    def _since_on_branch(self, position: int) -> Sequence[Entry] | None:
        number, offset = position >> _OFFSET_BITS, position & _OFFSET
        for depth, branch in enumerate(self._branches):
            if branch.number == number:
                return [entry for inner in self._branches[depth:] for entry in inner.entries][offset:]
        rolled_back = self._rolled_back.get(number)
        later = None if rolled_back is None else self.since(rolled_back.base)
        if rolled_back is None or later is None:
            return None
        return [*_undone(rolled_back.entries[:offset]), *later]

    # -- branches ------------------------------------------------------------------------------------------------

    def branch(self) -> None:
        """Begin a branch at the current position, inside those that have not ended yet."""
        self._branch_count += 1
        self._branches.append(_Branch(self._branch_count, self.position))

    def roll_back(self, depth: int, undone: int) -> None:
        """End the branch of this depth (1: the outermost), and those inside it, and return to where it began.

        ``undone`` are the bits of the changes that have been undone; the branch's other changes are written again.
        """
        lasting = ~(undone | ROLLED_BACK)
        while len(self._branches) >= depth:
            branch = self._branches.pop()
            self.position = branch.base
            if branch.entries:
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


def _undone(entries: Iterable[Entry]) -> Iterable[Entry]:
    """The reversals of entries: what was added is deleted again, and the other way round."""
    return ((row, bits | _ADD_OR_DELETE if bits & _ADD_OR_DELETE else bits) for row, bits in entries)
