"""The model of a gang's placements, compared with trying all placements by plain rules."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from random import Random
from typing import Any

import numpy as np
import pytest

from core_tests.engine.gangs.clusters import offline_scheduler
from kubestow.cluster.nodes.columns import MISSING
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.engine.gangs.gang_devices import GangDevices, LocalDevices
from kubestow.engine.gangs.gang_model import Answer, GangModel, Quota
from kubestow.engine.gangs.gang_problem import (
    AFFINITY,
    ANTI_AFFINITY,
    DEVICES,
    GROUP_TOPOLOGY,
    PORTS,
    SEGMENTS,
    SLOTS,
    SPREADING,
    Attraction,
    Confinement,
    Domains,
    Exclusion,
    GangProblem,
    Kind,
    SegmentRule,
    Spread,
)
from kubestow.rules.pods import HostPort
from kubestow.testing import pod

pytest.importorskip("ortools", reason="kubestow[solvers] is not installed")

#: The pods of each kind on each node.
Placed = tuple[tuple[int, ...], ...]

FAMILIES = ("cpu", SLOTS, PORTS, DEVICES, ANTI_AFFINITY, AFFINITY, SPREADING, SEGMENTS, GROUP_TOPOLOGY)
_PROBLEMS_PER_SEED = 12


# -- what is compared with ---------------------------------------------------------------------------------------------


class PlainModel:
    """The rules of a problem, without some families, for placements on some nodes that meet a quota."""

    def __init__(self, problem: GangProblem, within: Any, quota: Quota, without: Collection[str] = ()) -> None:
        self._problem, self._within, self._quota = problem, within.tolist(), quota
        self._without = frozenset(without)

    def placements(self) -> Iterator[Placed]:
        """All placements."""
        kinds = range(len(self._problem.kinds))
        for loads in product(*(list(self._loads(node)) for node in range(len(self._problem.node_names)))):
            placed = tuple(tuple(load[kind] for load in loads) for kind in kinds)
            if self.is_placement(placed):
                yield placed

    def is_placement(self, placed: Placed) -> bool:
        """Whether pods may be on these nodes together."""
        problem = self._problem
        if any(sum(row) > len(kind.pods) for row, kind in zip(placed, problem.kinds, strict=True)):
            return False
        if not all(self._fits(node, [row[node] for row in placed]) for node in range(len(problem.node_names))):
            return False
        rules: list[tuple[str, Sequence[Any], Callable[[Any, Placed], bool]]] = [
            (ANTI_AFFINITY, problem.exclusions, self._excludes),
            (SPREADING, problem.spreads, self._is_spread),
            (SEGMENTS, problem.segments, self._is_in_segments),
        ]
        for family, each, holds in rules:
            if family not in self._without and not all(holds(one, placed) for one in each):
                return False
        if AFFINITY not in self._without and not self._are_attracted(placed):
            return False
        confinements = [each for each in problem.confinements if each.family not in self._without]
        return all(self._is_confined(each, placed) for each in confinements) and is_met(
            self._quota, [sum(row) for row in placed]
        )

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def _loads(self, node: int) -> Iterator[tuple[int, ...]]:
        for load in product(*(range(len(kind.pods) + 1) for kind in self._problem.kinds)):
            if self._fits(node, load):
                yield load

    def _fits(self, node: int, load: Sequence[int]) -> bool:
        problem, kinds = self._problem, [number for number, count in enumerate(load) if count]
        if not kinds:
            return True
        if not self._within[node] or not all(problem.kinds[number].passes[node] for number in kinds):
            return False
        if SLOTS not in self._without and sum(load) > problem.slots[node]:
            return False
        for resource, free in problem.free.items():
            used = sum(load[number] * problem.kinds[number].requests.get(resource, 0) for number in kinds)
            if resource not in self._without and used > free[node]:
                return False
        if PORTS not in self._without:
            ports = [port for number in kinds for port in problem.kinds[number].host_ports for _ in range(load[number])]
            if any(port.conflicts_with(other) for at, port in enumerate(ports) for other in ports[:at]):
                return False
        local = None if problem.devices is None else problem.devices.local
        return (
            local is None
            or DEVICES in self._without
            or any(
                all(load[kind] <= most for kind, most in zip(local.kinds, pattern, strict=True))
                for pattern in local.on(node).tolist()
            )
        )

    # -- between pods --------------------------------------------------------------------------------------------------

    def _in(self, domain: int, domains: Domains, kinds: Collection[int], placed: Placed, among: Any = None) -> int:
        """The pods of some kinds in a domain, maybe only those on some nodes."""
        return sum(
            placed[kind][node]
            for kind in kinds
            for node, own in enumerate(domains.of_node.tolist())
            if own == domain and (among is None or among[node])
        )

    def _excludes(self, rule: Exclusion, placed: Placed) -> bool:
        one, other = rule.kinds
        counts = [
            [self._in(domain, rule.domains, [kind], placed) for kind in (one, other)]
            for domain in range(1, rule.domains.number)
        ]
        return all(first <= 1 if one == other else not (first and second) for first, second in counts)

    def _are_attracted(self, placed: Placed) -> bool:
        """Whether there is a choice of the pods that come first with which every other one finds one that it needs."""
        attractions = self._problem.attractions
        choices = [[*range(each.domains.number)] if each.may_be_first else [MISSING] for each in attractions]
        return any(self._finds_others(firsts, placed) for firsts in product(*choices) if self._may_be_firsts(firsts))

    def _may_be_firsts(self, firsts: Sequence[int]) -> bool:
        """Whether none of two kinds that need each other both have a pod that comes first."""
        attractions = self._problem.attractions
        chosen = [each for each, first in zip(attractions, firsts, strict=True) if first != MISSING]
        return not any(
            one.kind in other.supporters and other.kind in one.supporters
            for at, one in enumerate(chosen)
            for other in chosen[:at]
        )

    def _finds_others(self, firsts: Sequence[int], placed: Placed) -> bool:
        attractions = self._problem.attractions
        waiting = {
            (number, domain)
            for number, each in enumerate(attractions)
            for domain in range(1, each.domains.number)
            if self._in(domain, each.domains, [each.kind], placed)
            if not each.existing[domain] and firsts[number] != domain
        }
        while waiting:
            found = {
                (number, domain)
                for number, domain in waiting
                if any(
                    self._in(domain, attractions[number].domains, [kind], placed)
                    and not any(
                        (other, domain) in waiting
                        for other, each in enumerate(attractions)
                        if each.kind == kind and each.domains.key == attractions[number].domains.key
                    )
                    for kind in attractions[number].supporters
                )
            }
            if not found:
                return False
            waiting -= found
        return True

    def _is_spread(self, rule: Spread, placed: Placed) -> bool:
        domains, eligible = rule.domains, np.flatnonzero(rule.eligible).tolist()
        least = 0
        if len(eligible) >= rule.min_domains:
            least = min(
                int(rule.existing[domain]) + self._in(domain, domains, rule.counted, placed, rule.included)
                for domain in eligible
            )
        for domain in range(1, domains.number):
            if not self._in(domain, domains, rule.kinds, placed):
                continue
            own = rule.kinds & rule.counted
            added = self._in(domain, domains, own, placed, rule.included)
            if not own or not any(rule.included[domains.of_node == domain]):
                added = int(rule.counts_itself)
            if rule.existing[domain] + added - least > rule.max_skew:
                return False
        return True

    def _is_in_segments(self, rule: SegmentRule, placed: Placed) -> bool:
        return not rule.is_outside and all(
            (self._in(domain, rule.domains, rule.kinds, placed) + existing) % rule.size == 0
            for domain, existing in enumerate(rule.existing.tolist())
        )

    def _is_confined(self, rule: Confinement, placed: Placed) -> bool:
        nodes = [node for kind in rule.kinds for node, count in enumerate(placed[kind]) if count]
        return not nodes or any(all(choice[node] for node in nodes) for choice in rule.choices.tolist())


def is_met(quota: Quota, counts: Sequence[int]) -> bool:
    """Whether a quota is met by so many pods of each kind, and of each part of it that is not met there are none."""
    if not quota.parts:
        return sum(counts[kind] for kind in quota.kinds) >= quota.pods
    met = [is_met(part, counts) for part in quota.parts]
    empty = [not any(counts[kind] for kind in part.all_kinds) for part in quota.parts]
    return sum(met) >= quota.count and all(map(max, met, empty))


# -- random problems ---------------------------------------------------------------------------------------------------


def _infos(count: int) -> list[PodInfo]:
    scheduler, _ = offline_scheduler([], [], [])
    return [scheduler.cache.shapes.info(pod("a"))] * count


class RandomProblem:
    """A problem of two or three kinds of pods on a few nodes, many of them alike."""

    def __init__(self, random: Random, infos: Sequence[PodInfo]) -> None:
        self._random, count = random, random.randint(2, 4)
        sorts = [(random.randint(1, 4), random.randint(1, 3), random.randint(1, 3)) for _ in range(2)]
        chosen = [random.choice(sorts) for _ in range(count)]
        self._nodes = count
        zones = [MISSING if random.random() < 0.1 else zone for *_, zone in chosen]
        self._zones = Domains("zone", np.array(zones, np.int32), 4)
        self._hosts = Domains("host", np.arange(1, count + 1, dtype=np.int32), count + 1)
        self._kinds = [self._kind(infos) for _ in range(random.choice([1, 2, 2, 3] if count < 4 else [1, 2, 2]))]
        free = {"cpu": np.array([cpu for cpu, *_ in chosen], np.int64)}
        slots = np.array([slots for _, slots, _ in chosen], np.int64)
        problem = GangProblem([f"n{node}" for node in range(count)], self._kinds, free, slots, (), (), ())
        feature = random.choice(["", ANTI_AFFINITY, AFFINITY, SPREADING, SEGMENTS, GROUP_TOPOLOGY, DEVICES, "all"])
        has = dict.fromkeys(FAMILIES, feature == "all") | {feature: True}
        self.problem = replace(
            problem,
            exclusions=[self._exclusion() for _ in range(random.randint(1, 2) * has[ANTI_AFFINITY])],
            attractions=self._attractions() if has[AFFINITY] else [],
            spreads=[self._spread() for _ in range(random.randint(1, 2) * has[SPREADING])],
            segments=[self._segments()] if has[SEGMENTS] else [],
            confinements=[self._confinement()] if has[GROUP_TOPOLOGY] else [],
            devices=self._devices() if has[DEVICES] else None,
        )

    def _kind(self, infos: Sequence[PodInfo]) -> Kind:
        random = self._random
        ports = (HostPort("0.0.0.0", "TCP", random.choice([80, 81])),) if random.random() < 0.25 else ()
        passes = np.array([random.random() < 0.9 for _ in range(self._nodes)])
        requests = {"cpu": random.choice([1, 1, 2])} if random.random() < 0.9 else {}
        return Kind(infos[: random.randint(1, 3)], "", requests, ports, passes)

    def _some(self) -> frozenset[int]:
        numbers = range(len(self._kinds))
        return frozenset(self._random.sample(numbers, self._random.randint(1, len(numbers))))

    def _domains(self, kinds: Collection[int] = ()) -> Domains:
        """Domains; nodes without one are taken out of what the kinds pass on."""
        domains = self._random.choice([self._zones, self._hosts])
        for kind in kinds:
            self._kinds[kind].passes[domains.of_node == MISSING] = False
        return domains

    def _counts(self, domains: Domains) -> Any:
        return np.array([0, *(self._random.choice([0, 0, 1, 2]) for _ in range(1, domains.number))], np.int64)

    def _exclusion(self) -> Exclusion:
        numbers = range(len(self._kinds))
        return Exclusion((self._random.choice(numbers), self._random.choice(numbers)), self._domains())

    def _attractions(self) -> list[Attraction]:
        random, found = self._random, []
        for kind in self._some():
            for domains in random.choice([[self._zones], [self._zones], [self._hosts], [self._hosts, self._zones]]):
                self._kinds[kind].passes[domains.of_node == MISSING] = False
                existing = np.array([False, *(random.random() < 0.2 for _ in range(1, domains.number))])
                found.append(Attraction(kind, domains, existing, self._some() - {kind}, random.random() < 0.4))
        return found

    def _spread(self) -> Spread:
        random, kinds = self._random, self._some()
        domains = self._domains(kinds)
        included = np.array([random.random() < 0.9 for _ in range(self._nodes)]) & (domains.of_node != MISSING)
        if domains is self._zones:  # the nodes of a zone are alike
            included &= np.array([random.random() < 0.9 for _ in range(4)])[domains.of_node]
            included |= np.isin(domains.of_node, domains.of_node[included])
        eligible = np.zeros(domains.number, np.bool_)
        eligible[domains.of_node[included]] = True
        counted = random.choice([kinds, self._some(), frozenset[int]()])
        limits = random.choice([1, 1, 2]), random.choice([1, 1, 2, 3])
        counts_itself = random.random() < 0.7
        return Spread(
            kinds, domains, self._counts(domains), eligible, included, counted, *limits, counts_itself=counts_itself
        )

    def _segments(self) -> SegmentRule:
        kinds = self._some()
        domains = self._domains(kinds)
        is_outside = self._random.random() < 0.05
        return SegmentRule(kinds, domains, self._counts(domains), self._random.choice([2, 3]), is_outside)

    def _confinement(self) -> Confinement:
        random = self._random
        choices = [[random.random() < 0.6 for _ in range(self._nodes)] for _ in range(random.randint(1, 3))]
        return Confinement(self._some(), np.array(choices))

    def _devices(self) -> GangDevices:
        random, kinds = self._random, sorted(self._some())
        patterns = [
            np.array([[random.randint(0, 2) for _ in kinds] for _ in range(random.randint(1, 2))], np.int64)
            for _ in range(2)
        ]
        classes = np.array([random.randrange(2) for _ in range(self._nodes)], np.intp)
        return GangDevices([], {}, 0, np.zeros(self._nodes, np.int64), LocalDevices(tuple(kinds), classes, patterns))

    def quota(self) -> Quota:
        """What is to be placed: some pods, or some parts of one kind each."""
        random, kinds = self._random, range(len(self._kinds))
        if random.random() < 0.7:
            return Quota(frozenset(kinds), random.randint(0, 4))
        parts = tuple(Quota(frozenset({kind}), random.randint(1, 2)) for kind in kinds)
        return Quota(parts=parts, count=random.randint(0, len(parts)))


# -- the comparison ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(16))
def test_a_solution_has_the_most_pods_of_all_placements(seed: int) -> None:
    random, infos = Random(f"gang model {seed}"), _infos(3)
    for _ in range(_PROBLEMS_PER_SEED):
        given = RandomProblem(random, infos)
        problem, quota = given.problem, given.quota()
        within = np.array([random.random() < 0.9 for _ in problem.node_names])
        without = random.sample(FAMILIES, random.choice([0, 0, 0, 1, 3]))
        plain = PlainModel(problem, within, quota, without)
        most = max((sum(map(sum, placed)) for placed in plain.placements()), default=None)
        for merges_nodes in (True, False):
            solution = GangModel(problem, within, quota, without=without, merges_nodes=merges_nodes).solve(10.0)
            if most is None:
                assert (solution.answer, solution.placed) == (Answer.IMPOSSIBLE, None), problem
                continue
            assert (solution.answer, solution.bound) == (Answer.PLACED, most), problem
            assert solution.placed is not None
            placed = tuple(map(tuple, solution.placed.tolist()))
            assert sum(map(sum, placed)) == most, problem
            assert plain.is_placement(placed), (placed, problem)


@pytest.mark.parametrize("seed", range(4))
def test_each_placement_is_a_solution_once_if_the_former_ones_are_forbidden(seed: int) -> None:
    random, infos = Random(f"forbidden {seed}"), _infos(3)
    given = RandomProblem(random, infos)
    problem, within = given.problem, np.ones(len(given.problem.node_names), np.bool_)
    quota = Quota(frozenset({0}), 1)
    expected = set(PlainModel(problem, within, quota).placements())
    while len(expected) > 40:
        quota = replace(quota, kinds=frozenset(range(len(problem.kinds))), pods=quota.pods + 1)
        expected = set(PlainModel(problem, within, quota).placements())
    model = GangModel(problem, within, quota, merges_nodes=False)
    found = []
    while (placed := model.solve(10.0).placed) is not None:
        found.append(tuple(map(tuple, placed.tolist())))
        model.forbid(placed)
    assert len(found) == len(expected)
    assert set(found) == expected


@pytest.mark.parametrize("seed", range(4))
def test_the_fewest_pods_are_moved_from_where_they_are(seed: int) -> None:
    random, infos = Random(f"in place {seed}"), _infos(3)
    for _ in range(_PROBLEMS_PER_SEED):
        given = RandomProblem(random, infos)
        problem, quota = given.problem, given.quota()
        within = np.ones(len(problem.node_names), np.bool_)
        existing = np.array([[random.choice([0, 0, 1, 2]) for _ in problem.node_names] for _ in problem.kinds])
        most = random.randint(0, 3)

        def moved(placed: Placed, existing: Any = existing) -> int:
            return int(np.maximum(existing - np.array(placed), 0).sum())

        plain = PlainModel(problem, within, quota)
        fewest = min(map(moved, plain.placements()), default=None)
        model = GangModel(problem, within, quota, merges_nodes=False)
        model.keep_in_place(existing, most)
        solution = model.solve(10.0)
        if fewest is None or fewest > most:
            assert solution.answer is Answer.IMPOSSIBLE
            continue
        assert solution.placed is not None
        placed = tuple(map(tuple, solution.placed.tolist()))
        assert (solution.answer, solution.bound, moved(placed)) == (Answer.PLACED, fewest, fewest)
        assert plain.is_placement(placed)


@dataclass(frozen=True)
class Emptied:
    """So many of some domains are without pods of the kinds ``leaving``, and all those of ``confined`` are in them."""

    domains: Sequence[Sequence[int]]
    count: int
    leaving: Collection[int]
    confined: Collection[int]

    def holds(self, placed: Placed) -> bool:
        return any(
            self._are_emptied([node for domain in chosen for node in domain], placed)
            for chosen in combinations(self.domains, self.count)
        )

    def _are_emptied(self, nodes: Sequence[int], placed: Placed) -> bool:
        outside = [node for node in range(len(placed[0])) if node not in nodes]
        left = [placed[kind][node] for kind in self.leaving for node in nodes]
        return not any([*left, *(placed[kind][node] for kind in self.confined for node in outside)])


@pytest.mark.parametrize("seed", range(4))
def test_domains_are_emptied_for_some_kinds(seed: int) -> None:
    random, infos = Random(f"emptied {seed}"), _infos(3)
    for _ in range(_PROBLEMS_PER_SEED):
        given = RandomProblem(random, infos)
        problem, quota = given.problem, given.quota()
        count, kinds = len(problem.node_names), range(len(problem.kinds))
        within = np.ones(count, np.bool_)
        nodes = random.sample(range(count), count)
        domains = [nodes[:1], nodes[1:2]] if random.random() < 0.5 else [nodes[:2]]
        emptied = random.randint(1, len(domains))
        leaving = {kind for kind in kinds if random.random() < 0.6}
        confined = {kind for kind in kinds if random.random() < 0.3} - leaving

        rule = Emptied(domains, emptied, leaving, confined)
        plain = PlainModel(problem, within, quota)
        most = max((sum(map(sum, placed)) for placed in plain.placements() if rule.holds(placed)), default=None)
        model = GangModel(problem, within, quota, merges_nodes=False)
        model.empty_domains([np.array(each, np.intp) for each in domains], emptied, leaving, confined)
        solution = model.solve(10.0)
        if most is None:
            assert solution.answer is Answer.IMPOSSIBLE
            continue
        assert solution.placed is not None
        placed = tuple(map(tuple, solution.placed.tolist()))
        assert (solution.answer, solution.bound) == (Answer.PLACED, most)
        assert plain.is_placement(placed)
        assert rule.holds(placed)
