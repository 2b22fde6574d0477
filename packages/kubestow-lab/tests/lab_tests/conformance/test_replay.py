"""Replay writes through the plugins' own code: preconditions hold, and what was written before a failure stays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kubestow.errors import InputError
from kubestow.plugins import in_tree_registry
from kubestow.rules.minors import DEFAULT_MINOR
from kubestow_lab.conformance.capacity_replay import replay_capacity
from kubestow_lab.conformance.recorded_cases import CapacityCase, Case, read_cases
from kubestow_lab.conformance.scheduling_replay import replay

CLASS = {
    "metadata": {"name": "slow"},
    "provisioner": "example.com/disk",
    "volumeBindingMode": "WaitForFirstConsumer",
}


def node(name: str) -> dict[str, Any]:
    allocatable = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    return {"metadata": {"name": name, "uid": f"uid-{name}"}, "status": {"allocatable": allocatable}}


def claim(name: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}", "resourceVersion": "7"}
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "slow",
        "resources": {"requests": {"storage": "1Gi"}},
    }
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}


def volume(name: str) -> dict[str, Any]:
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "slow",
        "csi": {"driver": "example.com/disk", "volumeHandle": name},
    }
    return {"metadata": {"name": name, "resourceVersion": "3"}, "spec": spec, "status": {"phase": "Available"}}


def pod(name: str, *claims: str, **spec: Any) -> dict[str, Any]:
    volumes = [
        {"name": f"v{number}", "persistentVolumeClaim": {"claimName": claim}} for number, claim in enumerate(claims)
    ]
    containers = [{"name": "c", "image": "i"}]
    return {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
        "spec": {"schedulerName": "default-scheduler", "containers": containers, "volumes": volumes, **spec},
    }


def on(node_name: str) -> dict[str, Any]:
    return {
        "nodeSelector": {},
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node_name]}]}
                    ]
                }
            }
        },
    }


def outcomes(cluster: dict[str, Any], *pods: dict[str, Any]) -> list[str]:
    """The node or the message of each pod."""
    case = Case(
        "case", "volumebinding", None, {}, DEFAULT_MINOR, cluster, list(pods), [{"result": "?"} for _ in pods], None
    )
    actual: dict[str, dict[str, Any]] = {p["metadata"]["name"]: {} for p in pods}
    for mismatch in replay(case, in_tree_registry()):
        actual[mismatch.pod.removeprefix("default/")][mismatch.field] = mismatch.actual
    return [str(result.get("node") or result.get("message")) for result in actual.values()]


def test_a_claim_mounted_in_two_volumes_conflicts_with_itself_and_keeps_its_selected_node() -> None:
    cluster = {"nodes": [node("a"), node("b")], "storageclasses": [CLASS], "persistentvolumeclaims": [claim("data")]}
    twice, elsewhere, once = pod("twice", "data", "data"), pod("elsewhere", "data", **on("b")), pod("once", "data")
    conflict = (
        'running PreBind plugin "VolumeBinding": Operation cannot be fulfilled on persistentvolumeclaims "data": '
        "the object has been modified; please apply your changes to the latest version and try again"
    )
    results = outcomes(cluster, twice, elsewhere, once)
    assert results[0] == conflict
    assert results[1].startswith("0/2 nodes are available")
    assert results[2] == "a"


def test_a_volume_is_bound_to_the_claim_that_reserved_it() -> None:
    cluster = {
        "nodes": [node("a")],
        "storageclasses": [{**CLASS, "provisioner": "kubernetes.io/no-provisioner"}],
        "persistentvolumeclaims": [claim("data"), claim("more")],
        "persistentvolumes": [volume("only")],
    }
    results = outcomes(cluster, pod("first", "data"), pod("second", "more"), pod("third", "data"))
    assert [results[0], results[2]] == ["a", "a"]
    assert "didn't find available persistent volumes to bind" in results[1]


def test_a_pod_whose_volume_has_to_be_provisioned_is_bound() -> None:
    cluster = {"nodes": [node("a")], "storageclasses": [CLASS], "persistentvolumeclaims": [claim("data")]}
    assert outcomes(cluster, pod("p", "data")) == ["a"]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('{"name": "a/1", "cluster": {"nodes": [{"metadata": {}}]}, "pods": [], "expect": []}', "missing 'name'"),
        (
            '{"name": "a/1", "pods": [{"metadata": {"name": 5}}], "expect": []}',
            "metadata.name: expected a string, got 5",
        ),
        ('{"name": "capacity/1", "podspecs": [{}], "expect": {}}', "missing 'metadata'"),
    ],
)
def test_a_case_with_an_object_without_a_name_is_refused(line: str, problem: str, tmp_path: Path) -> None:
    file = tmp_path / "cases.jsonl"
    file.write_text(line)
    with pytest.raises(InputError) as caught:
        list(read_cases(file))
    assert str(caught.value) == f"{file}: line 1: invalid recorded case: {problem}"


def test_a_choice_among_equal_nodes_is_replayed_as_it_was_recorded() -> None:
    """A pod with limits and no requests: the limits do not become requests, and the assumed ones are equal."""
    container = {"name": "c", "image": "i", "imagePullPolicy": "Always", "resources": {"limits": {"cpu": "1"}}}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 30}
    sequence = ["b", "a", "a", "b", "b", "a"]
    per_node = [{"nodeName": name, "replicas": 3} for name in ("b", "a")]
    expect = {
        "spec": {},
        "status": {"replicas": 6, "pods": [{"replicasOnNodes": per_node}]},
        "stable": {"total": True, "failReason": False, "perNode": True, "nodeOrder": True, "sequence": True},
        "sequence": [f"default/p-{index}@{name}" for index, name in enumerate(sequence)],
    }
    cluster = {"nodes": [node("a"), node("b")], "pods": [pod("on-a", nodeName="a"), pod("on-b", nodeName="b")]}
    template = {"metadata": {"name": "p"}, "spec": spec}
    case = CapacityCase("equal", "resources", None, DEFAULT_MINOR, cluster, template, 6, frozenset(), expect)
    assert [each.field for each in replay_capacity(case, in_tree_registry())] == ["spec"]
