"""The everyday workflows of kubectl against ``kubestow up``, with the scheduler and all controllers."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from devcluster_tests.kubectl import NEEDS_KUBECTL, Kubectl
from devcluster_tests.scheduled_cluster import scheduled_cluster

pytestmark = NEEDS_KUBECTL

API = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: api}
spec:
  replicas: 3
  selector: {matchLabels: {app: api}}
  template:
    metadata: {labels: {app: api}}
    spec: {containers: [{name: c, image: "nginx:1", ports: [{containerPort: 80}]}]}
"""


@pytest.fixture
async def kubectl(tmp_path: Path) -> AsyncIterator[Kubectl]:
    async with scheduled_cluster(nodes=3) as cluster:
        yield Kubectl(cluster.url, tmp_path)


async def deploy(kubectl: Kubectl) -> None:
    assert await kubectl("apply", "-f", "-", stdin=API) == "deployment.apps/api created\n"
    assert "successfully rolled out" in await kubectl("rollout", "status", "deploy/api", "--timeout=600s")


async def test_a_deployment_of_a_hundred_pods_is_rolled_out_and_listed(kubectl: Kubectl) -> None:
    await kubectl("create", "deployment", "web", "--image=nginx", "--replicas=100")
    assert "successfully rolled out" in await kubectl("rollout", "status", "deploy/web", "--timeout=600s")
    assert (await kubectl("get", "deploy", "web")).splitlines()[1].split()[:4] == ["web", "100/100", "100", "100"]
    wide = (await kubectl("get", "pods", "-o", "wide", "--sort-by=.spec.nodeName")).splitlines()
    assert wide[0].split()[5:7] == ["IP", "NODE"] and wide[1].split()[6] == "node-0"
    assert len((await kubectl("get", "pods", "-A", "-l", "app=web", "-o", "name")).splitlines()) == 100
    running = await kubectl("get", "pods", "--field-selector=status.phase=Running", "-o", "json")
    assert len(json.loads(running)["items"]) == 100
    names = await kubectl(
        "get", "pods", "-l", "app in (web)", "-o", "custom-columns=NAME:.metadata.name", "--no-headers"
    )
    assert len(names.splitlines()) == 100
    assert await kubectl("get", "deploy", "web", "-o", "jsonpath={.status.readyReplicas}") == "100"


async def test_events_are_described_and_listed(kubectl: Kubectl) -> None:
    await deploy(kubectl)
    description = await kubectl("describe", "deployment", "api")
    assert "3 desired | 3 updated | 3 total | 3 available | 0 unavailable" in description
    assert "Scaled up replica set api-" in description
    (pod, *_) = (await kubectl("get", "pods", "-o", "name")).split()
    assert "Successfully assigned default/api-" in await kubectl("describe", pod)
    assert "Scheduled" in await kubectl("events", "--for", pod)
    assert "Created pod: api-" in await kubectl("get", "events")
    assert "api-" in await kubectl("describe", "node", "node-0")


async def test_a_rollout_is_listed_undone_and_restarted(kubectl: Kubectl) -> None:
    await deploy(kubectl)
    changed = API.replace("nginx:1", "nginx:2")
    assert await kubectl("apply", "-f", "-", stdin=changed) == "deployment.apps/api configured\n"
    await kubectl("rollout", "status", "deploy/api", "--timeout=600s")
    assert [line.split()[0] for line in (await kubectl("rollout", "history", "deploy/api")).splitlines()[2:4]] == [
        "1",
        "2",
    ]
    assert await kubectl("rollout", "undo", "deploy/api") == "deployment.apps/api rolled back\n"
    image = "jsonpath={.spec.template.spec.containers[0].image}"
    assert await kubectl("get", "deploy", "api", "-o", image) == "nginx:1"
    assert await kubectl("rollout", "restart", "deploy/api") == "deployment.apps/api restarted\n"
    assert "successfully rolled out" in await kubectl("rollout", "status", "deploy/api", "--timeout=600s")


async def test_a_deployment_is_applied_edited_patched_and_scaled(kubectl: Kubectl) -> None:
    assert await kubectl("apply", "--server-side", "-f", "-", stdin=API) == "deployment.apps/api serverside-applied\n"
    assert (
        await kubectl("edit", "deploy", "api", editor="sed -i s/replicas:.3/replicas:\\ 4/")
        == "deployment.apps/api edited\n"
    )
    conflict = await kubectl("apply", "--server-side", "-f", "-", stdin=API, fails=True)
    assert 'conflict with "kubectl-edit" using apps/v1: .spec.replicas' in conflict
    env = '{"spec":{"template":{"spec":{"containers":[{"name":"c","env":[{"name":"A","value":"1"}]}]}}}}'
    await kubectl("patch", "deploy", "api", "-p", env)
    await kubectl("patch", "deploy", "api", "--type=json", "-p", '[{"op":"replace","path":"/spec/replicas","value":5}]')
    await kubectl("patch", "deploy", "api", "--type=merge", "-p", '{"metadata":{"labels":{"x":"y"}}}')
    deployment = json.loads(await kubectl("get", "deploy", "api", "-o", "json"))
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    assert (container["image"], container["env"], deployment["spec"]["replicas"]) == (
        "nginx:1",
        [{"name": "A", "value": "1"}],
        5,
    )
    assert await kubectl("scale", "deploy/api", "--replicas=2") == "deployment.apps/api scaled\n"
    diff = await kubectl.differences("diff", "-f", "-", stdin=API)
    assert "-  replicas: 2" in diff and "+  replicas: 3" in diff


