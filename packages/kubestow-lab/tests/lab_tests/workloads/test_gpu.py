"""Node and pod shapes as Kubernetes objects."""

from __future__ import annotations

import pytest

from kubestow_lab.workloads import gpu
from kubestow_lab.workloads.gpu import NodeShape, PodShape, QoS


def _resources(shape: PodShape) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = gpu.pod("p", shape)["spec"]["containers"][0]["resources"]
    return found


def test_a_node_has_gpus_and_gpu_thousandths() -> None:
    allocatable = gpu.node("n", NodeShape(96000, 393216, 8, "G2"))["status"]["allocatable"]
    assert allocatable == {
        "cpu": "96",
        "memory": "384Gi",
        "pods": "110",
        "nvidia.com/gpu": "8",
        "kubestow.dev/gpu-milli": "8000",
    }


def test_only_a_gpu_node_has_a_gpu_model_label() -> None:
    assert gpu.node("n", NodeShape(1000, 1024, 1, "T4"))["metadata"]["labels"]["nvidia.com/gpu.product"] == "T4"
    assert "nvidia.com/gpu.product" not in gpu.node("n", NodeShape(1000, 1024, 0, ""))["metadata"]["labels"]


def test_whole_gpus_request_thousandths_too() -> None:
    assert _resources(PodShape(500, 100, 2, 1000, "BE"))["requests"] == {
        "cpu": "500m",
        "memory": "100Mi",
        "nvidia.com/gpu": "2",
        "kubestow.dev/gpu-milli": "2000",
    }


def test_a_gpu_share_requests_only_thousandths() -> None:
    assert _resources(PodShape(500, 100, 1, 470, "BE"))["limits"] == {"kubestow.dev/gpu-milli": "470"}


@pytest.mark.parametrize("qos", ["LS", "Guaranteed"])
def test_latency_sensitive_pods_have_limits_equal_to_requests(qos: QoS) -> None:
    resources = _resources(PodShape(500, 100, 1, 470, qos))
    assert resources["limits"] == resources["requests"]


@pytest.mark.parametrize("qos", ["BE", "Burstable"])
def test_best_effort_pods_have_requests_without_limits(qos: QoS) -> None:
    assert _resources(PodShape(500, 100, 0, 0, qos)) == {"requests": {"cpu": "500m", "memory": "100Mi"}}


def test_a_pod_without_memory_has_no_memory_request() -> None:
    assert _resources(PodShape(500, 0, 0, 0, "BE"))["requests"] == {"cpu": "500m"}


def test_gpu_models_become_required_node_affinity() -> None:
    affinity = gpu.pod("p", PodShape(500, 100, 1, 470, "BE", ("T4", "P100")))["spec"]["affinity"]["nodeAffinity"]
    terms = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    expression = {"key": "nvidia.com/gpu.product", "operator": "In", "values": ["T4", "P100"]}
    assert terms == [{"matchExpressions": [expression]}]
