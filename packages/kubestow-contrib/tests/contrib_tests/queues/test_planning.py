"""Planning: EASY and conservative backfill held to plain models, reserved starts that hold, the cheapest victims."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kubestow_contrib.queues.availability import Availability, Demand, Occupation, Placement, PodKind, Reservation
from kubestow_contrib.queues.configuration import Amount, BackfillMode, JobQueuesArgs, QueueArgs, read_queues
from kubestow_contrib.queues.planning import Plan, Policy, RunningJob, Situation, WaitingJob, plan

QUEUES = read_queues(JobQueuesArgs(queues=[QueueArgs("q")]))
IN_ORDER = Policy(shares=False)


def demand(pods: int, nodes: int, requests: Sequence[int] = (1,)) -> Demand:
    return Demand([PodKind(pods, np.array(requests, np.int64), np.ones(nodes, np.bool_))])


@dataclass
class Batch:
    """A job of a small simulation: it arrives, asks for ``expected`` seconds and runs for ``runs``.

    It comes in the order as if it had arrived ``age`` seconds before, and its pods start ``late`` seconds after it.
    """

    name: str
    arrives: int
    pods: int
    runs: int
    expected: int
    cpu: int = 1
    priority: int = 0
    age: int = 0
    late: int = 0
    started: float = math.inf
    placement: Placement | None = None
    reservation: Reservation | None = None


@dataclass
class Model:
    """A simulation in whole seconds: every ``period`` seconds, after the ends of jobs, a round is planned."""

    cpus: Sequence[int]
    jobs: list[Batch]
    policy: Policy = field(default_factory=lambda: IN_ORDER)
    period: int = 1

    def rounds(self, until: int = 400) -> Iterator[tuple[int, Plan]]:
        """The plan of every round, until all jobs have started that ever fit."""
        former = Plan()
        for now in range(0, until * self.period, self.period):
            if all(job.started < math.inf for job in self.jobs):
                return
            free = np.array([[cpu] for cpu in self.cpus], np.int64)
            running = []
            for job in self.jobs:
                if job.placement is None or job.started + job.runs <= now:
                    continue
                for rows, amounts in job.placement.amounts(self._demand(job)):
                    free[rows] -= amounts
                end = max(job.started + job.expected, now + 1)
                occupation = Occupation(self._demand(job), job.placement, end)
                running.append(RunningJob(job.name, "q", job.priority, [occupation]))
            assert (free >= 0).all()
            waiting = [
                WaitingJob(j.name, "q", j.priority, j.arrives - j.age, self._demand(j), j.expected, j.reservation)
                for j in self.jobs
                if j.started == math.inf and j.arrives <= now
            ]
            total = {"cpu": float(sum(self.cpus))}
            situation = Situation(now, ["cpu"], total, free, QUEUES, waiting, running)
            situation = replace(situation, held=former.held, positions=former.position)
            made = former = plan(situation, self.policy)
            by_name = {job.name: job for job in self.jobs}
            for start in made.starts:
                job = by_name[start.job.key]
                job.started, job.placement = now + job.late, start.placement
            for name, delay in made.delays.items():
                by_name[name].reservation = delay.reservation
            yield now, made
            arrive = any(job.arrives > now for job in self.jobs)
            if not (arrive or running or made.starts):
                return  # what is left never fits

    def run(self) -> dict[str, float]:
        """When each job starts."""
        for _ in self.rounds():
            pass
        return {job.name: job.started for job in self.jobs}

    def _demand(self, job: Batch) -> Demand:
        return demand(job.pods, len(self.cpus), (job.cpu,))


@st.composite
def batches(draw: st.DrawFn, *, most: int = 7, slots: int = 4, exact: bool = True, cpus: int = 1) -> list[Batch]:
    jobs, now = [], 0
    for number in range(draw(st.integers(2, most))):
        now += draw(st.integers(0, 3))
        runs = draw(st.integers(1, 8))
        expected = runs if exact else runs + draw(st.integers(0, 5))
        cpu = draw(st.integers(1, cpus))
        jobs.append(Batch(f"j{number}", now, draw(st.integers(1, slots)), runs, expected, cpu))
    return jobs


# -- plain models ----------------------------------------------------------------------------------------------------


def plain_starts(jobs: Sequence[Batch], slots: int, mode: str) -> dict[str, float]:
    """Starts of jobs on equal slots, by the textbook: counts only, second by second."""
    starts: dict[str, float] = {}

    def used(at: float, planned: dict[str, float]) -> int:
        return sum(j.pods for j in jobs if planned.get(j.name, math.inf) <= at < planned.get(j.name, 0) + j.expected)

    for now in itertools.count():
        waiting = [j for j in jobs if j.name not in starts and j.arrives <= now]
        if len(starts) == len(jobs):
            return starts
        if mode == "none":
            for j in waiting:
                if slots - used(now, starts) < j.pods:
                    break
                starts[j.name] = now
            continue
        if mode == "easy":
            while waiting and slots - used(now, starts) >= waiting[0].pods:
                starts[waiting.pop(0).name] = now
            if not waiting:
                continue
            head = waiting.pop(0)
            shadow = next(t for t in itertools.count(now + 1) if slots - used(t, starts) >= head.pods)
            extra = slots - used(shadow, starts) - head.pods
            for j in waiting:
                free = slots - used(now, starts)
                if j.pods <= free and (now + j.expected <= shadow or j.pods <= extra):
                    starts[j.name] = now
                    if now + j.expected > shadow:
                        extra -= j.pods
    raise AssertionError


@given(batches(), st.sampled_from(["none", "easy"]))
@settings(max_examples=80, deadline=None)
def test_starts_on_equal_slots_are_those_of_the_textbook(jobs: list[Batch], mode: BackfillMode) -> None:
    expected = plain_starts(jobs, 4, mode)
    assert Model([1] * 4, jobs, replace(IN_ORDER, mode=mode)).run() == expected


def test_a_reservation_moves_out_of_the_way_of_others() -> None:
    jobs = [Batch("a", 0, 1, 5, 5), Batch("b", 0, 3, 6, 6), Batch("large", 0, 2, 1, 1), Batch("small", 0, 1, 2, 2)]
    # "large" was reserved when all nodes were in use; "small" gets the first that is free, and ends after its start.
    assert Model([1] * 4, jobs, IN_ORDER).run() == {"a": 0, "b": 0, "large": 6, "small": 5}


@given(batches(most=6))
@settings(max_examples=60, deadline=None)
def test_conservative_reservations_are_those_of_a_table_of_nodes_and_seconds(jobs: list[Batch]) -> None:
    slots = 4
    free = np.ones((slots, 200), bool)
    expected = {}
    waiting = []
    for job in jobs:
        needed = demand(job.pods, slots)
        waiting.append(WaitingJob(job.name, "q", 0, job.arrives, needed, job.expected))
        for start in range(200):
            open_nodes = np.flatnonzero(free[:, start : start + job.expected].all(axis=1))
            if len(open_nodes) >= job.pods:
                # Nodes that are reserved at any time first, then by number.
                chosen = sorted(open_nodes, key=lambda node: (bool(free[node].all()), node))[: job.pods]
                free[chosen, start : start + job.expected] = False
                expected[job.name] = start
                break
    situation = Situation(0, ["cpu"], {"cpu": 4.0}, np.ones((slots, 1), np.int64), QUEUES, waiting)
    made = plan(situation, replace(IN_ORDER, mode="conservative"))
    found = {start.job.key: 0.0 for start in made.starts}
    found |= {name: d.reservation.start for name, d in made.delays.items() if d.reservation is not None}
    assert found == expected


@st.composite
def profiles(draw: st.DrawFn) -> tuple[np.ndarray, list[tuple[int, int, int, int]], int, list[int], int]:
    """Free amounts of nodes, releases (node, cpu, memory, time), and a job: pods, requests, duration."""
    nodes = draw(st.integers(1, 4))
    free = np.array([[draw(st.integers(0, 4)), draw(st.integers(0, 4))] for _ in range(nodes)], np.int64)
    releases = draw(
        st.lists(
            st.tuples(st.integers(0, nodes - 1), st.integers(0, 3), st.integers(0, 3), st.integers(1, 9)), max_size=5
        )
    )
    return free, releases, draw(st.integers(1, 5)), [draw(st.integers(1, 3)), draw(st.integers(0, 3))], 3


@given(profiles(), profiles())
@settings(max_examples=60, deadline=None)
def test_the_earliest_start_is_that_of_trying_every_second(case: tuple, other: tuple) -> None:  # type: ignore[type-arg]
    free, releases, pods, requests, duration = case
    _, _, other_pods, other_requests, other_duration = other
    nodes = len(free)
    occupations = [
        Occupation(
            Demand([PodKind(1, np.array([cpu, memory]), np.ones(nodes, np.bool_))]),
            Placement([np.array([node], np.intp)], [np.array([1])], [0]),
            end,
        )
        for node, cpu, memory, end in releases
    ]
    availability = Availability(0, free, np.zeros((0, 2), np.int64), occupations)
    table = np.array([free.copy() for _ in range(60)])
    for node, cpu, memory, end in releases:
        table[end:, node] += np.array([cpu, memory])
    for count, wanted, seconds in ((other_pods, other_requests, other_duration), (pods, requests, duration)):
        needed = demand(count, nodes, wanted)
        expected = None
        for start in range(40):
            least = table[start : start + seconds].min(axis=0)
            if sum(min(int(least[n, r]) // wanted[r] for r in (0, 1) if wanted[r]) for n in range(nodes)) >= count:
                expected = start
                break
        found = availability.earliest(needed, seconds)
        assert (None if found is None else found.start) == expected
        if found is None:
            return
        assert availability.is_possible(found, needed, seconds)
        availability.reserve(found, needed, seconds)
        for rows, amounts in found.placement.amounts(needed):
            table[int(found.start) : int(found.start) + seconds, rows] -= amounts
        assert (table[int(found.start) : int(found.start) + seconds] >= np.minimum(0, table[0].min())).all()


def test_many_ends_count_as_few_later_ones_and_never_pass_a_reserved_start() -> None:
    nodes = 600
    occupations = [
        Occupation(demand(1, nodes), Placement([np.array([n], np.intp)], [np.array([1])], [0]), 10.0 + n)
        for n in range(nodes)
    ]
    free = np.zeros((nodes, 1), np.int64)
    needed = demand(101, nodes)
    plain = Availability(0, free, np.zeros((0, 1), np.int64), occupations)
    found = plain.earliest(needed, 5)
    assert found is not None
    assert 110 <= found.start <= 113
    exact = Reservation(110.0, Placement([np.arange(101)], [np.ones(101, np.int64)], [0]))
    kept = Availability(0, free, np.zeros((0, 1), np.int64), occupations, points=[110.0])
    again = kept.earliest(needed, 5, known=exact)
    assert again is not None
    assert again.start == 110


def test_a_reservation_for_other_pods_is_not_kept() -> None:
    free = np.array([[1], [1]], np.int64)
    availability = Availability(0, free, np.zeros((0, 1), np.int64))
    found = availability.earliest(demand(1, 2), 5)
    assert found is not None
    assert availability.is_possible(found, demand(1, 2), 5)
    two_kinds = Demand([*demand(1, 2).kinds, *demand(1, 2).kinds])
    for other in (demand(2, 2), two_kinds):
        assert not availability.is_possible(found, other, 5)
        assert availability.earliest(other, 5, known=found) is not None


# -- reserved starts hold --------------------------------------------------------------------------------------------


@given(batches(slots=5, exact=False, cpus=3), st.sampled_from(["easy", "conservative"]))
@settings(max_examples=50, deadline=None)
def test_the_first_reserved_start_never_slips(jobs: list[Batch], mode: BackfillMode) -> None:
    latest_start: dict[str, float] = {}
    for now, made in Model([3, 2, 3, 1], jobs, replace(IN_ORDER, mode=mode)).rounds():
        first = next((d for d in made.delays.values() if d.reservation is not None), None)
        for start in made.starts:
            assert now <= latest_start.get(start.job.key, math.inf)
        if first is not None and first.reservation is not None:
            assert first.reservation.start <= latest_start.get(first.job.key, math.inf)
            latest_start[first.job.key] = first.reservation.start


@given(batches(slots=5, cpus=3))
@settings(max_examples=40, deadline=None)
def test_with_exact_run_times_no_reserved_start_slips(jobs: list[Batch]) -> None:
    latest_start: dict[str, float] = {}
    for now, made in Model([3, 2, 3, 1], jobs, replace(IN_ORDER, mode="conservative")).rounds():
        for start in made.starts:
            assert now <= latest_start.get(start.job.key, math.inf)
        for name, delay in made.delays.items():
            if delay.reservation is not None:
                assert delay.reservation.start <= latest_start.get(name, math.inf)
                latest_start[name] = delay.reservation.start


@given(batches(slots=5, exact=False, cpus=3), st.data())
@settings(max_examples=120, deadline=None)
def test_no_reserved_start_slips_when_jobs_end_early(jobs: list[Batch], data: st.DataObject) -> None:
    for job in jobs:  # in any order of arrival: later ones in the order come first, and may not delay the others
        job.age = data.draw(st.integers(0, 9))
    latest_start: dict[str, float] = {}
    for now, made in Model([3, 2, 3, 1], jobs, replace(IN_ORDER, mode="conservative")).rounds():
        for start in made.starts:
            assert now <= latest_start.get(start.job.key, math.inf)
        for name, delay in made.delays.items():
            if name in latest_start:
                assert delay.reservation is not None
                assert delay.reservation.start <= latest_start[name]
            if delay.reservation is not None:
                latest_start[name] = delay.reservation.start


@given(batches(slots=5, exact=False, cpus=3), st.integers(1, 4), st.data())
@settings(max_examples=120, deadline=None)
def test_no_reserved_start_slips_when_jobs_start_late(jobs: list[Batch], period: int, data: st.DataObject) -> None:
    for job in jobs:
        job.age, job.late = data.draw(st.integers(0, 9)), data.draw(st.integers(0, 2))
    policy = replace(IN_ORDER, mode="conservative", slack=period, start_up=2)
    latest_start: dict[str, float] = {}
    for now, made in Model([3, 2, 3, 1], jobs, policy, period).rounds():
        for start in made.starts:  # in the first round from its reserved start on
            assert now < latest_start.get(start.job.key, math.inf) + period
        for name, delay in made.delays.items():
            if name in latest_start:
                assert delay.reservation is not None
                assert delay.reservation.start <= latest_start[name]
            if delay.reservation is not None:
                latest_start[name] = delay.reservation.start


def test_a_job_that_others_are_held_back_for_is_passed_by_higher_priorities_only() -> None:
    queues = read_queues(JobQueuesArgs(queues=[QueueArgs("q"), QueueArgs("r", weight=9)]))
    held = WaitingJob("held", "q", 1, 0, demand(4, 4), 10)
    waiting = [
        held,
        WaitingJob("equal", "r", 1, 5, demand(2, 4), 10),
        WaitingJob("urgent", "r", 2, 9, demand(1, 4), 10),
    ]
    placement = Placement([np.arange(2)], [np.ones(2, np.int64)], [0])
    running = [RunningJob("runs", "q", 0, [Occupation(demand(2, 4), placement, 20.0)])]
    free = np.array([[0], [0], [1], [1]], np.int64)
    situation = Situation(10, ["cpu"], {"cpu": 4.0}, free, queues, waiting, running)
    # Both jobs of r, which uses nothing, come first, and only two nodes are free.
    assert {start.job.key for start in plan(situation, Policy()).starts} == {"urgent"}
    assert plan(situation, Policy()).held == "equal"
    made = plan(replace(situation, held="held"), Policy())
    assert [made.position[name] for name in ("urgent", "held", "equal")] == [1, 2, 3]
    assert (made.held, made.delays["held"].reservation and made.delays["held"].reservation.start) == ("held", 20)


def test_no_job_waits_for_ever() -> None:
    stream = [Batch(f"s{n}", n, 1, 4, 4, priority=5) for n in range(60)]
    large = Batch("large", 5, 2, 3, 3)
    starved = Model([1, 1], [*(replace(each) for each in stream), replace(large)], replace(IN_ORDER, mode="easy")).run()
    served = Model([1, 1], [*stream, large], replace(IN_ORDER, mode="easy", max_wait=20)).run()
    assert starved["large"] > 50
    assert served["large"] <= 5 + 20 + 4


# -- preemption ------------------------------------------------------------------------------------------------------


@st.composite
def runs(draw: st.DrawFn) -> tuple[list[tuple[int, float]], int]:
    """Running jobs on slots of their own (their size and loss), and the size of the job that needs theirs."""
    found = draw(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 20).map(float)), min_size=1, max_size=6))
    return found, draw(st.integers(1, 10))


@given(runs())
@settings(max_examples=80, deadline=None)
def test_the_victims_are_those_that_lose_least(case: tuple[list[tuple[int, float]], int]) -> None:
    jobs, size = case
    slots = sum(pods for pods, _ in jobs)
    running, row = [], 0
    for number, (pods, loss) in enumerate(jobs):
        placement = Placement([np.arange(row, row + pods)], [np.ones(pods, np.int64)], [0])
        occupation = Occupation(demand(pods, slots), placement, 100.0)
        running.append(RunningJob(f"r{number}", "q", 0, [occupation], loss, is_preemptible=True))
        row += pods
    urgent = WaitingJob("urgent", "q", 1, 0, demand(size, slots), 10)
    situation = Situation(0, ["cpu"], {"cpu": float(slots)}, np.zeros((slots, 1), np.int64), QUEUES, [urgent], running)
    made = plan(situation, replace(IN_ORDER, within_queue=True))
    sufficient = [
        each
        for count in range(1, len(jobs) + 1)
        for each in itertools.combinations(range(len(jobs)), count)
        if sum(jobs[n][0] for n in each) >= size
    ]
    if not sufficient:
        assert not made.starts
        return
    victims = [int(name[1:]) for name in made.starts[0].victims]
    assert sum(jobs[n][1] for n in victims) == min(sum(jobs[n][1] for n in each) for each in sufficient)


def test_of_many_candidates_none_is_evicted_in_vain() -> None:
    slots = 40
    running = [
        RunningJob(
            f"r{n}",
            "q",
            0,
            [
                Occupation(
                    demand(4, slots), Placement([np.arange(4 * n, 4 * n + 4)], [np.ones(4, np.int64)], [0]), 100.0
                )
            ],
            float(10 - n),
            is_preemptible=True,
        )
        for n in range(10)
    ]
    urgent = WaitingJob("urgent", "q", 1, 0, demand(10, slots), 10)
    free = np.zeros((slots, 1), np.int64)
    situation = Situation(0, ["cpu"], {"cpu": 40.0}, free, QUEUES, [urgent], running)
    made = plan(situation, replace(IN_ORDER, within_queue=True))
    assert set(made.starts[0].victims) == {"r9", "r8", "r7"}


def test_no_queue_loses_what_it_is_guaranteed() -> None:
    queues = read_queues(
        JobQueuesArgs(queues=[QueueArgs("own", amounts=[Amount(guaranteed={"cpu": "4m"})]), QueueArgs("other")])
    )
    placement = Placement([np.arange(4)], [np.ones(4, np.int64)], [0])
    running = [RunningJob("r", "own", 0, [Occupation(demand(4, 4), placement, 100.0)], 1.0, is_preemptible=True)]
    waiting = [WaitingJob("w", "other", 9, 0, demand(1, 4), 10)]
    free = np.zeros((4, 1), np.int64)
    made = plan(Situation(0, ["cpu"], {"cpu": 4.0}, free, queues, waiting, running), Policy(reclaim=True))
    assert not made.starts
