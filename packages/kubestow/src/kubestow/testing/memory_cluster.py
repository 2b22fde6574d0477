"""An in-memory cluster with faults, for tests of the scheduler and of plugins.

It is the API of simulations (:mod:`kubestow.engine.cluster_api.memory_api`), whose requests take a turn of the
event loop and fail on demand; bindings and recorded events are kept in lists.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kubestow.api.core import Pod, PodCondition
from kubestow.api.resource import ResourceClaim
from kubestow.engine.cluster_api.memory_api import MemoryAPI
from kubestow.rules.pods import condition_of
from kubestow.scheduling.events.resources import PODS
from kubestow.scheduling.interfaces import EventRecord, ObjectReference, PodStatusPatch, Resource


@dataclass
class MemoryCluster(MemoryAPI):
    """A cluster API for tests. ``bindings`` lists (pod, node) in order, ``events`` the recorded events."""

    bindings: list[tuple[str, str]] = field(default_factory=list)
    events: list[EventRecord] = field(default_factory=list)
    #: Raised by the next binds, in order, instead of binding.
    bind_failures: list[Exception] = field(default_factory=list)
    #: Raised by the next patches, in order, instead of patching.
    patch_failures: list[Exception] = field(default_factory=list)
    #: Raised by the next binds, in order, after binding.
    lost_responses: list[Exception] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    # -- reading -----------------------------------------------------------------------------------------------------

    def pod(self, name: str, namespace: str = "default") -> Pod:
        """The current pod."""
        pod = self._objects[PODS][namespace, name]
        assert isinstance(pod, Pod)
        return pod

    def condition(self, name: str) -> PodCondition | None:
        """The PodScheduled condition of a pod, or None."""
        return condition_of(self.pod(name).status, "PodScheduled")

    def claim(self, name: str, namespace: str = "default") -> ResourceClaim:
        """The current ResourceClaim."""
        return self.objects(ResourceClaim)[namespace, name]

    # -- ClusterAPI --------------------------------------------------------------------------------------------------

    async def bind(self, pod: ObjectReference, node_name: str) -> None:
        """Bind a pod. Raises APIError like a real API server, and the failures on demand."""
        await asyncio.sleep(0)
        if self.bind_failures:
            raise self.bind_failures.pop(0)
        await super().bind(pod, node_name)
        self.bindings.append((f"{pod.namespace}/{pod.name}", node_name))
        if self.lost_responses:
            raise self.lost_responses.pop(0)

    async def read_pod(self, pod: ObjectReference) -> Pod | None:
        """The current pod, or None."""
        await asyncio.sleep(0)
        return await super().read_pod(pod)

    async def patch_pod_status(self, pod: ObjectReference, patch: PodStatusPatch) -> None:
        """Set conditions and the nominated node name."""
        await asyncio.sleep(0)
        await super().patch_pod_status(pod, patch)

    async def patch(
        self, resource: Resource, obj: ObjectReference, changes: Mapping[str, Any], *, subresource: str = ""
    ) -> str:
        """Apply a merge patch. Raises APIError like a real API server, and the failures on demand."""
        await asyncio.sleep(0)
        if self.patch_failures:
            raise self.patch_failures.pop(0)
        return await super().patch(resource, obj, changes, subresource=subresource)

    async def delete_pod(self, pod: ObjectReference) -> None:
        """Delete a pod immediately."""
        await asyncio.sleep(0)
        await super().delete_pod(pod)

    def record(self, event: EventRecord) -> None:
        """Append an event to ``events``."""
        self.events.append(event)
