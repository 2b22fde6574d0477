"""The scheduling rules between a node and one pod."""

from __future__ import annotations

from typing import Any

import pytest

from kubestow_lab.oracle.node_with_pods import NodeWithPods, pod_requests, unresolvable_reason
from lab_tests.oracle.manifests import Manifest, node, pod, requesting, requiring

NO_MATCH = "node(s) didn't match Pod's node affinity/selector"
TAINT = {"key": "team", "value": "a", "effect": "NoSchedule"}


def _reason(pod: Manifest, **spec: Any) -> str:
    manifest = node("n", gpus="1")
    manifest["metadata"]["labels"] |= {"model": "T4", "rank": "5"}
    manifest["spec"] = spec
    return unresolvable_reason(pod, NodeWithPods(manifest))


def test_an_unrestricted_node_is_resolvable() -> None:
    assert _reason(pod()) == ""


def test_an_unschedulable_node_needs_a_toleration() -> None:
    assert _reason(pod(), unschedulable=True) == "node(s) were unschedulable"
    toleration = {"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}
    assert _reason(pod(tolerations=[toleration]), unschedulable=True) == ""


@pytest.mark.parametrize(
    "toleration",
    [
        {"key": "team", "value": "a"},
        {"key": "team", "operator": "Equal", "value": "a", "effect": "NoSchedule"},
        {"key": "team", "operator": "Exists"},
        {"operator": "Exists"},
    ],
)
def test_a_matching_toleration_tolerates_the_taint(toleration: Manifest) -> None:
    assert _reason(pod(tolerations=[toleration]), taints=[TAINT]) == ""


@pytest.mark.parametrize(
    "toleration",
    [
        {"key": "team", "value": "b"},
        {"key": "other", "operator": "Exists"},
        {"key": "team", "operator": "Exists", "effect": "NoExecute"},
        {"key": "team", "operator": "Gt", "value": "0"},
    ],
)
def test_other_tolerations_do_not_tolerate_the_taint(toleration: Manifest) -> None:
    assert _reason(pod(tolerations=[toleration]), taints=[TAINT]) == "node(s) had untolerated taint {team: a}"


def test_a_prefer_no_schedule_taint_is_ignored() -> None:
    assert _reason(pod(), taints=[TAINT | {"effect": "PreferNoSchedule"}]) == ""


@pytest.mark.parametrize(
    ("operator", "values", "holds"),
    [
        ("In", ["T4", "P100"], True),
        ("In", ["P100"], False),
        ("NotIn", ["P100"], True),
        ("NotIn", ["T4"], False),
        ("Exists", [], True),
        ("DoesNotExist", [], False),
    ],
)
def test_node_affinity_matches_labels(operator: str, values: list[str], holds: bool) -> None:
    affinity = requiring({"key": "model", "operator": operator, "values": values})
    assert (_reason(pod(affinity=affinity)) == "") == holds


@pytest.mark.parametrize(
    ("operator", "value", "holds"), [("Gt", "4", True), ("Gt", "5", False), ("Lt", "6", True), ("Lt", "x", False)]
)
def test_node_affinity_compares_integers(operator: str, value: str, holds: bool) -> None:
    affinity = requiring({"key": "rank", "operator": operator, "values": [value]})
    assert (_reason(pod(affinity=affinity)) == "") == holds


def test_node_affinity_matches_the_node_name_field() -> None:
    for name, holds in (("n", True), ("m", False)):
        affinity = requiring(fields=[{"key": "metadata.name", "operator": "In", "values": [name]}])
        assert (_reason(pod(affinity=affinity)) == "") == holds


def test_an_empty_node_selector_term_matches_nothing() -> None:
    assert _reason(pod(affinity=requiring())) == NO_MATCH


def test_node_selector_terms_are_alternatives() -> None:
    affinity = requiring({"key": "model", "operator": "In", "values": ["P100"]})
    required = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    required["nodeSelectorTerms"].append({"matchExpressions": [{"key": "model", "operator": "Exists"}]})
    assert _reason(pod(affinity=affinity)) == ""


def test_every_label_of_a_node_selector_must_match() -> None:
    assert _reason(pod(nodeSelector={"model": "T4", "rank": "5"})) == ""
    assert _reason(pod(nodeSelector={"model": "T4", "rank": "6"})) == NO_MATCH


def test_requests_of_containers_and_sidecars_are_added() -> None:
    sidecar = requesting(cpu="500m")[0] | {"restartPolicy": "Always"}
    assert (
        pod_requests(pod(containers=requesting(cpu="1") + requesting(cpu="2"), initContainers=[sidecar]))["cpu"] == 3500
    )


def test_init_containers_count_with_earlier_sidecars() -> None:
    sidecar = requesting(cpu="1")[0] | {"restartPolicy": "Always"}
    steps = [*requesting(cpu="2"), sidecar, *requesting(cpu="3")]
    assert pod_requests(pod(containers=requesting(cpu="1"), initContainers=steps))["cpu"] == 4000


def test_pod_level_requests_override_and_overhead_is_added() -> None:
    whole = {"requests": {"cpu": "3"}}
    requested = pod_requests(
        pod(containers=requesting(cpu="1", memory="1Gi"), resources=whole, overhead={"cpu": "100m"})
    )
    assert requested == {"cpu": 3100, "memory": 2**30}


def test_bound_pods_reduce_free_resources_and_pod_slots() -> None:
    info = NodeWithPods(node("n", cpu="4", pods="2"))
    info.add(pod(containers=requesting(cpu="1500m")))
    assert (info.free["cpu"], info.free["pods"]) == (2500, 1)
    info.add(pod())
    assert info.conflicts(pod()) == ["Too many pods"]


def _serving(port: int, **where: str) -> Manifest:
    return pod(containers=[{"name": "main", "ports": [{"hostPort": port, "containerPort": port, **where}]}])


@pytest.mark.parametrize(
    ("second", "conflicts"),
    [
        (_serving(80), True),
        (_serving(80, hostIP="10.0.0.1"), True),
        (_serving(80, hostIP="0.0.0.0"), True),
        (_serving(80, hostIP="10.0.0.2"), False),
        (_serving(80, protocol="UDP"), False),
        (_serving(81), False),
    ],
)
def test_a_host_port_conflicts_on_its_address_and_on_all_addresses(second: Manifest, conflicts: bool) -> None:
    info = NodeWithPods(node())
    info.add(_serving(80, hostIP="10.0.0.1"))
    assert (info.conflicts(second) == ["node(s) didn't have free port 80/TCP"]) == conflicts
