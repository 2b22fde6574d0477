"""kubectl commands against a server with simulated kubelets and no scheduler."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from devcluster_tests.kubectl import NEEDS_KUBECTL, Kubectl
from kubestow_devcluster.cluster import DevCluster

pytestmark = NEEDS_KUBECTL

POD = """
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec: {containers: [{name: c, image: "nginx:1", resources: {requests: {cpu: 100m}}}], nodeName: node-0}
"""


@pytest.fixture
async def kubectl(tmp_path: Path) -> AsyncIterator[Kubectl]:
    async with DevCluster(nodes=2) as server:
        yield Kubectl(server.url, tmp_path)


async def test_nodes_are_printed_as_a_table(kubectl: Kubectl) -> None:
    lines = (await kubectl("get", "nodes")).splitlines()
    assert lines[0].split() == ["NAME", "STATUS", "ROLES", "AGE", "VERSION"]
    assert [line.split()[0] for line in lines[1:]] == ["node-0", "node-1"]


async def test_apply_creates_a_pod_then_leaves_it_unchanged_then_updates_it(kubectl: Kubectl) -> None:
    assert await kubectl("apply", "-f", "-", stdin=POD) == "pod/web created\n"
    assert await kubectl("apply", "-f", "-", stdin=POD) == "pod/web unchanged\n"
    changed = POD.replace("{app: web}", "{app: web, tier: front}")
    assert await kubectl("apply", "-f", "-", stdin=changed) == "pod/web configured\n"


async def test_server_side_apply_reports_a_conflict(kubectl: Kubectl) -> None:
    assert await kubectl("apply", "--server-side", "-f", "-", stdin=POD) == "pod/web serverside-applied\n"
    await kubectl("label", "pod", "web", "app=other", "--overwrite")
    error = await kubectl("apply", "--server-side", "-f", "-", stdin=POD, fails=True)
    assert 'conflict with "kubectl-label" using v1: .metadata.labels.app' in error


async def test_wait_describe_and_delete_a_bound_pod(kubectl: Kubectl) -> None:
    await kubectl("create", "-f", "-", stdin=POD)
    assert "condition met" in await kubectl("wait", "--for=condition=Ready", "pod/web", "--timeout=600s")
    description = await kubectl("describe", "pod", "web")
    assert "Status:       Running" in description and "node-0" in description
    assert 'pod "web" deleted' in await kubectl("delete", "pod", "web", "--timeout=600s")
    assert "NotFound" in await kubectl("get", "pod", "web", fails=True)


async def test_a_dry_run_of_delete_deletes_nothing(kubectl: Kubectl) -> None:
    await kubectl("create", "-f", "-", stdin=POD)
    for selection in ("web", "--all"):
        assert "(server dry run)" in await kubectl("delete", "pod", selection, "--dry-run=server", "--wait=false")
    assert await kubectl("get", "pods", "-o", "name") == "pod/web\n"


async def test_taint_drain_and_uncordon_nodes(kubectl: Kubectl) -> None:
    await kubectl("create", "-f", "-", stdin=POD)
    await kubectl("wait", "--for=condition=Ready", "pod/web", "--timeout=600s")
    assert await kubectl("taint", "nodes", "node-1", "k=v:NoSchedule") == "node/node-1 tainted\n"
    assert "node/node-0 drained" in await kubectl("drain", "node-0", "--force", "--timeout=600s")
    assert "SchedulingDisabled" in await kubectl("get", "node", "node-0")
    assert await kubectl("uncordon", "node-0") == "node/node-0 uncordoned\n"


async def test_fields_are_explained_and_unknown_fields_rejected(kubectl: Kubectl) -> None:
    documentation = await kubectl("explain", "pod.spec.nodeName")
    assert "FIELD: nodeName <string>" in documentation and "NodeName indicates" in documentation
    assert "TYPE" not in documentation
    error = await kubectl("create", "-f", "-", stdin=POD.replace("nodeName", "nodename"), fails=True)
    assert 'unknown field "spec.nodename"' in error


async def test_resources_and_versions_are_discovered(kubectl: Kubectl) -> None:
    resources = await kubectl("api-resources", "-o", "name")
    assert {"pods", "nodes", "deployments.apps", "podgroups.scheduling.k8s.io"} <= set(resources.split())
    assert "apps/v1" in await kubectl("api-versions")
    assert "v1.36.2" in await kubectl("version")


async def test_objects_that_kubectl_sends_in_protobuf_are_created(kubectl: Kubectl) -> None:
    assert await kubectl("create", "namespace", "team") == "namespace/team created\n"
    assert await kubectl("auth", "can-i", "create", "pods") == "yes\n"
    await kubectl("create", "configmap", "settings", "--from-literal=colour=green")
    assert await kubectl("get", "cm", "settings", "-o", "jsonpath={.data.colour}") == "green"
    await kubectl("create", "secret", "generic", "key", "--from-literal=k=v")
    assert await kubectl("get", "secret", "key", "-o", "jsonpath={.data.k}") == "dg=="
    await kubectl("create", "service", "nodeport", "web", "--tcp=80:8080")
    assert await kubectl("get", "svc", "web", "-o", "jsonpath={.spec.ports[0].targetPort}") == "8080"
    for arguments in (
        "cronjob tick --image=busybox --schedule=@hourly",
        "priorityclass high --value=1000",
        "pdb guard --selector=app=web --min-available=50%",
        "quota small --hard=cpu=1,pods=2",
        "role reader --verb=get --resource=pods",
        "rolebinding reads --role=reader --user=someone",
        "ingress front --rule=example.com/=web:80",
        "serviceaccount robot",
    ):
        assert "created" in await kubectl("create", *arguments.split())


async def test_a_deployment_is_applied_scaled_and_printed(kubectl: Kubectl) -> None:
    deployment = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {a: b}}
  template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: x}]}}
"""
    await kubectl("apply", "-f", "-", stdin=deployment)
    await kubectl("scale", "deployment/web", "--replicas=5")
    assert (await kubectl("get", "deployment", "web", "-o", "jsonpath={.spec.replicas}")) == "5"
    assert (await kubectl("get", "deploy")).splitlines()[1].split()[:2] == ["web", "0/5"]


async def test_a_taint_is_removed_while_another_remains(kubectl: Kubectl) -> None:
    await kubectl("taint", "node", "node-0", "k1=a:NoSchedule", "k2=b:NoSchedule")
    assert await kubectl("taint", "node", "node-0", "k2-") == "node/node-0 untainted\n"
    assert await kubectl("get", "node", "node-0", "-o", "jsonpath={.spec.taints[*].key}") == "k1"


@pytest.mark.parametrize("arguments", [("apply",), ("apply", "--server-side"), ("create",)])
async def test_an_unknown_kind_is_reported_as_a_cluster_does(kubectl: Kubectl, arguments: tuple[str, ...]) -> None:
    unknown = "apiVersion: example.com/v1\nkind: Foo\nmetadata: {name: x}\n"
    error = await kubectl(*arguments, "-f", "-", stdin=unknown, fails=True)
    assert 'no matches for kind "Foo" in version "example.com/v1"' in error
