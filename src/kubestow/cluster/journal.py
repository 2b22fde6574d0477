"""The journal: what changed in the cluster, and on which row, in order.

Whoever remembers answers about rows notes the journal's position when it asked, and later asks only again for the rows
that changed since in a way that matters to it. The journal is short: who is too far behind starts afresh.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["EVERY_ROW", "Journal"]

#: Stands for all rows at once: a change that belongs to no single node.
EVERY_ROW = -1

_KEPT = 8192


class Journal:
    """A bounded list of ``(row, bits)``; positions grow for ever."""

    def __init__(self) -> None:
        self._entries: list[tuple[int, int]] = []
        self._dropped = 0
        #: Where the next entry will stand.
        self.position = 0

    def write(self, row: int, bits: int) -> None:
        """Note that a row (or EVERY_ROW) changed in the ways that ``bits`` names."""
        self._entries.append((row, bits))
        self.position += 1
        if len(self._entries) > 2 * _KEPT:
            del self._entries[:_KEPT]
            self._dropped += _KEPT

    def since(self, position: int) -> Sequence[tuple[int, int]] | None:
        """The entries from a position on, None when some of them are gone."""
        start = position - self._dropped
        return self._entries[start:] if start >= 0 else None