async def test_labels_annotations_and_taints_are_added_and_removed(kubectl: Kubectl) -> None:
    assert await kubectl("label", "node", "node-0", "tier=front") == "node/node-0 labeled\n"
    assert "already has a value (front)" in await kubectl("label", "node", "node-0", "tier=back", fails=True)
    assert await kubectl("label", "node", "node-0", "tier-") == "node/node-0 unlabeled\n"
    assert await kubectl("annotate", "node", "node-0", "note=hi") == "node/node-0 annotated\n"
    assert await kubectl("taint", "nodes", "node-0", "k=v:NoSchedule") == "node/node-0 tainted\n"
    assert "k=v:NoSchedule" in await kubectl("describe", "node", "node-0")
    assert await kubectl("taint", "nodes", "node-0", "k-") == "node/node-0 untainted\n"


async def test_a_drained_node_is_empty_and_its_pods_run_on_other_nodes(kubectl: Kubectl) -> None:
    await deploy(kubectl)
    assert "node/node-0 drained" in await kubectl("drain", "node-0", "--ignore-daemonsets", "--timeout=600s")
    assert "SchedulingDisabled" in await kubectl("get", "node", "node-0")
    await kubectl("wait", "--for=condition=Available", "deploy/api", "--timeout=600s")
    assert "No resources" in (await kubectl.output("get", "pods", "--field-selector=spec.nodeName=node-0"))
    assert await kubectl("uncordon", "node-0") == "node/node-0 uncordoned\n"


async def test_objects_are_deleted_by_force_by_selector_in_the_foreground_and_with_their_namespace(
    kubectl: Kubectl,
) -> None:
    await deploy(kubectl)
    await kubectl("run", "one", "--image=nginx", "--restart=Never")
    await kubectl("wait", "--for=condition=Ready", "pod/one", "--timeout=600s")
    assert 'pod "one" force deleted' in await kubectl("delete", "pod", "one", "--force")
    assert "deleted" in await kubectl("delete", "pods", "-l", "app=api", "--timeout=600s")
    assert "deleted" in await kubectl("delete", "deploy", "api", "--cascade=foreground", "--timeout=600s")
    assert "No resources found" in await kubectl.output("get", "rs,pods")
    await kubectl("create", "namespace", "team")
    await kubectl("-n", "team", "run", "x", "--image=y")
    assert 'namespace "team" deleted' in await kubectl("delete", "namespace", "team", "--timeout=600s")


async def test_a_job_completes(kubectl: Kubectl) -> None:
    assert (
        await kubectl("create", "job", "hello", "--image=busybox", "--", "echo", "hello") == "job.batch/hello created\n"
    )
    assert "condition met" in await kubectl("wait", "--for=condition=complete", "job/hello", "--timeout=600s")
    assert (await kubectl("get", "job", "hello")).splitlines()[1].split()[:3] == ["hello", "Complete", "1/1"]


async def test_resources_fields_and_permissions_are_discovered(kubectl: Kubectl) -> None:
    assert "deployments" in await kubectl("api-resources")
    assert "apps/v1" in await kubectl("api-versions")
    assert "FIELD: maxSurge <IntOrString>" in await kubectl(
        "explain", "deployment.spec.strategy.rollingUpdate.maxSurge"
    )
    assert await kubectl("auth", "can-i", "create", "pods") == "yes\n"
    assert await kubectl("get", "--raw", "/healthz") == "ok"
    assert "is running at" in await kubectl("cluster-info")


async def test_top_prints_the_simulated_usage_of_nodes_and_pods(kubectl: Kubectl) -> None:
    resources = {"requests": {"cpu": "8", "memory": "32Gi"}}
    spec = {"nodeName": "node-0", "containers": [{"name": "c", "image": "i", "resources": resources}]}
    web = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": spec}
    await kubectl("create", "-f", "-", stdin=json.dumps(web))
    await kubectl("wait", "--for=condition=Ready", "pod/web", "--timeout=600s")
    nodes = (await kubectl("top", "nodes")).splitlines()
    assert nodes[1].split() == ["node-0", "8000m", "25%", "32768Mi", "25%"]
    pods = (await kubectl("top", "pods", "--containers")).splitlines()
    assert pods[1].split() == ["web", "c", "8000m", "32768Mi"]


async def test_unsupported_commands_and_missing_objects_are_reported(kubectl: Kubectl) -> None:
    await kubectl("run", "one", "--image=nginx")
    await kubectl("wait", "--for=condition=Ready", "pod/one", "--timeout=600s")
    assert "simulated container one of image nginx started" in await kubectl("logs", "one")
    assert "do not run containers" in await kubectl("exec", "one", "--", "ls", fails=True)
    assert 'pods "none" not found' in await kubectl("get", "pod", "none", fails=True)
    assert "doesn't have a resource type" in await kubectl("get", "nonsense", fails=True)


async def test_a_watch_prints_pods_until_they_run(kubectl: Kubectl) -> None:
    await kubectl("create", "deployment", "web", "--image=nginx")
    lines = await kubectl.until("Running", "get", "pods", "--watch", "-o", "wide")
    assert lines[0].split()[:3] == ["NAME", "READY", "STATUS"]
    assert lines[-1].split()[1:3] == ["1/1", "Running"]
