"""Small random clusters with a gang, and whether it can be placed, by trying everything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from kubestow import config
from kubestow.api.core import Node, Pod
from kubestow.api.meta import convert
from kubestow.api.scheduling import PodGroup
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.engine.gangs.gang_search import GangSearch
from kubestow.engine.gangs.verification import devices_in_use
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.engine.pipeline.offline_scheduler import OfflineScheduler, SchedulerOptions
from kubestow.engine.placement.engine_placement import EnginePlacement
from kubestow.framework.gang import Gang
from kubestow.framework.profile import Profile
from kubestow.plugins.gang_scheduling.gang_scheduling import PREFERRED_TOPOLOGY
from kubestow.testing import node, pod

GPU = "nvidia.com/gpu"
_TERM = "requiredDuringSchedulingIgnoredDuringExecution"
_GATES = {"GenericWorkload": True, "GangScheduling": True, "TopologyAwareWorkloadScheduling": True}


@dataclass
class EngineCase:
    """Nodes, other pods and those of a gang of which ``needed`` are needed, for comparison with all that the engine
    accepts.

    The gang is in one rack if it ``requires`` that, or if it ``prefers`` that and fits there.
    """

    nodes: list[Node]
    pods: list[Pod] = field(default_factory=list)
    needed: int = 0
    requires: str = ""
    prefers: str = ""

    def objects(self) -> list[Any]:
        """The objects beside nodes and pods."""
        return []

    def difference(self) -> str:
        """How the search and the engine, which tries every order on all nodes, differ; empty if they agree.

        It begins with ``open`` if the search has no answer.
        """
        annotations = {PREFERRED_TOPOLOGY: self.prefers} if self.prefers else {}
        scheduler, profile, gang = gang_of(
            self.nodes,
            self.pods,
            self.needed,
            topology=self.requires,
            objects=self.objects(),
            annotations=annotations,
        )
        answer = GangSearch(scheduler.cache, profile).find(gang)
        if list(scheduler.cache.resource_claims.pending_allocations()):
            return "allocations are left behind"
        for key in filter(None, (self.prefers, self.requires or "everywhere")):
            by_domain = {
                domain: most_placed(scheduler, gang, self.needed, names) for domain, names in self._domains(key)
            }
            is_last = key != self.prefers
            found = f"found {answer.found_by} {answer.preference} {answer.undecided} {answer.certificates}"
            if max(by_domain.values(), default=0) >= self.needed:
                if answer.undecided:
                    return f"open: {answer.undecided}"
                if not answer.is_placed or bool(answer.preference) is is_last:
                    return f"{by_domain} of {self.needed} can be placed by {key}, {found}"
                engine = EnginePlacement(scheduler.cache, scheduler.profiles)
                placed = all(engine.place(info, name) for info, name in answer.assignments)
                return "" if placed else "the engine does not accept the placement"
            if not is_last and any(each.undecided and each.certificates for each in answer.passed_over):
                return f"open: {answer.passed_over[0].undecided}"
        if answer.is_placed:
            return f"{by_domain} of {self.needed} can be placed, {found}"
        if answer.undecided and by_domain:
            return f"open: {answer.undecided}"
        for certificate in answer.certificates:
            if certificate.most < by_domain[certificate.domain]:
                return f"{by_domain} can be placed, the certificate says {certificate.most} at most"
        return ""

    def _domains(self, key: str) -> list[tuple[str, list[str]]]:
        """The names of the nodes in each domain of a label; of all nodes if it is not one."""
        if key == "everywhere":
            return [("", [each.metadata.name for each in self.nodes])]
        found: dict[str, list[str]] = {}
        for each in self.nodes:
            if key in each.metadata.labels:
                found.setdefault(each.metadata.labels[key], []).append(each.metadata.name)
        return list(found.items())


def gang_of(
    nodes: Sequence[Node],
    pods: Sequence[Pod],
    minimum: int,
    *,
    topology: str = "",
    objects: Sequence[Any] = (),
    annotations: Mapping[str, str] | None = None,
) -> tuple[OfflineScheduler, Profile, Gang]:
    """A scheduler with nodes and pods, its profile, and the gang ``train`` of pods; the others are beside it."""
    group = pod_group("train", minimum, topology=topology, annotations=annotations)
    scheduler, found = offline_scheduler(nodes, pods, [group, *objects])
    member = next(each for each in pods if each.spec.scheduling_group is not None)
    gang = found.gangs.gang_of(scheduler.cache.shapes.info(member))
    assert gang is not None
    return scheduler, found, gang


def pod_group(name: str, minimum: int, *, topology: str = "", annotations: Mapping[str, str] | None = None) -> PodGroup:
    """A PodGroup that needs so many pods, in one domain of a topology key if one is given."""
    spec: dict[str, Any] = {"schedulingPolicy": {"gang": {"minCount": minimum}}}
    if topology:
        spec["schedulingConstraints"] = {"topology": [{"key": topology}]}
    metadata = {"name": name, "namespace": "default", "uid": name, "annotations": annotations or {}}
    return convert(PodGroup, {"metadata": metadata, "spec": spec})


def offline_scheduler(
    nodes: Sequence[Node], pods: Sequence[Pod], objects: Sequence[Any]
) -> tuple[OfflineScheduler, Profile]:
    """A scheduler with nodes, pods, groups and other objects, and its profile."""
    cluster = ClusterObjects(nodes=list(nodes), pods=list(pods), objects=list(objects))
    scheduler = OfflineScheduler(cluster, SchedulerOptions(gates=config.FeatureGates(_GATES)))
    return scheduler, scheduler.profiles["default-scheduler"]


def worker(name: str, **same: Any) -> Pod:
    """A pod of the gang."""
    return pod(name, spec={"schedulingGroup": {"podGroupName": "train"}}, **same)


def random_case(random: Random) -> EngineCase:
    """Nodes in zones, pods on them and pods of a gang with constraints between pods."""
    sorts: list[dict[str, Any]] = [
        {
            "cpu": str(random.choice([2, 3, 4])),
            "labels": {"zone": random.choice("ab"), "rack": random.choice("xyz")} if random.random() < 0.9 else {},
            "allocatable": {GPU: str(random.choice([0, 1, 2]))} if random.random() < 0.5 else {},
        }
        for _ in range(random.randint(1, 3))
    ]
    nodes = [node(f"n{number}", **random.choice(sorts)) for number in range(random.randint(1, 4))]
    around = [
        pod(f"old{number}", node=random.choice(nodes).metadata.name, cpu="1", labels={"app": random.choice("abc")})
        for number in range(random.choice([0, 0, 1, 2]))
    ]
    roles = []
    for _ in range(random.randint(1, 3)):
        requests = {"cpu": str(random.choice([1, 1, 2]))} | ({GPU: "1"} if random.random() < 0.2 else {})
        roles.append(
            {
                "requests": requests,
                "labels": {"app": random.choice("abc")},
                "affinity": _affinity(random),
                "spread": [_spread(random)] if random.random() < 0.35 else [],
                "host_ports": [80] if random.random() < 0.15 else [],
            }
        )
    workers = [worker(f"w{number}", **random.choice(roles)) for number in range(random.randint(1, 5))]
    return EngineCase(nodes, [*around, *workers], random.randint(max(1, len(workers) - 1), len(workers)))


def _selector(random: Random) -> dict[str, Any]:
    return {
        "matchExpressions": [{"key": "app", "operator": "In", "values": random.sample("abc", random.choice([1, 2]))}]
    }


def _affinity(random: Random) -> dict[str, Any] | None:
    found: dict[str, Any] = {}
    for kind, chance in (("podAffinity", 0.3), ("podAntiAffinity", 0.3)):
        if random.random() < chance:
            terms = [
                {
                    "labelSelector": _selector(random),
                    "topologyKey": random.choice(["zone", "rack", "kubernetes.io/hostname"]),
                }
                for _ in range(random.choice([1, 1, 2]))
            ]
            found[kind] = {_TERM: terms}
    return found or None


def _spread(random: Random) -> dict[str, Any]:
    return {
        "maxSkew": random.choice([1, 1, 2]),
        "topologyKey": random.choice(["zone", "rack", "kubernetes.io/hostname"]),
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": _selector(random),
        "minDomains": random.choice([None, None, 2]),
    }


def most_placed(scheduler: OfflineScheduler, gang: Gang, enough: int, names: Sequence[str]) -> int:
    """How many pods of a gang can be placed on some nodes at most, or ``enough``: each is tried on each in every order.

    Pods of one shape are as good as each other.
    """
    engine = EnginePlacement(scheduler.cache, scheduler.profiles)
    kinds: dict[object, list[PodInfo]] = {}
    for uid, info in gang.members.pods.items():
        if uid not in gang.members.placed:
            kinds.setdefault(info.shape, []).append(info)
    remaining, seen = list(kinds.values()), set[Hashable]()

    def explore(placed: Counter[tuple[int, str]], best: int) -> int:
        state = frozenset(placed.items()), devices_in_use(scheduler.cache.resource_claims)
        if state in seen or best >= enough:
            return best
        seen.add(state)
        best = max(best, placed.total())
        for number, pods in enumerate(remaining):
            count = sum(placed[number, name] for name in names)
            if count == len(pods):
                continue
            for name in names:
                if engine.place(pods[count], name):
                    best = explore(placed + Counter({(number, name): 1}), best)
                    engine.give_back_reservations([(pods[count], name)])
                    scheduler.cache.forget(pods[count].uid)
        return best

    return explore(Counter(), 0)
