"""Counterfactuals: each kind is found, the smallest comes first, and each holds in a cluster that is built anew."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from rich.console import Console

from core_tests.engine.explanation.test_explanation import NODES, PLACED, PROBES
from kubestow.api.core import Node, Pod
from kubestow.api.meta import OwnerReference, convert
from kubestow.api.policy import PodDisruptionBudget
from kubestow.engine.explanation.changes import (
    AddNode,
    AlterNode,
    Change,
    CombinedChange,
    RemovePods,
    with_requests_lowered,
)
from kubestow.engine.explanation.counterfactuals import Counterfactual
from kubestow.engine.explanation.explain import explain
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.reports.model import Table
from kubestow.testing import builders

replace = msgspec.structs.replace
ZONE = "topology.kubernetes.io/zone"


def found(nodes: list[Node], pods: list[Pod], probe: Pod, **options: Any) -> list[Counterfactual]:
    """The counterfactuals, after each was checked on a cluster that is built anew."""
    cluster = ClusterObjects.of(nodes, [*pods, probe])
    counterfactuals = list(explain(cluster, "probe", **options).counterfactuals)
    for counterfactual in counterfactuals:
        if counterfactual.feasible:
            again = explain(changed(cluster, probe, counterfactual.change), "probe", counterfactuals=False)
            assert again.node(counterfactual.node).feasible, counterfactual.text
            assert not again.gate
            if "target" not in options:
                assert again.feasible == counterfactual.feasible, counterfactual.text
                assert again.best(1)[0].node == counterfactual.node
    return counterfactuals


def changed(cluster: ClusterObjects, probe: Pod, change: Change) -> ClusterObjects:
    """The cluster with a change, by plain code: the cache and its results take no part."""
    nodes, pods = list(cluster.nodes), [change.on_pod(pod) if pod is probe else pod for pod in cluster.pods]
    for part in change.parts if isinstance(change, CombinedChange) else (change,):
        if isinstance(part, AlterNode):
            nodes = [altered(node, part) if node.metadata.name == part.node else node for node in nodes]
        elif isinstance(part, AddNode):
            like = next(node for node in nodes if node.metadata.name == part.like)
            name = f"{part.like}-copy"
            labels = {**like.metadata.labels, "kubernetes.io/hostname": name}
            nodes.append(replace(like, metadata=replace(like.metadata, name=name, uid=name, labels=labels)))
        elif isinstance(part, RemovePods):
            pods = [pod for pod in pods if pod.metadata.uid not in part.pods]
    return ClusterObjects.of(nodes, pods, cluster.objects)


def altered(node: Node, change: AlterNode) -> Node:
    labels = {**node.metadata.labels, **change.labels}
    spec = node.spec
    if change.uncordon:
        taints = [taint for taint in spec.taints if "unschedulable" not in taint.key]
        spec = replace(spec, unschedulable=False, taints=taints)
    return replace(node, metadata=replace(node.metadata, labels=labels), spec=spec)


def texts(counterfactuals: list[Counterfactual]) -> list[str]:
    return [counterfactual.text for counterfactual in counterfactuals]


@given(NODES, PLACED, PROBES)
def test_every_counterfactual_holds_in_a_cluster_built_anew_and_they_are_in_order(
    nodes: list[dict[str, Any]], placed: list[dict[str, Any]], probe: dict[str, Any]
) -> None:
    counterfactuals = found(
        [builders.node(f"n{i}", **fields) for i, fields in enumerate(nodes)],
        [builders.pod(f"p{i}", node=f"n{i % len(nodes)}", **fields) for i, fields in enumerate(placed)],
        builders.pod("probe", **probe),
    )
    sizes = [counterfactual.change.size for counterfactual in counterfactuals]
    assert sizes == sorted(sizes)


def test_a_request_is_lowered_to_what_is_free() -> None:
    nodes = [builders.node("a", cpu="4"), builders.node("b", cpu="2")]
    first, *_ = found(nodes, [builders.pod("p", node="a", cpu="1")], builders.pod("probe", cpu="3500m"))
    assert first.text == "request 3 cpu instead of 3500m: fits on a"


def test_init_containers_are_lowered_too() -> None:
    init = {"initContainers": [{"name": "init", "resources": {"requests": {"cpu": "6"}}}]}
    first, *_ = found([builders.node("a")], [], builders.pod("probe", cpu="1", spec=init))
    assert first.text == "request 4 cpu instead of 6: fits on a"


def test_a_pod_level_request_is_lowered() -> None:
    whole = {"resources": {"requests": {"cpu": "6"}}}
    first, *_ = found([builders.node("a")], [], builders.pod("probe", cpu="1", spec=whole))
    assert first.text == "request 4 cpu instead of 6: fits on a"


def test_a_taint_is_tolerated() -> None:
    (only,) = found([builders.node("a", taints=["gpu=yes:NoSchedule"])], [], builders.pod("probe"))
    assert only.text == "tolerate the taint gpu=yes:NoSchedule: fits on a"


def test_a_taint_that_says_that_the_node_does_not_work_is_not_tolerated() -> None:
    assert (
        found([builders.node("a", taints=["node.kubernetes.io/not-ready=:NoSchedule"])], [], builders.pod("probe"))
        == []
    )


def test_a_node_gets_a_label() -> None:
    counterfactuals = found([builders.node("a")], [], builders.pod("probe", node_selector={"disk": "ssd"}))
    assert texts(counterfactuals) == [
        "drop disk=ssd from the node selector: fits on a",
        "label node a with disk=ssd: fits on a",
    ]


def test_a_node_gets_the_labels_of_the_cheapest_affinity_term() -> None:
    terms = [
        {"matchExpressions": [{"key": "x", "operator": "Exists"}, {"key": "y", "operator": "In", "values": ["1"]}]},
        {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd", "nvme"]}]},
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    counterfactuals = found([builders.node("a")], [], builders.pod("probe", affinity={"nodeAffinity": required}))
    assert "label node a with disk=ssd: fits on a" in texts(counterfactuals)


def test_a_node_is_not_moved_to_another_zone() -> None:
    counterfactuals = found([builders.node("a", zone="x")], [], builders.pod("probe", node_selector={ZONE: "y"}))
    assert texts(counterfactuals) == [f"drop {ZONE}=y from the node selector: fits on a"]


def test_a_cordoned_node_is_uncordoned() -> None:
    taint = "node.kubernetes.io/unschedulable=:NoSchedule"
    (only,) = found([builders.node("a", unschedulable=True, taints=[taint])], [], builders.pod("probe"))
    assert only.text == "uncordon node a: fits on a"


def test_one_more_node_like_the_smallest_that_is_large_enough() -> None:
    nodes = [builders.node("small", cpu="1"), builders.node("mid", cpu="4"), builders.node("large", cpu="8")]
    pods = [builders.pod("p", node="mid", cpu="4"), builders.pod("q", node="large", cpu="8")]
    counterfactuals = found(nodes, pods, builders.pod("probe", cpu="3"))
    assert "add one more node like mid: fits on mid-copy" in texts(counterfactuals)


def test_the_fewest_pods_are_gone() -> None:
    pods = [
        builders.pod("p1", node="a", cpu="2"),
        builders.pod("p2", node="a", cpu="2"),
        builders.pod("q", node="b", cpu="4"),
    ]
    counterfactuals = found([builders.node("a"), builders.node("b")], pods, builders.pod("probe", cpu="4"))
    gone = [c for c in counterfactuals if isinstance(c.change, RemovePods)]
    assert texts(gone) == ["delete default/q from node b: fits on b"]


def test_pods_that_are_critical_to_the_system_stay() -> None:
    pods = [builders.pod("p", node="a", cpu="4", priority=2_000_000_000)]
    counterfactuals = found([builders.node("a")], pods, builders.pod("probe", cpu="4"))
    assert not [c for c in counterfactuals if isinstance(c.change, RemovePods)]


def test_a_disruption_budget_allows_more() -> None:
    budget = convert(
        PodDisruptionBudget,
        {
            "metadata": {"name": "keep", "namespace": "default", "uid": "u"},
            "spec": {"selector": {"matchLabels": {"app": "low"}}},
            "status": {"disruptionsAllowed": 0},
        },
    )
    victim = builders.pod("low", node="a", cpu="4", priority=1, labels={"app": "low"})
    cluster = ClusterObjects.of([builders.node("a")], [victim, builders.pod("probe", cpu="4", priority=9)], [budget])
    explanation = explain(cluster, "probe")
    assert explanation.preemption is not None
    assert explanation.preemption.violations == 1
    assert (
        "allow 1 more disruption by the disruption budget default/keep: preemption on a then violates no budget"
        in texts(list(explanation.counterfactuals))
    )


def test_constraints_of_the_pod_are_relaxed() -> None:
    term = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "a"}}}
    anti = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    nodes, placed = [builders.node("a", zone="z")], [builders.pod("p", node="a", labels={"app": "a"}, host_ports=[80])]
    assert f"drop the required pod anti-affinity within {ZONE}: fits on a" in texts(
        found(nodes, placed, builders.pod("probe", affinity=anti))
    )
    assert "do without host ports: fits on a" in texts(found(nodes, placed, builders.pod("probe", host_ports=[80])))
    spread = {"maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
    assert "spread over rack with ScheduleAnyway instead of DoNotSchedule: fits on a" in texts(
        found(nodes, placed, builders.pod("probe", spread=[spread]))
    )


def test_what_is_relaxed_leaves_the_rest_of_the_pod_as_it_is() -> None:
    placed = [builders.pod("p", node="a", host_ports=[80])]
    ports = [{"name": "host", "containerPort": 80, "hostPort": 80}, {"name": "own", "containerPort": 81}]
    container = {"name": "c", "ports": ports}
    nodes = [builders.node("a", labels={"disk": "ssd"})]
    probe = builders.pod("probe", node_selector={"disk": "ssd"}, spec={"containers": [container]})
    (without,) = [one for one in found(nodes, placed, probe) if one.text == "do without host ports: fits on a"]
    changed_spec = without.change.on_pod(probe).spec
    assert [port.host_port for port in changed_spec.containers[0].ports] == [0]
    assert changed_spec.node_selector == {"disk": "ssd"}

    selective = builders.pod("probe", node_selector={"disk": "ssd", "kubernetes.io/os": "plan9"})
    dropped = [
        one.change.on_pod(selective).spec.node_selector
        for one in found(nodes, [], selective)
        if one.text == "drop kubernetes.io/os=plan9 from the node selector: fits on a"
    ]
    assert dropped == [{"disk": "ssd"}]


def test_several_constraints_are_relaxed_together() -> None:
    anti = {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": app}}} for app in ("a", "b")
        ]
    }
    nodes, placed = [builders.node("n", zone="z")], [builders.pod(app, node="n", labels={"app": app}) for app in "ab"]
    (only, *_) = found(nodes, placed, builders.pod("probe", affinity={"podAntiAffinity": anti}))
    assert only.change.size[0] == 2
    assert only.change.on_pod(builders.pod("probe", affinity={"podAntiAffinity": anti})).spec.affinity is not None


def test_a_node_selector_and_affinity_are_dropped_together() -> None:
    term = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "a"}}}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["y"]}]}]}
    affinity = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms},
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]},
    }
    nodes, placed = [builders.node("n", zone="z")], [builders.pod("a", node="n", labels={"app": "a"})]
    assert texts(found(nodes, placed, builders.pod("probe", affinity=affinity))) == [
        f"drop the required node affinity, and drop the required pod anti-affinity within {ZONE}: fits on n"
    ]


def test_memory_is_lowered_to_whole_mebibytes() -> None:
    nodes = [builders.node("a", memory="4194400Ki")]
    first, *_ = found(nodes, [], builders.pod("probe", memory="8Gi"))
    assert first.text == "request 4Gi memory instead of 8Gi: fits on a"


def test_several_edits_come_together_when_one_is_not_enough() -> None:
    nodes = [builders.node("a", cpu="2", taints=["gpu=yes:NoSchedule"])]
    first, *_ = found(nodes, [], builders.pod("probe", cpu="3"))
    assert first.text == "tolerate the taint gpu=yes:NoSchedule, and request 2 cpu instead of 3: fits on a"
    assert first.change.size[0] == 2


def test_a_gate_is_removed() -> None:
    (only,) = found([builders.node("a")], [], builders.pod("probe", gates=["example.com/quota"]))
    assert only.text == "remove the scheduling gates example.com/quota: fits on a"


def test_with_a_target_the_changes_are_for_that_node() -> None:
    nodes = [builders.node("free"), builders.node("a", taints=["gpu=yes:NoSchedule"])]
    assert found(nodes, [], builders.pod("probe")) == []
    (only,) = found(nodes, [], builders.pod("probe"), target="a")
    assert only.text == "tolerate the taint gpu=yes:NoSchedule: fits on a"


def test_nothing_that_would_help_is_said_so() -> None:
    cluster = ClusterObjects.of(
        [builders.node("a", taints=["node.kubernetes.io/not-ready=:NoSchedule"])], [builders.pod("probe")]
    )
    console = Console(width=100)
    with console.capture() as captured:
        console.print(explain(cluster, "probe"))
    assert "no small change was found with which the pod fits on any node" in captured.get()


def test_a_pod_that_fits_needs_no_change() -> None:
    assert found([builders.node("a")], [], builders.pod("probe")) == []


def test_a_pod_with_a_controller_that_would_have_to_go_comes_back() -> None:
    owner = OwnerReference(kind="ReplicaSet", name="web-1", controller=True)
    placed = builders.pod("web-1-a", cpu="3", node="a")
    placed = replace(placed, metadata=replace(placed.metadata, owner_references=[owner]))
    changes = found([builders.node("a", cpu="4")], [placed], builders.pod("probe", cpu="4"))
    (gone,) = (each for each in changes if isinstance(each.change, RemovePods))
    again = "ReplicaSet web-1 creates new ones: scale down, or they may come back first"
    assert gone.change.text == f"delete default/web-1-a from node a ({again})"
    assert gone.change.document()["controllers"] == ["ReplicaSet web-1"]


def test_a_change_after_which_the_pod_preempts_is_enough() -> None:
    nodes = [builders.node("a", cpu="4", labels={"disk": "hdd"})]
    low = builders.pod("low", cpu="4", node="a", priority=0)
    probe = builders.pod("probe", cpu="4", priority=100, node_selector={"disk": "ssd"})
    texts = [each.text for each in found(nodes, [low], probe)]
    assert "drop disk=ssd from the node selector: preempts default/low on a" in texts


def test_what_the_cluster_does_not_have_is_said_in_plain_words_before_the_message() -> None:
    nodes = [builders.node("a", cpu="4")]
    probe = builders.pod("probe", requests={"example.com/gpu": "16", "cpu": "8"})
    explained = explain(ClusterObjects.of(nodes, [probe]), "probe")
    assert set(explained.missing) == {
        "the pod requests 16 example.com/gpu, the largest node has none",
        "the pod requests 8 cpu, the largest node has 4",
    }
    plain = "1 node: the node is too small for the pod"
    assert explained.headline()[1:4] == [*explained.missing, plain]
    assert explained.headline()[4] == explained.message


def test_claims_that_do_not_exist_are_what_the_cluster_does_not_have() -> None:
    spec = {
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}],
        "resourceClaims": [{"name": "gpu", "resourceClaimName": "one-gpu"}],
    }
    explained = explain(ClusterObjects.of([builders.node("a")], [builders.pod("probe", spec=spec)]), "probe")
    assert explained.missing == (
        "the PersistentVolumeClaim default/data would have to exist",
        "the ResourceClaim default/one-gpu would have to exist",
    )


def test_the_summary_has_the_groups_of_nodes_and_the_smallest_change() -> None:
    nodes = [builders.node("a", cpu="1"), builders.node("b", cpu="1"), builders.node("c", taints=["t=:NoSchedule"])]
    explained = explain(ClusterObjects.of(nodes, [builders.pod("probe", cpu="2")]), "probe")
    summary = explained.summary()
    assert [line for line in summary if line.startswith("  ")] == [
        "  2 nodes: NodeResourcesFit: Insufficient cpu",
        "  1 node: TaintToleration: node(s) had untolerated taint(s)",
    ]
    assert summary[-1] == "smallest change: request 1 cpu instead of 2: fits on 2 nodes, the best is a"
    fitting = explain(ClusterObjects.of([builders.node("a")], [builders.pod("probe")]), "probe").summary()
    assert not [line for line in fitting if line.startswith("  ") or not line]


def test_a_change_that_helps_on_several_nodes_counts_them() -> None:
    term = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "a"}}}
    anti = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    nodes = [builders.node(name, zone="z") for name in "ab"]
    placed = [builders.pod("p", node="a", labels={"app": "a"})]
    probe = builders.pod("probe", affinity=anti)
    change = f"drop the required pod anti-affinity within {ZONE}"
    assert f"{change}: fits on 2 nodes, the best is b" in texts(found(nodes, placed, probe))


def test_the_summary_says_that_no_small_change_was_found() -> None:
    taint = "node.kubernetes.io/not-ready=:NoSchedule"
    explained = explain(ClusterObjects.of([builders.node("a", taints=[taint])], [builders.pod("probe")]), "probe")
    assert not explained.counterfactuals
    assert explained.summary()[-1] == "no small change was found with which the pod fits on any node"


def test_the_parts_of_a_combined_change_are_plain_data_with_their_kinds() -> None:
    nodes = [builders.node("a", cpu="4", taints=["gpu=yes:NoSchedule"])]
    (only,) = found(nodes, [], builders.pod("probe", cpu="6"))
    kinds = [part["kind"] for part in only.change.document()["changes"]]
    assert (only.document()["kind"], sorted(kinds)) == ("together", ["lower request", "toleration"])
    assert [part["resource"] for part in only.change.document()["changes"] if "resource" in part] == ["cpu"]


@pytest.mark.parametrize(
    ("cpu", "init", "whole", "by", "expected"),
    [
        (["1", "3"], [], None, 1500, (["1000m", "1500m"], [], None)),
        (["1", "3"], ["6"], None, 4000, (["1000m", "1000m"], ["2000m"], None)),
        (["1"], [], "4", 1000, (["1"], [], "3000m")),
        (["1"], [], "4", 9000, (["1"], [], "0m")),
        (["1"], ["2"], None, 9000, (["0m"], ["0m"], None)),
        ([None, "2"], [None], None, 500, ([None, "1500m"], [None], None)),
    ],
)
def test_requests_are_lowered_by_an_amount(
    cpu: list[str | None], init: list[str | None], whole: str | None, by: int, expected: Any
) -> None:
    def containers(amounts: list[str | None]) -> list[Any]:
        return [
            {"name": f"c{at}", "resources": {"requests": {} if amount is None else {"cpu": amount}}}
            for at, amount in enumerate(amounts)
        ]

    spec: dict[str, Any] = {"containers": containers(cpu), "initContainers": containers(init)}
    if whole is not None:
        spec["resources"] = {"requests": {"cpu": whole}}

    lowered = with_requests_lowered(convert(Pod, {"spec": spec}), "cpu", by).spec

    found = [
        [each.resources.requests.get("cpu") for each in some] for some in (lowered.containers, lowered.init_containers)
    ]
    assert (*found, None if lowered.resources is None else lowered.resources.requests["cpu"]) == expected


def test_a_label_helps_only_on_the_nodes_that_a_term_names() -> None:
    expression = {"key": "disk", "operator": "In", "values": ["ssd"]}
    name = {"key": "metadata.name", "operator": "In", "values": ["c"]}
    terms = [{"matchExpressions": [expression], "matchFields": [name]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    probe = builders.pod("probe", affinity={"nodeAffinity": required})

    counterfactuals = found([builders.node(each) for each in "abc"], [], probe)

    assert texts(counterfactuals) == [
        "drop the required node affinity: fits on 3 nodes, the best is a",
        "label node c with disk=ssd: fits on c",
    ]


def test_the_table_of_changes_names_the_target() -> None:
    nodes = [builders.node("free"), builders.node("a", taints=["gpu=yes:NoSchedule"])]
    cluster = ClusterObjects.of(nodes[1:], [builders.pod("probe")])

    def headings(within: ClusterObjects, **options: Any) -> list[str]:
        blocks = explain(within, "probe", **options).blocks()
        return [block.headings[1] for block in blocks if isinstance(block, Table)][-1:]

    assert headings(cluster) == ["the pod would fit with one of these changes, each verified"]
    assert headings(ClusterObjects.of(nodes, [builders.pod("probe")]), target="a") == [
        "the pod would fit on a with one of these changes, each verified"
    ]
