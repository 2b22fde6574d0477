"""The composition root of a development cluster: API server, simulated kubelets and controllers in one process.

    async with DevCluster(nodes=3) as cluster:
        ...  # kubectl --server={cluster.url}

Everything runs on the event loop that calls :meth:`DevCluster.start`. The kubelets and the controllers are one task
each. They handle one object at a time: a failure is logged and concerns that object only. A task that ends although it
was not stopped is a failure of the whole cluster: it is logged, and :meth:`DevCluster.failed` raises.

The scheduler is not part of it: ``kubestow up`` runs one beside it, which connects to :attr:`DevCluster.url` like any
other client.

A new cluster has initial objects: system objects, simulated nodes and the default storage class. Existing objects are
not changed, so a resumed cluster gets only what is missing.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Coroutine
from copy import deepcopy
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from random import Random
from typing import Any, Self

from kubestow.api.storage import IS_DEFAULT_CLASS
from kubestow.errors import KubestowError
from kubestow.log_fields import fields
from kubestow_devcluster.apiserver.registry.registry import SYSTEM, DeleteOptions, Registry, WriteOptions
from kubestow_devcluster.apiserver.resources.strategies.scheduling import SYSTEM_PRIORITY_CLASSES
from kubestow_devcluster.apiserver.schema.types import Object
from kubestow_devcluster.apiserver.security.authorization import METRICS_READER, default_roles
from kubestow_devcluster.apiserver.server.api_server import APIServer, APIServerOptions, wall_clock
from kubestow_devcluster.apiserver.storage.database import Database
from kubestow_devcluster.behaviour.stages import NO_STAGES, Stages
from kubestow_devcluster.component_base.event_recorder import EVENT_TTL
from kubestow_devcluster.component_base.node_health import LEASE_NAMESPACE, NODE_MONITOR_GRACE_PERIOD, RENEW_INTERVAL
from kubestow_devcluster.kubelets.kubelets import Kubelets
from kubestow_devcluster.kubelets.resource_metrics import SimulatedMetrics

_NAMESPACES = ("default", LEASE_NAMESPACE, "kube-public", "kube-system")
#: The field manager of system objects.
_API_SERVER = WriteOptions(field_manager="kube-apiserver")
_ZONES = ("zone-a", "zone-b", "zone-c")
_NODE_NAME = re.compile(r"node-(\d+)")


def create_system_objects(registry: Registry) -> None:
    """Create the four system namespaces, the two system priority classes and the service ``kubernetes``."""
    for name in _NAMESPACES:
        _create(registry, "namespaces", {"metadata": {"name": name}})
    for name, (value, description) in SYSTEM_PRIORITY_CLASSES.items():
        _create(
            registry,
            "priorityclasses.scheduling.k8s.io",
            {"metadata": {"name": name}, "value": value, "description": description},
        )
    ports = [{"name": "https", "protocol": "TCP", "port": 443, "targetPort": 6443}]
    labels = {"component": "apiserver", "provider": "kubernetes"}
    spec = {"clusterIP": "10.96.0.1", "ipFamilyPolicy": "SingleStack", "ports": ports}
    service = {"metadata": {"name": "kubernetes", "labels": labels}, "spec": spec}
    _create(registry, "services", service, namespace="default")


def create_default_roles(registry: Registry) -> None:
    """Create the default roles and bindings of RBAC."""
    for resource, objects in default_roles().items():
        for new in objects:
            namespace = new["metadata"].get("namespace", "")
            _create(registry, f"{resource}.rbac.authorization.k8s.io", new, namespace=namespace)


def create_metrics_reader(registry: Registry) -> None:
    """Create the cluster role that lets all users read metrics.k8s.io, as far as they can read pods."""
    _create(registry, "clusterroles.rbac.authorization.k8s.io", deepcopy(METRICS_READER))


def publish_client_ca(registry: Registry, client_ca: str) -> None:
    """Publish the client CA bundle in kube-system/extension-apiserver-authentication.

    Other servers of the cluster, such as the scheduler's secure port, authenticate client certificates with it.
    ``client_ca`` is PEM; if it is empty, the config map does not exist.
    """
    kind, name = registry.scheme["configmaps"], "extension-apiserver-authentication"
    data = {"client-ca-file": client_ca}
    stored = registry.store.collection(kind.storage).get(kind.key("kube-system", name))
    if stored is not None and kind.decode(stored).get("data") == data:
        return
    if stored is not None:
        registry.delete(kind, "kube-system", name, DeleteOptions())
    if client_ca:
        _create(registry, "configmaps", {"metadata": {"name": name}, "data": data}, namespace="kube-system")


def create_nodes(registry: Registry, count: int) -> None:
    """Create ``node-0`` to ``node-{count - 1}``: 32 CPUs, 128 GiB and 110 pods each, spread over three zones.

    Numbers are not padded, so that a node is named alike in a cluster of any size. A number is skipped if a node has
    it, with any padding.
    """
    existing = registry.store.collection("nodes").snapshot()
    taken = {int(match[1]) for stored in existing if (match := _NODE_NAME.fullmatch(stored.name))}
    capacity = {"cpu": "32", "memory": "128Gi", "ephemeral-storage": "500Gi", "pods": "110"}
    for number in range(count):
        if number in taken:
            continue
        name = f"node-{number}"
        labels = {
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/hostname": name,
            "kubernetes.io/os": "linux",
            "topology.kubernetes.io/region": "region-1",
            "topology.kubernetes.io/zone": _ZONES[number % len(_ZONES)],
        }
        node = {"metadata": {"name": name, "labels": labels}, "status": {"capacity": capacity}}
        _create(registry, "nodes", node, write=SYSTEM)


def create_default_storage_class(registry: Registry) -> None:
    """Create the default class ``standard``; its simulated volumes are accessible from every node."""
    new = {
        "metadata": {"name": "standard", "annotations": {IS_DEFAULT_CLASS: "true"}},
        "provisioner": "kubestow.dev/simulated",
        "volumeBindingMode": "WaitForFirstConsumer",
        "allowVolumeExpansion": True,
    }
    _create(registry, "storageclasses.storage.k8s.io", new)


def _create(
    registry: Registry, resource: str, new: Object, *, namespace: str = "", write: WriteOptions = _API_SERVER
) -> None:
    kind = registry.scheme[resource]
    if registry.store.collection(kind.storage).get(kind.key(namespace, new["metadata"]["name"])) is None:
        registry.create(kind, namespace, kind.struct.read(new, []), write)


_log = logging.getLogger(__name__)


class ComponentFailed(KubestowError):
    """The task of a component (kubelets, controller manager) ended although it was not stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerManagerOptions:
    """Options of the controllers; durations in seconds."""

    #: How long a node may miss heartbeats before its conditions become Unknown.
    node_monitor_grace_period: float = NODE_MONITOR_GRACE_PERIOD
    #: How long an event is kept after its last update.
    event_ttl: float = EVENT_TTL


