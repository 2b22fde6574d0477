"""Horizontal pod autoscalers scale workloads by the usage of their pods."""

from __future__ import annotations

from typing import Any

import pytest

from devcluster_tests.scenarios import DEPLOYMENTS, REPLICATION_CONTROLLERS, Cluster, run_scenario, workload
from kubestow_devcluster.behaviour.resource_usage import PodUsageRule, ResourceUsageRules, Wave

pytestmark = pytest.mark.usefixtures("no_errors_logged")

AUTOSCALERS = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"
AUTOSCALERS_V1 = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
REQUESTS = {"requests": {"cpu": "100m", "memory": "100Mi"}}


def uses(cpu: str | Wave, memory: str = "100%") -> ResourceUsageRules:
    return ResourceUsageRules([PodUsageRule(cpu=cpu, memory=memory)])


def busy_workload(replicas: int = 1, **spec: Any) -> dict[str, Any]:
    made = workload(replicas=replicas, **spec)
    made["spec"]["template"]["spec"]["containers"][0]["resources"] = REQUESTS
    return made


def autoscaler(name: str = "web", *, kind: str = "Deployment", most: int = 5, **spec: Any) -> dict[str, Any]:
    group = {"Deployment": "apps/v1", "ReplicationController": "v1"}.get(kind, "rail.example.com/v1")
    target = {"apiVersion": group, "kind": kind, "name": "web"}
    metric = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}
    metrics = [{"type": "Resource", "resource": metric}]
    return {
        "metadata": {"name": name},
        "spec": {"scaleTargetRef": target, "maxReplicas": most, "metrics": metrics, **spec},
    }


async def conditions(cluster: Cluster, name: str = "web") -> dict[str, tuple[str, str]]:
    status = (await cluster.get(f"{AUTOSCALERS}/{name}")).json["status"]
    return {one["type"]: (one["status"], one["reason"]) for one in status["conditions"]}


async def replicas(cluster: Cluster, path: str = DEPLOYMENTS) -> int:
    return int((await cluster.get(f"{path}/web")).json["spec"]["replicas"])


@pytest.mark.parametrize(
    ("path", "kind"), [(DEPLOYMENTS, "Deployment"), (REPLICATION_CONTROLLERS, "ReplicationController")]
)
def test_a_workload_grows_until_its_pods_use_the_target(path: str, kind: str) -> None:
    async def scenario(cluster: Cluster) -> None:
        target = busy_workload()
        if kind == "ReplicationController":
            target["spec"]["selector"] = {"app": "web"}
        await cluster.post(path, target)
        await cluster.post(AUTOSCALERS, autoscaler(kind=kind))
        await cluster.pass_time(60)
        status = (await cluster.get(f"{AUTOSCALERS}/web")).json["status"]
        assert await replicas(cluster, path) == status["desiredReplicas"] == status["currentReplicas"] == 5
        current = {"averageUtilization": 100, "averageValue": "100m"}
        assert status["currentMetrics"] == [{"type": "Resource", "resource": {"name": "cpu", "current": current}}]
        assert await conditions(cluster) == {
            "AbleToScale": ("True", "ReadyForNewScale"),
            "ScalingActive": ("True", "ValidMetricFound"),
            "ScalingLimited": ("True", "TooManyReplicas"),
        }
        assert (await cluster.reasons()).count("SuccessfulRescale") == 3, "to 2, 4 and 5"

    run_scenario(scenario, usage=uses("100%"))


def test_an_idle_workload_shrinks_after_five_minutes() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(DEPLOYMENTS, busy_workload(replicas=4))
        await cluster.post(AUTOSCALERS, autoscaler(minReplicas=2))
        await cluster.pass_time(290)
        assert await replicas(cluster) == 4
        assert (await conditions(cluster))["AbleToScale"] == ("True", "ScaleDownStabilized")
        await cluster.pass_time(40)
        assert await replicas(cluster) == 2
        assert (await conditions(cluster))["ScalingLimited"] == ("True", "TooFewReplicas")

    run_scenario(scenario, usage=uses("0"))


def test_the_metric_that_asks_for_the_most_replicas_counts() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(DEPLOYMENTS, busy_workload())
        memory = {"name": "memory", "container": "c", "target": {"type": "AverageValue", "averageValue": "50Mi"}}
        cpu = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}
        metrics = [{"type": "Resource", "resource": cpu}, {"type": "ContainerResource", "containerResource": memory}]
        await cluster.post(AUTOSCALERS, autoscaler(metrics=metrics))
        await cluster.pass_time(20)
        assert await replicas(cluster) == 4
        current = (await cluster.get(f"{AUTOSCALERS}/web")).json["status"]["currentMetrics"][1]
        assert current["containerResource"] == {
            "name": "memory",
            "container": "c",
            "current": {"averageValue": "200Mi"},
        }

    run_scenario(scenario, usage=uses("10m", "200Mi"))


