"""All small gangs, one of each that differ in more than names: placed if and only if they can be.

Nodes have one CPU or two, pods request one or two. The plain model folds the nodes one by one into the set of all that
they can take together, by topology domain; what a gang asks for is read off that. Pods of one size and part are
interchangeable in it, as are the nodes of a zone, and the zones: of such gangs one stands for all. All gangs of one set
of nodes share an engine, which a search leaves as it was.

``python -m core_tests.engine.gangs.small_gangs`` in ``packages/kubestow/tests`` compares all of them, ``--count`` says
how many there are.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from itertools import combinations_with_replacement, permutations, product
from typing import Any

from core_tests.engine.gangs.clusters import offline_scheduler, pod_group
from kubestow.cluster.pods.pod_groups import Members
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.engine.gangs.gang_search import GangAnswer, GangSearch
from kubestow.framework.gang import Gang, Preference, Role, Segments
from kubestow.testing import node, pod

HOSTNAME, ZONE = "kubernetes.io/hostname", "zone"
#: The CPUs of nodes with their zones, in order.
Nodes = tuple[tuple[int, str], ...]
#: The pods of each part of a gang, which is the gang itself, a role of it, or a group of a tree: those of one CPU, and
#: those of two.
Parts = tuple[tuple[int, int], ...]
#: How many pods of each part and size, parts one after the other, are somewhere.
Counts = tuple[int, ...]

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_MEMBERS = {"labelSelector": {"matchLabels": {"app": "gang"}}}


def _affinity(kind: str, key: str) -> dict[str, Any]:
    return {"affinity": {kind: {_REQUIRED: [{**_MEMBERS, "topologyKey": key}]}}}


def _spread(key: str, skew: int) -> dict[str, Any]:
    return {"spread": [{**_MEMBERS, "topologyKey": key, "maxSkew": skew, "whenUnsatisfiable": "DoNotSchedule"}]}


@dataclass(frozen=True)
class BetweenPods:
    """A constraint of each pod of a gang to all of them, and whether pods in domains of a key respect it.

    ``holds`` is about how many pods are in each domain.
    """

    key: str
    fields: Mapping[str, Any]
    holds: Callable[[Sequence[int]], bool]


_CONSTRAINTS: list[tuple[str, Callable[[str], Mapping[str, Any]], Callable[[Sequence[int]], bool]]] = [
    ("anti-affinity", lambda key: _affinity("podAntiAffinity", key), lambda found: max(found) <= 1),
    ("affinity", lambda key: _affinity("podAffinity", key), lambda found: sum(map(bool, found)) <= 1),
    ("spread 1", lambda key: _spread(key, 1), lambda found: max(found) - min(found) <= 1),
    ("spread 2", lambda key: _spread(key, 2), lambda found: max(found) - min(found) <= 2),
]
BETWEEN = {
    f"{name} {key}": BetweenPods(key, fields(key), holds)
    for key in (HOSTNAME, ZONE)
    for name, fields, holds in _CONSTRAINTS
}


@dataclass(frozen=True)
class Rules:
    """What a placement has to respect: all pods in one domain of each key of ``together``, the pods in each domain of a
    key in segments of a size, parts in a zone each, and a constraint ``between`` pods.
    """

    together: frozenset[str] = frozenset()
    segments: tuple[str, int] = ("", 0)
    parts_in_zone: frozenset[int] = frozenset()
    between: str = ""

    @property
    def key(self) -> str:
        """The key of the smallest domains that matter; empty if none do."""
        keys = {*self.together, self.segments[0], ZONE if self.parts_in_zone else ""}
        keys |= {BETWEEN[self.between].key} if self.between else set()
        return HOSTNAME if HOSTNAME in keys else ZONE if ZONE in keys else ""

    def are_respected(self, by_key: Mapping[str, Sequence[Counts]]) -> bool:
        """Whether pods are placed so, by the domains of each key."""
        pods = {key: [sum(counts) for counts in domains] for key, domains in by_key.items()}
        if any(sum(map(bool, pods[key])) > 1 for key in self.together):
            return False
        key, size = self.segments
        if size and any(count % size for count in pods[key]):
            return False
        if self.between and not BETWEEN[self.between].holds(pods[BETWEEN[self.between].key]):
            return False
        return all(
            sum(any(counts[2 * part : 2 * part + 2]) for counts in by_key[ZONE]) <= 1 for part in self.parts_in_zone
        )


@cache
def _loads(cpu: int, parts: int) -> list[Counts]:
    """All that a node of so many CPUs can take."""
    every = product(range(cpu + 1), repeat=2 * parts)
    return [counts for counts in every if sum(counts[0::2]) + 2 * sum(counts[1::2]) <= cpu]


def _by_keys(nodes: Nodes, key: str, found: Sequence[Counts]) -> dict[str, list[Counts]]:
    """The counts in the domains of a key, and in those of larger domains, by key."""
    by_key = {key: list(found)}
    if key == HOSTNAME:
        by_zone: dict[str, Counts] = {}
        for (_, zone), counts in zip(nodes, found, strict=True):
            by_zone[zone] = _sum(by_zone.get(zone, (0,) * len(counts)), counts)
        by_key[ZONE] = list(by_zone.values())
    return by_key


def _sum(one: Counts, other: Counts) -> Counts:
    return tuple(map(int.__add__, one, other))


@lru_cache(maxsize=10_000)
def _placeable(nodes: Nodes, parts: Parts, rules: Rules) -> frozenset[tuple[int, ...]]:
    """How many pods of each part can be placed together by some rules: every such combination."""
    most = tuple(count for part in parts for count in part)
    return frozenset(
        tuple(map(int.__add__, total[0::2], total[1::2]))
        for total in _placeable_of_any(nodes, len(parts), rules)
        if all(map(int.__le__, total, most))
    )


@lru_cache(maxsize=200)
def _placeable_of_any(nodes: Nodes, parts: int, rules: Rules) -> frozenset[Counts]:
    """How many pods of each part and size can be placed together, with as many of each as there is room for."""
    key = rules.key
    names = [{HOSTNAME: number, ZONE: zone, "": ""}[key] for number, (_, zone) in enumerate(nodes)]
    domains = list(dict.fromkeys(names))
    states = {((0,) * 2 * parts,) * len(domains)}
    for name, (cpu, _) in zip(names, nodes, strict=True):
        at = domains.index(name)
        states = {
            (*state[:at], _sum(state[at], load), *state[at + 1 :]) for state in states for load in _loads(cpu, parts)
        }
    placed = (state for state in states if rules.are_respected(_by_keys(nodes, key, state)))
    return frozenset(tuple(map(sum, zip(*state, strict=True))) for state in placed)


@dataclass(frozen=True)
class SmallGang:
    """A gang. The parts are groups of a tree with a minimum each if there are ``min_groups``, else ``roles`` with what
    is needed of each, or the whole gang.

    It ``prefers`` to be in one domain of keys, the best first, and to be in segments of a size by keys.
    """

    parts: Parts
    minimums: tuple[int, ...]
    rules: Rules = Rules()
    roles: tuple[int, ...] = ()
    min_groups: int = 0
    prefers: tuple[str, ...] = ()
    segments_prefer: tuple[tuple[str, int], ...] = ()

    @cached_property
    def levels(self) -> list[Rules]:
        """The rules of each preference, the best first, and at last those that are required."""
        return [
            replace(self.rules, together=self.rules.together | own, segments=segments)
            for own in (*(frozenset({key}) for key in self.prefers), frozenset[str]())
            for segments in (*self.segments_prefer, self.rules.segments)
        ]

    def is_enough(self, pods: Sequence[int]) -> bool:
        """Whether so many pods of each part are enough; of a group of a tree enough pods or none."""
        if self.min_groups:
            if any(0 < count < least for count, least in zip(pods, self.minimums, strict=True)):
                return False
            return sum(count >= least for count, least in zip(pods, self.minimums, strict=True)) >= self.min_groups
        if sum(pods) < self.minimums[0]:
            return False
        return not self.roles or all(count >= least for count, least in zip(pods, self.roles, strict=True))

    def best_level(self, nodes: Nodes) -> int | None:
        """The number of the best level at which it can be placed on some nodes; None if there is none."""
        for number, rules in enumerate(self.levels):
            if any(map(self.is_enough, _placeable(nodes, self.parts, rules))):
                return number
        return None

    def is_at_boundary(self, nodes: Nodes) -> bool:
        """Whether a minimum that is higher or lower by one changes where it can be placed."""
        best = self.best_level(nodes)
        return any(each.best_level(nodes) != best for each in self._neighbours())

    def _neighbours(self) -> Iterator[SmallGang]:
        for step in (1, -1):
            for number, least in enumerate(self.minimums):
                yield replace(self, minimums=(*self.minimums[:number], least + step, *self.minimums[number + 1 :]))
            for number, least in enumerate(self.roles):
                yield replace(self, roles=(*self.roles[:number], least + step, *self.roles[number + 1 :]))


class SmallCluster:
    """The engine for all gangs on some nodes, and what it finds compared with the plain model."""

    def __init__(self, nodes: Nodes) -> None:
        self.nodes = nodes
        objects = [
            pod_group(f"{kind}{number}", 1, topology=topology)
            for kind, topology in (("free", ""), ("zoned", ZONE))
            for number in range(4)
        ]
        own = [
            node(f"n{number}", cpu=str(cpu), labels={ZONE: zone, HOSTNAME: f"n{number}"})
            for number, (cpu, zone) in enumerate(nodes)
        ]
        firsts = {each.metadata.name: _pod(each.metadata.name, "first", 1, "") for each in objects}
        scheduler, profile = offline_scheduler(own, list(firsts.values()), objects)
        self._cluster, self._search = scheduler.cache, GangSearch(scheduler.cache, profile)
        self._groups: dict[str, Gang] = {}
        for name, first in firsts.items():
            gang = profile.gangs.gang_of(self._cluster.shapes.info(first))
            assert gang is not None
            self._groups[name] = gang
        self._pods: dict[tuple[str, str, int, str], PodInfo] = {}

    def difference(self, small: SmallGang) -> str:
        """How the search and the plain model differ; empty if they agree."""
        gang, part_of = self._gang(small)
        answer = self._search.find(gang)
        best = small.best_level(self.nodes)
        found = len(answer.passed_over) if answer.is_placed else None
        if found != best or answer.is_impossible != (best is None):
            return f"level {best} of {small.levels} expected, found {found} {answer.undecided}"
        if found is not None:
            return self._difference_of_placement(small, small.levels[found], answer, part_of)
        most = max(map(sum, _placeable(self.nodes, small.parts, small.levels[-1])))
        claimed = max(certificate.most for certificate in answer.certificates)
        return f"{most} pods can be placed, the certificates say {claimed} at most" if claimed < most else ""

    def _difference_of_placement(
        self, small: SmallGang, rules: Rules, answer: GangAnswer, part_of: Mapping[str, tuple[int, int]]
    ) -> str:
        """What is wrong with a placement."""
        by_node = [[0] * 2 * len(small.parts) for _ in self.nodes]
        for info, node_name in answer.assignments:
            part, cpu = part_of[info.uid]
            by_node[int(node_name.removeprefix("n"))][2 * part + cpu - 1] += 1
        loads = [tuple(counts) for counts in by_node]
        fits = all(load in _loads(cpu, len(small.parts)) for load, (cpu, _) in zip(loads, self.nodes, strict=True))
        is_once = len({info.uid for info, _ in answer.assignments}) == len(answer.assignments)
        pods = [sum(sum(load[2 * part : 2 * part + 2]) for load in loads) for part in range(len(small.parts))]
        by_key = _by_keys(self.nodes, HOSTNAME, loads)
        if fits and is_once and rules.are_respected(by_key) and small.is_enough(pods):
            return ""
        return f"placed as {loads}"

    def _gang(self, small: SmallGang) -> tuple[Gang, dict[str, tuple[int, int]]]:
        """The gang, and the part and the CPUs of each of its pods by uid."""
        in_zone = ZONE in small.rules.together
        part_of: dict[str, tuple[int, int]] = {}
        members: list[Members] = []
        for part, counts in enumerate(small.parts):
            number = part if small.min_groups else 0
            name = f"{'zoned' if in_zone or part in small.rules.parts_in_zone else 'free'}{number}"
            of_part = Members({}.keys())
            for cpu, count in enumerate(counts, start=1):
                for position in range(count):
                    info = self._pod(name, f"{part}-{cpu}-{position}", cpu, small.rules.between)
                    part_of[info.uid] = part, cpu
                    of_part.put(info)
            members.append(of_part)
        every = Members({}.keys())
        for of_part in members:
            for info in of_part.pods.values():
                every.put(info)
        if small.min_groups:
            children = tuple(
                replace(self._group(part in small.rules.parts_in_zone, part), members=own, min_count=least)
                for part, (own, least) in enumerate(zip(members, small.minimums, strict=True))
            )
            return Gang("tree", "", 0, 0.0, every, children=children, min_groups=small.min_groups), part_of
        required = _segments(small.rules.segments)
        levels = [
            (key, each) for key in (*small.prefers, "") for each in (*small.segments_prefer, small.rules.segments)
        ]
        gang = replace(
            self._group(in_zone, 0),
            members=every,
            min_count=small.minimums[0],
            segments=required,
            preferences=tuple(Preference(key, _segments(each)) for key, each in levels[:-1]),
            roles=tuple(
                Role(f"role{part}", least, frozenset(members[part].pods)) for part, least in enumerate(small.roles)
            ),
        )
        return gang, part_of

    def _group(self, in_zone: bool, number: int) -> Gang:
        return self._groups[f"{'zoned' if in_zone else 'free'}{number}"]

    def _pod(self, group: str, name: str, cpu: int, between: str) -> PodInfo:
        key = group, name, cpu, between
        if key not in self._pods:
            self._pods[key] = self._cluster.shapes.info(_pod(group, name, cpu, between))
        return self._pods[key]


def _pod(group: str, name: str, cpu: int, between: str) -> Any:
    fields = dict(BETWEEN[between].fields) if between else {}
    spec = {"schedulingGroup": {"podGroupName": group}}
    return pod(f"{group}-{name}", cpu=str(cpu), labels={"app": "gang"}, spec=spec, **fields)


def _segments(segments: tuple[str, int]) -> Segments | None:
    key, size = segments
    return Segments(key, size) if size else None


# -- which gangs there are ---------------------------------------------------------------------------------------------


def node_sets(most: int, zones: int) -> list[Nodes]:
    """All sets of up to so many nodes of one CPU or two in up to so many zones, one of those that differ in names."""
    names, found = "abc"[:zones], dict[Nodes, None]()
    for count in range(1, most + 1):
        for nodes in combinations_with_replacement([(cpu, zone) for zone in names for cpu in (1, 2)], count):
            renamed = (dict(zip(names, order, strict=True)) for order in permutations(names))
            found[min(tuple(sorted(((cpu, new[zone]) for cpu, zone in nodes), key=_zone_first)) for new in renamed)] = (
                None
            )
    return list(found)


def _zone_first(each: tuple[int, str]) -> tuple[str, int]:
    return each[1], each[0]


def _sizes(most: int) -> list[tuple[int, int]]:
    """All choices of up to so many pods of one CPU or two, at least one."""
    return [(count - large, large) for count in range(1, most + 1) for large in range(count + 1)]


def _minimums(rules: Iterable[Rules], pods: int) -> Iterator[SmallGang]:
    for each, part in product(rules, _sizes(pods)):
        for minimum in range(1, sum(part) + 1):
            yield SmallGang((part,), (minimum,), each)


def minimums(pods: int) -> Iterator[SmallGang]:
    """Every minimum of every gang; with a lower one than it has pods, the rest is elastic."""
    return _minimums([Rules()], pods)


def in_one_zone(pods: int) -> Iterator[SmallGang]:
    """The same in one zone."""
    return _minimums([Rules(together=frozenset({ZONE}))], pods)


def segments(pods: int) -> Iterator[SmallGang]:
    """Segments of every size, in zones."""
    for gang in _minimums([Rules(segments=(ZONE, size)) for size in range(2, pods + 1)], pods):
        if gang.rules.segments[1] <= sum(gang.parts[0]):
            yield gang


def between_in_zones(pods: int) -> Iterator[SmallGang]:
    """Affinity, anti-affinity and spreading of all pods by zone."""
    return _minimums([Rules(between=name) for name in BETWEEN if name.endswith(f" {ZONE}")], pods)


def between_on_nodes(pods: int) -> Iterator[SmallGang]:
    """The same by node."""
    return _minimums([Rules(between=name) for name in BETWEEN if name.endswith(f" {HOSTNAME}")], pods)


def levels(pods: int) -> Iterator[SmallGang]:
    """Gangs that prefer a zone, or a node and then a zone."""
    for gang, prefers in product(minimums(pods), ((ZONE,), (HOSTNAME, ZONE))):
        yield replace(gang, prefers=prefers)


def levels_of_segments(pods: int) -> Iterator[SmallGang]:
    """Gangs that prefer segments of two pods or three on nodes, and then in zones."""
    for gang, size in product(minimums(pods), (2, 3)):
        if size <= sum(gang.parts[0]):
            yield replace(gang, segments_prefer=tuple((key, size) for key in (HOSTNAME, ZONE)))


def _two_roles(pods: int) -> Iterator[tuple[Parts, tuple[int, int]]]:
    """The ways to divide pods into two roles with what is needed of each, one of those with the roles exchanged."""
    for one, other in combinations_with_replacement([(0, 0), *_sizes(pods)], 2):
        if not 0 < sum(one) + sum(other) <= pods:
            continue
        for least in product(range(sum(one) + 1), range(sum(other) + 1)):
            if one != other or least[0] <= least[1]:
                yield (one, other), least


def roles(pods: int) -> Iterator[SmallGang]:
    """Two roles of which each needs every number of pods, and the gang no more than these together."""
    for parts, least in _two_roles(pods):
        if sum(least):
            yield SmallGang(parts, (1,), roles=least)


def _trees(groups: int, pods: int) -> Iterator[SmallGang]:
    own = [(part, minimum) for part in _sizes(pods) for minimum in range(1, sum(part) + 1)]
    for chosen in combinations_with_replacement(own, groups):
        if sum(sum(part) for part, _ in chosen) <= pods:
            parts, least = zip(*chosen, strict=True)
            for min_groups in range(1, groups + 1):
                yield SmallGang(parts, least, min_groups=min_groups)


def trees(pods: int) -> Iterator[SmallGang]:
    """Trees of two groups with every minimum, of which one or both are needed."""
    return _trees(2, pods)


def larger_trees(pods: int) -> Iterator[SmallGang]:
    """Trees of three groups."""
    return _trees(3, pods)


def trees_in_zones(pods: int) -> Iterator[SmallGang]:
    """Trees of two groups, of which one or both are in one zone each."""
    for gang, in_zone in product(_trees(2, pods), ((0,), (1,), (0, 1))):
        is_same = gang.parts[0] == gang.parts[1] and gang.minimums[0] == gang.minimums[1]
        if not (is_same and in_zone == (1,)):
            yield replace(gang, rules=Rules(parts_in_zone=frozenset(in_zone)))


def roles_and_minimums(pods: int) -> Iterator[SmallGang]:
    """Two roles, and minimums of the gang above what these need together."""
    for parts, least in _two_roles(pods):
        for minimum in range(max(1, sum(least) + 1), sum(map(sum, parts)) + 1):
            yield SmallGang(parts, (minimum,), roles=least)


def pairs(pods: int) -> Iterator[SmallGang]:
    """Two of: one zone, segments of two or of three, a constraint between pods by zone or by node; with every minimum.

    A preferred node or zone counts as one too, and roles do.
    """
    zone, between = frozenset({ZONE}), list(BETWEEN)
    of_segments = [(ZONE, 2), (ZONE, 3)]
    rules = [
        *(Rules(zone, segments=each) for each in of_segments),
        *(Rules(zone, between=name) for name in between),
        *(Rules(segments=each, between=name) for each, name in product(of_segments, between)),
    ]
    yield from _minimums(rules, pods)
    single = [
        Rules(zone),
        *(Rules(segments=each) for each in of_segments),
        *(Rules(between=name) for name in between),
    ]
    for gang in _minimums(single, pods):
        for key in (HOSTNAME,) if gang.rules.together else (HOSTNAME, ZONE):
            yield replace(gang, prefers=(key,))
    for (parts, least), each in product(_two_roles(pods), single):
        if sum(least):
            yield SmallGang(parts, (1,), each, roles=least)
    for gang in roles(pods):
        for key in (HOSTNAME, ZONE):
            yield replace(gang, prefers=(key,))


@dataclass(frozen=True)
class Domain:
    """Gangs of a sort: all on up to so many nodes in up to so many zones, with up to so many pods.

    Only those at the boundary between what can be placed and what cannot, or ``with_all_minimums``.
    """

    gangs: Callable[[int], Iterator[SmallGang]]
    nodes: int
    pods: int
    zones: int
    with_all_minimums: bool = False


#: What is compared, by name.
DOMAINS = {
    domain.gangs.__name__: domain
    for domain in (
        Domain(minimums, 6, 8, 1, with_all_minimums=True),
        Domain(in_one_zone, 6, 8, 3),
        Domain(segments, 6, 8, 2),
        Domain(between_in_zones, 6, 8, 2),
        Domain(between_on_nodes, 6, 8, 1),
        Domain(levels, 6, 8, 2),
        Domain(levels_of_segments, 6, 8, 2),
        Domain(roles, 6, 8, 1),
        Domain(trees, 6, 8, 1),
        Domain(larger_trees, 4, 5, 1),
        Domain(trees_in_zones, 4, 5, 2),
        Domain(roles_and_minimums, 4, 5, 1, with_all_minimums=True),
        Domain(pairs, 4, 4, 2),
    )
}


def cases(name: str, nodes: int = 6, pods: int = 8) -> Iterator[tuple[Nodes, list[SmallGang]]]:
    """The sets of nodes of a domain, up to so many, with its gangs of up to so many pods."""
    domain = DOMAINS[name]
    gangs = list(domain.gangs(min(pods, domain.pods)))
    for each in node_sets(min(nodes, domain.nodes), domain.zones):
        yield each, gangs if domain.with_all_minimums else [gang for gang in gangs if gang.is_at_boundary(each)]


def differences(name: str, nodes: int = 6, pods: int = 8, *, every: int = 1) -> tuple[int, list[str]]:
    """How many cases of a domain there are, each or one in so many, and those that differ."""
    count, found, skipped = 0, list[str](), 0
    for own, gangs in cases(name, nodes, pods):
        cluster = SmallCluster(own)
        chosen = gangs[skipped % every :: every]
        skipped += every - len(gangs) % every
        for gang in chosen:
            difference = cluster.difference(gang)
            found += [f"{own}, {gang}: {difference}"] if difference else []
        count += len(chosen)
    return count, found


def main() -> None:
    """Compare all cases, or count them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=6)
    parser.add_argument("--pods", type=int, default=8)
    parser.add_argument("--every", type=int, default=1, help="only one case in so many")
    parser.add_argument("--count", action="store_true", help="only say how many cases there are")
    parser.add_argument("domains", nargs="*", metavar="DOMAIN", help=f"of {', '.join(DOMAINS)}; all by default")
    options = parser.parse_args()
    total: Counter[str] = Counter()
    for name in options.domains or DOMAINS:
        if options.count:
            count = sum(len(gangs) for _, gangs in cases(name, options.nodes, options.pods))
            print(f"{name}: {count:,} cases")  # noqa: T201
            continue
        count, wrong = differences(name, options.nodes, options.pods, every=options.every)
        total.update(cases=count, wrong=len(wrong))
        print(f"{name}: {count:,} cases, {len(wrong)} differ", *wrong[:3], sep="\n", flush=True)  # noqa: T201
    if not options.count:
        print(f"all: {total['cases']:,} cases, {total['wrong']} differ")  # noqa: T201


if __name__ == "__main__":
    main()
