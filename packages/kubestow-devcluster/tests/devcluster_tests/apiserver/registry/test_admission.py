"""Admission plugins over the API: what they add to new objects, and what they reject."""

from __future__ import annotations

from typing import Any

import pytest

from devcluster_tests.client import PODS, Client, pod
from kubestow_devcluster.cluster import DevCluster

RUNTIME_CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"
LIMIT_RANGES = "/api/v1/namespaces/default/limitranges"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
PRIORITY_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


def forbidden(problem: str, *, kind: str = "pods", name: str = "p") -> str:
    return f'{kind} "{name}" is forbidden: {problem}'


def with_resources(name: str = "p", **resources: dict[str, str]) -> dict[str, Any]:
    new = pod(name)
    new["spec"]["containers"][0]["resources"] = resources
    return new


async def rejection(client: Client, path: str, new: dict[str, Any]) -> str:
    response = await client.post(path, new)
    assert response.status == 403, response.content
    return response.message


# RuntimeClass


@pytest.fixture
async def gvisor(client: Client) -> None:
    runtime_class = {
        "metadata": {"name": "gvisor"},
        "handler": "runsc",
        "overhead": {"podFixed": {"cpu": "0.25", "memory": "64Mi"}},
        "scheduling": {
            "nodeSelector": {"runtime": "gvisor"},
            "tolerations": [{"key": "sandbox", "operator": "Exists"}],
        },
    }
    assert (await client.post(RUNTIME_CLASSES, runtime_class)).status == 201


@pytest.mark.usefixtures("gvisor")
async def test_a_pod_gets_overhead_node_selector_and_tolerations_of_its_runtime_class(client: Client) -> None:
    spec = (await client.post(PODS, pod(runtimeClassName="gvisor", nodeSelector={"disk": "ssd"}))).json["spec"]
    assert spec["overhead"] == {"cpu": "250m", "memory": "64Mi"}
    assert spec["nodeSelector"] == {"disk": "ssd", "runtime": "gvisor"}
    assert [one["key"] for one in spec["tolerations"]] == [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
        "sandbox",
    ]


async def test_an_unknown_runtime_class_is_forbidden(client: Client) -> None:
    problem = 'pod rejected: RuntimeClass "kata" not found'
    assert await rejection(client, PODS, pod(runtimeClassName="kata")) == forbidden(problem)


@pytest.mark.usefixtures("gvisor")
@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        (
            {"runtimeClassName": "gvisor", "nodeSelector": {"runtime": "runc"}},
            "conflict: runtimeClass.scheduling.nodeSelector[runtime] = gvisor; pod.spec.nodeSelector[runtime] = runc",
        ),
        (
            {"runtimeClassName": "gvisor", "overhead": {"cpu": "1"}},
            "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead",
        ),
        (
            {"overhead": {"cpu": "1"}},
            "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead",
        ),
    ],
)
async def test_a_pod_that_contradicts_its_runtime_class_is_forbidden(
    client: Client, spec: dict[str, Any], problem: str
) -> None:
    assert await rejection(client, PODS, pod(**spec)) == forbidden(problem)


# LimitRanger


async def limit(client: Client, **item: Any) -> None:
    created = await client.post(LIMIT_RANGES, {"metadata": {"name": "limits"}, "spec": {"limits": [item]}})
    assert created.status == 201


async def test_containers_get_default_requests_and_limits(client: Client) -> None:
    await limit(client, type="Container", default={"cpu": "1", "memory": "1Gi"}, defaultRequest={"cpu": "250m"})
    created = (await client.post(PODS, with_resources())).json
    assert created["spec"]["containers"][0]["resources"] == {
        "limits": {"cpu": "1", "memory": "1Gi"},
        "requests": {"cpu": "250m", "memory": "1Gi"},
    }
    assert created["status"]["qosClass"] == "Burstable"
    assert created["metadata"]["annotations"]["kubernetes.io/limit-ranger"] == (
        "LimitRanger plugin set: cpu, memory request for container c; cpu, memory limit for container c"
    )


async def test_a_request_falls_back_to_its_own_limit_before_the_default(client: Client) -> None:
    await limit(client, type="Container", default={"cpu": "1"}, defaultRequest={"cpu": "250m"})
    created = (await client.post(PODS, with_resources(limits={"cpu": "2"}))).json
    assert created["spec"]["containers"][0]["resources"] == {"limits": {"cpu": "2"}, "requests": {"cpu": "2"}}


async def test_the_default_limit_of_a_limit_range_is_its_maximum(client: Client) -> None:
    await limit(client, type="Container", max={"cpu": "2"}, min={"cpu": "100m", "memory": "1Mi"})
    item = (await client.get(f"{LIMIT_RANGES}/limits")).json["spec"]["limits"][0]
    assert item["default"] == {"cpu": "2"} and item["defaultRequest"] == {"cpu": "2", "memory": "1Mi"}