def test_a_target_without_replicas_is_not_scaled() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(DEPLOYMENTS, busy_workload(replicas=0))
        await cluster.post(AUTOSCALERS, autoscaler(minReplicas=2))
        await cluster.pass_time(20)
        assert await replicas(cluster) == 0
        assert (await conditions(cluster))["ScalingActive"] == ("False", "ScalingDisabled")

    run_scenario(scenario, usage=uses("100%"))


def test_replicas_are_brought_into_the_bounds_without_metrics() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(DEPLOYMENTS, busy_workload(replicas=1))
        await cluster.post(AUTOSCALERS, autoscaler(minReplicas=3))
        await cluster.pass_time(1)
        assert await replicas(cluster) == 3
        await cluster.patch(f"{AUTOSCALERS}/web", {"spec": {"minReplicas": 1, "maxReplicas": 2}})
        await cluster.pass_time(16)
        assert await replicas(cluster) == 2

    run_scenario(scenario)


@pytest.mark.parametrize(
    ("spec", "type_", "reason", "problem"),
    [
        ({"kind": "Gone"}, "AbleToScale", "FailedGetScale", 'no matches for kind "Gone"'),
        ({}, "ScalingActive", "FailedGetResourceMetric", "missing request for cpu in container c of Pod web-"),
        (
            {
                "metrics": [
                    {
                        "type": "Pods",
                        "pods": {"metric": {"name": "hits"}, "target": {"type": "AverageValue", "averageValue": "1"}},
                    }
                ]
            },
            "ScalingActive",
            "FailedGetPodsMetric",
            "unable to fetch metrics from custom metrics API",
        ),
    ],
)
def test_what_keeps_an_autoscaler_from_scaling_is_in_its_conditions(
    spec: dict[str, Any], type_: str, reason: str, problem: str
) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(DEPLOYMENTS, workload(replicas=1))
        assert (await cluster.post(AUTOSCALERS, autoscaler(**spec))).status == 201
        await cluster.pass_time(20)
        status = (await cluster.get(f"{AUTOSCALERS}/web")).json["status"]
        (condition,) = [one for one in status["conditions"] if one["type"] == type_]
        assert (condition["status"], condition["reason"]) == ("False", reason)
        assert problem in condition["message"]
        assert reason in await cluster.reasons()
        assert await replicas(cluster) == 1

    run_scenario(scenario, usage=uses("100m"))


def test_without_simulated_usage_the_condition_names_the_missing_api() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(DEPLOYMENTS, busy_workload())
        await cluster.post(AUTOSCALERS, autoscaler())
        await cluster.pass_time(1)
        status = (await cluster.get(f"{AUTOSCALERS}/web")).json["status"]
        message = next(one["message"] for one in status["conditions"] if one["type"] == "ScalingActive")
        assert "the server could not find the requested resource (get pods.metrics.k8s.io)" in message

    run_scenario(scenario)


def test_two_autoscalers_of_the_same_pods_do_not_scale() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(DEPLOYMENTS, busy_workload(replicas=2))
        await cluster.post(AUTOSCALERS, autoscaler("one"))
        await cluster.post(AUTOSCALERS, autoscaler("two"))
        await cluster.pass_time(20)
        assert (await conditions(cluster, "one"))["ScalingActive"] == ("False", "AmbiguousSelector")
        await cluster.delete(f"{AUTOSCALERS}/one")
        await cluster.pass_time(16)
        assert (await conditions(cluster, "two"))["ScalingActive"] == ("True", "ValidMetricFound")

    run_scenario(scenario, usage=uses("50m"))


