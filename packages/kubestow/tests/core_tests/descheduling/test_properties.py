"""Node fit and anti-affinity conflicts, vectorised, against plain loops over nodes and pods."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from core_tests.descheduling.objects import NOW, loop, node, pod, policy
from kubestow.api.formats.quantity import millis
from kubestow.api.meta import convert
from kubestow.descheduling.cluster_state import AssignedPod, ClusterState
from kubestow.descheduling.node_fit import NodeFit
from kubestow.descheduling.snapshot import Node, Pod, Snapshot

ZONES = st.sampled_from([{}, {"zone": "a"}, {"zone": "b"}])
TAINTS = st.sampled_from(
    [
        [],
        [{"key": "k", "effect": "NoSchedule"}],
        [{"key": "k", "effect": "PreferNoSchedule"}],
        [{"key": "x", "effect": "NoExecute"}],
    ]
)


@st.composite
def nodes(draw: st.DrawFn) -> list[dict[str, Any]]:
    count = draw(st.integers(2, 5))
    return [
        node(
            f"n{i}",
            cpu=draw(st.sampled_from(["1", "2"])),
            pods=draw(st.sampled_from(["2", "5"])),
            labels=draw(ZONES),
            unschedulable=draw(st.booleans()),
            taints=draw(TAINTS),
        )
        for i in range(count)
    ]


def anti_affinity(app: str, key: str) -> dict[str, Any]:
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


@st.composite
def pods(draw: st.DrawFn, node_count: int) -> list[dict[str, Any]]:
    created = []
    for i in range(draw(st.integers(1, 9))):
        spec: dict[str, Any] = {}
        if draw(st.booleans()):
            spec["tolerations"] = [{"key": "k", "operator": "Exists"}]
        if draw(st.booleans()):
            spec["nodeSelector"] = {"zone": draw(st.sampled_from(["a", "b"]))}
        if draw(st.booleans()):
            key = draw(st.sampled_from(["kubernetes.io/hostname", "zone"]))
            spec["affinity"] = anti_affinity(draw(st.sampled_from(["web", "db"])), key)
        metadata = {
            "namespace": draw(st.sampled_from(["default", "other"])),
            "labels": {"app": draw(st.sampled_from(["web", "db"]))},
            "name": f"p{draw(st.integers(0, 12))}",
            "uid": f"uid-{i}",
        }
        phase = draw(st.sampled_from(["Running", "Running", "Failed"]))
        where = f"n{draw(st.integers(0, node_count - 1))}"
        cpu = draw(st.sampled_from(["0", "400m", "1500m"]))
        created.append(pod("p", where, cpu=cpu, metadata=metadata, status={"phase": phase}, **spec))
    return created


def fits_plainly(candidate: AssignedPod, target: Node, cluster: ClusterState) -> bool:
    spec, on_node = candidate.spec, cluster.pods_on(cluster.row(target.metadata.name) or 0)
    if target.spec.unschedulable:
        return False
    if any(target.metadata.labels.get(key) != value for key, value in spec.node_selector.items()):
        return False
    tolerated = {toleration.key for toleration in spec.tolerations}
    if any(t.effect != "PreferNoSchedule" and t.key not in tolerated for t in target.spec.taints):
        return False
    if spec.affinity is not None and spec.affinity.pod_anti_affinity is not None:
        (term,) = spec.affinity.pod_anti_affinity.required_during_scheduling_ignored_during_execution
        assert term.label_selector is not None
        for other in on_node:
            matches = other.namespace == candidate.namespace and term.label_selector.match_labels.items() <= (
                other.labels.items()
            )
            if matches and other.name != candidate.name and term.topology_key in target.metadata.labels:
                return False
    if target.metadata.name == candidate.node_name:
        return True
    used = sum(millis(p.spec.containers[0].resources.requests["cpu"]) for p in on_node)
    wanted = millis(spec.containers[0].resources.requests["cpu"])
    free_cpu = millis(target.status.allocatable["cpu"]) - used
    return wanted <= free_cpu and len(on_node) < int(target.status.allocatable["pods"])


@given(st.data())
def test_node_fit_is_that_of_plain_loops_while_pods_are_evicted(data: st.DataObject) -> None:
    manifests = data.draw(nodes())
    snapshot = Snapshot(
        nodes=[convert(Node, n) for n in manifests],
        pods=[convert(Pod, p) for p in data.draw(pods(len(manifests)))],
    )
    cluster = ClusterState(snapshot, now=NOW)
    fit = NodeFit(cluster)
    while left := list(cluster.pods(finished=True)):
        candidates = np.array(data.draw(st.lists(st.booleans(), min_size=len(manifests), max_size=len(manifests))))
        expected = {}
        for candidate in left:
            fitting = [fits_plainly(candidate, target, cluster) for target in snapshot.nodes]
            others = [
                f and c and row != candidate.row for row, (f, c) in enumerate(zip(fitting, candidates, strict=True))
            ]
            expected[candidate] = any(others)
            assert fit.fits_other(candidate, candidates) == any(others)
            assert fit.fits_any(candidate, candidates) == any(f and c for f, c in zip(fitting, candidates, strict=True))
        assert fit.each_fits_other(left, candidates) == expected
        cluster.remove(data.draw(st.sampled_from(left)))


@given(st.data())
def test_pods_are_evicted_until_none_violates_its_anti_affinity(data: st.DataObject) -> None:
    manifests = data.draw(nodes())
    placed = data.draw(pods(len(manifests)))
    result = loop(policy("RemovePodsViolatingInterPodAntiAffinity"), manifests, placed)
    labels = {n["metadata"]["name"]: n["metadata"]["labels"] for n in manifests}
    left = {p["metadata"]["uid"]: p for p in placed if p["status"]["phase"] == "Running"}
    for eviction in result.evicted:
        gone = left.pop(eviction.pod.uid)
        assert any(conflicts(gone, other, labels) for other in left.values())
    for one in left.values():
        assert not any(conflicts(one, other, labels) for other in left.values())


def conflicts(one: dict[str, Any], other: dict[str, Any], labels: dict[str, dict[str, str]]) -> bool:
    if "affinity" not in one["spec"] or one["metadata"]["name"] == other["metadata"]["name"]:
        return False
    (term,) = one["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    if one["metadata"]["namespace"] != other["metadata"]["namespace"]:
        return False
    if other["metadata"]["labels"]["app"] != term["labelSelector"]["matchLabels"]["app"]:
        return False
    here, there = one["spec"]["nodeName"], other["spec"]["nodeName"]
    value = labels[here].get(term["topologyKey"])
    return here == there or (value is not None and value == labels[there].get(term["topologyKey"]))