@pytest.mark.parametrize(
    ("item", "resources", "problem"),
    [
        (
            {"type": "Container", "min": {"cpu": "200m"}},
            {"requests": {"cpu": "100m"}},
            "minimum cpu usage per Container is 200m, but request is 100m",
        ),
        (
            {"type": "Container", "max": {"cpu": "1"}},
            {"limits": {"cpu": "1500m"}},
            "maximum cpu usage per Container is 1, but limit is 1500m",
        ),
        (
            {"type": "Container", "maxLimitRequestRatio": {"memory": "2"}},
            {"requests": {"memory": "1Gi"}, "limits": {"memory": "3Gi"}},
            "memory max limit to request ratio per Container is 2, but provided ratio is 3.000000",
        ),
        (
            {"type": "Pod", "max": {"cpu": "1"}},
            {"requests": {"cpu": "500m"}},
            "maximum cpu usage per Pod is 1.  No limit is specified",
        ),
        (
            {"type": "Pod", "min": {"cpu": "1", "memory": "1Gi"}},
            {"requests": {"cpu": "500m"}},
            "[minimum cpu usage per Pod is 1, but request is 500m,"
            " minimum memory usage per Pod is 1Gi.  No request is specified]",
        ),
    ],
)
async def test_a_pod_outside_its_limit_range_is_forbidden(
    client: Client, item: dict[str, Any], resources: dict[str, Any], problem: str
) -> None:
    await limit(client, **item)
    assert await rejection(client, PODS, with_resources(**resources)) == forbidden(problem)


async def test_a_claim_outside_its_limit_range_is_forbidden(client: Client) -> None:
    await limit(client, type="PersistentVolumeClaim", max={"storage": "1Gi"})
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}}}
    problem = "maximum storage usage per PersistentVolumeClaim is 1Gi, but request is 2Gi"
    message = await rejection(client, CLAIMS, {"metadata": {"name": "c"}, "spec": spec})
    assert message == forbidden(problem, kind="persistentvolumeclaims", name="c")


async def test_a_later_limit_range_does_not_block_updates_of_existing_pods(client: Client) -> None:
    await client.post(PODS, pod(cpu="100m"))
    await limit(client, type="Container", min={"cpu": "1"})
    assert (await client.patch(f"{PODS}/p", {"metadata": {"labels": {"a": "b"}}})).status == 200


# PodNodeSelector, Priority, ServiceAccount


async def test_a_namespace_can_give_its_pods_a_node_selector(client: Client) -> None:
    annotations = {"scheduler.alpha.kubernetes.io/node-selector": "pool=batch, disk=ssd"}
    await client.post("/api/v1/namespaces", {"metadata": {"name": "batch", "annotations": annotations}})
    path = "/api/v1/namespaces/batch/pods"
    created = await client.post(path, pod(nodeSelector={"zone": "a"}))
    assert created.json["spec"]["nodeSelector"] == {"zone": "a", "pool": "batch", "disk": "ssd"}
    assert await rejection(client, path, pod("other", nodeSelector={"pool": "web"})) == forbidden(
        "pod node label selector conflicts with its namespace node label selector", name="other"
    )


async def test_only_one_priority_class_can_be_the_default(client: Client) -> None:
    def priority_class(name: str, *, is_default: bool) -> dict[str, Any]:
        return {"metadata": {"name": name}, "value": 10, "globalDefault": is_default}

    await client.post(PRIORITY_CLASSES, priority_class("first", is_default=True))
    problem = "PriorityClass first is already marked as default. Only one default can exist"
    message = await rejection(client, PRIORITY_CLASSES, priority_class("second", is_default=True))
    assert message == forbidden(problem, kind="priorityclasses.scheduling.k8s.io", name="second")
    assert (await client.post(PRIORITY_CLASSES, priority_class("third", is_default=False))).status == 201
    assert (await client.patch(f"{PRIORITY_CLASSES}/first", {"description": "x"})).status == 200
    assert (await client.patch(f"{PRIORITY_CLASSES}/third", {"globalDefault": True})).status == 403
    assert (await client.post(PODS, pod())).json["spec"]["priorityClassName"] == "first"


async def test_pods_run_as_a_service_account_of_their_namespace(server: DevCluster, client: Client) -> None:
    server.registry.admission.has_service_accounts = True
    spec = (await client.post(PODS, pod())).json["spec"]
    assert (spec["serviceAccountName"], spec["serviceAccount"]) == ("default", "default")
    problem = 'error looking up service account default/robot: serviceaccount "robot" not found'
    assert await rejection(client, PODS, pod("q", serviceAccountName="robot")) == forbidden(problem, name="q")
    await client.post("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "robot"}})
    assert (await client.post(PODS, pod("q", serviceAccountName="robot"))).status == 201
