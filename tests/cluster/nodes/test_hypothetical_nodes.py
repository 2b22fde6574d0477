"""A hypothetical row is what the row becomes when the change is really made: columns, pods and every filter's word."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kubestow.api.core import Pod
from kubestow.cluster.nodes.views import Change, HypotheticalNodes, Nodes
from kubestow.cluster.pods.shapes import HostPort, PodInfo
from kubestow.framework.status import SUCCESS, Status
from kubestow.testing import World, node, pod

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


def world_of(existing: list[dict[str, Any]]) -> World:
    """Three nodes in two zones; the pods are dealt out in turn. No two on a node share a port, as in real life."""
    shown = [
        node(n, cpu="3", max_pods=4, zone=f"z{i % 2}", allocatable={"example.com/gpu": "2"})
        for i, n in enumerate(NODES)
    ]
    world = World(shown)
    taken: set[tuple[str, int]] = set()
    for number, of in enumerate(existing):
        where = NODES[number % 3]
        ports = [port for port in of["host_ports"] if (where, port) not in taken]
        taken |= {(where, port) for port in ports}
        world.cluster.put_pod(world.info(pod(f"p{number}", node=where, **{**of, "host_ports": ports})))
    return world


def columns(nodes: Nodes, row: int) -> dict[str, Any]:
    """Everything about pods that a plugin can read of one row of a view."""
    return {
        "cpu": int(nodes.requested("cpu")[row]),
        "gpu": int(nodes.requested("example.com/gpu")[row]),
        "nonzero": (int(nodes.nonzero_cpu[row]), int(nodes.nonzero_memory[row])),
        "count": int(nodes.pod_count[row]),
        "ports": [bool(nodes.port_taken(port)[row]) for port in PORTS],
        "pods": {info.uid for info in nodes.pods(row)},
    }


def said(world: World, probe: Pod, nodes: Nodes, row: int) -> dict[str, Status]:
    """What each filter that PreFilter did not leave out says of a row of a view, asked by itself."""
    decision = world.decide(probe)
    assert decision.feasibility is not None
    statuses = {}
    for answers in decision.feasibility.filters.active:
        verdict = answers.run_filter(decision.pod, nodes)
        statuses[answers.plugin.name] = SUCCESS if verdict is None else verdict.status(row)
    return statuses


@settings(max_examples=150, deadline=None)
@given(
    existing=st.lists(made, max_size=9),
    gone=st.sets(st.integers(0, 8)),
    coming=st.lists(made, max_size=2),
    probe=st.sampled_from(PROBES),
    row=st.integers(0, 2),
)
def test_a_hypothetical_row_is_what_the_row_becomes(
    existing: list[dict[str, Any]], gone: set[int], coming: list[dict[str, Any]], probe: Pod, row: int
) -> None:
    world = world_of(existing)
    removed = tuple(i for i in world.cluster.nodes.pods[row].values() if int(i.name[1:]) in gone)
    new = [pod(f"new-{number}", node=NODES[row], **of) for number, of in enumerate(coming)]
    added = tuple(world.info(shown) for shown in new)
    changes = [Change(removed, added) if other == row else Change() for other in range(3)]
    imagined = HypotheticalNodes(world.cluster.nodes, np.arange(3), changes)
    shown, told = columns(imagined, row), said(world, probe, imagined, row)
    for info in removed:
        world.cluster.remove_pod(info.uid)
    for info in added:
        world.cluster.put_pod(info)
    real = world.cluster.all_nodes()
    assert shown == columns(real, row)
    # A filter that PreFilter leaves out has nothing against the node; one that it left out before is not asked.
    now = said(world, probe, real, row)
    assert told == {name: now.get(name, SUCCESS) for name in told}


def test_a_selection_keeps_what_is_imagined_of_its_rows() -> None:
    world = world_of([{"cpu": "1", "host_ports": []}] * 5)
    pods = [list(on.values()) for on in world.cluster.nodes.pods]
    changes = [Change(removed=tuple(on)) for on in pods]
    nodes = HypotheticalNodes(world.cluster.nodes, np.arange(3), changes)
    assert nodes.select(np.array([2, 0])).requested("cpu").tolist() == [0, 0]
    assert nodes.select(np.array([False, True, False])).changes == [changes[1]]


def test_changes_add_up_by_any_function_of_a_pod() -> None:
    world = world_of([{"cpu": "1", "host_ports": []}] * 3)
    (here,) = world.cluster.nodes.pods[0].values()
    coming = world.info(pod("coming", labels={"size": "5"}))
    change = Change(removed=(here,), added=(coming, coming))
    nodes = HypotheticalNodes(world.cluster.nodes, np.array([0, 1]), [change, Change()])

    def size(info: PodInfo) -> int:
        return int(info.labels.get("size", "1"))

    assert nodes.changed_by(size).tolist() == [9, 0]
