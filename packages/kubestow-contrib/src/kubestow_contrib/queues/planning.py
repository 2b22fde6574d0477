"""One round of decisions about waiting jobs: their order, which start now, which get a reservation, which are evicted.

Jobs are looked at in their order (:class:`_Order`). A job that fits now starts. The first that does not fit gets a
reserved start, and later jobs start only where they cannot delay it (EASY); or all jobs get one (conservative); or no
later job starts (``none``). A job that only the limits of its queue keep from starting gets a reserved start as well,
and does not count as the first: it keeps no other queue waiting.

A job may evict others, as a whole, where the rules of preemption permit it; of the jobs that may be evicted, those are
chosen whose loss is least.

Pure: the situation of a round goes in, a plan comes out.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kubestow_contrib.queues.availability import (
    UNLIMITED,
    Availability,
    Demand,
    Occupation,
    Placement,
    Reservation,
)
from kubestow_contrib.queues.configuration import BackfillMode, Queue
from kubestow_contrib.queues.fair_share import QueueShares

#: So many jobs of a round may look for jobs to evict, and of so many candidates all combinations are tried.
_MOST_PREEMPTORS, _MOST_COMBINED = 8, 6


@dataclass(frozen=True, slots=True)
class Policy:
    """The rules of a round; times in seconds. Without ``shares``, all jobs are in one order by priority and age.

    ``reservations`` is the number of jobs that get a reserved start in conservative mode, others not counted that only
    the limits of their queues keep waiting.

    A job starts in the first round from its reserved start on, up to ``slack`` later, and its pods up to ``start_up``
    after that round. So nodes are planned for it for so much longer than it runs. Otherwise what is reserved from its
    end on would be lost whenever it starts a moment late: others may have taken what those jobs had reserved before.
    """

    mode: BackfillMode = "easy"
    depth: int = 500
    reservations: int = 100
    shares: bool = True
    usage_factor: float = 0.0
    max_wait: float = 0.0
    within_queue: bool = False
    reclaim: bool = False
    slack: float = 0.0
    start_up: float = 0.0

    def length_of_run(self, job: WaitingJob) -> float:
        """How long a job that starts in this round has its nodes at most, if it runs no longer than expected."""
        return job.duration + self.start_up

    def length_of_reservation(self, job: WaitingJob, late: float = 0.0) -> float:
        """The same from its reserved start on, or from so many seconds after it."""
        return self.length_of_run(job) + max(0.0, self.slack - late)


@dataclass(frozen=True, slots=True, eq=False)
class WaitingJob:
    """A job that waits, complete: since when, what it needs, for how long (seconds), and its last reservation.

    ``is_started``: only some of its pods wait, the others run; it comes first, and gets no reservation.
    """

    key: str
    queue: str
    priority: int
    arrived: float
    demand: Demand
    duration: float
    reservation: Reservation | None = None
    is_started: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class RunningJob:
    """A job that has started: where its pods are or will be, and until when.

    ``loss`` is what would be lost with it, in pod-seconds; ``is_preemptible`` whether it may be evicted now.
    """

    key: str
    queue: str
    priority: int
    occupations: Sequence[Occupation]
    loss: float = 0.0
    is_preemptible: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Situation:
    """What a round decides about.

    ``free`` (int64, nodes by ``resources``) is what is free now, without all that running jobs have or will get. Of
    waiting jobs that are equally important and old, the first comes first. ``held`` is the key of the job for which
    others were held back in the last round: it comes before all jobs of no higher priority, so that it keeps its start.
    ``positions`` are those of jobs in the last round.
    ``flavors`` are the names of the flavors and their nodes. ``usage`` has the decayed usage of queues as fractions of
    ``total``, by name and resource.
    """

    now: float
    resources: Sequence[str]
    total: Mapping[str, float]
    free: NDArray[np.int64]
    queues: Mapping[str, Queue]
    waiting: Sequence[WaitingJob]
    running: Sequence[RunningJob] = ()
    flavors: Sequence[tuple[str, NDArray[np.bool_]]] = ()
    usage: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    held: str = ""
    positions: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Start:
    """A job that starts now, its placement, and the jobs that are evicted for it."""

    job: WaitingJob
    placement: Placement
    victims: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Delay:
    """Why a job does not start now, with its reserved start if it has one.

    ``reason`` is one of ``limit`` (of its queue), ``nodes`` (not enough is free), ``behind`` (a job before it has to
    start first), ``reserved`` (it would fit if nothing was reserved), ``never`` (it does not fit even when all jobs
    have ended) and ``depth`` (too many jobs are before it). ``behind`` is the job that it waits behind.
    """

    job: WaitingJob
    reason: str
    reservation: Reservation | None = None
    behind: str = ""


@dataclass(slots=True, eq=False)
class Plan:
    """The decisions of a round, in the order of the jobs; ``position`` counts from 1.

    ``held`` is the first job that something else than a limit keeps from starting, "" if there is none.
    """

    starts: list[Start] = field(default_factory=list)
    delays: dict[str, Delay] = field(default_factory=dict)
    position: dict[str, int] = field(default_factory=dict)
    shares: QueueShares | None = None
    held: str = ""


class LimitTable:
    """The limits of queues as rows: ``amounts`` (int64, by resource), and those that bind the jobs of each queue."""

    def __init__(self, queues: Mapping[str, Queue], resources: Sequence[str], flavors: Sequence[str]) -> None:
        rows: list[list[int]] = []
        own: dict[str, list[tuple[int, int]]] = {}
        for queue in queues.values():
            for limit in queue.limits:
                if limit.limit:
                    flavor = flavors.index(limit.flavor) if limit.flavor else -1
                    own.setdefault(queue.name, []).append((len(rows), flavor))
                    rows.append([limit.limit.get(name, UNLIMITED) for name in resources])
        self.amounts = np.array(rows, np.int64).reshape(len(rows), len(resources))
        self.of_queue = {
            queue.name: tuple(limit for name in queue.lineage for limit in own.get(name, ()))
            for queue in queues.values()
        }
        self.names = {row: name for name, limits in own.items() for row, _ in limits}


def plan(situation: Situation, policy: Policy) -> Plan:
    """Decide about all waiting jobs."""
    return _Round(situation, policy).plan()


def availability_of(situation: Situation) -> Availability:
    """What is free over time if no waiting job starts."""
    table = LimitTable(situation.queues, situation.resources, [name for name, _ in situation.flavors])
    occupations = [each for job in situation.running for each in job.occupations]
    headroom = table.amounts.copy()
    for each in occupations:
        for row, amounts in each.demand.limited(each.placement):
            headroom[row] -= amounts
    return Availability(
        situation.now,
        situation.free,
        headroom,
        occupations,
        flavors=[nodes for _, nodes in situation.flavors],
        points=[job.reservation.start for job in situation.waiting if job.reservation is not None],
    )


class _Round:
    def __init__(self, situation: Situation, policy: Policy) -> None:
        self._situation, self._policy = situation, policy
        self._availability = availability_of(situation)
        self._running = {job.key: job for job in situation.running}
        self._shares = QueueShares(
            situation.queues,
            situation.total,
            allocated=_by_queue((job.queue, self._used(job)) for job in situation.running),
            waiting=_by_queue((job.queue, self._requested(job)) for job in situation.waiting),
            usage=situation.usage,
            flavors=[name for name, _ in situation.flavors],
            usage_factor=policy.usage_factor,
        )
        self._plan = Plan(shares=self._shares)
        self._held = _HeldReservations(self._availability, situation, policy)
        self._preemptors_left = _MOST_PREEMPTORS
        self._reservations_left = policy.reservations if policy.mode == "conservative" else 1
        #: Without backfill: the job of each queue that its limits keep from starting.
        self._limited: dict[str, str] = {}

    def plan(self) -> Plan:
        made = self._plan
        for job in _Order(self._situation, self._policy, self._shares):
            made.position[job.key] = len(made.position) + 1
            known = self._held.withdraw(job)
            ahead = made.held if self._policy.mode == "none" and made.held else self._limited.get(job.queue, "")
            if len(made.position) > self._policy.depth:
                made.delays[job.key] = Delay(job, "depth")
            elif ahead:
                made.delays[job.key] = Delay(job, "behind", behind=ahead)
            else:
                displaced = self._held.withdraw_for(job) if known is None else []
                if not self._start(job, known):
                    made.delays[job.key] = self._delay(job, known)
                self._held.restore(displaced)
        return made

    def _delay(self, job: WaitingJob, known: Reservation | None) -> Delay:
        """Reserve the start of a job that cannot start now, the ``known`` one or an earlier one."""
        made, availability = self._plan, self._availability
        if job.is_started:
            return Delay(job, "nodes")
        if not availability.fits_at_last(job.demand):
            return Delay(job, "never")
        run = self._policy.length_of_run(job)
        is_limited = availability.at(self._situation.now, job.demand, run, limited=False) is not None
        reservation, length = None, self._policy.length_of_reservation(job)
        if is_limited or self._reservations_left:
            reservation = availability.earliest(job.demand, length, known=known)
        if reservation is not None:
            availability.reserve(reservation, job.demand, length)
        if is_limited:
            if self._policy.mode == "none":
                self._limited[job.queue] = job.key
            return Delay(job, "limit", reservation)
        self._reservations_left -= bool(self._reservations_left)
        behind, made.held = made.held, made.held or job.key
        return Delay(job, "nodes", reservation, behind)

    def _start(self, job: WaitingJob, known: Reservation | None) -> bool:
        """Start a job now, if need be where it is reserved, or in the place of others; whether that is possible."""
        now, availability, run = self._situation.now, self._availability, self._policy.length_of_run(job)
        placement = availability.at(now, job.demand, run)
        if placement is None and known is not None and known.start <= now:
            placement = known.placement if availability.is_possible(known, job.demand, run) else None
        victims: tuple[str, ...] = ()
        if placement is None:
            found = self._preempt(job)
            if found is None:
                return False
            placement, victims = found
            for key in victims:
                victim = self._running.pop(key)
                for each in victim.occupations:
                    availability.release(each)
                self._shares.add(victim.queue, self._used(victim), -1)
        availability.reserve(Reservation(now, placement), job.demand, run)
        self._shares.add(job.queue, self._requested(job))
        self._plan.starts.append(Start(job, placement, victims))
        return True

    # -- preemption ----------------------------------------------------------------------------------------------------

    def _preempt(self, job: WaitingJob) -> tuple[Placement, tuple[str, ...]] | None:
        """The jobs whose eviction lets a job start now and loses least, and where it starts then."""
        policy = self._policy
        if not (policy.within_queue or policy.reclaim) or not self._preemptors_left:
            return None
        candidates = sorted(
            (each for each in self._running.values() if each.is_preemptible and self._is_eligible(job, each)),
            key=lambda each: (each.loss, each.key),
        )
        if not candidates:
            return None
        self._preemptors_left -= 1
        victims = self._cheapest(job, candidates) if len(candidates) <= _MOST_COMBINED else self._cheap(job, candidates)
        placement = self._suffice(job, victims) if victims else None
        return None if placement is None else (placement, tuple(each.key for each in victims))

    def _cheapest(self, job: WaitingJob, candidates: Sequence[RunningJob]) -> Sequence[RunningJob]:
        """The candidates that suffice and lose least, of all combinations; none if none suffices."""
        combinations = (
            each for count in range(1, len(candidates) + 1) for each in itertools.combinations(candidates, count)
        )
        for each in sorted(combinations, key=_loss):
            if self._permits(job, each) and self._suffice(job, each) is not None:
                return each
        return ()

    def _cheap(self, job: WaitingJob, candidates: Sequence[RunningJob]) -> Sequence[RunningJob]:
        """The same for many candidates: those of least loss until they suffice, without those not needed; or one."""
        found: Sequence[RunningJob] = ()
        gathered: list[RunningJob] = []
        for each in candidates:
            if self._permits(job, [*gathered, each]):
                gathered.append(each)
                if self._suffice(job, gathered) is not None:
                    found = gathered
                    break
        for each in sorted(found, key=lambda each: (-each.loss, each.key)):
            rest = [other for other in found if other is not each]
            if rest and self._permits(job, rest) and self._suffice(job, rest) is not None:
                found = rest
        for each in candidates:
            if found and each.loss >= _loss(found):
                break
            if self._permits(job, [each]) and self._suffice(job, [each]) is not None:
                return [each]
        return found

    def _suffice(self, job: WaitingJob, victims: Sequence[RunningJob]) -> Placement | None:
        """Where a job could start if some others were gone."""
        trial = self._availability.copy()
        for victim in victims:
            for each in victim.occupations:
                trial.release(each)
        return trial.at(self._situation.now, job.demand, self._policy.length_of_run(job))

    def _is_eligible(self, job: WaitingJob, victim: RunningJob) -> bool:
        if victim.queue == job.queue:
            return self._policy.within_queue and victim.priority < job.priority
        if not self._policy.reclaim:
            return False
        own, _ = self._shares.siblings(job.queue, victim.queue)
        requested = self._requested(job)
        return self._shares.is_within_guarantee(own, requested) or self._is_within_share(own, requested)

    def _is_within_share(self, queue: str, requested: Mapping[str, float]) -> bool:
        shares = self._shares
        return all(
            shares.allocated[queue].get(name, 0.0) + amount <= shares.fair[queue].get(name, 0.0)
            for name, amount in requested.items()
            if amount
        )

    def _permits(self, job: WaitingJob, victims: Sequence[RunningJob]) -> bool:
        """Whether other queues use more than their fair share until the last of the victims is taken from them."""
        shares, taken, permitted = self._shares, list[RunningJob](), True
        relevant = {name for name, amount in self._requested(job).items() if amount}
        for victim in victims:
            if victim.queue != job.queue:
                _, other = shares.siblings(job.queue, victim.queue)
                used = self._used(victim)
                exceeds = any(
                    shares.allocated[other].get(name, 0.0) > shares.fair[other].get(name, 0.0) for name in relevant
                )
                guaranteed = self._situation.queues[other].guaranteed
                keeps = all(
                    shares.allocated[other].get(name, 0.0) - used.get(name, 0.0) >= least
                    for name, least in guaranteed.items()
                    if name in relevant and used.get(name, 0.0)
                )
                permitted = permitted and exceeds and keeps
                shares.add(victim.queue, used, -1)
                taken.append(victim)
            if not permitted:
                break
        for victim in taken:
            shares.add(victim.queue, self._used(victim))
        return permitted

    # -- amounts -------------------------------------------------------------------------------------------------------

    def _requested(self, job: WaitingJob) -> dict[str, float]:
        return self._named(job.demand.total)

    def _used(self, job: RunningJob) -> dict[str, float]:
        total = np.zeros(len(self._situation.resources), np.int64)
        return self._named(sum((each.demand.total for each in job.occupations), start=total))

    def _named(self, amounts: NDArray[np.int64]) -> dict[str, float]:
        """Amounts by the names of the resources that are shared: all but the number of pods."""
        shared = self._situation.total
        return {
            name: float(amount)
            for name, amount in zip(self._situation.resources, amounts.tolist(), strict=True)
            if name in shared
        }


class _HeldReservations:
    """The reservations of the last round: what they need is taken until it is the turn of their jobs.

    They hold against all other jobs, with these exceptions: jobs of higher priority, those that have started or waited
    for as long as is permitted, and those before them in the last round whose own reservation does not hold any more,
    because a job has outlived its run time or a node is gone, may displace them.
    """

    def __init__(self, availability: Availability, situation: Situation, policy: Policy) -> None:
        self._availability, self._policy = availability, policy
        self._now, self._positions = situation.now, situation.positions
        #: The jobs by key, each with its reservation and how long that is.
        self._held: dict[str, tuple[WaitingJob, Reservation, float]] = {}
        reserved = [job for job in situation.waiting if job.reservation is not None]
        self.restore(sorted(reserved, key=self._position))

    def withdraw(self, job: WaitingJob) -> Reservation | None:
        """Give back what is held for a job; its reservation, None if none holds."""
        if job.key not in self._held:
            return None
        _, reservation, length = self._held.pop(job.key)
        self._availability.withdraw(reservation, job.demand, length)
        return reservation

    def withdraw_for(self, job: WaitingJob) -> list[WaitingJob]:
        """Give back what is held for jobs that another one may displace; these jobs."""
        is_first = job.is_started or is_overdue(job, self._now, self._policy.max_wait)
        has_lost, position = job.reservation is not None, self._position(job)
        displaced = [
            other
            for other, _, _ in self._held.values()
            if is_first or other.priority < job.priority or (has_lost and position < self._position(other))
        ]
        for other in displaced:
            self.withdraw(other)
        return displaced

    def restore(self, jobs: Sequence[WaitingJob]) -> None:
        """Hold the reservations of some jobs again, as far as they are still possible."""
        for job in jobs:
            assert job.reservation is not None
            start = max(job.reservation.start, self._now)
            length = self._policy.length_of_reservation(job, start - job.reservation.start)
            held = Reservation(start, job.reservation.placement)
            if self._availability.is_possible(held, job.demand, length):
                self._availability.reserve(held, job.demand, length)
                self._held[job.key] = job, held, length

    def _position(self, job: WaitingJob) -> float:
        return self._positions.get(job.key, math.inf)


def is_overdue(job: WaitingJob, now: float, max_wait: float) -> bool:
    """Whether a job has waited for as long as is permitted; 0 permits any wait."""
    return bool(max_wait) and now - job.arrived >= max_wait


class _Order:
    """Waiting jobs in the order in which they are looked at, given what those before them have been allocated.

    Those that have started come first, then those that have waited for as long as is permitted, by age: so no job waits
    for ever. Then the job comes that others were held back for, and is passed only by those of higher priority. Then
    the queue is chosen by its share, and of its jobs the one of the highest priority, and of these the
    oldest.
    """

    def __init__(self, situation: Situation, policy: Policy, shares: QueueShares) -> None:
        self._shares, self._by_shares = shares, policy.shares
        overdue = [
            job for job in situation.waiting if job.is_started or is_overdue(job, situation.now, policy.max_wait)
        ]
        self._overdue = sorted(overdue, key=lambda job: (not job.is_started, job.arrived))
        keys = {job.key for job in overdue}
        left = (job for job in situation.waiting if job.key not in keys)
        self._held = next((job for job in left if job.key == situation.held), None)
        if self._held is not None:
            keys.add(self._held.key)
        self._leaves: dict[str, list[tuple[int, float, int, WaitingJob]]] = {}
        for number, job in enumerate(situation.waiting):
            if job.key not in keys:
                leaf = job.queue if policy.shares else ""
                self._leaves.setdefault(leaf, []).append((-job.priority, job.arrived, number, job))
        for heap in self._leaves.values():
            heapq.heapify(heap)

    def __iter__(self) -> Iterator[WaitingJob]:
        yield from self._overdue
        while self._leaves:
            leaf = self._shares.next_leaf(self._leaves) if self._by_shares else ""
            heap = self._leaves[leaf]
            if (held := self._held) is not None and held.priority >= heap[0][-1].priority:
                self._held = None
                yield held
                continue
            job = heapq.heappop(heap)[-1]
            if not heap:
                del self._leaves[leaf]
            yield job
        if self._held is not None:
            yield self._held


def _by_queue(amounts: Iterator[tuple[str, Mapping[str, float]]]) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for queue, each in amounts:
        total = found.setdefault(queue, {})
        for name, amount in each.items():
            total[name] = total.get(name, 0.0) + amount
    return found


def _loss(jobs: Sequence[RunningJob]) -> float:
    return math.fsum(job.loss for job in jobs)
