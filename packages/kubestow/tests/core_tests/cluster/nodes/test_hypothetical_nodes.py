"""A hypothetical row equals the row after the change is made: its columns, its pods and the results of filters."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kubestow.api.core import Pod
from kubestow.cluster.nodes.views import HypotheticalNodes, NodeChange, Nodes
from kubestow.cluster.pods.shapes import Shape
from kubestow.cluster.pods.table import PodChanges
from kubestow.framework.status import SUCCESS, Status
from kubestow.rules.pods import HostPort
from kubestow.testing import PluginHarness, node, pod

NODES = ["n0", "n1", "n2"]
PORTS = [HostPort("0.0.0.0", "TCP", 80), HostPort("0.0.0.0", "TCP", 443)]
SPREAD = {
    "maxSkew": 1,
    "topologyKey": "topology.kubernetes.io/zone",
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": {"app": "a"}},
}
TERM = {"topologyKey": "topology.kubernetes.io/zone", "labelSelector": {"matchLabels": {"app": "a"}}}


def affinity(kind: str) -> dict[str, Any]:
    """Required affinity (or anti-affinity) to pods of app a, within a zone."""
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [TERM]}}


PROBES: list[Pod] = [
    pod("plain", cpu="1", memory="1Gi"),
    pod("gpu", cpu="1", requests={"example.com/gpu": "1"}),
    pod("port", host_ports=[80]),
    pod("even", labels={"app": "a"}, spread=[SPREAD]),
    pod("near", labels={"app": "a"}, affinity=affinity("podAffinity")),
    pod("far", labels={"app": "b"}, affinity=affinity("podAntiAffinity")),
    pod("disk", spec={"volumes": [{"name": "d", "gcePersistentDisk": {"pdName": "disk"}}]}),
]

made: st.SearchStrategy[dict[str, Any]] = st.builds(
    dict,
    cpu=st.sampled_from(["0", "1", "2"]),
    requests=st.sampled_from([{}, {"example.com/gpu": "1"}]),
    host_ports=st.sampled_from([[], [80], [443]]),
    labels=st.sampled_from([{}, {"app": "a"}, {"app": "b"}]),
    affinity=st.sampled_from([None, None, affinity("podAntiAffinity")]),
    spec=st.sampled_from([{}, {"volumes": [{"name": "d", "gcePersistentDisk": {"pdName": "disk"}}]}]),
)


def harness_with(existing: list[dict[str, Any]]) -> PluginHarness:
    """Three nodes in two zones; the pods are placed in turn."""
    read = [
        node(n, cpu="3", max_pods=4, zone=f"z{i % 2}", allocatable={"example.com/gpu": "2"})
        for i, n in enumerate(NODES)
    ]
    harness = PluginHarness(read)
    for number, of in enumerate(existing):
        harness.cluster.put_pod(harness.info(pod(f"p{number}", node=NODES[number % 3], **of)))
    return harness


def columns(nodes: Nodes, row: int) -> dict[str, Any]:
    """Everything about pods that a plugin can read of a row of a view."""
    return {
        "cpu": int(nodes.requested("cpu")[row]),
        "gpu": int(nodes.requested("example.com/gpu")[row]),
        "nonzero": (int(nodes.nonzero_cpu[row]), int(nodes.nonzero_memory[row])),
        "count": int(nodes.pod_count[row]),
        "ports": [bool(nodes.port_taken(port)[row]) for port in PORTS],
        "pods": {info.uid for info in nodes.pods(row)},
    }


def results(harness: PluginHarness, probe: Pod, nodes: Nodes, row: int) -> dict[str, Status]:
    """The result of each filter that PreFilter did not skip, for a row of a view by itself."""
    decision = harness.decide(probe)
    assert decision.feasibility is not None
    statuses = {}
    for answers in decision.feasibility.filters.active:
        verdict = answers.run_filter(decision.pod, nodes)
        statuses[answers.plugin.name] = SUCCESS if verdict is None else verdict.status(row)
    return statuses


@settings(max_examples=150)
@given(
    existing=st.lists(made, max_size=9),
    removed_numbers=st.sets(st.integers(0, 8)),
    added_pods=st.lists(made, max_size=2),
    probe=st.sampled_from(PROBES),
    row=st.integers(0, 2),
)
def test_a_hypothetical_row_equals_the_changed_row(
    existing: list[dict[str, Any]], removed_numbers: set[int], added_pods: list[dict[str, Any]], probe: Pod, row: int
) -> None:
    harness = harness_with(existing)
    removed = tuple(i for i in harness.cluster.nodes.pods[row].values() if int(i.name[1:]) in removed_numbers)
    new = [pod(f"new-{number}", node=NODES[row], **of) for number, of in enumerate(added_pods)]
    added = tuple(harness.info(each) for each in new)
    changes = [NodeChange(removed, added) if other == row else NodeChange() for other in range(3)]
    hypothetical = HypotheticalNodes(harness.cluster.nodes, np.arange(3), changes)
    read, expected = columns(hypothetical, row), results(harness, probe, hypothetical, row)
    for info in removed:
        harness.cluster.remove_pod(info.uid)
    for info in added:
        harness.cluster.put_pod(info)
    real = harness.cluster.all_nodes()
    assert read == columns(real, row)
    # A filter that PreFilter skips accepts the node; one that it skipped before the change has no result here.
    actual = results(harness, probe, real, row)
    assert expected == {name: actual.get(name, SUCCESS) for name in expected}


def test_a_selection_keeps_the_changes_of_its_rows() -> None:
    harness = harness_with([{"cpu": "1", "host_ports": []}] * 5)
    pods = [list(on.values()) for on in harness.cluster.nodes.pods]
    changes = [NodeChange(removed=tuple(on)) for on in pods]
    nodes = HypotheticalNodes(harness.cluster.nodes, np.arange(3), changes)
    assert nodes.select(np.array([2, 0])).requested("cpu").tolist() == [0, 0]
    assert nodes.select(np.array([False, True, False])).changes == [changes[1]]


def test_changes_are_summed_by_a_function_of_the_shape() -> None:
    harness = harness_with([{"cpu": "1", "host_ports": []}] * 3)
    (here,) = harness.cluster.nodes.pods[0].values()
    added_pods = harness.info(pod("added_pods", labels={"size": "5"}))
    change = NodeChange(removed=(here,), added=(added_pods, added_pods))
    nodes = HypotheticalNodes(harness.cluster.nodes, np.array([0, 1]), [change, NodeChange()])

    def size(shape: Shape) -> int:
        return int(shape.labels.get("size", "1"))

    assert nodes.sum_of_changes(size).tolist() == [9, 0]


def has_port(shape: Shape) -> bool:
    return bool(shape.host_ports)


def test_the_positions_with_changes_of_some_kind_are_those_that_lose_or_gain_such_pods() -> None:
    harness = harness_with([{"host_ports": [80]}, {}, {}])
    (here,), (other,), _ = (list(on.values()) for on in harness.cluster.nodes.pods)
    added_pod = harness.info(pod("added", host_ports=[443]))
    changes = [NodeChange(added=(added_pod,)), NodeChange(removed=(other,)), NodeChange(), NodeChange(removed=(here,))]
    nodes = HypotheticalNodes(harness.cluster.nodes, np.array([2, 1, 1, 0]), changes)
    assert nodes.positions_changed_by(has_port).tolist() == [0, 3]
    assert nodes.select(np.array([3, 1])).positions_changed_by(has_port).tolist() == [0]
    assert nodes.changed_shapes == {added_pod.shape, here.shape, other.shape}


HUGE = 2**62


def test_rows_that_lose_or_gain_extreme_amounts_are_extreme_and_their_sums_exact() -> None:
    harness = harness_with([{}] * 3)
    nodes = harness.cluster.nodes
    huge = [harness.info(pod(f"huge-{number}", memory=str(HUGE), node="n0")) for number in range(4)]
    for info in huge[:3]:
        harness.cluster.put_pod(info)
    ordinary = harness.info(pod("ordinary", memory="7"))
    changes = [
        NodeChange(),
        NodeChange(added=(ordinary,)),
        NodeChange(added=(ordinary, huge[3])),
        NodeChange(removed=tuple(huge[:2]), added=(ordinary,)),
        NodeChange(removed=tuple(huge[:3])),
    ]
    hypothetical = HypotheticalNodes(nodes, np.array([0, 1, 2, 0, 0]), changes)
    assert hypothetical.extreme.tolist() == [0, 2, 3, 4]
    assert hypothetical.requested("memory").tolist() == [2**63 - 1, 7, 7 + HUGE, 7 + HUGE, 0]
    unchanged = HypotheticalNodes(nodes, np.array([1, 0]), [NodeChange(), NodeChange()])
    assert unchanged.extreme.tolist() == [1]
    more = HypotheticalNodes(nodes, np.array([1, 2]), [NodeChange(), NodeChange(added=(ordinary,))])
    assert more.extreme.tolist() == []
    assert more.with_pod_changes(PodChanges.of([[huge[3]], []], +1)).extreme.tolist() == [0]


def test_further_changes_are_added_to_those_before() -> None:
    harness = harness_with([{"cpu": "2"}] * 3)
    (here,) = harness.cluster.nodes.pods[0].values()
    one, other = (harness.info(pod(name, cpu="1", host_ports=[80])) for name in ("one", "other"))
    nodes = HypotheticalNodes(harness.cluster.nodes, np.array([0, 1]), [NodeChange(removed=(here,)), NodeChange()])
    further = nodes.with_pod_changes(PodChanges.of([[one], [other]], +1))
    assert further.requested("cpu").tolist() == [1000, 3000]
    assert further.pod_count.tolist() == [1, 2]
    assert further.change(0) == NodeChange((here,), (one,))
    assert [info.name for info in further.pods(1)] == ["p1", "other"]
    assert further.used_ports(1) == {PORTS[0]}
    assert nodes.used_ports(1) == frozenset()
