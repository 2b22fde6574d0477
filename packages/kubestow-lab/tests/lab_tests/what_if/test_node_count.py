"""The fewest nodes and the cheapest mix with which all pods fit."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from core_tests.engine.input.manifests import Object, arrivals, cluster, node, pod, workload
from kubestow import config
from kubestow.api.core import Node
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.engine.pipeline.offline_scheduler import SchedulerOptions
from kubestow.errors import InputError
from kubestow.plugins import in_tree_registry
from kubestow.scheduling.decision.node_selection import FirstByName
from kubestow_lab.capacity.estimate import CapacityOptions, estimate
from kubestow_lab.capacity.pod_template import PodTemplate
from kubestow_lab.simulation.arrivals import Arrival, Arrivals
from kubestow_lab.what_if.node_count import nodes_needed
from kubestow_lab.what_if.node_pools import NodePool, NodesNeeded, pool_like, read_node_pools
from lab_tests.capacity.test_independent_nodes import nodes, templates
from lab_tests.what_if.test_node_removal import owned


def needed(
    tmp_path: Path, objects: list[Object], *pools: NodePool, within: ClusterObjects | None = None
) -> NodesNeeded:
    within = within or cluster(tmp_path, node("old", cpu="1"))
    return nodes_needed(within, arrivals(tmp_path, *objects, within=within), pools)


def pool(name: str, cpu: str, price: float | None = None, **fields: Any) -> NodePool:
    return NodePool(name=name, allocatable={"cpu": cpu, "memory": "64Gi"}, price=price, **fields)


def test_the_fewest_nodes_of_one_shape(tmp_path: Path) -> None:
    found = needed(tmp_path, [workload("Deployment", "web", replicas=10, cpu="1")], pool("large", "4"))
    assert (found.mix, found.pods, found.fitting, found.price) == ({"large": 3}, 10, 1, None)


def test_nothing_is_needed_if_all_fit(tmp_path: Path) -> None:
    assert needed(tmp_path, [pod("p", cpu="1")], pool("large", "4")).mix == {}


def test_pending_pods_of_the_configured_scheduler_have_to_fit(tmp_path: Path) -> None:
    within = cluster(
        tmp_path, node("old", cpu="1"), *(pod(name, cpu="2", schedulerName=name) for name in ("mine", "other"))
    )
    configuration = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": "mine"}],
    }
    found = nodes_needed(within, Arrivals(), [pool("large", "4")], SchedulerOptions(configuration))
    assert (found.pods, found.mix) == (1, {"large": 1})


def test_constraints_of_pods_count(tmp_path: Path) -> None:
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    spread = workload("Deployment", "web", replicas=5, pod_spec={"affinity": affinity})
    within = cluster(tmp_path, node("old", labels={"kubernetes.io/hostname": "old"}))
    found = needed(tmp_path, [spread], pool("large", "64"), within=within)
    assert (found.fitting, found.mix) == (1, {"large": 4})


def test_pods_that_fit_with_no_number_of_nodes_are_named_and_the_rest_is_answered(tmp_path: Path) -> None:
    on_ssd = pod("ssd", cpu="1", nodeSelector={"disk": "ssd"})
    web = workload("Deployment", "web", replicas=6, cpu="1")
    found = needed(tmp_path, [pod("huge", cpu="8"), on_ssd, web], pool("large", "4"))
    assert (found.pods, found.fitting, found.mix, found.single[0].nodes) == (8, 1, {"large": 2}, 2)
    reasons = {name: group.message for group in found.never for name in group.pods}
    assert sorted(reasons) == ["default/huge", "default/ssd"]
    assert "Insufficient cpu" in reasons["default/huge"]
    assert "didn't match Pod's node affinity/selector" in reasons["default/ssd"]
    assert found.document()["pending"][0]["names"] == ["default/huge"]


def test_if_no_pod_ever_fits_there_is_no_mix(tmp_path: Path) -> None:
    found = needed(tmp_path, [pod("huge", cpu="8")], pool("small", "4"))
    assert (found.mix, found.fitting, [group.pods for group in found.never]) == (None, 0, [("default/huge",)])
    assert found.answer() == "0 of 1 pod fit without further nodes; 1 fit with no number of nodes"


def test_what_exceeds_the_largest_pools_is_set_aside(tmp_path: Path) -> None:
    found = needed(tmp_path, [workload("Deployment", "web", replicas=10, cpu="1")], pool("large", "4", max_nodes=2))
    assert (found.mix, sum(len(group.pods) for group in found.never)) == ({"large": 2}, 1)


def test_a_pod_that_needs_a_later_zone_of_a_pool_or_another_pod_is_not_set_aside(tmp_path: Path) -> None:
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "db"}}}
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    objects = [
        pod("zonal", cpu="2", nodeSelector={"topology.kubernetes.io/zone": "c"}),
        workload("Deployment", "follower", replicas=1, cpu="1", pod_spec={"affinity": affinity, "priority": 5}),
        workload("Deployment", "db", replicas=1, cpu="2"),
        pod("huge", cpu="8"),
    ]
    found = needed(tmp_path, objects, pool("large", "4", zones=("a", "b", "c")))
    assert (found.mix, [group.pods for group in found.never]) == ({"large": 3}, [("default/huge",)])


def test_room_that_no_pod_may_use_does_not_count_for_the_lower_bound(tmp_path: Path) -> None:
    tainted = node("tainted", cpu="64", taints=[{"key": "team", "value": "x", "effect": "NoSchedule"}])
    within = cluster(tmp_path, tainted, node("old", cpu="1"))
    found = needed(
        tmp_path, [workload("Deployment", "web", replicas=9, cpu="1")], pool("large", "4", 2.0), within=within
    )
    assert (found.price, found.lower_bound) == (4.0, 4.0)


def test_progress_moves_while_one_number_of_nodes_is_tried(tmp_path: Path) -> None:
    within, seen = cluster(tmp_path, node("old", cpu="1")), list[int]()
    pods = arrivals(tmp_path, *(pod(f"p{index}", cpu=f"{100 + index}m") for index in range(8)), within=within)
    nodes_needed(within, pods, [pool("large", "64")], progress=seen.append)
    assert len(seen) >= 8
    assert seen == sorted(set(seen))


def test_pods_that_wait_for_each_other_are_tried_again(tmp_path: Path) -> None:
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "db"}}}
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    follower = workload("Deployment", "follower", replicas=1, cpu="1", pod_spec={"affinity": affinity, "priority": 5})
    found = needed(tmp_path, [follower, workload("Deployment", "db", replicas=1, cpu="2")], pool("large", "4"))
    assert found.mix == {"large": 1}


def test_the_cheapest_mix(tmp_path: Path) -> None:
    pods = [workload("Deployment", "web", replicas=7, cpu="1")]
    pools = pool("large", "4", 3.5), pool("small", "1", 1.0)
    found = needed(tmp_path, pods, *pools)
    assert (found.mix, found.price) == ({"large": 1, "small": 2}, 5.5)
    assert [(need.nodes, need.price) for need in found.single] == [(2, 7.0), (6, 6.0)]
    assert found.lower_bound is not None and found.lower_bound <= 5.5


@pytest.mark.parametrize("pods", [4, 9, 17, 20])
@pytest.mark.parametrize("prices", [(7.0, 2.9, 2.1), (8.0, 2.9, 2.1), (9.1, 3.5, 2.0)])
def test_the_mix_is_close_to_the_cheapest_of_all(tmp_path: Path, pods: int, prices: tuple[float, ...]) -> None:
    """Pods of one core on nodes of 8, 3 and 2 cores, beside a node with one: they fit if there are enough cores."""
    cores = (8, 3, 2)
    pools = [pool(f"p{cpu}", str(cpu), price) for cpu, price in zip(cores, prices, strict=True)]
    found = needed(tmp_path, [workload("Deployment", "web", replicas=pods, cpu="1")], *pools)
    best = min(
        sum(count * price for count, price in zip(counts, prices, strict=True))
        for counts in itertools.product(range(4), range(8), range(11))
        if 1 + sum(count * cpu for count, cpu in zip(counts, cores, strict=True)) >= pods
    )
    assert found.price is not None and found.lower_bound is not None
    assert found.lower_bound <= best + 1e-6
    assert best - 1e-6 <= found.price <= 1.02 * best


@settings(max_examples=40)
@given(nodes(), templates())
def test_copies_are_placed_at_once_as_one_by_one(within: list[Node], manifest: Object) -> None:
    template = PodTemplate(manifest, "pod.yaml")
    pods = [Arrival(template.instance(index), 0.0, None, {}) for index in range(40)]
    found = nodes_needed(ClusterObjects.of(within), Arrivals(pods), [pool("large", "64")])
    configuration = config.default_configuration(config.FeatureGates())
    options = CapacityOptions(max_limit=40, ties=FirstByName())
    one_by_one = estimate(
        ClusterObjects.of(within), template, configuration, registry=in_tree_registry(), options=options
    )
    assert found.fitting == one_by_one.replicas


def test_claims_that_wait_for_no_pod_are_bound_before(tmp_path: Path) -> None:
    objects: list[Object] = [
        pod("p", cpu="2", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]),
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "data"},
            "spec": {"storageClassName": "fast"},
        },
        {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "fast"}, "provisioner": "csi"},
    ]
    assert needed(tmp_path, objects, pool("large", "4")).mix == {"large": 1}


@pytest.mark.filterwarnings("error")
def test_a_resource_that_no_pool_has_and_that_is_not_missing_costs_nothing(tmp_path: Path) -> None:
    large = node("old", cpu="1")
    large["status"]["allocatable"]["example.com/gpu"] = "1"
    on_gpu = pod("g", cpu="1")
    on_gpu["spec"]["containers"][0]["resources"]["limits"] = {"example.com/gpu": "1"}
    within = cluster(tmp_path, large)
    found = needed(tmp_path, [on_gpu, pod("p", cpu="2")], pool("large", "4", 0.2), within=within)
    assert found.mix == {"large": 1}
    assert found.lower_bound == pytest.approx(0.1)


def test_several_pools_need_prices(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="node pool b: has no price"):
        needed(tmp_path, [pod("p")], pool("a", "1", 1.0), pool("b", "2"))
    with pytest.raises(InputError, match="there is no pending pod to place"):
        nodes_needed(cluster(tmp_path), Arrivals(), [pool("a", "1")])


def test_pools_are_read_from_a_price_list_and_a_node(tmp_path: Path) -> None:
    path = tmp_path / "pools.yaml"
    path.write_text(
        "nodePools:\n"
        "- {name: a, price: 0.2, allocatable: {cpu: 3920m, memory: 14Gi}, reserved: {cpu: 420m}, zones: [x, y],\n"
        "   taints: [{key: team, value: b, effect: NoSchedule}]}\n"
    )
    (found,) = read_node_pools(path)
    first, second = found.node(0), found.node(1)
    assert first.metadata.labels["topology.kubernetes.io/zone"] == "x"
    assert second.metadata.labels["topology.kubernetes.io/zone"] == "y"
    assert (first.status.allocatable["cpu"], first.spec.taints[0].key) == ("3500m", "team")
    path.write_text("kind: Node\nmetadata: {name: shape, labels: {a: b}}\nstatus: {allocatable: {cpu: 4}}\n")
    (shape,) = read_node_pools(path)
    assert (shape.name, shape.labels, shape.node(0).status.allocatable["cpu"]) == ("shape", {"a": "b"}, "4")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("nodePools: []", "expected a Node, or nodePools with a list"),
        ("nodePools: [{name: a}]", r"nodePools\[0\]: object missing required field `allocatable`"),
        ("nodePools: [{name: a, allocatable: {cpu: x}}]", r"nodePools\[0\]: allocatable.cpu: "),
        ("nodePools: [{name: a, allocatable: {cpu: 1}, price: -1}]", r"nodePools\[0\]: price must be greater than 0"),
        ("nodePools: [{name: a, allocatable: {}}, {name: a, allocatable: {}}]", "a second pool is called a"),
        ("nodePools: [{name: a, allocatable: {cpu: 1}, cost: 1}]", r"nodePools\[0\]: object contains unknown field"),
        ("a: [", "invalid YAML"),
    ],
)
def test_invalid_price_lists_are_refused(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "pools.yaml"
    path.write_text(content)
    with pytest.raises(InputError, match=message):
        read_node_pools(path)


def test_a_pool_like_a_node_reserves_what_daemon_sets_request(tmp_path: Path) -> None:
    within = cluster(
        tmp_path,
        node("a", cpu="4", labels={"kubernetes.io/hostname": "a", "disk": "ssd"}),
        owned("agent", "a", kind="DaemonSet", cpu="500m"),
        owned("web", "a", cpu="2"),
    )
    found = pool_like(within, "a")
    assert (found.node(0).status.allocatable["cpu"], found.labels) == ("3500m", {"disk": "ssd"})
    assert found.node(0).status.allocatable["pods"] == "109"
    with pytest.raises(InputError, match="node b: no such node"):
        pool_like(within, "b")
