"""The RBAC rules in deploy/ are sufficient for a scheduler, and a scheduler uses each of them.

The scheduler runs with the token of its service account, on a cluster that authorizes by RBAC and contains the objects
of deploy/.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from core_tests.cli.live.test_live_commands import start
from core_tests.client.kubeconfigs import kubeconfig, save
from core_tests.hang_limit import HANG_LIMIT
from devcluster_tests.client import PODS, Client
from devcluster_tests.kubectl import NEEDS_KUBECTL
from kubestow import config
from kubestow.cli.scheduler_app import SchedulerApp
from kubestow.http.messages import UserInfo
from kubestow_devcluster.apiserver.endpoints.requests import Request, parse_request_info
from kubestow_devcluster.apiserver.server.api_server import APIServerOptions
from kubestow_devcluster.cluster import ControllerManagerOptions, DevCluster
from tests.deploy.manifests import Object, kustomize
from tests.integration.objects import DEVICE_CLASS, device_claim, devices, storage_class, unbound

pytestmark = [*NEEDS_KUBECTL]

_SCHEDULER = UserInfo("system:serviceaccount:kube-system:kubestow")
#: The kinds in deploy/ that say who the scheduler is and what it is allowed.
_RIGHTS = ("ServiceAccount", "ClusterRole", "Role", "ClusterRoleBinding", "RoleBinding")
_GATES = "GenericWorkload=true,GangScheduling=true"
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


class Permission(NamedTuple):
    """What a request needs, in terms of a policy rule."""

    verb: str
    group: str
    resource: str
    name: str


def needed(request: Request) -> Permission | None:
    """The permission that a request needs; None for a non-resource path."""
    info = parse_request_info(request.path)
    if info is None:
        return None
    read_verb = "watch" if request.query.get("watch") else "get" if info.name else "list"
    resource = f"{info.resource}/{info.subresource}" if info.subresource else info.resource
    return Permission(_VERBS.get(request.method, read_verb), info.group, resource, info.name)


def allows(rules: list[Object], permission: Permission) -> bool:
    return any(
        permission.verb in rule["verbs"]
        and permission.group in rule["apiGroups"]
        and permission.resource in rule["resources"]
        and permission.name in rule.get("resourceNames", [permission.name])
        for rule in rules
    )


class RecordingCluster:
    """An embedded cluster that records the permissions that its scheduler uses."""

    def __init__(self, server: DevCluster) -> None:
        self.client, self.server = Client(server), server
        self.used: set[Permission] = set()
        self._handle = server.api.handle
        server.api.handle = self._record  # type: ignore[method-assign]

    async def _record(self, request: Request) -> Any:
        permission = needed(request)
        if request.user.name == _SCHEDULER.name and permission is not None:
            self.used.add(permission)
        return await self._handle(request)

    async def create(self, collection: str, obj: Object) -> None:
        response = await self.client.post(collection, obj)
        assert response.status == 201, response.message

    async def pod(self, name: str, *, cpu: str = "1", **spec: Any) -> None:
        container = {"name": "c", "image": "none", "resources": {"requests": {"cpu": cpu}}}
        await self.create(PODS, {"metadata": {"name": name}, "spec": {"containers": [container], **spec}})

    async def until(self, holds: Callable[[], object]) -> None:
        """Wait for a condition."""
        async with asyncio.timeout(HANG_LIMIT):
            while True:
                if holds():
                    return
                await asyncio.sleep(0.02)

    async def bound(self, name: str) -> None:
        await self.until(lambda: Permission("create", "", "pods/binding", name) in self.used)


def _collection(obj: Object) -> str:
    """The path of the collection that an object belongs to."""
    prefix = "/api/v1" if obj["apiVersion"] == "v1" else f"/apis/{obj['apiVersion']}"
    namespace = obj["metadata"].get("namespace")
    return (
        f"{prefix}/namespaces/{namespace}/{obj['kind'].lower()}s" if namespace else f"{prefix}/{obj['kind'].lower()}s"
    )


@asynccontextmanager
async def scheduled(home: Path) -> AsyncIterator[RecordingCluster]:
    """A cluster of one node whose scheduler runs as the service account of deploy/base, with what deploy/ allows it."""
    objects = kustomize("base")
    text = next(obj for obj in objects if obj["kind"] == "ConfigMap")["data"]["scheduler.yaml"]
    async with DevCluster(
        nodes=1,
        controller_manager=ControllerManagerOptions(),
        apiserver=APIServerOptions(rbac=True),
    ) as server:
        cluster = RecordingCluster(server)
        for obj in sorted(objects, key=lambda obj: obj["kind"] != "ServiceAccount"):
            if obj["kind"] in _RIGHTS:
                await cluster.create(_collection(obj), obj)
        account = "/api/v1/namespaces/kube-system/serviceaccounts/kubestow"
        token = (await cluster.client.post(f"{account}/token", {})).json["status"]["token"]
        source = config.render(config.load(text))
        source["profiles"][0]["schedulerName"] = "default-scheduler"
        app = SchedulerApp.create(source=source, feature_gates=_GATES)
        file = save(home, kubeconfig(server.url, token=token))
        running = asyncio.create_task(app.run(kubeconfig=file, master="", on_ready=lambda scheduler: None))
        try:
            yield cluster
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running


async def a_pod_is_bound(cluster: RecordingCluster) -> None:
    await cluster.pod("plain")
    await cluster.bound("plain")


async def a_pod_preempts_another(cluster: RecordingCluster) -> None:
    high = {"kind": "PriorityClass", "metadata": {"name": "high"}, "value": 1000}
    await cluster.create("/apis/scheduling.k8s.io/v1/priorityclasses", high)
    await cluster.pod("low", cpu="20")
    await cluster.bound("low")
    await cluster.pod("high", cpu="20", priorityClassName="high")
    await cluster.bound("high")


async def a_pod_gets_a_volume(cluster: RecordingCluster) -> None:
    """A volume that is provisioned, and one that exists."""
    await cluster.create("/apis/storage.k8s.io/v1/storageclasses", storage_class("local"))
    volume = {
        "metadata": {"name": "disk"},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "local",
            "hostPath": {"path": "/mnt"},
        },
    }
    await cluster.create("/api/v1/persistentvolumes", volume)
    provisioned = {
        "metadata": {"name": "provisioned"},
        "provisioner": "example.com/any",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    await cluster.create("/apis/storage.k8s.io/v1/storageclasses", provisioned)
    for name, of in (("existing", "local"), ("provisioned", "provisioned")):
        await cluster.create("/api/v1/namespaces/default/persistentvolumeclaims", unbound(name, of=of))
        await cluster.pod(name, volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": name}}])
        await cluster.bound(name)


async def a_pod_gets_a_device(cluster: RecordingCluster) -> None:
    await cluster.create("/apis/resource.k8s.io/v1/deviceclasses", DEVICE_CLASS)
    await cluster.create("/apis/resource.k8s.io/v1/resourceslices", devices("node-0"))
    await cluster.create("/apis/resource.k8s.io/v1/namespaces/default/resourceclaims", device_claim("gpu"))
    await cluster.pod("with-device", resourceClaims=[{"name": "gpu", "resourceClaimName": "gpu"}])
    await cluster.bound("with-device")


async def a_gang_is_bound(cluster: RecordingCluster) -> None:
    group = {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "PodGroup",
        "metadata": {"name": "train"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 1}}},
    }
    await cluster.create("/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups", group)
    await cluster.pod("gang-member", schedulingGroup={"podGroupName": "train"})
    await cluster.bound("gang-member")
    await cluster.until(lambda: any(permission.resource == "podgroups/status" for permission in cluster.used))


async def test_the_rules_allow_everything_the_scheduler_does_and_nothing_else(tmp_path: Path) -> None:
    objects = kustomize("base")
    rules = [rule for obj in objects if obj["kind"] in ("ClusterRole", "Role") for rule in obj["rules"]]
    async with scheduled(tmp_path) as cluster:
        for scenario in (a_pod_is_bound, a_pod_gets_a_volume, a_pod_gets_a_device, a_gang_is_bound):
            await scenario(cluster)
        await a_pod_preempts_another(cluster)
        await cluster.until(lambda: any(permission.resource == "events" for permission in cluster.used))
    assert [permission for permission in sorted(cluster.used) if not allows(rules, permission)] == []
    used = {(permission.verb, permission.resource) for permission in cluster.used}
    writes = {
        (verb, resource)
        for rule in rules
        for resource in rule["resources"]
        for verb in rule["verbs"]
        if verb not in ("get", "list", "watch")
    }
    # The scenarios do not cover claims for extended resources, event series and resourceclaims/binding.
    rare = {("create", "resourceclaims"), ("delete", "resourceclaims"), ("patch", "events")}
    assert writes - used - rare == {("patch", "resourceclaims/binding")}


async def test_a_shadow_compares_with_the_rights_of_its_role(tmp_path: Path) -> None:
    async with scheduled(tmp_path) as cluster:
        for obj in sorted(kustomize("shadow"), key=lambda obj: obj["kind"] != "ServiceAccount"):
            await cluster.create(_collection(obj), obj)
        account = "/api/v1/namespaces/kube-system/serviceaccounts/kubestow-shadow"
        token = (await cluster.client.post(f"{account}/token", {})).json["status"]["token"]
        (tmp_path / "shadow").mkdir()
        file = save(tmp_path / "shadow", kubeconfig(cluster.server.url, token=token))
        shadow = await start(Path(file), "shadow", "-o", "json", "--fail-below", "100", "--feature-gates", _GATES)
        assert shadow.stdout is not None
        compared, number = asyncio.create_task(shadow.stdout.readline()), 0
        while not compared.done():  # it has listed everything once it prints its first decision
            await cluster.pod(f"pod-{number}", cpu="10m")
            await asyncio.wait((compared,), timeout=0.5)
            number += 1
        shadow.terminate()
        _, err = await shadow.communicate()
    assert (shadow.returncode, "forbidden" in err.decode()) == (0, False)
    assert json.loads(compared.result())["differs"] is False
