"""The rights in deploy/ suffice for everything a scheduler does, and each is one that a scheduler uses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from kubestow import config
from kubestow.app import Live
from kubestow.devcluster.apiserver.paths import parse
from kubestow.devcluster.apiserver.requests import Request, User
from kubestow.devcluster.apiserver.server import APIServerOptions
from kubestow.devcluster.cluster import ControllerManagerOptions, DevCluster
from tests.client.kubeconfigs import kubeconfig, save
from tests.deploy.manifests import Object, kustomized
from tests.devcluster.client import PODS, Client
from tests.devcluster.kubectl import NEEDS_KUBECTL
from tests.integration.objects import DEVICE_CLASS, device_claim, devices, storage_class, unbound

pytestmark = [*NEEDS_KUBECTL]

_SCHEDULER = User("system:serviceaccount:kube-system:kubestow")
_GATES = "GenericWorkload=true,GangScheduling=true"
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


class Deed(NamedTuple):
    """What a request does, in the words of a role."""

    verb: str
    group: str
    resource: str
    name: str


def deed(request: Request) -> Deed | None:
    """What a request does to which resource; None for a path that names none."""
    target = parse(request.path)
    if target is None:
        return None
    reading = "watch" if request.query.get("watch") else "get" if target.name else "list"
    resource = f"{target.resource}/{target.subresource}" if target.subresource else target.resource
    return Deed(_VERBS.get(request.method, reading), target.group, resource, target.name)


def allows(rules: list[Object], deed: Deed) -> bool:
    return any(
        deed.verb in rule["verbs"]
        and deed.group in rule["apiGroups"]
        and deed.resource in rule["resources"]
        and deed.name in rule.get("resourceNames", [deed.name])
        for rule in rules
    )


class Cluster:
    """An embedded cluster, what the scheduler on it does, and requests of somebody else's."""

    def __init__(self, server: DevCluster) -> None:
        self.ask = Client(server)
        self.deeds: set[Deed] = set()
        self._handle = server.api.handle
        server.api.handle = self._noted  # type: ignore[method-assign]

    async def _noted(self, request: Request) -> Any:
        done = deed(request)
        if request.user.name == _SCHEDULER.name and done is not None:
            self.deeds.add(done)
        return await self._handle(request)

    async def create(self, collection: str, obj: Object) -> None:
        response = await self.ask.post(collection, obj)
        assert response.status == 201, response.message

    async def pod(self, name: str, *, cpu: str = "1", **spec: Any) -> None:
        container = {"name": "c", "image": "none", "resources": {"requests": {"cpu": cpu}}}
        await self.create(PODS, {"metadata": {"name": name}, "spec": {"containers": [container], **spec}})

    async def until(self, holds: Callable[[], object]) -> None:
        """Wait until the scheduler has done something."""
        async with asyncio.timeout(30):
            while True:
                if holds():
                    return
                await asyncio.sleep(0.02)

    async def bound(self, name: str) -> None:
        await self.until(lambda: Deed("create", "", "pods/binding", name) in self.deeds)


@asynccontextmanager
async def scheduled(home: Path) -> AsyncIterator[Cluster]:
    """A cluster of one node whose scheduler runs as the service account of deploy/base."""
    configuration = kustomized("base")
    text = next(obj for obj in configuration if obj["kind"] == "ConfigMap")["data"]["scheduler.yaml"]
    async with DevCluster(
        nodes=1,
        controller_manager=ControllerManagerOptions(),
        apiserver=APIServerOptions(tokens={"secret": _SCHEDULER}),
    ) as server:
        cluster = Cluster(server)
        source = config.render(config.load(text))
        source["profiles"][0]["schedulerName"] = "default-scheduler"
        live = Live.of(source=source, feature_gates=_GATES)
        file = save(home, kubeconfig(server.url, token="secret"))
        running = asyncio.create_task(live.run(kubeconfig=file, master="", on_ready=lambda scheduler: None))
        try:
            yield cluster
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running


async def a_pod_is_bound(cluster: Cluster) -> None:
    await cluster.pod("plain")
    await cluster.bound("plain")


async def a_pod_gets_the_room_of_another(cluster: Cluster) -> None:
    high = {"kind": "PriorityClass", "metadata": {"name": "high"}, "value": 1000}
    await cluster.create("/apis/scheduling.k8s.io/v1/priorityclasses", high)
    await cluster.pod("low", cpu="20")
    await cluster.bound("low")
    await cluster.pod("high", cpu="20", priorityClassName="high")
    await cluster.bound("high")


async def a_pod_gets_a_volume(cluster: Cluster) -> None:
    """One of a class of made volumes, and one of a volume that is there."""
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
    made = {"metadata": {"name": "made"}, "provisioner": "example.com/any", "volumeBindingMode": "WaitForFirstConsumer"}
    await cluster.create("/apis/storage.k8s.io/v1/storageclasses", made)
    for name, of in (("found", "local"), ("made", "made")):
        await cluster.create("/api/v1/namespaces/default/persistentvolumeclaims", unbound(name, of=of))
        await cluster.pod(name, volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": name}}])
        await cluster.bound(name)


async def a_pod_gets_a_device(cluster: Cluster) -> None:
    await cluster.create("/apis/resource.k8s.io/v1/deviceclasses", DEVICE_CLASS)
    await cluster.create("/apis/resource.k8s.io/v1/resourceslices", devices("node-0"))
    await cluster.create("/apis/resource.k8s.io/v1/namespaces/default/resourceclaims", device_claim("gpu"))
    await cluster.pod("deviced", resourceClaims=[{"name": "gpu", "resourceClaimName": "gpu"}])
    await cluster.bound("deviced")


async def a_gang_is_bound(cluster: Cluster) -> None:
    group = {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "PodGroup",
        "metadata": {"name": "train"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 1}}},
    }
    await cluster.create("/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups", group)
    await cluster.pod("ganged", schedulingGroup={"podGroupName": "train"})
    await cluster.bound("ganged")
    await cluster.until(lambda: any(deed.resource == "podgroups/status" for deed in cluster.deeds))


async def test_the_rights_suffice_and_none_is_more_than_is_used(tmp_path: Path) -> None:
    objects = kustomized("base")
    rules = [rule for obj in objects if obj["kind"] in ("ClusterRole", "Role") for rule in obj["rules"]]
    async with scheduled(tmp_path) as cluster:
        for story in (a_pod_is_bound, a_pod_gets_a_volume, a_pod_gets_a_device, a_gang_is_bound):
            await story(cluster)
        await a_pod_gets_the_room_of_another(cluster)
        await cluster.until(lambda: any(deed.resource == "events" for deed in cluster.deeds))
    assert [deed for deed in sorted(cluster.deeds) if not allows(rules, deed)] == []
    done = {(deed.verb, deed.resource) for deed in cluster.deeds}
    writes = {
        (verb, resource)
        for rule in rules
        for resource in rule["resources"]
        for verb in rule["verbs"]
        if verb not in ("get", "list", "watch")
    }
    # Claims for extended resources, repeated events and whoever checks single devices are not in these stories.
    rare = {("create", "resourceclaims"), ("delete", "resourceclaims"), ("patch", "events")}
    assert writes - done - rare == {("patch", "resourceclaims/binding")}
