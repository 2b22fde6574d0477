"""The interface between the operations of a workload and the cluster they act on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from kubestow.scheduling.interfaces import Subscriber
from kubestow_lab.scheduler_perf.workload_files.object_templates import Object

__all__ = ["Cluster", "Creation", "ObjectReference", "reference_to"]

Creation = Callable[[], Awaitable[Object]]
"""Creates one object and returns it as stored."""


@dataclass(frozen=True, slots=True)
class ObjectReference:
    """Identifies an object; ``namespace`` is empty for kinds without namespaces."""

    api_version: str
    kind: str
    namespace: str
    name: str


class Cluster(Protocol):
    """A cluster under test. Failures are raised as APIError or Unreachable."""

    async def prepare(self, obj: Object, namespace: str = "") -> Creation:
        """Everything about the creation of an object that can be done before time is measured.

        ``namespace`` is used for kinds that have namespaces.
        """

    async def is_namespaced(self, api_version: str, kind: str) -> bool:
        """Whether the objects of a kind are in namespaces. Raises InputError for a kind that is not served."""

    async def replace(self, obj: Object, namespace: str = "", subresource: str = "") -> None:
        """Replace an existing object, or one subresource of it."""

    async def delete(self, reference: ObjectReference, *, immediately: bool = False) -> None:
        """Delete an object, without a grace period if ``immediately``. One that does not exist is no error."""

    async def delete_pods(self, namespace: str, labels: Mapping[str, str], *, immediately: bool = False) -> None:
        """Delete the pods of a namespace that have all these labels."""

    async def list_objects(self, api_version: str, kind: str, namespace: str = "") -> list[Object]:
        """The objects of a kind, of one namespace or of all."""

    async def watch_pods(self, subscriber: Subscriber) -> None:
        """Deliver all pods and their changes until cancelled. A delivered pod has metadata, spec and status."""


def reference_to(obj: Object, namespace: str = "") -> ObjectReference:
    """The reference to an object with a name."""
    name = obj["metadata"]["name"]
    return ObjectReference(obj.get("apiVersion", "v1"), obj["kind"], namespace, name)
