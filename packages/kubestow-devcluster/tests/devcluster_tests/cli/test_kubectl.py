"""``kubestow up`` with common kubectl commands."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from devcluster_tests.kubectl import NEEDS_KUBECTL, Kubectl
from devcluster_tests.scheduled_cluster import scheduled_cluster

pytestmark = NEEDS_KUBECTL

POD = """
apiVersion: v1
kind: Pod
metadata: {name: app, labels: {app: app}}
spec: {containers: [{name: c, image: "nginx:1"}]}
"""


@pytest.fixture
async def kubectl(tmp_path: Path) -> AsyncIterator[Kubectl]:
    async with scheduled_cluster(nodes=3) as cluster:
        yield Kubectl(cluster.url, tmp_path)


async def test_a_deployment_is_rolled_out_updated_rolled_back_and_scaled(kubectl: Kubectl) -> None:
    web = "deployment/web"
    assert (
        await kubectl("create", "deployment", "web", "--image=nginx:1", "--replicas=100") == f"{_named(web)} created\n"
    )
    assert "successfully rolled out" in await kubectl("rollout", "status", web, "--timeout=600s")
    assert (await kubectl("get", "deploy", "web")).splitlines()[1].split()[:4] == ["web", "100/100", "100", "100"]
    assert await kubectl("set", "image", web, "nginx=nginx:2") == f"{_named(web)} image updated\n"
    assert "successfully rolled out" in await kubectl("rollout", "status", web, "--timeout=600s")
    assert await kubectl("rollout", "undo", web) == f"{_named(web)} rolled back\n"
    await kubectl("rollout", "status", web, "--timeout=600s")
    history = (await kubectl("rollout", "history", web)).split()
    assert history[-4:] == ["2", "<none>", "3", "<none>"]
    image = "jsonpath={.spec.template.spec.containers[0].image}"
    assert await kubectl("get", web, "-o", image) == "nginx:1"
    assert await kubectl("scale", web, "--replicas=3") == f"{_named(web)} scaled\n"
    await kubectl("rollout", "restart", web)
    assert "successfully rolled out" in await kubectl("rollout", "status", web, "--timeout=600s")
    assert "ScalingReplicaSet" in await kubectl("describe", web)


def _named(deployment: str) -> str:
    kind, name = deployment.split("/")
    return f"{kind}.apps/{name}"


async def test_pods_are_printed_in_every_format(kubectl: Kubectl) -> None:
    await kubectl("create", "deployment", "web", "--image=nginx", "--replicas=3")
    await kubectl("wait", "--for=condition=Available", "deployment/web", "--timeout=600s")
    wide = (await kubectl("get", "pods", "-o", "wide", "--sort-by=.spec.nodeName")).splitlines()
    assert wide[0].split()[:7] == ["NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP", "NODE"]
    assert len(wide) == 4 and all("Running" in line and "node-" in line for line in wide[1:])
    columns = await kubectl(
        "get", "pods", "-A", "-l", "app=web", "-o", "custom-columns=N:.spec.nodeName", "--no-headers"
    )
    assert len(columns.split()) == 3
    assert "No resources found" not in await kubectl("get", "pods", "--field-selector=status.phase=Running")
    assert "kind: PodList" not in await kubectl("get", "pods", "-o", "yaml")
    assert (await kubectl("get", "--raw", "/readyz")) == "ok"
    # Newer versions of kubectl show the events only of a single object.
    name = (await kubectl("get", "pods", "-l", "app=web", "-o", "name")).split()[0]
    described = await kubectl("describe", name)
    assert "Successfully assigned default/web-" in described and "Controlled By:  ReplicaSet/web-" in described
    assert "Started container nginx" in described


async def test_a_pod_is_applied_diffed_edited_labelled_and_deleted(kubectl: Kubectl) -> None:
    assert await kubectl("apply", "-f", "-", stdin=POD) == "pod/app created\n"
    assert await kubectl("diff", "-f", "-", stdin=POD) == ""
    assert await kubectl("edit", "pod", "app", editor="sed -i s/nginx:1/nginx:2/") == "pod/app edited\n"
    assert await kubectl("label", "pod", "app", "tier=front") == "pod/app labeled\n"
    assert await kubectl("annotate", "pod", "app", "why=because") == "pod/app annotated\n"
    assert await kubectl("patch", "pod", "app", "-p", '{"metadata":{"labels":{"a":"b"}}}') == "pod/app patched\n"
    shown = await kubectl("get", "pod", "app", "-o", "jsonpath={.spec.containers[0].image} {.metadata.labels}")
    assert shown.startswith('nginx:2 {"a":"b","app":"app","tier":"front"')
    assert 'pod "app" force deleted' in await kubectl("delete", "pod", "app", "--force")
    assert "pod/alone created" in await kubectl("run", "alone", "--image=nginx")


async def test_a_node_is_drained_and_uncordoned(kubectl: Kubectl) -> None:
    await kubectl("create", "deployment", "web", "--image=nginx", "--replicas=6")
    await kubectl("rollout", "status", "deployment/web", "--timeout=600s")
    assert "node/node-0 drained" in await kubectl("drain", "node-0", "--timeout=600s")
    await kubectl("rollout", "status", "deployment/web", "--timeout=600s")
    nodes = await kubectl("get", "pods", "-o", "jsonpath={.items[*].spec.nodeName}")
    assert len(nodes.split()) == 6 and "node-0" not in nodes
    assert await kubectl("uncordon", "node-0") == "node/node-0 uncordoned\n"
    assert await kubectl("taint", "nodes", "node-1", "k=v:NoSchedule") == "node/node-1 tainted\n"


async def test_a_job_completes(kubectl: Kubectl) -> None:
    assert await kubectl("create", "job", "hello", "--image=busybox", "--", "echo", "hi") == "job.batch/hello created\n"
    assert "condition met" in await kubectl("wait", "--for=condition=complete", "job/hello", "--timeout=600s")
    assert (await kubectl("get", "jobs")).splitlines()[1].split()[:3] == ["hello", "Complete", "1/1"]
    assert "Completed" in await kubectl("get", "pods")
    assert "Job completed" in await kubectl("events", "--for=job/hello")


async def test_deletion_cascades_to_dependents(kubectl: Kubectl) -> None:
    await kubectl("create", "namespace", "team")
    await kubectl("create", "deployment", "web", "--image=nginx", "--replicas=2", "-n", "team")
    await kubectl("rollout", "status", "deployment/web", "-n", "team", "--timeout=600s")
    deleted = await kubectl("delete", "deployment", "web", "-n", "team", "--cascade=foreground", "--timeout=600s")
    assert 'deployment.apps "web"' in deleted
    assert await kubectl("get", "rs,pods", "-n", "team", "-o", "name") == ""
    await kubectl("create", "deployment", "again", "--image=nginx", "-n", "team")
    assert 'namespace "team" deleted' in await kubectl("delete", "namespace", "team", "--timeout=600s")
    assert "NotFound" in await kubectl("get", "namespace", "team", fails=True)


async def test_an_unschedulable_pod_has_a_reason(kubectl: Kubectl) -> None:
    huge = POD.replace('image: "nginx:1"', 'image: "nginx:1", resources: {requests: {cpu: "999"}}')
    await kubectl("create", "-f", "-", stdin=huge)
    await kubectl("wait", "--for=jsonpath={.status.conditions[0].reason}=Unschedulable", "pod/app", "--timeout=600s")
    assert "3 Insufficient cpu" in await kubectl("describe", "pod", "app")


async def test_cluster_information_is_available(kubectl: Kubectl) -> None:
    assert await kubectl("auth", "can-i", "create", "pods") == "yes\n"
    assert "FIELD: replicas <integer>" in await kubectl("explain", "deployment.spec.replicas")
    assert "deployments" in await kubectl("api-resources") and "batch/v1" in await kubectl("api-versions")
    assert len((await kubectl("top", "nodes")).splitlines()) == 1 + 3
    assert "is running at" in await kubectl("cluster-info")
