"""Random small gangs, and whether they can be placed, by trying everything.

What a gang asks for itself is compared with a plain model, which tries every pod on every node; constraints between
pods, and devices, with all that the engine accepts in any order. ``python -m core_tests.engine.gangs.terms --cases
10000``, in ``packages/kubestow/tests``, compares so many cases of each feature; :mod:`.small_gangs` has all of the
smallest.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from core_tests.engine.gangs.clusters import EngineCase, offline_scheduler, pod_group, random_case
from core_tests.engine.gangs.device_cases import random_device_case
from kubestow.cluster.pods.pod_groups import Members
from kubestow.engine.gangs.gang_search import GangSearch
from kubestow.framework.gang import Gang, Preference, Role, Segments
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
    #: The labels of nodes beside their zones, and the keys that the first group, and its segments, prefer.
    racks: Mapping[str, str] = field(default_factory=dict)
    prefers: Sequence[str] = ()
    segments_prefer: Sequence[str] = ()
    segment_size: int = 0

    @property
    def levels(self) -> list[tuple[str, str]]:
        """The keys of the domains of the group and of its segments, the best first; at last those that it requires."""
        required = "zone" if self.segment else ""
        return [(own, of_segments) for own in (*self.prefers, "") for of_segments in (*self.segments_prefer, required)]

    def _domains(self, key: str, nodes: Mapping[str, str]) -> Counter[str | None]:
        labels = {"zone": self.zones, "rack": self.racks, "node": {name: name for name in self.cpus}}
        return Counter(labels[key].get(node_name) for node_name in nodes.values())

    def is_fulfilled(self, placed: Placed, level: tuple[str, str] | None = None) -> bool:
        """Whether pods are placed as the gang asks for, in a plain reading of the terms, at a level or the last."""
        own, of_segments = level or self.levels[-1]
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
            if number == 0 and of_segments:
                domains, size = self._domains(of_segments, nodes), self.segment or self.segment_size
                if None in domains or any(count % size for count in domains.values()):
                    return False
            if number == 0 and own and (len(domains := self._domains(own, nodes)) > 1 or None in domains):
                return False
            if number in self.in_one_zone and len(self._domains("zone", nodes)) > 1:
                return False
            is_scheduled = len(nodes) >= self.minimums[number]
            if not is_scheduled and nodes and len(self.groups) > 1:
                return False
            scheduled += is_scheduled
        return scheduled >= min(self.min_groups, len(self.groups))

    def best_level(self) -> int | None:
        """The number of the best level at which some placement is as the gang asks for; None if there is none."""
        found = [number for number, level in enumerate(self.levels) if self._can_be_placed(level)]
        return min(found, default=None)

    def _can_be_placed(self, level: tuple[str, str]) -> bool:
        """Whether there is a placement at a level. Pods with the same group, role and CPU are as good as each other."""
        every = ((number, name, cpu) for number, group in enumerate(self.groups) for name, cpu in group.items())
        pods = sorted((number, cpu, self._roles_of(name), name) for number, name, cpu in every)
        names = [None, *self.cpus]
        free, placed = dict(self.cpus), dict[str, str | None]()

        def place(position: int) -> bool:
            if position == len(pods):
                return self.is_fulfilled(placed, level)
            _, cpu, _, name = pods[position]
            start = 0
            if position and pods[position - 1][:3] == pods[position][:3]:
                start = names.index(placed[pods[position - 1][3]])
            for node_name in names[start:]:
                if node_name is not None and free[node_name] < cpu:
                    continue
                placed[name] = node_name
                if node_name is not None:
                    free[node_name] -= cpu
                found = place(position + 1)
                if node_name is not None:
                    free[node_name] += cpu
                if found:
                    return True
            return False

        return place(0)

    def _roles_of(self, name: str) -> tuple[str, ...]:
        return tuple(role for role, names in sorted(self.roles.items()) if name in names)

    def difference(self) -> str:
        """How the search and the plain model differ; empty if they agree."""
        search, gang = self.gang()
        answer = search.find(gang)
        best = self.best_level()
        found = len(answer.passed_over) if answer.is_placed else None
        if found != best or answer.is_impossible != (best is None):
            return f"level {best} of {self.levels} expected, found {found} {answer.undecided}"
        placed: dict[str, str | None] = dict.fromkeys(name for group in self.groups for name in group)
        placed |= {info.pod.metadata.name: node_name for info, node_name in answer.assignments}
        if found is not None and not self.is_fulfilled(placed, self.levels[found]):
            return f"placed as {placed}"
        return ""

    def gang(self) -> tuple[GangSearch, Gang]:
        """A search on the cluster of the case, and the gang."""
        objects = [
            pod_group(f"g{number}", minimum, topology="zone" if number in self.in_one_zone else "")
            for number, minimum in enumerate(self.minimums)
        ]
        nodes = [
            node(name, cpu=str(cpu), labels=self._labels(name) | {"node": name})
            for name, cpu in sorted(self.cpus.items())
        ]
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
        required = Segments("zone", self.segment) if self.segment else None
        size = self.segment or self.segment_size
        of_segments = {key: Segments(key, size) for key in self.segments_prefer}
        preferences = [Preference(own, of_segments.get(key, required)) for own, key in self.levels[:-1]]
        first = replace(first, segments=required, preferences=tuple(preferences))
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

    def _labels(self, name: str) -> dict[str, str]:
        rack = self.racks.get(name)
        return {"zone": self.zones[name], "node": name} | ({} if rack is None else {"rack": rack})


def _nodes(random: Random) -> tuple[dict[str, int], dict[str, str]]:
    names = [f"n{number}" for number in range(random.choice([1, 2, 2, 3, 3, 4, 6]))]
    return {name: random.randint(1, 4) for name in names}, {name: random.choice("ab") for name in names}


def _pods(random: Random, prefix: str, most: int) -> dict[str, int]:
    return {f"{prefix}{number}": random.choice([1, 1, 2, 3]) for number in range(random.randint(1, most))}


def segments(random: Random) -> Case:
    """Segments of two or three pods in a zone, at times with pods that are there already."""
    cpus, zones = _nodes(random)
    pods, size = _pods(random, "w", random.choice([4, 5, 5, 8])), random.choice([2, 2, 3])
    existing = {"old": random.choice(list(cpus))} if random.random() < 0.3 else {}
    minimum = random.randint(1, len(pods)) + len(existing)  # with enough pods already, nothing has to be in segments
    return Case(cpus, zones, [pods], [minimum], {}, {}, segment=size, existing=existing)


def roles(random: Random) -> Case:
    """Two roles, of each of which some pods are needed, and a fixed core of the whole."""
    cpus, zones = _nodes(random)
    pods = _pods(random, "w", random.choice([4, 5, 5, 8]))
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
    pods = _pods(random, "w", random.choice([4, 5, 5, 8]))
    return Case(cpus, zones, [pods], [random.randint(1, max(1, len(pods) - 1))], {}, {})


def levels(random: Random) -> Case:
    """Levels that the group prefers, or its segments, or both, at times beside segments that it requires."""
    cpus, zones = _nodes(random)
    pods, keys = _pods(random, "w", random.choice([3, 5, 6])), ["node", "rack", "zone"]
    racks = {name: f"{zones[name] if random.random() < 0.9 else 'x'}{random.randint(1, 2)}" for name in cpus}
    racks = {name: rack for name, rack in racks.items() if random.random() < 0.95}
    prefers = sorted(random.sample(keys, random.randint(0, 3)), key=keys.index)
    segments_prefer = sorted(random.sample(keys, random.randint(0 if prefers else 1, 2)), key=keys.index)
    size = random.choice([2, 2, 3])
    existing = {"old": random.choice(list(cpus))} if random.random() < 0.2 else {}
    required = size if segments_prefer and random.random() < 0.4 else 0
    return Case(
        cpus,
        zones,
        [pods],
        [random.randint(1, len(pods)) + len(existing)],  # a gang with enough pods already is at no level
        {},
        {},
        segment=required,
        existing=existing,
        racks=racks,
        prefers=prefers,
        segments_prefer=segments_prefer,
        segment_size=size,
    )


def between_pods(random: Random) -> EngineCase:
    """Constraints between pods, resources and host ports."""
    return random_case(random)


def devices(random: Random) -> EngineCase:
    """Claims of pods and such that they share, for devices of nodes and of several nodes."""
    return random_device_case(random)


FEATURES: dict[str, Callable[[Random], Case | EngineCase]] = {
    feature.__name__: feature for feature in (segments, roles, trees, elastic, levels, between_pods, devices)
}


def difference(feature: str, seed: int) -> str:
    """How the search differs from what is found by trying everything; empty if it does not, ``open`` without answer."""
    case = FEATURES[feature](Random(f"{feature} {seed}"))
    found = case.difference()
    return f"seed {seed}, {case}: {found}" if found and not found.startswith("open") else found


def main() -> None:
    """Compare many cases of each feature."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("features", nargs="*", metavar="FEATURE", help=f"of {', '.join(FEATURES)}; all by default")
    options = parser.parse_args()
    for feature in options.features or FEATURES:
        found = [difference(feature, seed) for seed in range(options.first, options.first + options.cases)]
        unanswered = sum(each.startswith("open") for each in found)
        wrong = [each for each in found if each and not each.startswith("open")]
        print(f"{feature}: {options.cases} cases, {len(wrong)} differ, {unanswered} open", *wrong[:3], sep="\n")  # noqa: T201


if __name__ == "__main__":
    main()
