"""Plans of defragmentation: they end with the gang on its nodes, and move no more pods than is necessary."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from core_tests.engine.gangs.clusters import pod_group
from core_tests.engine.gangs.device_cases import NET, DeviceCase
from kubestow import config
from kubestow.api.core import Node, Pod
from kubestow.api.meta import convert
from kubestow.api.policy import PodDisruptionBudget
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.engine.pipeline.offline_scheduler import OfflineScheduler, SchedulerOptions, unbound
from kubestow.engine.placement.engine_placement import EnginePlacement
from kubestow.errors import InputError
from kubestow.testing import node, pod
from kubestow.testing.devices import claim, exactly, slice_of
from kubestow_lab.simulation.arrivals import Arrival, Arrivals
from kubestow_lab.what_if.defragmentation import DefragmentationPlan, plan_defragmentation

_OWNER = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "web", "controller": True}]


def web(name: str, on: str, cpu: str = "1", **same: Any) -> Pod:
    """A pod that may move."""
    return pod(name, node=on, cpu=cpu, metadata={"ownerReferences": _OWNER}, **same)


def gang(*cpus: str) -> Arrivals:
    return Arrivals([Arrival(pod(f"g{number}", cpu=cpu), 0.0, None, {}) for number, cpu in enumerate(cpus)])


def plan(
    nodes: Sequence[Node], pods: Sequence[Pod], wanted: Arrivals, *objects: Any, most: int = 20
) -> DefragmentationPlan:
    cluster = ClusterObjects(nodes=list(nodes), pods=list(pods), objects=list(objects))
    gates = config.FeatureGates({"GenericWorkload": True, "GangScheduling": True})
    return plan_defragmentation(cluster, wanted, SchedulerOptions(gates=gates), max_moves=most)


def test_a_gang_gets_a_whole_node_after_one_move() -> None:
    nodes = [node("a", cpu="4"), node("b", cpu="5")]
    pods = [web("w0", "a"), web("w1", "b", "4")]

    found = plan(nodes, pods, gang("4"))

    assert [(move.pod, move.source) for move in found.moves] == [("default/w0", "a")]
    assert (found.cordoned, found.assignments, found.fewest) == (("a",), (("default/g0", "a"),), 1)


def test_pods_move_in_an_order_in_which_each_has_room() -> None:
    """w1 can only go where w2 is now, so w2 has to leave first."""
    nodes = [node("a", cpu="4"), node("b", cpu="3"), node("c", cpu="1")]
    pods = [web("w1", "a", "3"), web("w2", "b", "1")]

    found = plan(nodes, pods, gang("4"))

    assert [(move.pod, move.target) for move in found.moves] == [("default/w2", "c"), ("default/w1", "b")]


def test_a_gang_with_claims_gets_the_node_that_has_its_devices() -> None:
    """Only a has two devices; what keeps the gang from it has none, and moves."""
    nodes = [node("a", cpu="4"), node("b", cpu="4"), node("c", cpu="2")]
    case = DeviceCase(nodes, slices=[slice_of("g0", "g1", node="a"), slice_of("g0", node="b")])
    for _ in range(2):
        case.add_pod(exactly(), shared=["domain"], cpu="2")
    case.claims.append(claim("domain", exactly(of="net")))
    case.slices.append(slice_of("channel", driver=NET, pool="rack", nodeSelector=named("a", "c")))
    wanted = Arrivals([Arrival(each, 0.0, None, {}) for each in case.pods])

    found = plan(nodes, [web("x0", "a", "1")], wanted, pod_group("train", 2), *case.objects())

    assert [(move.pod, move.source) for move in found.moves] == [("default/x0", "a")]
    assert dict(found.assignments) == {"default/w0": "a", "default/w1": "a"}
    full = [web("x0", "a", "3"), web("x1", "b", "4")]
    assert not plan(nodes, full, wanted, pod_group("train", 2), *case.objects()).exists


def named(*names: str) -> dict[str, Any]:
    """A node selector for nodes by name."""
    expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": list(names)}
    return {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}


def test_a_gang_that_fits_needs_no_moves() -> None:
    found = plan([node("a")], [], gang("1", "1"))

    assert found.exists
    assert not found.moves


@pytest.mark.parametrize(
    "kept",
    [
        pod("alone", node="a", cpu="1"),
        pod("daemon", node="a", cpu="1", metadata={"ownerReferences": [{**_OWNER[0], "kind": "DaemonSet"}]}),
        web("guarded", "a", labels={"app": "guarded"}),
    ],
    ids=lambda kept: kept.metadata.name,
)
def test_pods_that_must_stay_are_not_moved(kept: Pod) -> None:
    budget = convert(
        PodDisruptionBudget,
        {
            "metadata": {"name": "budget", "namespace": "default"},
            "spec": {"selector": {"matchLabels": {"app": "guarded"}}, "minAvailable": 1},
            "status": {"disruptionsAllowed": 0},
        },
    )

    found = plan([node("a", cpu="4"), node("b", cpu="3")], [kept], gang("4"), budget)

    assert found.problem == "no pod can be moved: each has no controller, no disruption left, volumes or claims"


def test_a_workload_without_pods_is_refused() -> None:
    with pytest.raises(InputError, match="has no pods that can be used"):
        plan([node()], [], gang())


def test_more_moves_than_allowed_are_no_plan() -> None:
    nodes = [node("a", cpu="4"), node("b", cpu="3")]
    pods = [web("w0", "a"), web("w1", "a")]

    assert plan(nodes, pods, gang("4"), most=1).problem == "none with at most 1 move"
    assert len(plan(nodes, pods, gang("4"), most=2).moves) == 2


@pytest.mark.parametrize("seed", range(12))
def test_plans_can_be_carried_out_and_none_has_fewer_moves(seed: int) -> None:
    random = Random(seed)
    nodes = [node(f"n{number}", cpu=str(random.choice([3, 4]))) for number in range(3)]
    free = {each.metadata.name: int(each.status.allocatable["cpu"]) for each in nodes}
    pods: list[Pod] = []
    for number in range(random.randint(2, 4)):
        cpu, on = random.choice([1, 1, 2]), random.choice(list(free))
        if free[on] >= cpu:
            free[on] -= cpu
            pods.append(web(f"w{number}", on, str(cpu)))
    wanted = gang(*(str(random.choice([2, 3])) for _ in range(random.randint(1, 2))))

    found = plan(nodes, pods, wanted)

    fewest = _fewest_moves(nodes, pods, [arrival.pod for arrival in wanted.pods])
    if not found.exists:
        assert fewest is None or "scheduler puts the replacements" in found.problem
        return
    assert fewest is not None
    assert found.fewest <= fewest <= len(found.moves)
    scheduler = OfflineScheduler(ClusterObjects(nodes=nodes, pods=pods), SchedulerOptions())
    engine, by_key = EnginePlacement(scheduler.cache, scheduler.profiles), {each.key: each for each in pods}
    for move in found.moves:
        scheduler.cache.remove_pod(by_key[move.pod].metadata.uid)
        assert engine.place(scheduler.cache.shapes.info(unbound(by_key[move.pod])), move.target)
    gang_pods = {arrival.pod.key: arrival.pod for arrival in wanted.pods}
    assert all(engine.place(scheduler.cache.shapes.info(gang_pods[key]), name) for key, name in found.assignments)


def _fewest_moves(nodes: Sequence[Node], pods: Sequence[Pod], wanted: Sequence[Pod]) -> int | None:
    """By trying every assignment of all pods to nodes, only CPU being scarce; None if there is none."""
    names = [each.metadata.name for each in nodes]
    cpu = {each.metadata.name: int(each.status.allocatable["cpu"]) for each in nodes}
    every = [*pods, *wanted]
    fewest: int | None = None
    for targets in itertools.product(names, repeat=len(every)):
        used = dict.fromkeys(names, 0)
        for each, target in zip(every, targets, strict=True):
            used[target] += int(each.spec.containers[0].resources.requests["cpu"])
        if all(used[name] <= cpu[name] for name in names):
            moves = sum(each.spec.node_name != target for each, target in zip(pods, targets, strict=False))
            fewest = moves if fewest is None else min(fewest, moves)
    return fewest
