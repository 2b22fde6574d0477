"""The manifests in deploy/ pass strict validation and request only necessary permissions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from devcluster_tests.kubectl import NEEDS_KUBECTL, Kubectl
from kubestow import config
from kubestow.plugins.registry import find_pod_group_apis
from kubestow.scheduling.events.resources import with_custom
from kubestow.scheduling.interfaces import Resource
from kubestow.shadow.preemptions import PREEMPTED_EVENTS
from kubestow.version import VERSION
from kubestow_devcluster.cluster import DevCluster
from tests.deploy.manifests import (
    CHART,
    DEPLOY,
    NEEDS_A_CHART_RENDERER,
    Object,
    chart,
    chart_notes,
    kustomize,
    validate_values,
)

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


@pytest.mark.parametrize("directory", ["base", "replacement", "shadow", "jupyterhub/separate"])
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
        "fullnameOverride": "second",
        "serviceAccount": {"create": False, "name": "mine"},
        "podLabels": {"team": "a"},
        "podAnnotations": {"note": "b"},
        "affinity": {"nodeAffinity": {}},
        "podDisruptionBudget": {"maxUnavailable": "50%"},
        "networkPolicy": {
            "metricsFrom": [{"podSelector": {"matchLabels": {"app": "prometheus"}}}],
            "apiServer": {"ports": [7443], "to": [{"ipBlock": {"cidr": "10.0.0.1/32"}}]},
            "extraEgress": [{"ports": [{"port": 8888, "protocol": "TCP"}]}],
        },
        "serviceMonitor": {"enabled": True, "interval": "15s", "labels": {"release": "prometheus"}},
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
    assert {obj["metadata"]["name"].partition("-")[0] for obj in objects} == {"second"}
    assert not [obj for obj in objects if obj["kind"] == "ServiceAccount"]
    assert (pod["serviceAccountName"], pod["affinity"]) == ("mine", {"nodeAffinity": {}})
    assert single(objects, "ClusterRoleBinding", "second-auth")["subjects"][0]["name"] == "mine"
    assert deployment["template"]["metadata"]["labels"]["team"] == "a"
    assert deployment["template"]["metadata"]["annotations"]["note"] == "b"
    assert single(objects, "PodDisruptionBudget")["spec"]["maxUnavailable"] == "50%"
    policy = single(objects, "NetworkPolicy")["spec"]
    assert policy["ingress"][0]["from"] == [{"podSelector": {"matchLabels": {"app": "prometheus"}}}]
    assert policy["egress"][0] == {
        "ports": [{"port": 7443, "protocol": "TCP"}],
        "to": [{"ipBlock": {"cidr": "10.0.0.1/32"}}],
    }
    assert policy["egress"][-1] == {"ports": [{"port": 8888, "protocol": "TCP"}]}
    monitor = single(objects, "ServiceMonitor")
    assert (monitor["metadata"]["labels"]["release"], monitor["spec"]["endpoints"][0]["interval"]) == (
        "prometheus",
        "15s",
    )
    assert monitor["spec"]["endpoints"][0]["port"] == single(objects, "Service")["spec"]["ports"][0]["name"]
    assert (
        monitor["spec"]["selector"]["matchLabels"].items() <= single(objects, "Service")["metadata"]["labels"].items()
    )
    assert single(objects, "Role")["metadata"]["namespace"] == "leases"
    assert single(objects, "Role")["rules"][1]["resourceNames"] == ["other"]
    assert single(objects, "ClusterRole")["rules"][-1] == values["extraRules"][0]


@NEEDS_A_CHART_RENDERER
@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("kubestow", "kube-system"), ("batch", "kube-system")),
        (("kubestow", "kube-system"), ("kubestow", "team")),
        (("kubestow", "a"), ("kubestow", "b")),
    ],
)
async def test_two_releases_run_side_by_side(first: tuple[str, str], second: tuple[str, str], tmp_path: Path) -> None:
    releases = [chart(release=release, namespace=namespace) for release, namespace in (first, second)]
    objects = [*releases[0], *releases[1]]
    identities = [(o["kind"], o["metadata"].get("namespace"), o["metadata"]["name"]) for o in objects]
    assert len(set(identities)) == len(identities)
    leases = [config.load(single(each, "ConfigMap")["data"]["scheduler.yaml"]).leader_election for each in releases]
    assert leases[0].resource_name != leases[1].resource_name
    for each, lease in zip(releases, leases, strict=True):
        assert single(each, "Role")["rules"][1]["resourceNames"] == [lease.resource_name]
    spaces: list[Object] = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": n}} for n in {first[1], second[1]}
    ]
    lines = await apply([*(s for s in spaces if s["metadata"]["name"] != "kube-system"), *objects], tmp_path)
    assert {line.rpartition(" ")[2] for line in lines} == {"created"}


@NEEDS_A_CHART_RENDERER
async def test_a_release_that_nothing_connects_to_and_one_without_a_network_policy(tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump({"networkPolicy": {"metricsFrom": []}}))
    closed = single(chart(file), "NetworkPolicy")
    assert "ingress" not in closed["spec"]
    assert closed["spec"]["policyTypes"] == ["Ingress", "Egress"]
    assert await apply([closed], tmp_path) == ["networkpolicy.networking.k8s.io/kubestow created"]
    file.write_text(yaml.safe_dump({"networkPolicy": {"enabled": False}}))
    assert "NetworkPolicy" not in {obj["kind"] for obj in chart(file)}


@NEEDS_A_CHART_RENDERER
def test_a_release_without_a_disruption_budget_and_a_service_account_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump({"podDisruptionBudget": {"enabled": False}, "serviceAccount": {"create": False}}))
    objects = chart(file)
    assert not {obj["kind"] for obj in objects} & {"PodDisruptionBudget", "ServiceAccount", "ServiceMonitor"}


@NEEDS_A_CHART_RENDERER
def test_the_notes_name_the_lease_and_the_profiles(tmp_path: Path) -> None:
    notes = chart_notes(release="batch", namespace="team")
    assert "lease team-batch-kubestow" in notes
    assert "\n  batch-kubestow\n" in notes
    file = tmp_path / "values.yaml"
    replacement = {
        "leaderElection": {"resourceName": "kube-scheduler"},
        "profiles": [{"schedulerName": "default-scheduler"}],
    }
    file.write_text(yaml.safe_dump({"configuration": replacement}))
    assert "It shares the Lease of kube-scheduler" in chart_notes(file)


@pytest.mark.parametrize(
    "values",
    [
        {"replica": 2},
        {"replicas": "two"},
        {"image": {"repository": ""}},
        {"image": {"name": "kubestow"}},
        {"configuration": {"apiVersion": "v1"}},
        {"configuration": {"profiles": []}},
        {"extraArgs": "--v=2"},
        {"nodeSelector": {"a": True}},
        {"serviceMonitor": {"interval": "often"}},
        {"podDisruptionBudget": {"maxUnavailable": "half"}},
        {"networkPolicy": {"apiServer": {"ports": []}}},
        {"networkPolicy": {"apiServer": {"to": ["10.0.0.1"]}}},
        {"networkPolicy": {"metricsFrom": {"podSelector": {}}}},
    ],
    ids=json.dumps,
)
def test_the_schema_rejects_mistyped_values(values: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        validate_values(values)


def test_the_schema_has_every_value_and_the_chart_the_version_of_the_package() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    validate_values(values)
    assert schema["properties"].keys() - {"global"} == values.keys()
    about = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (about["version"], about["appVersion"]) == (VERSION, VERSION)
    tags = {image["newTag"] for image in yaml.safe_load((DEPLOY / "base" / "kustomization.yaml").read_text())["images"]}
    static_pod = yaml.safe_load((DEPLOY / "static-pod" / "kube-scheduler.yaml").read_text())
    assert tags == {VERSION}
    assert static_pod["spec"]["containers"][0]["image"] == f"kubestow:{VERSION}"


@pytest.mark.parametrize(("directory", "name"), [("base", "kubestow"), ("replacement", "default-scheduler")])
def test_the_configuration_is_valid_and_the_role_allows_its_lease(directory: str, name: str) -> None:
    objects = kustomize(directory)
    configuration = config.load(single(objects, "ConfigMap")["data"]["scheduler.yaml"])
    assert [profile.scheduler_name for profile in configuration.profiles] == [name]
    assert single(objects, "Role")["rules"][1]["resourceNames"] == [configuration.leader_election.resource_name]
    assert single(objects, "Role")["metadata"]["namespace"] == configuration.leader_election.resource_namespace


def test_a_shadow_may_only_read() -> None:
    rules = single(kustomize("shadow"), "ClusterRole")["rules"]
    assert {verb for rule in rules for verb in rule["verbs"]} == {"get", "list", "watch"}


@pytest.mark.parametrize("directory", ["base", "shadow"])
def test_the_cluster_role_allows_exactly_the_watched_resources(directory: str) -> None:
    rules = single(kustomize(directory), "ClusterRole")["rules"]
    allowed = {
        (group, resource)
        for rule in rules
        if {"get", "list", "watch"} <= set(rule["verbs"])
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    listed = with_custom(api.kind for api in find_pod_group_apis())
    watched = {(group_of(resource), resource.plural) for resource in listed}
    projects = ("scheduling.x-k8s.io", "scheduling.volcano.sh", "scheduling.incubator.k8s.io")
    groups = {(group, "podgroups") for group in ("scheduling.k8s.io", *projects)}
    groups |= {("scheduling.k8s.io", plural) for plural in ("compositepodgroups", "workloads")}
    definitions = {("apiextensions.k8s.io", "customresourcedefinitions")}
    events = {(group_of(PREEMPTED_EVENTS), PREEMPTED_EVENTS.plural)} if directory == "shadow" else set()
    assert allowed == watched | groups | definitions | events


def test_every_permission_has_a_comment() -> None:
    for file in (
        DEPLOY / "base" / "cluster-role.yaml",
        DEPLOY / "shadow" / "cluster-role.yaml",
        CHART / "templates" / "cluster-role.yaml",
    ):
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


@pytest.mark.parametrize("directory", ["base", "replacement"])
def test_the_network_policy_allows_metrics_the_api_server_and_dns_only(directory: str) -> None:
    objects = kustomize(directory)
    policy = single(objects, "NetworkPolicy")["spec"]
    (container,) = single(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    (port,) = container["ports"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    (metrics,) = policy["ingress"]
    assert metrics["ports"] == [{"port": port["name"], "protocol": port["protocol"]}]
    assert metrics["from"] == [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]
    allowed = {(one["protocol"], one["port"]) for rule in policy["egress"] for one in rule["ports"]}
    assert allowed == {("TCP", 443), ("TCP", 6443), ("UDP", 53), ("TCP", 53)}


def test_disruption_budget_service_policy_and_topology_spread_select_the_replicas() -> None:
    objects = kustomize("base")
    constraints = single(objects, "Deployment")["spec"]["template"]["spec"]["topologySpreadConstraints"]
    labels = single(objects, "Deployment")["spec"]["template"]["metadata"]["labels"]
    for selector in (
        single(objects, "Deployment")["spec"]["selector"]["matchLabels"],
        single(objects, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        single(objects, "Service")["spec"]["selector"],
        single(objects, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
        *(constraint["labelSelector"]["matchLabels"] for constraint in constraints),
    ):
        assert selector == labels


def group_of(resource: Resource) -> str:
    """The API group of a resource; "" for the core group."""
    return "" if resource.prefix == "/api/v1" else resource.prefix.split("/")[2]


def comparable(objects: list[Object]) -> dict[str, Object]:
    """Objects by kind and name, without what the tools add: Helm's labels, hashes in names and annotations."""
    compared = {}
    for obj in json.loads(json.dumps(objects)):
        metadata = obj["metadata"]
        for label in ("app.kubernetes.io/version", "app.kubernetes.io/managed-by", "helm.sh/chart"):
            metadata["labels"].pop(label, None)
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
