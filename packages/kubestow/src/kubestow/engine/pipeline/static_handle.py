"""The handle of plugins where decisions are made one after another, without queue, binding cycle and API server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from datetime import UTC, datetime
from random import Random
from typing import Any, TypeVar, cast

from kubestow import config
from kubestow.api.resource import ResourceClaim
from kubestow.api.storage import PersistentVolume, PersistentVolumeClaim
from kubestow.cluster.cache import Cluster
from kubestow.cluster.changes.catalog import KubernetesObject
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.engine.cluster_api.object_writes import VersionedStore, merge_patched
from kubestow.engine.cluster_api.resource_claims import InMemoryResourceClaims
from kubestow.engine.cluster_api.volume_controller import bind_reserved_volumes
from kubestow.framework.status import SUCCESS
from kubestow.scheduling.decision.pipeline import run_synchronously
from kubestow.scheduling.events.resources import resource_of
from kubestow.scheduling.interfaces import ObjectReference
from kubestow.scheduling.scheduler.handle import BaseHandle

T = TypeVar("T")
K = TypeVar("K", bound=KubernetesObject)

DEFAULT_TIME = datetime(2026, 6, 1, tzinfo=UTC)
"""The time of a static handle, unless another is given."""


class StaticHandle(BaseHandle):
    """Plugins can use a cluster and feature gates, at a fixed time; there is no queue and no API server."""

    def __init__(self, cluster: Cluster, gates: config.FeatureGates, time: datetime = DEFAULT_TIME) -> None:
        super().__init__(cluster, gates, Random(0))
        self._time = time
        self.resource_claims = InMemoryResourceClaims(VersionedStore(cluster.catalog(ResourceClaim)))
        self._stores: dict[type[Any], VersionedStore[Any]] = {}

    async def request(self, method: str, path: str, body: Any = None) -> Any:
        raise NotImplementedError("there is no API server")

    async def bind(self, pod: PodInfo, node_name: str) -> None:
        raise NotImplementedError("pods are placed without an API server")

    def now(self) -> datetime:
        return self._time

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        run_synchronously(work)

    def run_periodically(self, seconds: float, work: Callable[[], Awaitable[None]]) -> None:
        """Do nothing: the time is fixed."""

    async def patch(self, obj: KubernetesObject, changes: Mapping[str, Any], *, subresource: str = "") -> str:
        resource, store, of = resource_of(type(obj)), self._store(type(obj)), obj.metadata
        base = ObjectReference(resource.kind, of.namespace, of.name, of.uid, resource_version=of.resource_version)
        patched = store.put(merge_patched(resource, store.get(of.namespace, of.name), base, changes))
        return str(patched.metadata.resource_version)

    async def wait_for(self, condition: Callable[[], T | None], seconds: float) -> T | None:
        """Let the volume controller work, then evaluate the condition.

        Nothing completes what a pod waits for after that: a provisioner or a device driver is not part of a recording,
        in which such pods are bound.
        """
        bind_reserved_volumes(self._store(PersistentVolume), self._store(PersistentVolumeClaim))
        return condition() or cast(T, SUCCESS)

    def _store(self, kind: type[K]) -> VersionedStore[K]:
        return self._stores.setdefault(kind, VersionedStore(self.cluster.catalog(kind)))
