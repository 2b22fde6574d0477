"""A cluster in memory, for the engine alone: objects reach the scheduler without HTTP, JSON or another process.

It does the part of an API server that decisions depend on: the defaults of pods and nodes, the priority of a class, the
condition of gated pods, and finalizers. Kinds that the scheduler does not watch are accepted and forgotten.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from kubestow.api.conversion import DEVICE_TAINT_RULES
from kubestow.api.core import Pod
from kubestow.api.meta import convert
from kubestow.api.resource import DeviceTaintRule
from kubestow.errors import APIError, InputError
from kubestow.rules.defaults import default_allocatable, default_pod_spec, default_resource_claim_spec
from kubestow.scheduling.events.resources import PODS, WATCHED, resource_of
from kubestow.scheduling.interfaces import Resource, Subscriber
from kubestow.testing.memory_cluster import MemoryCluster
from kubestow_lab.scheduler_perf.clusters import Creation, ObjectIdentity
from kubestow_lab.scheduler_perf.object_templates import Object

_FORBIDDEN, _NOT_FOUND, _ALREADY_EXISTS = 403, 404, 409
#: A time in the past, for objects that are being deleted.
_DELETION_TIMESTAMP = "2024-01-01T00:00:00Z"
#: The kinds of the core without namespaces that the scheduler does not watch.
_UNWATCHED_CLUSTER_KINDS = frozenset({"PriorityClass", "RuntimeClass"})


class InMemoryCluster:
    """Implements :class:`~kubestow_lab.scheduler_perf.clusters.ClusterUnderTest`.

    The scheduler runs on :attr:`memory`; ``watched`` are the resources that it may watch.
    """

    def __init__(self, watched: Iterable[Resource] = WATCHED) -> None:
        self._resources = {(resource.api_version, resource.kind): resource for resource in watched}
        rules = resource_of(DeviceTaintRule)  # are alike in all versions
        for version in DEVICE_TAINT_RULES.former:
            self._resources[f"{DEVICE_TAINT_RULES.name}/{version}", rules.kind] = rules
        self.memory = MemoryCluster()
        self._uids = itertools.count()
        self._priorities: dict[str, int] = {}

    async def prepare(self, obj: Object, namespace: str = "") -> Creation:
        metadata = obj["metadata"]
        kind, api_version = obj.get("kind", ""), obj.get("apiVersion", "v1")
        resource = self._watched(api_version, kind)
        namespace = namespace if resource is None or resource.namespaced else ""
        obj["metadata"] = metadata | {"namespace": namespace, "uid": f"uid-{next(self._uids)}"}
        if kind == "PriorityClass":
            self._priorities[metadata["name"]] = obj["value"]
        self._set_defaults(obj)
        new = None if resource is None else convert(resource.type, obj)

        async def create() -> Object:
            await asyncio.sleep(0)
            if resource is not None:
                name: str = metadata["name"]
                if (namespace, name) in self.memory.objects(resource.type):
                    raise APIError(_ALREADY_EXISTS, "AlreadyExists", f'{resource.plural} "{name}" already exists')
                self.memory.put(new)
            return obj

        return create

    async def is_namespaced(self, api_version: str, kind: str) -> bool:
        resource = self._watched(api_version, kind)
        return kind not in _UNWATCHED_CLUSTER_KINDS if resource is None else resource.namespaced

    async def replace(self, obj: Object, namespace: str = "", subresource: str = "") -> None:
        resource, name = self._required(obj.get("apiVersion", "v1"), obj["kind"]), obj["metadata"]["name"]
        current = self.memory.objects(resource.type).get((namespace if resource.namespaced else "", name))
        if current is None:
            raise APIError(_NOT_FOUND, "NotFound", f'{resource.plural} "{name}" not found')
        obj["metadata"] = obj["metadata"] | {"namespace": current.metadata.namespace, "uid": current.metadata.uid}
        self._set_defaults(obj)
        new = convert(resource.type, obj)
        if isinstance(new, Pod):
            spec = msgspec.structs.replace(new.spec, node_name=current.spec.node_name)
            new = msgspec.structs.replace(new, spec=spec, status=current.status)
        self.memory.put(new)

    async def delete(self, reference: ObjectIdentity, *, immediately: bool = False) -> None:
        resource = self._watched(reference.api_version, reference.kind)
        if resource is None:
            return
        namespace = reference.namespace if resource.namespaced else ""
        current = self.memory.objects(resource.type).get((namespace, reference.name))
        if current is not None:
            self._remove(current)

    async def delete_pods(self, namespace: str, labels: Mapping[str, str], *, immediately: bool = False) -> None:
        for pod in self.memory.pods():
            if pod.metadata.namespace == namespace and labels.items() <= pod.metadata.labels.items():
                self._remove(pod)

    async def list_objects(self, api_version: str, kind: str, namespace: str = "") -> list[Object]:
        objects = self.memory.objects(self._required(api_version, kind).type)
        return [
            {"apiVersion": api_version, "kind": kind, **msgspec.to_builtins(obj, enc_hook=str)}
            for (of, _), obj in objects.items()
            if namespace in ("", of)
        ]

    async def watch_pods(self, subscriber: Subscriber) -> None:
        await self.memory.subscribe([PODS], subscriber)

    def _watched(self, api_version: str, kind: str) -> Resource | None:
        """The resource of a kind; None if the scheduler does not watch it. Raises InputError for another version."""
        resource = self._resources.get((api_version, kind))
        group = api_version.rpartition("/")[0]
        if resource is None and any((v.rpartition("/")[0], k) == (group, kind) for v, k in self._resources):
            raise InputError(
                "--core", f"does not convert the kind {kind!r} of {api_version}; run it with an API server"
            )
        return resource

    def _required(self, api_version: str, kind: str) -> Resource:
        resource = self._watched(api_version, kind)
        if resource is None:
            raise InputError("--core", f"has no objects of kind {kind!r} of {api_version}; run it with an API server")
        return resource

    def _remove(self, obj: Any) -> None:
        if not obj.metadata.finalizers:
            self.memory.remove(obj)
        elif obj.metadata.deletion_timestamp is None:
            metadata = msgspec.structs.replace(obj.metadata, deletion_timestamp=_DELETION_TIMESTAMP)
            self.memory.put(msgspec.structs.replace(obj, metadata=metadata))

    def _set_defaults(self, obj: Object) -> None:
        match obj.get("kind"):
            case "Pod":
                self._set_pod_defaults(obj)
            case "Node":
                default_allocatable(obj.setdefault("status", {}))
            case "ResourceClaim":
                default_resource_claim_spec(obj["spec"])

    def _set_pod_defaults(self, pod: Object) -> None:
        """The defaults of the API server, the priority of the pod's class, and the condition of gated pods."""
        spec = pod["spec"]
        if any("resourceClaimTemplateName" in claim for claim in spec.get("resourceClaims", ())):
            name = pod["metadata"]["name"]
            raise InputError("--core", f"pod {name} needs a claim made from a template; run it with an API server")
        priority_class = spec.get("priorityClassName")
        if priority_class and priority_class not in self._priorities:
            raise APIError(_FORBIDDEN, "Forbidden", f"no PriorityClass with name {priority_class} was found")
        default_pod_spec(spec)
        spec["priority"] = self._priorities[priority_class] if priority_class else 0
        if spec.get("schedulingGates"):
            gated = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
            pod["status"] = {"conditions": [gated]}
