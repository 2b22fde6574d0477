"""Small random clusters with a gang, and whether it can be placed, by trying everything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from random import Random
from typing import Any

from kubestow import config
from kubestow.api.core import Node, Pod
from kubestow.api.meta import convert
from kubestow.api.scheduling import PodGroup
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.engine.gangs.verification import devices_in_use
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.engine.pipeline.offline_scheduler import OfflineScheduler, SchedulerOptions
from kubestow.engine.placement.engine_placement import EnginePlacement
from kubestow.framework.gang import Gang
from kubestow.framework.profile import Profile
from kubestow.testing import node, pod

GPU = "nvidia.com/gpu"
_TERM = "requiredDuringSchedulingIgnoredDuringExecution"
_GATES = {"GenericWorkload": True, "GangScheduling": True, "TopologyAwareWorkloadScheduling": True}


def gang_of(
    nodes: Sequence[Node], pods: Sequence[Pod], minimum: int, *, topology: str = "", objects: Sequence[Any] = ()
) -> tuple[OfflineScheduler, Profile, Gang]:
    """A scheduler with nodes and pods, its profile, and the gang ``train`` of pods; the others are beside it."""
    group = pod_group("train", minimum, topology=topology)
    scheduler, found = offline_scheduler(nodes, pods, [group, *objects])
    member = next(each for each in pods if each.spec.scheduling_group is not None)
    gang = found.gangs.gang_of(scheduler.cache.shapes.info(member))
    assert gang is not None
    return scheduler, found, gang


def pod_group(name: str, minimum: int, *, topology: str = "") -> PodGroup:
    """A PodGroup that needs so many pods, in one domain of a topology key if one is given."""
    spec: dict[str, Any] = {"schedulingPolicy": {"gang": {"minCount": minimum}}}
    if topology:
        spec["schedulingConstraints"] = {"topology": [{"key": topology}]}
    return convert(PodGroup, {"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": spec})


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


def random_case(random: Random) -> tuple[list[Node], list[Pod], int]:
    """Nodes in zones, pods on them and pods of a gang with constraints between pods, and how many of it are needed."""
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
    return nodes, [*around, *workers], random.randint(max(1, len(workers) - 1), len(workers))


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


def most_placed(scheduler: OfflineScheduler, gang: Gang, enough: int) -> int:
    """How many pods of a gang can be placed at most, or ``enough``: every pod is tried on every node in every order."""
    engine = EnginePlacement(scheduler.cache, scheduler.profiles)
    kinds: dict[object, list[PodInfo]] = {}
    for uid, info in gang.members.pods.items():
        if uid not in gang.members.placed:
            kinds.setdefault(info.shape, []).append(info)
    remaining, seen = list(kinds.values()), set[Hashable]()
    names = list(scheduler.cache.nodes.rows)

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
