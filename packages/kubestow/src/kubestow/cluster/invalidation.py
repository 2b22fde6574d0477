"""When results that depend on the cluster have to be computed again.

Results are kept with the :class:`Generation` of the cluster that they were computed in. A :class:`Cycle` reads from the
journal what has changed since, as event bits per row of the node table (:mod:`kubestow.cluster.changes.journal`); an
:class:`InvalidationMask` says which of those bits invalidate the result of one row and which all results.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from kubestow.cluster.changes.events import POD_BITS
from kubestow.cluster.changes.journal import EVERY_ROW, ROLLED_BACK, Changes, Journal
from kubestow.cluster.nodes.table import NodeTable

ANY_CHANGE = -1
"""Event bits that any set of changes meets, the empty one of a new scheduling cycle included."""
RESULT_CHANGES = ROLLED_BACK | 1 << 64
"""The bits that may invalidate any cached result, besides its mask: changes that were rolled back, or are not known."""
_NEW_CYCLE = 1 << 65

#: With more rows than one in so many invalidated, all are computed again.
_PARTIAL_REFRESH_SHARE = 8
FEW_ROWS = 4
"""Up to this many rows are handled one after another, in Python."""
#: More changes than this are taken to be of more rows: a pod that is assumed and then seen bound makes two.
_FEW_CHANGES = 2 * FEW_ROWS


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

    def rows(self, changes: Changes, most: int) -> list[int] | None:
        """The rows that changes invalidate; None for all rows, and when there are more than ``most``."""
        few = changes.few
        if few is None:
            return self._rows_of_many(changes, most)
        rows: dict[int, None] = {}
        all_bits, row_bits = self.all_bits, self.row_bits
        for row, bits in few:
            if bits & all_bits:
                return None
            if bits & row_bits:
                if row == EVERY_ROW:
                    return None
                rows[row] = None
        return list(rows) if len(rows) <= most else None

    def _rows_of_many(self, changes: Changes, most: int) -> list[int] | None:
        if changes.union & self.all_bits:
            return None
        if not changes.union & self.row_bits:
            return []
        rows = changes.rows_with(self.row_bits)
        return None if rows[0] == EVERY_ROW or len(rows) > most else rows.tolist()


class Generation(msgspec.Struct, frozen=True, gc=False):
    """A state of the cluster: a position in its journal, and the version of the set of nodes."""

    position: int
    structure: int


NEVER = Generation(-1, -1)
"""The generation of results that have not been computed yet."""


class Cycle:
    """The generation that results are brought up to, and what has changed since those that they were computed in.

    A cluster has one for all caches of results, so that the journal is read once for each earlier generation.
    """

    __slots__ = ("_changes", "_journal", "_most_rows", "_nodes", "generation")

    def __init__(self, journal: Journal, nodes: NodeTable) -> None:
        self._journal, self._nodes = journal, nodes
        self.generation = Generation(journal.position, nodes.structure)
        #: By the position in the journal from which on they are listed; None where that is no longer covered.
        self._changes: dict[int, Changes | None] = {}
        #: With more invalid rows than this, all are computed again.
        self._most_rows = len(nodes) // _PARTIAL_REFRESH_SHARE

    def begin(self) -> Generation:
        """Go on to the present generation of the cluster, which is returned."""
        generation, position, structure = self.generation, self._journal.position, self._nodes.structure
        if generation.position != position or generation.structure != structure:
            self.generation = generation = Generation(position, structure)
            self._changes = {}
            self._most_rows = len(self._nodes) // _PARTIAL_REFRESH_SHARE
        return generation

    def changes(self, since: Generation) -> Changes | None:
        """The changes since a generation, None when they are not known."""
        if since.structure != self.generation.structure:
            return None
        position = since.position
        if position not in self._changes:
            self._changes[position] = self._journal.since(position)
        return self._changes[position]

    def bits(self, since: Generation) -> int:
        """The event bits of all changes since a generation, ANY_CHANGE when they are not known.

        A result whose bits these do not meet is still valid. The bits are never 0, so that results that are valid for
        one scheduling cycle only can be marked with ANY_CHANGE.
        """
        changes = self._changes.get(since.position) or self.changes(since)
        return ANY_CHANGE if changes is None else changes.union | _NEW_CYCLE

    def invalid_rows(self, since: Generation, mask: InvalidationMask) -> list[int] | None:
        """The rows whose results of a generation are no longer valid; None when all are better computed again."""
        if since.position == self.generation.position:
            return []
        changes = self._changes.get(since.position) or self.changes(since)
        return None if changes is None else mask.rows(changes, self._most_rows)

    def few_invalid_rows(self, since: Generation, mask: InvalidationMask) -> list[int] | None:
        """The same for results that are so cheap that all are computed again unless FEW_ROWS or less are invalid."""
        if not 0 <= self.generation.position - since.position <= _FEW_CHANGES:
            return None
        if since.position == self.generation.position:
            return []
        changes = self._changes.get(since.position) or self.changes(since)
        return None if changes is None else mask.rows(changes, min(FEW_ROWS, self._most_rows))
