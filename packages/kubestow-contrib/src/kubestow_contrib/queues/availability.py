"""What is free over time, and the earliest start of a job: on which nodes, from when on, beside all that is reserved.

The profile of backfill schedulers, for clusters in which nodes differ: what is free of every resource on every node,
and below every limit of a queue, from each point in time until the next. Running jobs release what they use at their
expected ends; a reservation takes it for a while. A job starts when all of its pods have a node, and each keeps it. So
what counts for a node is the least that is free on it during the whole run, and a reserved start holds whatever other
jobs do that have reserved theirs.

Pure: no clock, no cluster; times are seconds of any clock.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Amounts = NDArray[np.int64]
Mask = NDArray[np.bool_]

UNLIMITED = 2**62
"""The headroom below a limit that does not exist."""

#: So many points in time at which running jobs end are distinguished; other ends count as the next later one.
_MOST_ENDS = 256


@dataclass(frozen=True, slots=True, eq=False)
class PodKind:
    """Pods of a job that are alike: their number, what each requests (int64, by resource), and the nodes they may use.

    ``nodes`` is bool, one per node.
    """

    count: int
    requests: Amounts
    nodes: Mask


@dataclass(frozen=True, slots=True, eq=False)
class Demand:
    """The pods of a job, in kinds, and the limits that they count for.

    Each of ``limits`` is the row of a limit and the index of its flavor, or -1 for a limit on all nodes together.
    """

    kinds: Sequence[PodKind]
    limits: Sequence[tuple[int, int]] = ()

    @property
    def total(self) -> Amounts:
        """What all pods request, int64 by resource."""
        total: Amounts = np.sum([each.count * each.requests for each in self.kinds], axis=0)
        return total

    def limited(self, placement: Placement) -> Iterator[tuple[int, Amounts]]:
        """What it counts for below each of its limits where it is placed: the row of the limit, and amounts (int64)."""
        for row, of in self.limits:
            counted = [
                kind.count * kind.requests
                for kind, flavor in zip(self.kinds, placement.flavors, strict=True)
                if of in (flavor, -1)
            ]
            if counted:
                yield row, np.sum(counted, axis=0)


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """Where the pods of a demand are: of each kind the rows of nodes (intp), the pods on each, and the flavor."""

    rows: Sequence[NDArray[np.intp]]
    counts: Sequence[Amounts]
    flavors: Sequence[int]

    def amounts(self, demand: Demand) -> Iterator[tuple[NDArray[np.intp], Amounts]]:
        """Rows of nodes, none twice, and what each kind takes there (int64, rows by resources)."""
        for kind, rows, counts in zip(demand.kinds, self.rows, self.counts, strict=True):
            yield rows, counts[:, np.newaxis] * kind.requests


@dataclass(frozen=True, slots=True, eq=False)
class Occupation:
    """A demand that is placed, and when it ends."""

    demand: Demand
    placement: Placement
    end: float


@dataclass(frozen=True, slots=True, eq=False)
class Reservation:
    """When a job starts, and where."""

    start: float
    placement: Placement


class Availability:
    """What is free from ``now`` on, given what is free now and what running jobs will release.

    ``free`` is int64, nodes by resources; ``headroom`` int64, limits by resources, :data:`UNLIMITED` where there is no
    limit. ``flavors`` are masks over the nodes (bool), in the order in which they are tried; without any, all nodes are
    of one. ``points`` are times that ends are never rounded beyond: those at which reservations begin that are to hold.
    """

    def __init__(
        self,
        now: float,
        free: Amounts,
        headroom: Amounts,
        occupations: Iterable[Occupation] = (),
        *,
        flavors: Sequence[Mask] = (),
        points: Collection[float] = (),
    ) -> None:
        self.now = now
        self._flavors = flavors or (np.ones(len(free), np.bool_),)
        self._times = [now]
        self._free = [free.copy()]
        self._headroom = [headroom.copy()]
        ending: dict[float, list[Occupation]] = {}
        occupations = [each for each in occupations if np.isfinite(each.end)]
        grid = _grid({max(now, each.end) for each in occupations}, points)
        for each in occupations:
            ending.setdefault(grid[bisect_left(grid, max(now, each.end))], []).append(each)
        for time in sorted(ending):
            at = self._point(time)
            for each in ending[time]:
                self._shift(each.demand, each.placement, at, at + 1, +1)
        #: The least that is free on each node at any time.
        self._floor = _least(self._free)

    def copy(self) -> Availability:
        """An independent copy."""
        copied = object.__new__(Availability)
        copied.now, copied._flavors = self.now, self._flavors
        copied._times = list(self._times)
        copied._free = [each.copy() for each in self._free]
        copied._headroom = [each.copy() for each in self._headroom]
        copied._floor = self._floor.copy()
        return copied

    def at(self, start: float, demand: Demand, duration: float, *, limited: bool = True) -> Placement | None:
        """Where a job could start at a time and run for ``duration`` seconds, None if nowhere.

        Without ``limited``, the limits of queues do not count.
        """
        first, last = self._window(start, start + duration)
        headroom = _least(self._headroom[first:last]) if limited and demand.limits else None
        return self._place(demand, _least(self._free[first:last]), headroom)

    def earliest(self, demand: Demand, duration: float, *, known: Reservation | None = None) -> Reservation | None:
        """The earliest start of a job that runs for ``duration`` seconds, None if it never fits.

        The start of a ``known`` reservation is kept if that is still possible and there is no earlier one: so it never
        slips because a search finds no other placement. A start is at a time at which something is released.
        """
        kept = known if known is not None and self.is_possible(known, demand, duration) else None
        times, index = self._times, 0
        enough: dict[int, bool] = {}

        def is_enough(point: int) -> bool:
            if point not in enough:
                enough[point] = self._is_enough(point, demand)
            return enough[point]

        while index < len(times) and (kept is None or times[index] < kept.start):
            first, last = self._window(times[index], times[index] + duration)
            # No run may include a point at which too little is free: the next start to try is after the last of them.
            short = next((point for point in range(last - 1, first - 1, -1) if not is_enough(point)), None)
            if short is not None:
                index = short + 1
                continue
            if (placement := self.at(times[index], demand, duration)) is not None:
                return Reservation(times[index], placement)
            index += 1
        if kept is None:
            return None
        # Other nodes may be better by now: those that are free by then, but not before, stay out of the way of others.
        return Reservation(kept.start, self.at(kept.start, demand, duration) or kept.placement)

    def fits_at_last(self, demand: Demand) -> bool:
        """Whether a job fits once all that is running or reserved has ended, as far as it ends."""
        return self.at(self._times[-1], demand, 1.0) is not None

    def is_possible(self, reservation: Reservation, demand: Demand, duration: float) -> bool:
        """Whether a reservation is one for these pods, and all that it needs is free, below the limits too."""
        numbers = [int(counts.sum()) for counts in reservation.placement.counts]
        if reservation.start < self.now or numbers != [kind.count for kind in demand.kinds]:
            return False
        first, last = self._window(reservation.start, reservation.start + duration)
        free = _least(self._free[first:last])
        for kind, (rows, amounts) in zip(demand.kinds, reservation.placement.amounts(demand), strict=True):
            if not kind.nodes[rows].all():
                return False
            free[rows] -= amounts
        headroom = _least(self._headroom[first:last])
        for row, amounts in demand.limited(reservation.placement):
            if (headroom[row] < amounts).any():
                return False
        return all((free[rows] >= 0).all() for rows in reservation.placement.rows)

    def reserve(self, reservation: Reservation, demand: Demand, duration: float) -> None:
        """Take what a job uses from its start on, for ``duration`` seconds."""
        first, last = self._points(reservation.start, reservation.start + duration)
        self._shift(demand, reservation.placement, first, last, -1)
        for rows in reservation.placement.rows:
            least = np.minimum.reduce([free[rows] for free in self._free[first:last]])
            self._floor[rows] = np.minimum(self._floor[rows], least)

    def withdraw(self, reservation: Reservation, demand: Demand, duration: float) -> None:
        """Give back what was taken by :meth:`reserve` with the same arguments."""
        first, last = self._points(reservation.start, reservation.start + duration)
        self._shift(demand, reservation.placement, first, last, +1)
        for rows in reservation.placement.rows:
            self._floor[rows] = np.minimum.reduce([free[rows] for free in self._free])

    def release(self, occupation: Occupation) -> None:
        """Free from now on what a running job would have released at its end."""
        first, last = self._points(self.now, occupation.end)
        self._shift(occupation.demand, occupation.placement, first, last, +1)
        self._floor = _least(self._free)

    def _is_enough(self, point: int, demand: Demand) -> bool:
        """Whether nodes have enough for the pods of each kind at a point in time, and limits for all: a necessity."""
        free, headroom = self._free[point], self._headroom[point]
        for kind in demand.kinds:
            if int(np.where(kind.nodes, _capacity(free, kind), 0).sum()) < kind.count:
                return False
        total = demand.total
        return all((headroom[row] >= total).all() for row, of in demand.limits if of < 0)

    def _place(self, demand: Demand, free: Amounts, headroom: Amounts | None) -> Placement | None:
        """Nodes for all pods, kind by kind, the largest pods first; ``free`` and ``headroom`` are used up.

        Nodes on which something else is going to be reserved, or that are in use until then, come first, and then those
        that take the fewest further pods. So whole nodes stay free, and what is free for long is left for long jobs.
        """
        whole = np.maximum(free.max(axis=0, initial=1), 1)
        order = sorted(
            range(len(demand.kinds)), key=lambda n: -float((demand.kinds[n].requests / whole).max(initial=0))
        )
        rows: list[NDArray[np.intp]] = [_NO_ROWS] * len(order)
        counts: list[Amounts] = [_NO_COUNTS] * len(order)
        flavors = [0] * len(order)
        for number in order:
            kind = demand.kinds[number]
            fits = np.where(kind.nodes, _capacity(free, kind), 0)
            for flavor, nodes in enumerate(self._flavors):
                capacity = np.where(nodes, fits, 0)
                if int(capacity.sum()) >= kind.count and _is_below(
                    headroom, demand, flavor, kind.count * kind.requests
                ):
                    break
            else:
                return None
            found = np.flatnonzero(capacity)
            found = found[np.lexsort((found, capacity[found], _capacity(self._floor[found], kind)))]
            before = np.cumsum(capacity[found]) - capacity[found]
            taken = np.clip(kind.count - before, 0, capacity[found])
            rows[number], counts[number], flavors[number] = found[taken > 0], taken[taken > 0], flavor
            free[rows[number]] -= counts[number][:, np.newaxis] * kind.requests
            if headroom is not None:
                for row, of in demand.limits:
                    if of in (flavor, -1):
                        headroom[row] -= kind.count * kind.requests
        return Placement(rows, counts, flavors)

    def _shift(self, demand: Demand, placement: Placement, first: int, last: int, sign: int) -> None:
        """Add a placed demand to what is free at some points in time, or take it."""
        for rows, amounts in placement.amounts(demand):
            for free in self._free[first:last]:
                free[rows] += sign * amounts
        for row, amounts in demand.limited(placement):
            for headroom in self._headroom[first:last]:
                headroom[row] += sign * amounts

    def _window(self, start: float, end: float) -> tuple[int, int]:
        """The points in time whose amounts count between two times, as a range."""
        first = bisect_right(self._times, start) - 1
        return first, max(first + 1, bisect_left(self._times, end))

    def _points(self, start: float, end: float) -> tuple[int, int]:
        """The same, with points added for both times."""
        first = self._point(start)
        return first, self._point(end) if np.isfinite(end) else len(self._times)

    def _point(self, time: float) -> int:
        """The index of a time, from which on other amounts may be free."""
        index = bisect_left(self._times, time)
        if index == len(self._times) or self._times[index] != time:
            self._times.insert(index, time)
            self._free.insert(index, self._free[index - 1].copy())
            self._headroom.insert(index, self._headroom[index - 1].copy())
        return index


_NO_ROWS = np.empty(0, np.intp)
_NO_COUNTS = np.empty(0, np.int64)


def _least(amounts: Sequence[Amounts]) -> Amounts:
    """The least of several arrays of amounts, a new array."""
    least = amounts[0].copy()
    for each in amounts[1:]:
        np.minimum(least, each, out=least)
    return least


def _capacity(free: Amounts, kind: PodKind) -> Amounts:
    """How many pods of a kind fit where so much is free, at most as many as there are (int64, one per row)."""
    requested = np.flatnonzero(kind.requests)
    if not len(requested):
        return np.full(len(free), kind.count, np.int64)
    capacity: Amounts = (np.maximum(free[:, requested], 0) // kind.requests[requested]).min(axis=1)
    return np.minimum(capacity, kind.count)


def _is_below(headroom: Amounts | None, demand: Demand, flavor: int, amounts: Amounts) -> bool:
    """Whether amounts on nodes of a flavor are within all limits."""
    return headroom is None or not any(
        (headroom[row] < amounts).any() for row, of in demand.limits if of in (flavor, -1)
    )


def _grid(times: Collection[float], points: Collection[float]) -> list[float]:
    """At most so many times to which others are rounded up, ``points`` among them."""
    ordered = sorted(times)
    step = -(-len(ordered) // _MOST_ENDS)
    if step <= 1:
        return ordered
    kept = {*ordered[step - 1 :: step], ordered[-1]}
    for point in points:  # the last end before a point stays one
        if index := bisect_right(ordered, point):
            kept.add(ordered[index - 1])
    return sorted(kept)
