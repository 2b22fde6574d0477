"""Random small gangs with terms of their own, and a plain model of these that tries every pod on every node.

``python -m core_tests.engine.gangs.terms --cases 10000``, in ``packages/kubestow/tests``, compares so many cases of
each feature with the model.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from random import Random

from core_tests.engine.gangs.clusters import offline_scheduler, pod_group
from kubestow.cluster.pods.pod_groups import Members
from kubestow.engine.gangs.gang_search import GangSearch
from kubestow.framework.gang import Gang, Role, Segments
from kubestow.testing import node, pod

#: The nodes of pods by name; None for a pod without one.
Placed = Mapping[str, str | None]


@dataclass(frozen=True)
class Case:
    """Nodes with their CPUs and zones, groups of pods with their CPUs, and the terms of the gang.

    ``existing`` are the nodes of pods of the first group that have one already; they request no CPU that is free.
    """

    cpus: Mapping[str, int]
    zones: Mapping[str, str]
    groups: Sequence[Mapping[str, int]]
    minimums: Sequence[int]
    roles: Mapping[str, Sequence[str]]
    min_by_role: Mapping[str, int]
    segment: int = 0
    existing: Mapping[str, str] | None = None
    in_one_zone: frozenset[int] = frozenset()
    min_groups: int = 1

    def is_fulfilled(self, placed: Placed) -> bool:
        """Whether pods are placed as the gang asks for, in a plain reading of the terms."""
        used: Counter[str] = Counter()
        for group in self.groups:
            for name, cpu in group.items():
                used[placed[name] or ""] += cpu if placed[name] else 0
        if any(used[name] > cpu for name, cpu in self.cpus.items()):
            return False
        scheduled = 0
        for number, group in enumerate(self.groups):
            existing = dict(self.existing or {}) if number == 0 else {}
            nodes = {name: node_name for name in group if (node_name := placed[name]) is not None} | existing
            if number == 0 and any(
                sum(name in nodes for name in self.roles[role]) < least for role, least in self.min_by_role.items()
            ):
                return False
            zones = Counter(self.zones[node_name] for node_name in nodes.values())
            if self.segment and any(count % self.segment for count in zones.values()):
                return False
            if number in self.in_one_zone and len(zones) > 1:
                return False
            is_scheduled = len(nodes) >= self.minimums[number]
            if not is_scheduled and nodes and len(self.groups) > 1:
                return False
            scheduled += is_scheduled
        return scheduled >= min(self.min_groups, len(self.groups))

    def can_be_placed(self) -> bool:
        """Whether some placement is as the gang asks for."""
        names = [name for group in self.groups for name in group]
        choices: list[str | None] = [None, *self.cpus]
        return any(
            self.is_fulfilled(dict(zip(names, nodes, strict=True))) for nodes in product(choices, repeat=len(names))
        )

    def gang(self) -> tuple[GangSearch, Gang]:
        """A search on the cluster of the case, and the gang."""
        objects = [
            pod_group(f"g{number}", minimum, topology="zone" if number in self.in_one_zone else "")
            for number, minimum in enumerate(self.minimums)
        ]
        nodes = [node(name, cpu=str(cpu), labels={"zone": self.zones[name]}) for name, cpu in sorted(self.cpus.items())]
        pods = [
            pod(name, cpu=str(cpu), spec={"schedulingGroup": {"podGroupName": f"g{number}"}})
            for number, group in enumerate(self.groups)
            for name, cpu in group.items()
        ]
        in_first = {"schedulingGroup": {"podGroupName": "g0"}}
        pods += [
            pod(name, node=node_name, requests={}, spec=in_first) for name, node_name in (self.existing or {}).items()
        ]
        scheduler, profile = offline_scheduler(nodes, pods, objects)
        gangs: dict[object, Gang] = {}
        for each in pods:
            gang = profile.gangs.gang_of(scheduler.cache.shapes.info(each))
            assert gang is not None
            gangs[gang.name] = gang
        first, *_ = children = tuple(gangs.values())
        if self.segment:
            first = replace(first, segments=Segments("zone", self.segment))
        uids = {info.pod.metadata.name: uid for uid, info in first.members.pods.items()}
        roles = tuple(
            Role(role, least, frozenset(uids[name] for name in self.roles[role]))
            for role, least in self.min_by_role.items()
        )
        gang = replace(first, roles=roles)
        if len(children) > 1:
            members = Members({}.keys())
            for child in children:
                for info in child.members.pods.values():
                    members.put(info)
            gang = Gang("tree", "", 0, 0.0, members, children=children, min_groups=self.min_groups)
        return GangSearch(scheduler.cache, profile), gang


def _nodes(random: Random) -> tuple[dict[str, int], dict[str, str]]:
    names = [f"n{number}" for number in range(random.randint(1, 3))]
    return {name: random.randint(1, 4) for name in names}, {name: random.choice("ab") for name in names}


def _pods(random: Random, prefix: str, most: int) -> dict[str, int]:
    return {f"{prefix}{number}": random.choice([1, 1, 2, 3]) for number in range(random.randint(1, most))}


def segments(random: Random) -> Case:
    """Segments of two or three pods in a zone, at times with pods that are there already."""
    cpus, zones = _nodes(random)
    pods, size = _pods(random, "w", 5), random.choice([2, 2, 3])
    existing = {"old": random.choice(list(cpus))} if random.random() < 0.3 else {}
    minimum = random.randint(1, len(pods) + len(existing))
    return Case(cpus, zones, [pods], [minimum], {}, {}, segment=size, existing=existing)


def roles(random: Random) -> Case:
    """Two roles, of each of which some pods are needed, and a fixed core of the whole."""
    cpus, zones = _nodes(random)
    pods = _pods(random, "w", 5)
    drivers = random.sample(list(pods), random.randint(0, len(pods)))
    by_role = {"driver": drivers, "worker": [name for name in pods if name not in drivers]}
    least = {role: random.randint(0, len(names)) for role, names in by_role.items()}
    return Case(cpus, zones, [pods], [random.randint(1, len(pods))], by_role, least)


def trees(random: Random) -> Case:
    """Groups of which some are needed, each with a minimum, and some of them in one zone each."""
    cpus, zones = _nodes(random)
    count = random.randint(2, 3)
    groups = [_pods(random, f"g{number}-", 2 if count == 3 else 3) for number in range(count)]
    minimums = [random.randint(1, len(pods)) for pods in groups]
    in_one_zone = frozenset(number for number in range(count) if random.random() < 0.5)
    return Case(cpus, zones, groups, minimums, {}, {}, in_one_zone=in_one_zone, min_groups=random.randint(1, count))


def elastic(random: Random) -> Case:
    """A fixed core of a group, and an elastic rest that may stay without nodes."""
    cpus, zones = _nodes(random)
    pods = _pods(random, "w", 5)
    return Case(cpus, zones, [pods], [random.randint(1, max(1, len(pods) - 1))], {}, {})


FEATURES: dict[str, Callable[[Random], Case]] = {
    feature.__name__: feature for feature in (segments, roles, trees, elastic)
}


def difference(feature: str, seed: int) -> str:
    """How the search and the plain model differ in a case; empty if they agree."""
    case = FEATURES[feature](Random(f"{feature} {seed}"))
    search, gang = case.gang()
    answer = search.find(gang)
    expected = case.can_be_placed()
    if answer.is_placed != expected or answer.is_impossible == expected:
        return f"{case}: {expected} expected, found {answer.found_by or answer.undecided or 'impossible'}"
    placed: dict[str, str | None] = dict.fromkeys(name for group in case.groups for name in group)
    placed |= {info.pod.metadata.name: node_name for info, node_name in answer.assignments}
    if answer.is_placed and not case.is_fulfilled(placed):
        return f"{case}: placed as {placed}"
    return ""


def main() -> None:
    """Compare many cases of each feature."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    for feature in FEATURES:
        found = [difference(feature, seed) for seed in range(options.first, options.first + options.cases)]
        wrong = list(filter(None, found))
        print(f"{feature}: {options.cases} cases, {len(wrong)} differ", *wrong[:3], sep="\n")  # noqa: T201


if __name__ == "__main__":
    main()