def test_custom_resources_are_scaled_by_the_paths_of_their_scale_subresource() -> None:
    async def scenario(cluster: Cluster) -> None:
        keep = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        schema = {"type": "object", "properties": {"spec": keep, "status": keep}}
        scale = {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n", "labelSelectorPath": ".status.sel"}
        version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
        version["subresources"] = {"scale": scale}
        names = {"plural": "trains", "kind": "Train"}
        spec = {"group": "rail.example.com", "scope": "Namespaced", "names": names, "versions": [version]}
        await cluster.post(DEFINITIONS, {"metadata": {"name": "trains.rail.example.com"}, "spec": spec})
        trains = "/apis/rail.example.com/v1/namespaces/default/trains"
        await cluster.post(DEPLOYMENTS, busy_workload(replicas=2))
        train = {"apiVersion": "rail.example.com/v1", "kind": "Train", "metadata": {"name": "web"}}
        await cluster.post(trains, {**train, "spec": {"n": 2}, "status": {"sel": "app=web"}})
        await cluster.post(AUTOSCALERS, autoscaler(kind="Train"))
        await cluster.pass_time(35)
        assert (await cluster.get(f"{trains}/web")).json["spec"]["n"] == 4

    run_scenario(scenario, usage=uses("100m"))


async def test_autoscaling_v1_has_the_utilization_of_cpu_and_keeps_the_rest_in_annotations(client: Any) -> None:
    memory = {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}}
    metrics = [*autoscaler()["spec"]["metrics"], {"type": "Resource", "resource": memory}]
    stored = (await client.post(AUTOSCALERS, autoscaler(metrics=metrics, behavior={"scaleUp": {}}))).json
    v1 = (await client.get(f"{AUTOSCALERS_V1}/web")).json
    assert v1["spec"] == {
        "scaleTargetRef": stored["spec"]["scaleTargetRef"],
        "minReplicas": 1,
        "maxReplicas": 5,
        "targetCPUUtilizationPercentage": 50,
    }
    v1["spec"] |= {"targetCPUUtilizationPercentage": 60, "maxReplicas": 7}
    assert (await client.put(f"{AUTOSCALERS_V1}/web", v1)).status == 200
    updated = (await client.get(f"{AUTOSCALERS}/web")).json
    metrics[0]["resource"]["target"]["averageUtilization"] = 60
    assert updated["spec"] == {**stored["spec"], "maxReplicas": 7, "metrics": metrics}
    assert "annotations" not in updated["metadata"]


async def test_an_autoscaler_gets_defaults(client: Any) -> None:
    target = autoscaler()["spec"]["scaleTargetRef"]
    body = {"metadata": {"name": "v1"}, "spec": {"scaleTargetRef": target, "maxReplicas": 2}}
    assert (await client.post(AUTOSCALERS_V1, body)).status == 201
    body["metadata"] = {"name": "v2"}
    spec = (await client.post(AUTOSCALERS, body)).json["spec"]
    assert spec["metrics"][0]["resource"]["target"] == {"type": "Utilization", "averageUtilization": 80}
    assert (await client.get(f"{AUTOSCALERS}/v1")).json["spec"] == spec


@pytest.mark.parametrize(
    ("spec", "field", "message"),
    [
        ({"maxReplicas": 0}, "spec.maxReplicas", "Required value: must be set and greater than 0"),
        ({"minReplicas": 9}, "spec.maxReplicas", "Invalid value: 5: must be greater than or equal to `minReplicas`"),
        ({"minReplicas": 0}, "spec.minReplicas", "Invalid value: 0: must be greater than or equal to 1"),
        ({"scaleTargetRef": {"kind": "Deployment", "name": ""}}, "spec.scaleTargetRef.name", "Required value"),
        (
            {"metrics": [{"type": "Resource"}]},
            "spec.metrics[0].resource",
            "Required value: must populate information for the given metric source",
        ),
        (
            {"metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization"}}}]},
            "spec.metrics[0].resource.target.averageUtilization",
            "Required value: must set either a target raw value or a target utilization",
        ),
        (
            {"behavior": {"scaleUp": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 1801}]}}},
            "spec.behavior.scaleUp.policies[0].periodSeconds",
            "Invalid value: 1801: must be less than or equal to 1800",
        ),
        (
            {"behavior": {"scaleDown": {"stabilizationWindowSeconds": 3601}}},
            "spec.behavior.scaleDown.stabilizationWindowSeconds",
            "Invalid value: 3601: must be less than or equal to 3600",
        ),
    ],
)
async def test_an_invalid_autoscaler_is_rejected(client: Any, spec: dict[str, Any], field: str, message: str) -> None:
    rejected = await client.post(AUTOSCALERS, {"metadata": {"name": "x"}, "spec": {**autoscaler()["spec"], **spec}})
    assert rejected.status == 422
    causes = [(cause["field"], cause["message"]) for cause in rejected.json["details"]["causes"]]
    # A maximum of 0 is below the default minimum too.
    assert (field, message) in causes and len(causes) <= 2
