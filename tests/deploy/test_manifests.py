"""What deploy/ holds can be applied as it is, every field checked, and asks for no more than it needs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubestow import config
from kubestow.devcluster.cluster import DevCluster
from kubestow.scheduling.events.resources import WATCHED
from kubestow.scheduling.ports import Resource
from tests.deploy.manifests import CHART, DEPLOY, NEEDS_A_CHART_RENDERER, Object, chart, kustomized
from tests.devcluster.kubectl import NEEDS_KUBECTL, Kubectl

pytestmark = [*NEEDS_KUBECTL]


def one(objects: list[Object], kind: str, name: str = "") -> Object:
    """The one object of a kind, of those whose name begins so."""
    (found,) = (obj for obj in objects if obj["kind"] == kind and obj["metadata"]["name"].startswith(name))
    return found


async def applied(objects: list[Object], home: Path) -> list[str]:
    """What kubectl says of each object when they are applied to a new cluster, every field checked."""
    async with DevCluster(nodes=0) as server:
        kubectl = Kubectl(server.url, home)
        told = await kubectl("apply", "--validate=strict", "-f", "-", stdin=yaml.safe_dump_all(objects))
        return told.splitlines()


@pytest.mark.parametrize("directory", ["base", "replacement"])
async def test_a_kustomization_is_applied_whole(directory: str, tmp_path: Path) -> None:
    objects = kustomized(directory)
    assert [line.rpartition(" ")[2] for line in await applied(objects, tmp_path)] == ["created"] * len(objects)


@NEEDS_A_CHART_RENDERER
async def test_the_chart_is_applied_whole(tmp_path: Path) -> None:
    objects = chart()
    assert [line.rpartition(" ")[2] for line in await applied(objects, tmp_path)] == ["created"] * len(objects)


async def test_the_static_pod_is_applied(tmp_path: Path) -> None:
    pod = yaml.safe_load((DEPLOY / "static-pod" / "kube-scheduler.yaml").read_text())
    assert await applied([pod], tmp_path) == ["pod/kube-scheduler created"]


@NEEDS_A_CHART_RENDERER
def test_the_chart_by_default_is_the_kustomization() -> None:
    assert comparable(chart()) == comparable(kustomized("base"))


@NEEDS_A_CHART_RENDERER
def test_the_chart_takes_everything_its_values_offer(tmp_path: Path) -> None:
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
    deployment = one(objects, "Deployment")["spec"]
    pod = deployment["template"]["spec"]
    assert (deployment["replicas"], pod["nodeSelector"], "tolerations" in pod) == (3, {"a": "b"}, False)
    assert pod["containers"][0]["image"] == "example/kubestow:7"
    assert pod["containers"][0]["args"][-1] == "--secure-port=10260"
    assert pod["volumes"][-1]["name"] == pod["containers"][0]["volumeMounts"][-1]["name"] == "plugins"
    assert one(objects, "Role")["metadata"]["namespace"] == "leases"
    assert one(objects, "Role")["rules"][1]["resourceNames"] == ["other"]
    assert one(objects, "ClusterRole")["rules"][-1] == values["extraRules"][0]


@pytest.mark.parametrize(("directory", "name"), [("base", "kubestow"), ("replacement", "default-scheduler")])
def test_the_configuration_is_good_and_its_lease_is_the_one_it_may_take(directory: str, name: str) -> None:
    objects = kustomized(directory)
    configuration = config.load(one(objects, "ConfigMap")["data"]["scheduler.yaml"])
    assert [profile.scheduler_name for profile in configuration.profiles] == [name]
    assert one(objects, "Role")["rules"][1]["resourceNames"] == [configuration.leader_election.resource_name]
    assert one(objects, "Role")["metadata"]["namespace"] == configuration.leader_election.resource_namespace


def test_everything_that_is_watched_may_be_watched_and_nothing_else() -> None:
    rules = one(kustomized("base"), "ClusterRole")["rules"]
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


def test_every_right_is_justified() -> None:
    for file in (DEPLOY / "base" / "cluster-role.yaml", CHART / "templates" / "cluster-role.yaml"):
        lines = file.read_text().splitlines()
        first = lines.index("rules:") + 1
        assert lines[first].lstrip().startswith("#"), file
        for before, line in zip(lines[first:], lines[first + 1 :], strict=False):
            if line.startswith("  - apiGroups"):
                assert before.startswith(("  #", "    verbs")), line


def test_pods_are_as_restricted_as_pods_can_be() -> None:
    pod = one(kustomized("base"), "Deployment")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert "hostNetwork" not in pod


def test_the_budget_the_service_and_the_spreading_select_the_replicas() -> None:
    objects = kustomized("base")
    spreading = one(objects, "Deployment")["spec"]["template"]["spec"]["topologySpreadConstraints"]
    labels = one(objects, "Deployment")["spec"]["template"]["metadata"]["labels"]
    for selector in (
        one(objects, "Deployment")["spec"]["selector"]["matchLabels"],
        one(objects, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        one(objects, "Service")["spec"]["selector"],
        *(constraint["labelSelector"]["matchLabels"] for constraint in spreading),
    ):
        assert selector == labels


def group_of(resource: Resource) -> str:
    """The API group of a collection: what stands before the version, nothing for the core group."""
    return "" if resource.prefix == "/api/v1" else resource.prefix.split("/")[2]


def comparable(objects: list[Object]) -> dict[str, Object]:
    """Objects by kind and name without what the tools add: hashes in names and annotations, quotes in a text."""
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