class DevCluster:
    """A cluster with ``nodes`` nodes, created at construction.

    ``kubelets`` simulates a kubelet for every Node object. ``controller_manager`` runs the controllers of
    kube-controller-manager; without it no controllers run. ``apiserver`` says where to listen and how clients
    authenticate.

    ``database`` persists the cluster. If it already holds one, that cluster is resumed: system objects and nodes that
    exist are not created again. :meth:`stop` closes it. ``clock`` and ``random`` make timestamps and uids reproducible.

    ``stages`` are rules for how pods run and what they use. With them, even without a rule, the usage of nodes and pods
    is served as metrics.k8s.io.
    """

    def __init__(
        self,
        *,
        nodes: int = 0,
        kubelets: bool = True,
        controller_manager: ControllerManagerOptions | None = None,
        apiserver: APIServerOptions | None = None,
        database: Database | None = None,
        clock: Callable[[], datetime] = wall_clock,
        random: Random | None = None,
        stages: Stages | None = None,
    ) -> None:
        self._stages, self._simulates_usage = stages or NO_STAGES, stages is not None
        self.apiserver = APIServer(
            apiserver or APIServerOptions(),
            database=database,
            clock=clock,
            random=random,
            resource_metrics=None if stages is None else partial(SimulatedMetrics, stages.usage),
        )
        #: Reads and writes in process, without HTTP.
        self.registry = self.apiserver.registry
        self.store, self.api = self.apiserver.store, self.apiserver.api
        self._runs_kubelets, self._controller_manager = kubelets, controller_manager
        self._tasks: list[asyncio.Task[None]] = []
        self._failure: ComponentFailed | None = None
        self._task_failed = asyncio.Event()
        # Without the controller that creates service accounts, pods would name accounts that do not exist.
        self.registry.admission.has_service_accounts = controller_manager is not None
        create_system_objects(self.registry)
        if apiserver is not None and apiserver.rbac:
            create_default_roles(self.registry)
            if stages is not None:
                create_metrics_reader(self.registry)
        publish_client_ca(self.registry, self.apiserver.client_ca)
        self.add_nodes(nodes)

    @property
    def url(self) -> str:
        """The URL of the API server for clients on this machine."""
        return self.apiserver.url

    @property
    def is_resumed(self) -> bool:
        """Whether the database already held a cluster."""
        return self.apiserver.is_resumed

    def add_nodes(self, count: int) -> None:
        """Create those of the nodes 0 to ``count - 1`` that do not exist."""
        create_nodes(self.registry, count)

    async def start(self) -> None:
        """Listen, then start kubelets and controllers.

        Raises AddressInUse, or OSError for an address that cannot be bound.
        """
        await self.apiserver.start()
        if self._runs_kubelets:
            kubelets = Kubelets(self.registry, lease_renew_interval=self._lease_renew_interval(), stages=self._stages)
            self._run("kubelets", kubelets.run())
        if self._controller_manager is not None:
            # Imported here because the controllers need NumPy, which would slow the start of an API server alone.
            from kubestow_devcluster.controller_manager import ControllerManager

            if not self.is_resumed and not len(self.store.collection("storageclasses.storage.k8s.io")):
                create_default_storage_class(self.registry)
            usage = SimulatedMetrics(self._stages.usage, self.store, self.registry.clock)
            manager = ControllerManager(
                self.registry,
                node_monitor_grace_period=self._controller_manager.node_monitor_grace_period,
                event_ttl=self._controller_manager.event_ttl,
                root_ca=self.apiserver.root_ca,
                usage=usage if self._simulates_usage else None,
            )
            self._run("controller manager", manager.run())

    def _lease_renew_interval(self) -> float:
        """The kubelet's default, or less, so that a short grace period does not expire between two renewals."""
        if self._controller_manager is None:
            return RENEW_INTERVAL
        return min(RENEW_INTERVAL, self._controller_manager.node_monitor_grace_period / 4)

    def _run(self, component: str, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(coroutine, name=component)
        task.add_done_callback(self._on_task_done)
        self._tasks.append(task)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            return
        error = task.exception()
        self._failure = ComponentFailed(f"{task.get_name()} ended: {error!r}")
        self._failure.__cause__ = error
        _log.critical("%s ended unexpectedly", task.get_name(), exc_info=error, extra=fields(task=task.get_name()))
        self._task_failed.set()

    async def failed(self) -> None:
        """Wait until the cluster fails, then raise; never returns.

        Raises StorageFailed when a write to the database fails, ComponentFailed when kubelets or controllers end.
        """
        component = asyncio.create_task(self._task_failed.wait())
        storage = asyncio.create_task(self.apiserver.failed())
        try:
            await asyncio.wait((component, storage), return_when=asyncio.FIRST_COMPLETED)
            if storage.done():
                await storage
        finally:
            component.cancel()
            storage.cancel()
        assert self._failure is not None
        raise self._failure

    async def stop(self) -> None:
        """Stop controllers and kubelets, then the API server."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        await self.apiserver.stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, error_type: object, *_: object) -> None:
        """Stop. Raises ComponentFailed if kubelets or controllers have ended before, unless the body has raised."""
        await self.stop()
        if error_type is None and self._failure is not None:
            raise self._failure
