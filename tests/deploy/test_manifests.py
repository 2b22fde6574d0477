"""The manifests in deploy/ pass strict validation and request only necessary permissions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubestow import config
from kubestow.devcluster.cluster import DevCluster
from kubestow.scheduling.events.resources import WATCHED
from kubestow.scheduling.interfaces import Resource
from tests.deploy.manifests import CHART, DEPLOY, NEEDS_A_CHART_RENDERER, Object, chart, kustomize
from tests.devcluster.kubectl import NEEDS_KUBECTL, Kubectl

pytestmark = [*NEEDS_KUBECTL]


def single(objects: list[Object], kind: str, name: str = "") -> Object:
    """The only object of a kind whose name starts with ``name``."""
    (found,) = (obj for obj in objects if obj["kind"] == kind and obj["metadata"]["name"].startswith(name))
    return found


async def apply(objects: list[Object], home: Path) -> list[str]:
    """The output lines of kubectl apply on a new cluster, with strict validation."""
    async with DevCluster(nodes=0) as server:
        kubectl = Kubectl(server.url, home)
        output = await kubectl("apply", "--validate=strict", "-f", "-", stdin=yaml.safe_dump_all(objects))
        return output.splitlines()


@pytest.mark.parametrize("directory", ["base", "replacement"])
async def test_all_objects_of_a_kustomization_are_created(directory: str, tmp_path: Path) -> None:
    objects = kustomize(directory)
    assert [line.rpartition(" ")[2] for line in await apply(objects, tmp_path)] == ["created"] * len(objects)


@NEEDS_A_CHART_RENDERER
async def test_all_objects_of_the_chart_are_created(tmp_path: Path) -> None:
    objects = chart()
    assert [line.rpartition(" ")[2] for line in await apply(objects, tmp_path)] == ["created"] * len(objects)


async def test_the_static_pod_is_created(tmp_path: Path) -> None:
    pod = yaml.safe_load((DEPLOY / "static-pod" / "kube-scheduler.yaml").read_text())
    assert await apply([pod], tmp_path) == ["pod/kube-scheduler created"]


@NEEDS_A_CHART_RENDERER
def test_the_chart_with_default_values_equals_the_kustomization() -> None:
    assert comparable(chart()) == comparable(kustomize("base"))


@NEEDS_A_CHART_RENDERER
def test_all_values_of_the_chart_take_effect(tmp_path: Path) -> None:
    values: dict[str, Any] = {
        "image": {"repository": "example/kubestow", "tag": "7"},
        "imagePullSecrets": [{"name": "mine"}],
        "replicas": 3,
        "configuration": {"leaderElection": {"resourceName": "other", "resourceNamespace": "leases"}},
        "extraArgs": ["--secure-port=10260"],
        "nodeSelector": {"a": "b"},
        "tolerations": [],
        "env": [{"name": "PYTHONPATH", "value": "/plugins"}],
        "extraVolumes": [{"name": "plugins", "configMap": {"name": "plugins"}}],
        "extraVolumeMounts": [{"name": "plugins", "mountPath": "/plugins"}],
        "extraRules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}],
    }
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    objects = chart(file)
    deployment = single(objects, "Deployment")["spec"]
    pod = deployment["template"]["spec"]
    assert (deployment["replicas"], pod["nodeSelector"], "tolerations" in pod) == (3, {"a": "b"}, False)
    assert pod["containers"][0]["image"] == "example/kubestow:7"
    assert pod["containers"][0]["args"][-1] == "--secure-port=10260"
    assert pod["volumes"][-1]["name"] == pod["containers"][0]["volumeMounts"][-1]["name"] == "plugins"
    assert single(objects, "Role")["metadata"]["namespace"] == "leases"
    assert single(objects, "Role")["rules"][1]["resourceNames"] == ["other"]
    assert single(objects, "ClusterRole")["rules"][-1] == values["extraRules"][0]


@pytest.mark.parametrize(("directory", "name"), [("base", "kubestow"), ("replacement", "default-scheduler")])
def test_the_configuration_is_valid_and_the_role_allows_its_lease(directory: str, name: str) -> None:
    objects = kustomize(directory)
    configuration = config.load(single(objects, "ConfigMap")["data"]["scheduler.yaml"])
    assert [profile.scheduler_name for profile in configuration.profiles] == [name]
    assert single(objects, "Role")["rules"][1]["resourceNames"] == [configuration.leader_election.resource_name]
    assert single(objects, "Role")["metadata"]["namespace"] == configuration.leader_election.resource_namespace


def test_the_cluster_role_allows_exactly_the_watched_resources() -> None:
    rules = single(kustomize("base"), "ClusterRole")["rules"]
    allowed = {
        (group, resource)
        for rule in rules
        if {"get", "list", "watch"} <= set(rule["verbs"])
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    watched = {(group_of(resource), resource.plural) for resource in WATCHED}
    groups = {(group, "podgroups") for group in ("scheduling.k8s.io", "scheduling.x-k8s.io", "scheduling.volcano.sh")}
    assert allowed == watched | groups


def test_every_permission_has_a_comment() -> None:
    for file in (DEPLOY / "base" / "cluster-role.yaml", CHART / "templates" / "cluster-role.yaml"):
        lines = file.read_text().splitlines()
        first = lines.index("rules:") + 1
        assert lines[first].lstrip().startswith("#"), file
        for before, line in zip(lines[first:], lines[first + 1 :], strict=False):
            if line.startswith("  - apiGroups"):
                assert before.startswith(("  #", "    verbs")), line


def test_pods_meet_the_restricted_security_standard() -> None:
    pod = single(kustomize("base"), "Deployment")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert "hostNetwork" not in pod


def test_disruption_budget_service_and_topology_spread_select_the_replicas() -> None:
    objects = kustomize("base")
    constraints = single(objects, "Deployment")["spec"]["template"]["spec"]["topologySpreadConstraints"]
    labels = single(objects, "Deployment")["spec"]["template"]["metadata"]["labels"]
    for selector in (
        single(objects, "Deployment")["spec"]["selector"]["matchLabels"],
        single(objects, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        single(objects, "Service")["spec"]["selector"],
        *(constraint["labelSelector"]["matchLabels"] for constraint in constraints),
    ):
        assert selector == labels


def group_of(resource: Resource) -> str:
    """The API group of a resource; "" for the core group."""
    return "" if resource.prefix == "/api/v1" else resource.prefix.split("/")[2]


def comparable(objects: list[Object]) -> dict[str, Object]:
    """Objects by kind and name, without what the tools add: hashes in names and annotations, quotes in text."""
    compared = {}
    for obj in json.loads(json.dumps(objects)):
        metadata = obj["metadata"]
        if obj["kind"] == "ConfigMap":
            metadata["name"] = "kubestow-configuration"
            obj["data"] = {name: yaml.safe_load(text) for name, text in obj["data"].items()}
            obj["data"]["scheduler.yaml"].get("leaderElection", {}).setdefault("resourceNamespace", "kube-system")
        if obj["kind"] == "Deployment":
            obj["spec"]["template"]["metadata"].pop("annotations", None)
            for volume in obj["spec"]["template"]["spec"]["volumes"]:
                volume["configMap"]["name"] = "kubestow-configuration"
        compared[f"{obj['kind']} {metadata.get('namespace', '')}/{metadata['name']}"] = obj
    return compared
