"""The minor version that a cluster tells, by its API server or its kubelets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from core_tests.engine.input.manifests import Object, node, pod
from kubestow.api.resource import ResourceClaim
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.engine.input.cluster_version import version_of
from kubestow.engine.pipeline.offline_scheduler import SchedulerOptions
from kubestow.errors import InputError


def node_of(name: str, kubelet: Any) -> Object:
    manifest = node(name)
    manifest["status"]["nodeInfo"] = {"kubeletVersion": kubelet}
    return manifest


def cluster_of(folder: Path, *kubelets: Any, others: list[Object] | None = None, **top_level: str) -> ClusterObjects:
    nodes = [node_of(f"n{number}", kubelet) for number, kubelet in enumerate(kubelets)]
    file = folder / "dump.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", **top_level, "items": [*nodes, *(others or [])]}))
    return ClusterObjects.load(file)


@pytest.mark.parametrize(
    ("kubelets", "expected"),
    [
        (["v1.33.4", "v1.33.1"], "decides as Kubernetes 1.33: its newest kubelet is v1.33.4"),
        (["v1.32.9-eks-113cf36", "v1.34.1+k3s1"], "decides as Kubernetes 1.34: its newest kubelet is v1.34.1+k3s1"),
        (["v1.29.3"], "decides as Kubernetes 1.31: the nearest supported: its newest kubelet is v1.29.3"),
        (
            ["v1.99.0"],
            "decides as Kubernetes 1.37: the nearest supported: its newest kubelet is v1.99.0; 1.37 follows the "
            "published sources and was not compared with the binary",
        ),
        (["v1.9.0", "v1.35.2"], "decides as Kubernetes 1.35: its newest kubelet is v1.35.2"),
    ],
)
def test_a_dump_is_decided_as_its_newest_kubelet(tmp_path: Path, kubelets: list[str], expected: str) -> None:
    assert str(version_of(cluster_of(tmp_path, *kubelets))) == expected


@pytest.mark.parametrize("kubelet", ["", "fake", 3, None])
def test_without_a_version_it_is_the_newest_without_a_reason(tmp_path: Path, kubelet: Any) -> None:
    found = version_of(cluster_of(tmp_path, kubelet))
    assert (str(found.minor), found.reason, found.warning) == ("1.36", "", "")


def test_nodes_of_several_minor_versions_are_a_warning(tmp_path: Path) -> None:
    cluster = cluster_of(tmp_path, "v1.33.4", "v1.33.1", "v1.9.0", "v1.32.1")
    assert version_of(cluster).warning == (
        "the nodes have kubelets of several minor versions: 2 of 1.33, 1 of 1.32, 1 of 1.9"
    )


@pytest.mark.parametrize("field", ["serverVersion", "kubernetesVersion"])
def test_a_snapshot_is_decided_as_its_api_server(tmp_path: Path, field: str) -> None:
    versions: dict[str, Any] = {field: "v1.34.1"}
    cluster = cluster_of(tmp_path, "v1.33.4", **versions)
    assert str(version_of(cluster)) == "decides as Kubernetes 1.34: the version of its API server is v1.34.1"
    assert version_of(cluster.altered(pods=())).minor == version_of(cluster).minor


def test_a_snapshot_of_another_api_server_is_refused(tmp_path: Path) -> None:
    cluster = cluster_of(tmp_path, "v1.33.4", serverVersion="v1.29.1")
    with pytest.raises(InputError, match=r"API server: version 1\.29 is not supported, .* or --emulated-version"):
        version_of(cluster)


def test_claims_of_a_former_version_are_read(tmp_path: Path) -> None:
    claim = {
        "apiVersion": "resource.k8s.io/v1beta1",
        "kind": "ResourceClaim",
        "metadata": {"name": "c"},
        "spec": {"devices": {"requests": [{"name": "r", "deviceClassName": "gpu"}]}},
    }
    listed = {
        "apiVersion": "resource.k8s.io/v1alpha3",
        "kind": "ResourceClaimList",
        "items": [{key: claim[key] for key in ("metadata", "spec")} | {"metadata": {"name": "d"}}],
    }
    cluster = cluster_of(tmp_path, "v1.33.4", others=[claim, listed, pod("p")])
    claims = [obj for obj in cluster.objects if isinstance(obj, ResourceClaim)]
    assert not cluster.summary.problems
    assert [each.metadata.name for each in claims] == ["c", "d"]
    for each in claims:
        (request,) = each.spec.devices.requests
        assert request.exactly is not None
        assert request.exactly.device_class_name == "gpu"


def test_options_name_the_version_to_decide_as() -> None:
    options = SchedulerOptions(emulated_version="kube=1.33")
    assert str(options.gates.minor) == "1.33"
    assert str(options.decoded().gates.minor) == "1.33"
    assert not options.gates.enabled("DynamicResourceAllocation")
    with pytest.raises(InputError, match=r"emulated_version: version 1\.30 is not supported"):
        SchedulerOptions(emulated_version="1.30")
