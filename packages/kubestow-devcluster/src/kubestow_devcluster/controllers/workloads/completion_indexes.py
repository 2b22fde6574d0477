"""Sets of completion indexes of indexed Jobs, as ``status.completedIndexes`` and success policies write them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

__all__ = ["CompletionIndexes"]


class CompletionIndexes:
    """A set of numbers as disjoint ranges in order: ``1,3-5``. All costs depend on the ranges, not on the numbers.

    The text may list ranges in any order, overlapping ones too. Raises ValueError if it has another form.
    """

    def __init__(self, text: str = "") -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        self._count = 0
        ranges = []
        for part in text.split(",") if text else ():
            first, _, last = part.partition("-")
            ranges.append((int(first), int(last or first)))
        for start, end in sorted(ranges):
            if self._lasts and start <= self._lasts[-1] + 1:
                self._lasts[-1] = max(self._lasts[-1], end)
            else:
                self._firsts.append(start)
                self._lasts.append(end)
        self._count = sum(end - start + 1 for start, end in zip(self._firsts, self._lasts, strict=True))

    def __len__(self) -> int:
        return self._count

    def __contains__(self, index: int) -> bool:
        place = bisect_right(self._firsts, index) - 1
        return place >= 0 and index <= self._lasts[place]

    def __str__(self) -> str:
        ranges = zip(self._firsts, self._lasts, strict=True)
        return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)

    def add(self, index: int) -> None:
        """Add one number; ranges that it joins become one."""
        place = bisect_right(self._firsts, index)
        if place and index <= self._lasts[place - 1]:
            return
        self._count += 1
        follows = place > 0 and self._lasts[place - 1] == index - 1
        precedes = place < len(self._firsts) and self._firsts[place] == index + 1
        if follows and precedes:
            self._lasts[place - 1] = self._lasts.pop(place)
            del self._firsts[place]
        elif follows:
            self._lasts[place - 1] = index
        elif precedes:
            self._firsts[place] = index
        else:
            self._firsts.insert(place, index)
            self._lasts.insert(place, index)

    def missing(self, end: int) -> Iterator[int]:
        """The numbers from 0 up to ``end``, exclusive, that the set lacks, in order."""
        start = 0
        for first, last in zip(self._firsts, self._lasts, strict=True):
            yield from range(start, min(first, end))
            start = last + 1
        yield from range(start, end)

    def count_in(self, other: CompletionIndexes) -> int:
        """How many numbers the two sets have in common."""
        common = place = 0
        for first, last in zip(self._firsts, self._lasts, strict=True):
            while place < len(other._lasts) and other._lasts[place] < first:
                place += 1
            at = place
            while at < len(other._firsts) and other._firsts[at] <= last:
                common += min(last, other._lasts[at]) - max(first, other._firsts[at]) + 1
                at += 1
            place = max(place, at - 1)
        return common
