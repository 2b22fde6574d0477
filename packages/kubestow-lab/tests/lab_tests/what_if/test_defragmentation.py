"""Plans of defragmentation: they end with the gang on its nodes or domains free, with no more moves than necessary."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest

from core_tests.engine.gangs.clusters import pod_group
from core_tests.engine.gangs.device_cases import NET, DeviceCase
from kubestow import config
from kubestow.api.core import Node, Pod
from kubestow.api.meta import convert
from kubestow.api.policy import PodDisruptionBudget
from kubestow.api.scheduling import PodGroup
from kubestow.config import FeatureGates
from kubestow.descheduling.defragmentation.plan import DefragmentationPlan, FreedDomains, read_plan
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.engine.pipeline.offline_scheduler import OfflineScheduler, SchedulerOptions, unbound
from kubestow.engine.placement.engine_placement import EnginePlacement
from kubestow.errors import InputError
from kubestow.testing import node, pod
from kubestow.testing.devices import claim, exactly, slice_of
from kubestow_lab.simulation.arrivals import Arrival, Arrivals
from kubestow_lab.what_if.defragmentation import DomainsToFree, plan_defragmentation

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


def budget(app: str, *, allowed: int) -> PodDisruptionBudget:
    """A budget with the name of the label that it selects."""
    return convert(
        PodDisruptionBudget,
        {
            "metadata": {"name": app, "namespace": "default"},
            "spec": {"selector": {"matchLabels": {"app": app}}},
            "status": {"disruptionsAllowed": allowed, "currentHealthy": 0, "desiredHealthy": 1},
        },
    )


def test_pods_move_in_an_order_in_which_each_has_room() -> None:
    """w1 can only go where w2 is now, so w2 has to leave first."""
    nodes = [node("a", cpu="4"), node("b", cpu="3"), node("c", cpu="1")]
    pods = [web("w1", "a", "3"), web("w2", "b", "1")]

    found = plan(nodes, pods, gang("4"))

    assert [(move.pod, move.target) for move in found.moves] == [("default/w2", "c"), ("default/w1", "b")]


def test_pods_move_in_the_order_in_which_the_scheduler_leaves_room_for_all() -> None:
    """The smaller one first would go where only the larger one fits."""
    nodes = racks(x0="2", x1="2", y0="2", z0="3")
    pods = [web("w0", "y0"), web("w1", "z0", "2"), web("w2", "x1")]

    found = freeing(2, nodes, pods)

    assert (found.freed, len(found.moves)) == (FreedDomains(RACK, 2, ("y", "z")), 2)
    assert {move.pod: move.target for move in found.moves} == {"default/w0": "x1", "default/w1": "x0"}


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
    ("kept", "problem"),
    [
        (
            pod("alone", node="a", cpu="1"),
            "no pod can be moved: 1 pod has no controller that would replace it elsewhere",
        ),
        (
            pod("daemon", node="a", cpu="1", metadata={"ownerReferences": [{**_OWNER[0], "kind": "DaemonSet"}]}),
            "no pod can be moved: 1 pod has no controller that would replace it elsewhere",
        ),
        (
            web("guarded", "a", labels={"app": "guarded"}),
            "default/guarded has to move, but PodDisruptionBudget guarded allows no further disruption",
        ),
    ],
    ids=["alone", "daemon", "guarded"],
)
def test_pods_that_must_stay_are_not_moved(kept: Pod, problem: str) -> None:
    found = plan([node("a", cpu="4"), node("b", cpu="3")], [kept], gang("4"), budget("guarded", allowed=0))

    assert found.problem == problem


def test_a_budget_is_not_named_if_its_pods_need_not_move() -> None:
    pods = [web("guarded", "b", labels={"app": "guarded"}), pod("alone", node="a", cpu="1")]

    found = plan([node("a", cpu="4"), node("b", cpu="4")], pods, gang("4", "4"), budget("guarded", allowed=0))

    assert found.problem == "no pod can be moved: 1 pod has no controller that would replace it elsewhere, " + (
        "1 pod is protected: PodDisruptionBudget guarded allows no further disruption"
    )


def test_pods_of_a_budget_move_one_step_after_another_and_others_beside_them() -> None:
    nodes = [node("a", cpu="4"), node("b", cpu="3")]
    pods = [web(name, "a", labels={"app": app}) for name, app in (("w0", "web"), ("w1", "web"), ("other", "other"))]

    found = plan(nodes, pods, gang("4"), budget("web", allowed=1))

    steps = [{move.pod.removeprefix("default/") for move in step} for step in found.steps()]
    assert len(steps) == 2
    assert [len(step & {"w0", "w1"}) for step in steps] == [1, 1]
    assert "other" in steps[0]


def test_a_pod_waits_for_the_step_after_the_one_in_which_its_room_becomes_free() -> None:
    nodes = [node("a", cpu="4"), node("b", cpu="3"), node("c", cpu="1")]
    pods = [web("w1", "a", "3"), web("w2", "b", "1")]

    found = plan(nodes, pods, gang("4"))

    assert [(move.step, move.pod) for move in found.moves] == [(1, "default/w2"), (2, "default/w1")]


def test_a_workload_without_pods_is_refused() -> None:
    with pytest.raises(InputError, match="has no pods that can be used"):
        plan([node()], [], gang())


def test_more_moves_than_allowed_are_no_plan() -> None:
    nodes = [node("a", cpu="4"), node("b", cpu="3")]
    pods = [web("w0", "a"), web("w1", "a")]

    assert plan(nodes, pods, gang("4"), most=1).problem == "none with at most 1 move"
    assert len(plan(nodes, pods, gang("4"), most=2).moves) == 2


# In the last cases the scheduler refuses the first solutions, and what the others need is no bound for all.
@pytest.mark.parametrize("seed", [*range(12), 10_272, 10_357])
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


# -- gangs in topology domains -----------------------------------------------------------------------------------------

RACK = "example.com/rack"
_GATES = FeatureGates({"GenericWorkload": True, "GangScheduling": True, "TopologyAwareWorkloadScheduling": True})


def racks(**cpus: str) -> list[Node]:
    """Nodes such as ``x1``, with the first letter of their names as their rack."""
    return [node(name, cpu=cpu, labels={RACK: name[0]}) for name, cpu in cpus.items()]


def group(*cpus: str, **more: Any) -> Arrivals:
    """A gang of a PodGroup, with its annotations or constraints."""
    spec = {"schedulingPolicy": {"gang": {"minCount": len(cpus)}}, **more.pop("spec", {})}
    metadata = {"name": "train", "namespace": "default", "uid": "train", **more}
    member = {"schedulingGroup": {"podGroupName": "train"}}
    pods = [pod(f"g{number}", cpu=cpu, spec=member) for number, cpu in enumerate(cpus)]
    return Arrivals(
        [Arrival(each, 0.0, None, {}) for each in pods],
        objects=[convert(PodGroup, {"metadata": metadata, "spec": spec})],
    )


def plan_of_group(nodes: Sequence[Node], pods: Sequence[Pod], wanted: Arrivals) -> DefragmentationPlan:
    cluster = ClusterObjects(nodes=list(nodes), pods=list(pods))
    return plan_defragmentation(cluster, wanted, SchedulerOptions(gates=_GATES))


def test_a_gang_that_has_to_be_in_one_rack_gets_its_room_in_one() -> None:
    """The fewest moves without the constraint would free a node in each rack."""
    nodes = racks(x1="2", x2="2", y1="2", y2="2", z1="3")
    pods = [web("w0", "x1"), web("w1", "y1"), web("w2", "x2"), web("w3", "y2"), web("w4", "y2")]
    wanted = group("2", "2", spec={"schedulingConstraints": {"topology": [{"key": RACK}]}})

    found = plan_of_group(nodes, pods, wanted)

    assert sorted(move.pod for move in found.moves) == ["default/w0", "default/w2"]
    assert {node_name for _, node_name in found.assignments} == {"x1", "x2"}


def test_a_gang_in_segments_gets_whole_segments_per_domain() -> None:
    nodes = racks(x1="2", y1="2", z1="3")
    pods = [web("w0", "x1"), web("w1", "y1")]
    annotations = {"kubestow.dev/segment-size": "2", "kubestow.dev/segment-topology": RACK}

    found = plan_of_group(nodes, pods, group("1", "1", "1", "1", annotations=annotations))

    assert found.exists, found.problem
    domains = Counter(node_name[0] for _, node_name in found.assignments)
    assert set(domains.values()) <= {2, 4}
    assert len(found.moves) == 1


def test_a_gang_whose_topology_key_no_node_has_gets_no_plan() -> None:
    wanted = group("4", spec={"schedulingConstraints": {"topology": [{"key": "example.com/block"}]}})

    found = plan_of_group(racks(x1="4", y1="1"), [web("w0", "x1")], wanted)

    assert found.problem == "no feasible placements found"


# -- domains that are to be free ---------------------------------------------------------------------------------------


def freeing(
    count: int, nodes: Sequence[Node], pods: Sequence[Pod], *objects: Any, key: str = RACK, **more: Any
) -> DefragmentationPlan:
    selected, wanted = more.get("selected"), more.get("wanted")
    cluster = ClusterObjects(nodes=list(nodes), pods=list(pods), objects=list(objects))
    return plan_defragmentation(cluster, wanted, free=DomainsToFree(count, key, selected), max_moves=4)


def test_whole_nodes_are_freed_with_the_fewest_moves() -> None:
    nodes = [node("a", cpu="4"), node("b", cpu="4"), node("c", cpu="4")]
    pods = [web("w0", "a"), web("w1", "a"), web("w2", "b"), web("w3", "c")]

    found = freeing(2, nodes, pods, key="kubernetes.io/hostname")

    assert (found.freed, found.cordoned, len(found.moves)) == (
        FreedDomains("kubernetes.io/hostname", 2, ("b", "c")),
        ("b", "c"),
        2,
    )


def test_a_rack_is_freed_as_a_whole_and_keeps_the_pods_of_its_nodes() -> None:
    daemon = pod("daemon", node="x1", cpu="1", metadata={"ownerReferences": [{**_OWNER[0], "kind": "DaemonSet"}]})
    pods = [web("w0", "x1"), web("w1", "x2"), web("w2", "y1"), web("w3", "y1"), web("w4", "y2"), daemon]

    found = freeing(1, racks(x1="4", x2="4", y1="4", y2="2"), pods)

    assert found.freed == FreedDomains(RACK, 1, ("x",))
    assert found.cordoned == ("x1", "x2")
    assert {move.target for move in found.moves} <= {"y1", "y2"}


def test_a_gang_gets_freed_racks_only() -> None:
    """It would fit without a move, on two nodes of different racks that are not free."""
    pods = [web("w0", "x1"), web("w1", "y1")]

    found = freeing(1, racks(x1="4", x2="4", y1="4", y2="4"), pods, wanted=gang("3", "3"))

    assert found.freed is not None
    assert {node_name[0] for _, node_name in found.assignments} == set(found.freed.domains)
    assert len(found.moves) == 1


def test_domains_that_are_free_already_need_no_moves() -> None:
    found = freeing(1, racks(x1="4", y1="4"), [web("w0", "x1")])

    assert (found.exists, found.moves, found.cordoned) == (True, (), ("y1",))


def test_of_an_empty_cluster_no_more_domains_are_freed_than_asked_for() -> None:
    found = freeing(1, racks(x1="4", y1="4", y2="4"), [])

    assert (found.freed, found.cordoned, found.moves) == (FreedDomains(RACK, 1, ("x",)), ("x1",), ())


def test_a_gang_with_volumes_gets_no_freed_domains() -> None:
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    wanted = Arrivals([Arrival(pod("g0", spec={"volumes": volumes}), 0.0, None, {})])

    assert freeing(1, racks(x1="4"), [], wanted=wanted).problem == "not searched further: a pod has volumes"


def test_pods_that_stay_in_domains_are_named_if_too_few_can_be_emptied() -> None:
    nodes = [*racks(x1="4", y1="4"), node("z1", labels={RACK: "z"}, unschedulable=True)]
    pods = [pod("alone", node="x1", cpu="1"), web("guarded", "y1", labels={"app": "guarded"})]

    found = freeing(2, nodes, pods, budget("guarded", allowed=0))

    assert found.problem == (
        "0 of 3 domains can be emptied; x: default/alone has no controller that would replace it elsewhere; "
        "y: default/guarded is protected: PodDisruptionBudget guarded allows no further disruption; "
        "z: node z1 is cordoned"
    )


def test_only_domains_of_selected_nodes_are_freed() -> None:
    pods = [web("w0", "x1"), web("w1", "y1"), web("w2", "y1")]

    found = freeing(1, racks(x1="4", y1="4", z1="4"), pods, selected=frozenset({"y1"}))

    assert found.freed == FreedDomains(RACK, 1, ("y",))
    assert len(found.moves) == 2


def test_a_label_that_no_node_has_is_refused() -> None:
    with pytest.raises(InputError, match="no node of the cluster has this label"):
        freeing(1, [node("a")], [])


def test_a_plan_is_for_something() -> None:
    with pytest.raises(InputError, match="is for nothing"):
        plan_defragmentation(ClusterObjects(nodes=[node("a")]), None)


def test_a_plan_can_be_read_from_its_document() -> None:
    pods = [web("w0", "x1"), web("w1", "y1")]
    found = freeing(1, racks(x1="4", x2="4", y1="4", y2="4"), pods, wanted=gang("3", "3"))

    assert read_plan(json.dumps(found.document()).encode(), "plan.json") == found


@pytest.mark.parametrize("seed", range(15))
def test_racks_are_freed_with_the_fewest_moves_if_they_can_be(seed: int) -> None:
    random = Random(f"racks {seed}")
    nodes = racks(**{f"{rack}{number}": str(random.choice([2, 3])) for rack in "xyz" for number in range(2)})[:5]
    free = {each.metadata.name: int(each.status.allocatable["cpu"]) for each in nodes}
    pods: list[Pod] = []
    for number in range(random.randint(2, 4)):
        cpu, on = random.choice([1, 1, 2]), random.choice(list(free))
        if free[on] >= cpu:
            free[on] -= cpu
            pods.append(web(f"w{number}", on, str(cpu)))
    count = random.randint(1, 2)

    found = freeing(count, nodes, pods)

    def is_freed(targets: Sequence[str]) -> bool:
        return len({"x", "y", "z"} - {target[0] for target in targets}) >= count

    fewest = _fewest_moves(nodes, pods, [], is_freed)
    if not found.exists:
        assert fewest is None or "the scheduler finds no other nodes" in found.problem
        return
    assert fewest is not None
    assert found.fewest <= fewest <= len(found.moves)
    targets = {move.pod: move.target for move in found.moves}
    after = [targets.get(each.key, each.spec.node_name) for each in pods]
    assert found.freed is not None
    assert {target[0] for target in after}.isdisjoint(found.freed.domains)


@pytest.mark.parametrize("seed", range(15))
def test_a_gang_in_one_rack_gets_its_plan_in_steps_that_budgets_and_free_amounts_allow(seed: int) -> None:
    random = Random(f"steps {seed}")
    nodes = racks(**{f"{rack}{number}": str(random.choice([2, 3])) for rack in "xy" for number in range(2)})
    free = {each.metadata.name: int(each.status.allocatable["cpu"]) for each in nodes}
    pods: list[Pod] = []
    for number in range(random.randint(2, 5)):
        on, app = random.choice(list(free)), random.choice(["one", "other"])
        if free[on]:
            free[on] -= 1
            pods.append(web(f"w{number}", on, labels={"app": app}))
    cpus = [random.choice(["1", "2"]) for _ in range(2)]
    wanted = group(*cpus, spec={"schedulingConstraints": {"topology": [{"key": RACK}]}})
    cluster = ClusterObjects(nodes=nodes, pods=pods, objects=[budget("one", allowed=1)])

    found = plan_defragmentation(cluster, wanted, SchedulerOptions(gates=_GATES))

    def is_in_one_rack(targets: Sequence[str]) -> bool:
        return len({target[0] for target in targets[len(pods) :]}) == 1

    fewest = _fewest_moves(nodes, pods, [arrival.pod for arrival in wanted.pods], is_in_one_rack)
    if not found.exists:
        assert fewest is None or "the scheduler puts the replacements" in found.problem
        return
    assert fewest is not None
    assert found.fewest <= fewest <= len(found.moves)
    assert len({node_name[0] for _, node_name in found.assignments}) == 1
    _assert_steps_are_possible(found, free, pods)


def _assert_steps_are_possible(plan: DefragmentationPlan, free: dict[str, int], pods: Sequence[Pod]) -> None:
    """Each step fits while its pods are still on their nodes, and evicts no two pods of the budget at once."""
    apps = {each.key: each.metadata.labels["app"] for each in pods}
    free = dict(free)
    for step in plan.steps():
        assert sum(apps[move.pod] == "one" for move in step) <= 1
        closed = {*plan.cordoned, *(move.source for move in step)}
        for move in step:
            assert move.target not in closed
            free[move.target] -= 1
        assert min(free.values()) >= 0
        for move in step:
            free[move.source] += 1


def _fewest_moves(
    nodes: Sequence[Node],
    pods: Sequence[Pod],
    wanted: Sequence[Pod],
    is_wanted: Callable[[Sequence[str]], bool] = lambda targets: True,
) -> int | None:
    """By trying every assignment of all pods to nodes, only CPU being scarce; None if there is none."""
    names = [each.metadata.name for each in nodes]
    cpu = {each.metadata.name: int(each.status.allocatable["cpu"]) for each in nodes}
    every = [*pods, *wanted]
    fewest: int | None = None
    for targets in itertools.product(names, repeat=len(every)):
        used = dict.fromkeys(names, 0)
        for each, target in zip(every, targets, strict=True):
            used[target] += int(each.spec.containers[0].resources.requests["cpu"])
        if all(used[name] <= cpu[name] for name in names) and is_wanted(targets):
            moves = sum(each.spec.node_name != target for each, target in zip(pods, targets, strict=False))
            fewest = moves if fewest is None else min(fewest, moves)
    return fewest
