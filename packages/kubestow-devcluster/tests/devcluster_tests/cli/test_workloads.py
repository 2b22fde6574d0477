"""``kubestow up`` with kubectl: workloads of all kinds."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from devcluster_tests.kubectl import NEEDS_KUBECTL, Kubectl
from devcluster_tests.scheduled_cluster import scheduled_cluster

pytestmark = NEEDS_KUBECTL

TEMPLATE = """
  selector: {matchLabels: {app: web}}
  template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: "nginx:1"}]}}
"""


def manifest(kind: str, spec: str = "", *, version: str = "apps/v1") -> str:
    return f"apiVersion: {version}\nkind: {kind}\nmetadata: {{name: web}}\nspec:\n  {spec}{TEMPLATE}"


@pytest.fixture
async def kubectl(tmp_path: Path) -> AsyncIterator[Kubectl]:
    async with scheduled_cluster(nodes=3) as cluster:
        yield Kubectl(cluster.url, tmp_path)


async def test_a_drain_waits_for_the_disruption_budget(kubectl: Kubectl) -> None:
    await kubectl("cordon", "node-1", "node-2")
    await kubectl("create", "deployment", "web", "--image=nginx", "--replicas=2")
    await kubectl("create", "pdb", "guard", "--selector=app=web", "--max-unavailable=1")
    await kubectl("wait", "--for=jsonpath={.status.disruptionsAllowed}=1", "pdb/guard", "--timeout=600s")
    assert (await kubectl("get", "pdb", "guard")).splitlines()[1].split()[:4] == ["guard", "N/A", "1", "1"]
    error = await kubectl("drain", "node-0", "--timeout=2s", fails=True)
    assert "Cannot evict pod as it would violate the pod's disruption budget" in error
    await kubectl("uncordon", "node-1")
    await kubectl("wait", "--for=jsonpath={.status.disruptionsAllowed}=1", "pdb/guard", "--timeout=600s")
    assert "node/node-0 drained" in await kubectl("drain", "node-0", "--timeout=600s")
    await kubectl("rollout", "status", "deployment/web", "--timeout=600s")
    described = (await kubectl("describe", "pdb", "guard")).splitlines()
    counts = dict(line.strip().split(":") for line in described if "    " in line and line.count(":") == 1)
    assert {name: int(counts[name]) for name in ("Allowed disruptions", "Current", "Desired", "Total")} == {
        "Allowed disruptions": 1,
        "Current": 2,
        "Desired": 1,
        "Total": 2,
    }


@pytest.mark.parametrize(("kind", "resource"), [("StatefulSet", "statefulset"), ("DaemonSet", "daemonset")])
async def test_sets_are_rolled_out_updated_rolled_back_and_restarted(
    kubectl: Kubectl, kind: str, resource: str
) -> None:
    web, image = f"{resource}/web", "jsonpath={.spec.template.spec.containers[0].image}"
    replicas = "replicas: 3" if kind == "StatefulSet" else ""
    assert await kubectl("apply", "-f", "-", stdin=manifest(kind, replicas)) == f"{resource}.apps/web created\n"
    await kubectl("rollout", "status", web, "--timeout=600s")
    await kubectl("set", "image", web, "c=nginx:2")
    assert "3" in (await kubectl("rollout", "status", web, "--timeout=600s")).splitlines()[-1] or kind == "DaemonSet"
    images = "jsonpath={.items[*].spec.containers[0].image}"
    assert await kubectl("get", "pods", "-o", images) == "nginx:2 nginx:2 nginx:2"
    assert "nginx:1" in await kubectl("rollout", "history", web, "--revision=1")
    assert await kubectl("rollout", "undo", web) == f"{resource}.apps/web rolled back\n"
    await kubectl("rollout", "status", web, "--timeout=600s")
    assert await kubectl("get", web, "-o", image) == "nginx:1"
    assert (await kubectl("rollout", "history", web)).split()[-4:] == ["2", "<none>", "3", "<none>"]
    assert await kubectl("rollout", "restart", web) == f"{resource}.apps/web restarted\n"
    await kubectl("rollout", "status", web, "--timeout=600s")
    described = await kubectl("describe", web)
    assert "SuccessfulCreate" in described and "3 Running / 0 Waiting / 0 Succeeded / 0 Failed" in described


async def test_sets_are_printed_with_their_columns(kubectl: Kubectl) -> None:
    await kubectl("apply", "-f", "-", stdin=manifest("StatefulSet", "replicas: 2"))
    await kubectl("apply", "-f", "-", stdin=manifest("DaemonSet"))
    await kubectl("rollout", "status", "sts/web", "--timeout=600s")
    await kubectl("rollout", "status", "ds/web", "--timeout=600s")
    stateful = (await kubectl("get", "sts", "-o", "wide")).splitlines()
    assert stateful[0].split() == ["NAME", "READY", "AGE", "CONTAINERS", "IMAGES"]
    assert stateful[1].split()[:2] == ["web", "2/2"]
    daemons = (await kubectl("get", "ds")).splitlines()
    assert daemons[0].split("  ")[0] == "NAME" and "NODE SELECTOR" in daemons[0]
    assert daemons[1].split()[:7] == ["web", "3", "3", "3", "3", "3", "<none>"]
    assert (await kubectl("get", "controllerrevisions")).count("web-") == 2


async def test_every_scalable_workload_is_scaled(kubectl: Kubectl) -> None:
    await kubectl("apply", "-f", "-", stdin=manifest("StatefulSet", "podManagementPolicy: Parallel"))
    await kubectl("apply", "-f", "-", stdin=manifest("ReplicaSet").replace("web", "set"))
    older = manifest("ReplicationController", version="v1").replace("web", "old")
    await kubectl("apply", "-f", "-", stdin=older.replace("{matchLabels: {app: old}}", "{app: old}"))
    for name in ("sts/web", "rs/set", "rc/old"):
        assert "scaled" in await kubectl("scale", name, "--replicas=2")
        await kubectl("wait", "--for=jsonpath={.status.readyReplicas}=2", name, "--timeout=600s")
    assert (await kubectl("get", "rc", "old")).splitlines()[1].split()[:4] == ["old", "2", "2", "2"]
    assert "SuccessfulCreate" in await kubectl("describe", "rc", "old")


async def test_a_drain_does_not_evict_daemon_pods(kubectl: Kubectl) -> None:
    await kubectl("apply", "-f", "-", stdin=manifest("DaemonSet"))
    await kubectl("rollout", "status", "ds/web", "--timeout=600s")
    assert "node/node-0 drained" in await kubectl("drain", "node-0", "--ignore-daemonsets", "--timeout=600s")
    assert (await kubectl("get", "ds", "web")).splitlines()[1].split()[:4] == ["web", "3", "3", "3"]


async def test_a_deployment_is_paused_and_resumed(kubectl: Kubectl) -> None:
    await kubectl("create", "deployment", "web", "--image=nginx:1", "--replicas=2")
    assert await kubectl("rollout", "pause", "deployment/web") == "deployment.apps/web paused\n"
    await kubectl("set", "image", "deployment/web", "nginx=nginx:2")
    await kubectl("wait", "--for=jsonpath={.status.observedGeneration}=3", "deployment/web", "--timeout=600s")
    assert "nginx:2" not in await kubectl("get", "pods", "-o", "jsonpath={.items[*].spec.containers[0].image}")
    assert await kubectl("rollout", "resume", "deployment/web") == "deployment.apps/web resumed\n"
    assert "successfully rolled out" in await kubectl("rollout", "status", "deployment/web", "--timeout=600s")
    assert "nginx:2" in await kubectl("get", "pods", "-o", "jsonpath={.items[*].spec.containers[0].image}")


async def test_cron_jobs_create_jobs_on_schedule_and_manually(kubectl: Kubectl) -> None:
    created = await kubectl("create", "cronjob", "tick", "--image=busybox", "--schedule=0 0 1 1 *", "--", "true")
    assert created == "cronjob.batch/tick created\n"
    header, row = (await kubectl("get", "cronjobs")).splitlines()
    assert header.split() == ["NAME", "SCHEDULE", "TIMEZONE", "SUSPEND", "ACTIVE", "LAST", "SCHEDULE", "AGE"]
    assert row.split()[:9] == ["tick", "0", "0", "1", "1", "*", "<none>", "False", "0"]
    assert await kubectl("create", "job", "now", "--from=cronjob/tick") == "job.batch/now created\n"
    await kubectl("wait", "--for=condition=complete", "job/now", "--timeout=600s")
    await kubectl("create", "cronjob", "often", "--image=busybox", "--schedule=@every 1s", "--", "true")
    await kubectl("wait", "--for=jsonpath={.status.lastSuccessfulTime}", "cronjob/often", "--timeout=600s")
    assert "Created job often-" in await kubectl("describe", "cronjob", "often")
