"""The arguments of the scheduler's calls as a record has them: what identifies the object, and what is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kubestow.api.resource import ResourceClaim
from kubestow.framework.interface import Victims
from kubestow.scheduling.interfaces import ObjectReference, PodStatusPatch, Resource

__all__ = [
    "claim_arguments",
    "object_arguments",
    "status_arguments",
    "subscription_arguments",
    "victims_arguments",
]


def subscription_arguments(resources: Sequence[Resource]) -> list[Any]:
    """The resources that are watched."""
    return [(resource.prefix, resource.plural, resource.kind) for resource in resources]


def object_arguments(obj: ObjectReference) -> list[Any]:
    """An object by its name and uid."""
    return [f"{obj.namespace}/{obj.name}" if obj.namespace else obj.name, obj.uid]


def claim_arguments(claim: ResourceClaim) -> list[Any]:
    """A ResourceClaim by its name, uid and version."""
    metadata = claim.metadata
    return [f"{metadata.namespace}/{metadata.name}", metadata.uid, metadata.resource_version]


def status_arguments(pod: ObjectReference, patch: PodStatusPatch) -> list[Any]:
    """A patch of a pod's status."""
    return [*object_arguments(pod), list(patch.conditions), patch.nominated_node_name]


def victims_arguments(victims_by_node: Mapping[str, Victims]) -> dict[str, list[str]]:
    """The uids of preemption victims by node."""
    return {name: [pod.uid for pod in victims.pods] for name, victims in victims_by_node.items()}
