"""Capacity estimates and reports; the recorded reports of cluster-capacity are in tests/conformance."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from core_tests.engine.input.manifests import cluster, container, node, pod
from kubestow import config
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.errors import InputError
from kubestow.plugins import in_tree_registry
from kubestow.scheduling.decision.node_selection import FirstByName
from kubestow_lab.capacity.capacity_report import document, text
from kubestow_lab.capacity.estimate import Capacity, CapacityOptions, estimate
from kubestow_lab.capacity.pod_template import PodTemplate, limit_range_pod

Object = dict[str, Any]


def template_manifest(name: str = "small", *, cpu: str = "500m", **spec: Any) -> Object:
    """A pod with everything that validation requires."""
    manifest = pod(name, cpu=cpu, terminationGracePeriodSeconds=30, **spec)
    for each in manifest["spec"]["containers"]:
        each["imagePullPolicy"] = "Always"
    return manifest


def capacity(within: ClusterObjects, manifest: Object, **options: Any) -> Capacity:
    return estimate(
        within,
        PodTemplate(manifest, "pod.yaml"),
        config.default_configuration(config.FeatureGates()),
        registry=in_tree_registry(),
        options=CapacityOptions(ties=FirstByName(), **options),
    )


def test_instances_are_placed_until_one_does_not_fit(tmp_path: Path) -> None:
    within = cluster(tmp_path, node("a", cpu="1"), node("b", cpu="2"), pod("old", cpu="500m", nodeName="a"))
    found = capacity(within, template_manifest())
    assert found.per_node() == {"b": 4, "a": 1}
    assert found.reason.type == "Unschedulable"
    assert found.reason.message.startswith("0/2 nodes are available: 2 Insufficient cpu.")


def test_a_limit_ends_it_and_excluded_nodes_do_not_exist(tmp_path: Path) -> None:
    within = cluster(tmp_path, node("a", cpu="1"), node("b", cpu="2"))
    limited = capacity(within, template_manifest(), max_limit=3)
    assert (limited.replicas, limited.reason.type) == (3, "LimitReached")
    assert limited.reason.message == "Maximum number of pods simulated: 3"
    excluded = capacity(within, template_manifest(), excluded_nodes=frozenset({"b"}))
    assert excluded.per_node() == {"a": 2}
    none = capacity(within, template_manifest(), excluded_nodes=frozenset({"a", "b"}))
    assert (none.replicas, none.reason.message) == (0, "no nodes available to schedule pods")


def test_an_instance_that_could_preempt_ends_it_without_preempting(tmp_path: Path) -> None:
    within = cluster(tmp_path, node("a", cpu="1"), pod("low", cpu="1", nodeName="a"))
    found = capacity(within, template_manifest(priority=100))
    assert (found.replicas, "preemption" in found.reason.message) == (0, False)


def test_pending_pods_that_no_scheduler_attempts_take_no_room(tmp_path: Path) -> None:
    gated = pod("gated", cpu="1", schedulingGates=[{"name": "quota"}])
    ending = pod("ending", cpu="1")
    ending["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    within = cluster(tmp_path, node("a", cpu="2"), gated, ending)
    assert capacity(within, template_manifest()).replicas == 4


def test_only_the_copied_kinds_exist_for_cluster_capacity(tmp_path: Path) -> None:
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "pv"},
        "spec": {"claimRef": {"namespace": "default", "name": "data"}, "storageClassName": "slow"},
    }
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
        "spec": {"volumeName": "pv", "storageClassName": "slow"},
    }
    within = cluster(tmp_path, node("a", cpu="1"), volume, claim)
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
    manifest = template_manifest(volumes=volumes)
    assert capacity(within, manifest).replicas == 2
    assert capacity(within, manifest, kinds=frozenset({"PersistentVolumeClaim"})).replicas == 0


def test_a_report_adds_up_what_containers_request(tmp_path: Path) -> None:
    manifest = template_manifest(nodeSelector={"disk": "ssd"})
    second = container(imagePullPolicy="Always")
    second["resources"] = {
        "requests": {"cpu": "1", "memory": "1Gi", "example.com/gpu": "2"},
        "limits": {"example.com/gpu": "2"},
    }
    manifest["spec"]["containers"].append(second | {"name": "second"})
    nodes = [node(f"n{i}", labels={"disk": "ssd"}) for i in range(2)]
    for each in nodes:
        each["status"]["allocatable"]["example.com/gpu"] = "2"
    found = capacity(cluster(tmp_path, *nodes), manifest)
    report = document(found, "2026-01-01T00:00:00Z")
    assert report["spec"]["podRequirements"] == [
        {
            "podName": "small",
            "resources": {
                "primaryResources": {"cpu": "1500m", "memory": "1Gi", "nvdia.com/gpu": "0"},
                "scalarResources": {"example.com/gpu": 2},
            },
            "nodeSelectors": {"disk": "ssd"},
        }
    ]
    assert text(found, verbose=False) == "2"
    assert text(found, verbose=True).splitlines() == [
        "small pod requirements:",
        "\t- CPU: 1500m",
        "\t- Memory: 1Gi",
        "\t- ScalarResources: map[example.com/gpu:2]",
        "\t- NodeSelector: disk=ssd",
        "",
        "The cluster can schedule 2 instance(s) of the pod small.",
        "",
        f"Termination reason: Unschedulable: {found.reason.message}",
        "",
        "Pod distribution among nodes:",
        "small",
        "\t- n0: 1 instance(s)",
        "\t- n1: 1 instance(s)",
    ]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"terminationGracePeriodSeconds": None}, "Required value: spec.terminationGracePeriodSeconds"),
        ({"containers": []}, "Required value: spec.containers"),
        ({"restartPolicy": "Sometimes"}, "Unsupported value: spec.restartPolicy"),
        ({"tolerations": [{"operator": "Maybe"}]}, "Unsupported value: spec.tolerations[0].operator"),
    ],
)
def test_an_invalid_template_is_refused_with_the_field(changes: Object, problem: str) -> None:
    with pytest.raises(InputError) as refused:
        PodTemplate(template_manifest() | {"spec": template_manifest()["spec"] | changes}, "pod.yaml")
    assert str(refused.value) == f'pod.yaml: Invalid pod: "{problem}"'


def test_malformed_templates_are_refused() -> None:
    malformed: list[Object] = [{"metadata": "none"}, {"spec": {"containers": [1]}}, {"metadata": {}, "spec": []}]
    for manifest in malformed:
        with pytest.raises(InputError, match=r"pod.yaml: "):
            PodTemplate(manifest, "pod.yaml")


def test_the_pod_of_a_namespace_has_the_least_maxima() -> None:
    namespace = {"metadata": {"name": "team", "annotations": {"openshift.io/node-selector": "disk=ssd, zone = a"}}}
    limits = [{"type": "Pod", "max": {"cpu": "2", "memory": "1024Mi"}}, {"type": "Pod", "max": {"cpu": "1500m"}}]
    found = limit_range_pod(namespace, [{"spec": {"limits": [*limits, {"type": "Container", "max": {"cpu": "1m"}}]}}])
    assert found["metadata"]["namespace"] == "team"
    assert found["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "1500m", "memory": "1Gi"}
    assert found["spec"]["nodeSelector"] == {"disk": "ssd", "zone": "a"}
