"""Replacements: the pods that controllers create for evicted ones."""

from __future__ import annotations

from collections.abc import Container
from itertools import count

import msgspec

from kubestow.api.core import Pod, PodStatus
from kubestow.api.meta import OwnerReference
from kubestow.rules.owners import generated_suffix

__all__ = ["original_uid", "replacement", "replacing_controller"]

#: Controllers that do not replace a pod: that of static pods, and one whose pods belong to their nodes.
_NOT_REPLACING = frozenset({"Node", "DaemonSet"})
_REPLACEMENT = "/replacement"


def replacing_controller(pod: Pod) -> OwnerReference | None:
    """The controller of a pod, if it creates another one, wherever that may be placed."""
    controller = pod.metadata.controller
    return None if controller is None or controller.kind in _NOT_REPLACING else controller


def replacement(pod: Pod, controller: OwnerReference, existing: Container[tuple[str, str]], created: str | None) -> Pod:
    """The pending pod that a controller creates in place of a pod.

    The pod of a StatefulSet keeps its name, others get a generated one. ``existing`` are namespaces and names of pods,
    ``created`` is the time of creation.
    """
    metadata, name = pod.metadata, pod.metadata.name
    if controller.kind != "StatefulSet":
        names = (f"{controller.name}-{generated_suffix(f'replacement of {name}', number)}" for number in count(1))
        name = next(name for name in names if (metadata.namespace, name) not in existing)
    uid = f"{metadata.uid}{_REPLACEMENT}"
    metadata = msgspec.structs.replace(metadata, name=name, uid=uid, creation_timestamp=created)
    spec = msgspec.structs.replace(pod.spec, node_name="")
    status = PodStatus(resource_claim_statuses=pod.status.resource_claim_statuses)
    return msgspec.structs.replace(pod, metadata=metadata, spec=spec, status=status)


def original_uid(uid: str) -> str:
    """The uid of the pod that a pod was created for in the end, its own if it is no replacement."""
    while uid.endswith(_REPLACEMENT):
        uid = uid.removesuffix(_REPLACEMENT)
    return uid
