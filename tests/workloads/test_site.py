"""The rules between one pod and one node."""

from __future__ import annotations

from typing import Any

import pytest

from kubestow.workloads.site import Site, forbidden, requests
from tests.workloads.manifests import Manifest, asking, needing, node, pod

TAINT = {"key": "team", "value": "a", "effect": "NoSchedule"}


def _forbidden(pod: Manifest, **spec: Any) -> str:
    manifest = node("n", gpus="1")
    manifest["metadata"]["labels"] |= {"model": "T4", "rank": "5"}
    manifest["spec"] = spec
    return forbidden(pod, Site(manifest))


def test_an_open_node_forbids_nothing() -> None:
    assert _forbidden(pod()) == ""


def test_a_cordoned_node_is_for_pods_that_tolerate_the_cordon() -> None:
    assert _forbidden(pod(), unschedulable=True) == "cordoned"
    toleration = {"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}
    assert _forbidden(pod(tolerations=[toleration]), unschedulable=True) == ""


@pytest.mark.parametrize(
    "toleration",
    [
        {"key": "team", "value": "a"},
        {"key": "team", "operator": "Equal", "value": "a", "effect": "NoSchedule"},
        {"key": "team", "operator": "Exists"},
        {"operator": "Exists"},
    ],
)
def test_a_toleration_covers_the_taint(toleration: Manifest) -> None:
    assert _forbidden(pod(tolerations=[toleration]), taints=[TAINT]) == ""


@pytest.mark.parametrize(
    "toleration",
    [
        {"key": "team", "value": "b"},
        {"key": "other", "operator": "Exists"},
        {"key": "team", "operator": "Exists", "effect": "NoExecute"},
        {"key": "team", "operator": "Gt", "value": "0"},
    ],
)
def test_a_toleration_of_something_else_does_not(toleration: Manifest) -> None:
    assert _forbidden(pod(tolerations=[toleration]), taints=[TAINT]) == "tainted team=a:NoSchedule"


def test_a_taint_that_only_asks_to_stay_away_forbids_nothing() -> None:
    assert _forbidden(pod(), taints=[TAINT | {"effect": "PreferNoSchedule"}]) == ""


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
def test_node_affinity_reads_labels(operator: str, values: list[str], holds: bool) -> None:
    affinity = needing({"key": "model", "operator": operator, "values": values})
    assert (_forbidden(pod(affinity=affinity)) == "") == holds


@pytest.mark.parametrize(
    ("operator", "value", "holds"), [("Gt", "4", True), ("Gt", "5", False), ("Lt", "6", True), ("Lt", "x", False)]
)
def test_node_affinity_compares_whole_numbers(operator: str, value: str, holds: bool) -> None:
    affinity = needing({"key": "rank", "operator": operator, "values": [value]})
    assert (_forbidden(pod(affinity=affinity)) == "") == holds


def test_node_affinity_reads_the_name_as_a_field() -> None:
    for name, holds in (("n", True), ("m", False)):
        affinity = needing(fields=[{"key": "metadata.name", "operator": "In", "values": [name]}])
        assert (_forbidden(pod(affinity=affinity)) == "") == holds


def test_an_empty_term_of_node_affinity_matches_nothing() -> None:
    assert _forbidden(pod(affinity=needing())) == "outside its node selector or affinity"


def test_of_several_terms_one_suffices() -> None:
    affinity = needing({"key": "model", "operator": "In", "values": ["P100"]})
    required = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    required["nodeSelectorTerms"].append({"matchExpressions": [{"key": "model", "operator": "Exists"}]})
    assert _forbidden(pod(affinity=affinity)) == ""


def test_a_node_selector_must_hold_in_full() -> None:
    assert _forbidden(pod(nodeSelector={"model": "T4", "rank": "5"})) == ""
    assert _forbidden(pod(nodeSelector={"model": "T4", "rank": "6"})) == "outside its node selector or affinity"


def test_containers_and_sidecars_run_together() -> None:
    sidecar = asking(cpu="500m")[0] | {"restartPolicy": "Always"}
    assert requests(pod(containers=asking(cpu="1") + asking(cpu="2"), initContainers=[sidecar]))["cpu"] == 3500


def test_initialisation_counts_by_its_peak_with_the_sidecars_started_before() -> None:
    sidecar = asking(cpu="1")[0] | {"restartPolicy": "Always"}
    steps = [*asking(cpu="2"), sidecar, *asking(cpu="3")]
    assert requests(pod(containers=asking(cpu="1"), initContainers=steps))["cpu"] == 4000


def test_requests_of_the_pod_as_a_whole_override_and_overhead_adds() -> None:
    whole = {"requests": {"cpu": "3"}}
    asked = requests(pod(containers=asking(cpu="1", memory="1Gi"), resources=whole, overhead={"cpu": "100m"}))
    assert asked == {"cpu": 3100, "memory": 2**30}


def test_bound_pods_take_their_part_and_a_slot() -> None:
    site = Site(node("n", cpu="4", pods="2"))
    site.add(pod(containers=asking(cpu="1500m")))
    assert (site.free["cpu"], site.free["pods"]) == (2500, 1)
    site.add(pod())
    assert site.conflicts(pod()) == ["without a free pod slot"]


def _serving(port: int, **where: str) -> Manifest:
    return pod(containers=[{"name": "main", "ports": [{"hostPort": port, "containerPort": port, **where}]}])


@pytest.mark.parametrize(
    ("second", "taken"),
    [
        (_serving(80), True),
        (_serving(80, hostIP="10.0.0.1"), True),
        (_serving(80, hostIP="0.0.0.0"), True),
        (_serving(80, hostIP="10.0.0.2"), False),
        (_serving(80, protocol="UDP"), False),
        (_serving(81), False),
    ],
)
def test_a_host_port_is_taken_on_its_address_and_on_every_address(second: Manifest, taken: bool) -> None:
    site = Site(node())
    site.add(_serving(80, hostIP="10.0.0.1"))
    assert (site.conflicts(second) == ["with port 80/TCP taken"]) == taken
