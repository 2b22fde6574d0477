"""The kinds of objects that a simulation reads, and how an object of one is decoded."""

from __future__ import annotations

from typing import Any

import msgspec

from kubestow.api.core import Node
from kubestow.api.meta import decode
from kubestow.api.scheduling import CompositePodGroup, Workload
from kubestow.engine.input.documents import Problems, SourceObject
from kubestow.engine.input.object_defaults import with_defaults
from kubestow.errors import InvalidObject
from kubestow.rules.requests import allocatable_amounts
from kubestow.scheduling.events.resources import WATCHED
from kubestow.scheduling.interfaces import Resource

TypeName = tuple[str, str]

_RESOURCES: dict[TypeName, Resource] = {(resource.api_version, resource.kind): resource for resource in WATCHED}

#: Kinds with a pod template, by group version and kind.
WORKLOAD_KINDS: frozenset[TypeName] = frozenset(
    {
        *(("apps/v1", kind) for kind in ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet")),
        *(("batch/v1", kind) for kind in ("Job", "CronJob")),
        ("v1", "ReplicationController"),
    }
)

#: Kinds of Kubernetes that the scheduler reads only where a plugin registers for them.
_READ_BY_PLUGINS: frozenset[TypeName] = frozenset(
    {("batch/v1", "Job"), Workload.api_type(), CompositePodGroup.api_type()}
)

#: Kinds that admission reads when a pod is created.
ADMISSION_KINDS: frozenset[TypeName] = frozenset(
    {
        ("scheduling.k8s.io/v1", "PriorityClass"),
        ("v1", "LimitRange"),
        ("v1", "ResourceQuota"),
        ("node.k8s.io/v1", "RuntimeClass"),
        ("resource.k8s.io/v1", "ResourceClaimTemplate"),
    }
)

#: The API groups of Kubernetes itself, beside those without a dot. Objects of other groups are custom resources.
_GROUP_NAMES = """
    admissionregistration apiextensions apiregistration authentication authorization certificates coordination discovery
    events flowcontrol.apiserver internal.apiserver metrics networking node rbac.authorization resource scheduling
    storage storagemigration
"""
_KUBERNETES_GROUPS = frozenset(f"{name}.k8s.io" for name in _GROUP_NAMES.split())

_VERSIONS: dict[TypeName, list[str]] = {}
for _api_version, _kind in (*_RESOURCES, *WORKLOAD_KINDS, *ADMISSION_KINDS):
    _VERSIONS.setdefault((_api_version.rpartition("/")[0], _kind), []).append(_api_version)


def type_of(source: SourceObject) -> TypeName:
    """Group version and kind of an object."""
    return source.api_version, source.kind


def resource_of(source: SourceObject) -> Resource | None:
    """The resource whose objects the scheduler reads; None for any other kind."""
    return _RESOURCES.get(type_of(source))


def is_custom(source: SourceObject) -> bool:
    """Whether an object is a custom resource, which a plugin may read."""
    group, _, _ = source.api_version.rpartition("/")
    return "." in group and group not in _KUBERNETES_GROUPS


def may_be_read_by_plugins(source: SourceObject) -> bool:
    """Whether plugins may read an object that the scheduler itself does not: custom resources, Jobs, Workloads."""
    return is_custom(source) or type_of(source) in _READ_BY_PLUGINS


def expected_version(source: SourceObject) -> str | None:
    """The version that is read of a kind that is given in another version; None for kinds that are not read."""
    group = source.api_version.rpartition("/")[0]
    return next(iter(_VERSIONS.get((group, source.kind), ())), None)


def decoded(source: SourceObject, resource: Resource, problems: Problems) -> Any | None:
    """The object with namespace, uid and defaults; None, and a problem, if it cannot be decoded or has no name."""
    try:
        obj = with_defaults(decode(resource.type, source.raw))
        if isinstance(obj, Node):
            allocatable_amounts(obj.status.allocatable)  # checks the quantities
    except InvalidObject as error:
        problems.report(source.subject, source.place, f"invalid {source.kind}: {error}")
        return None
    if not obj.metadata.name:
        problems.report(source.subject, source.place, f"{source.kind} without metadata.name")
        return None
    return with_identity(obj, source.kind, (obj.metadata.namespace or "default") if resource.namespaced else "")


def with_identity(obj: Any, kind: str, namespace: str) -> Any:
    """The object in a namespace, and with a uid if it has none."""
    metadata = obj.metadata
    if metadata.uid and metadata.namespace == namespace:
        return obj
    uid = metadata.uid or assumed_uid(kind, namespace, metadata.name)
    metadata = msgspec.structs.replace(metadata, namespace=namespace, uid=uid)
    return msgspec.structs.replace(obj, metadata=metadata)


def assumed_uid(kind: str, namespace: str, name: str) -> str:
    """The uid of an object of a file that has none there."""
    return f"{kind}/{namespace}/{name}".lower()
