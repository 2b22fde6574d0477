"""Reading stored objects without decoding them whole: what kubelets and controllers check for every event.

A stored pod carries the values of its selectable fields; other facts are read from the encoded bytes. Owner references
are those of ``metadata.ownerReferences``.
"""

from __future__ import annotations

import msgspec

from kubestow.rules.owners import controller_reference
from kubestow.rules.pods import is_terminal
from kubestow_devcluster.apiserver.kinds.kind import Kind
from kubestow_devcluster.apiserver.schema.types import Object
from kubestow_devcluster.apiserver.storage.store import StoredObject

# The positions of spec.nodeName and status.phase among the selectable fields of pods.
_NODE_NAME, _PHASE = 0, 5


class _Metadata(msgspec.Struct, frozen=True):
    uid: str = ""


class _Identified(msgspec.Struct, frozen=True):
    metadata: _Metadata


def uid_of(stored: StoredObject) -> str:
    return msgspec.json.decode(stored.data, type=_Identified).metadata.uid


def is_terminating(stored: StoredObject) -> bool:
    """Whether the object has a deletionTimestamp."""
    return b'"deletionTimestamp":' in stored.data


def has_deadline(pod: StoredObject) -> bool:
    """Whether the pod has ``activeDeadlineSeconds``."""
    return b'"activeDeadlineSeconds":' in pod.data


def node_name_of(pod: StoredObject) -> str:
    """The node a pod is bound to; empty if it is not bound."""
    return pod.fields[_NODE_NAME]


def phase_of(pod: StoredObject) -> str:
    return pod.fields[_PHASE]


def is_pod_finished(pod: StoredObject) -> bool:
    """Whether the pod has succeeded or failed."""
    return is_terminal(phase_of(pod))


class OwnerRef(msgspec.Struct, frozen=True, rename="camel"):
    """``metadata.ownerReferences[]`` with the fields that controllers read."""

    kind: str
    name: str
    uid: str
    api_version: str = ""
    controller: bool = False
    block_owner_deletion: bool = False


class _OwnerMetadata(msgspec.Struct, frozen=True, rename="camel"):
    owner_references: tuple[OwnerRef, ...] = ()


class _Dependent(msgspec.Struct, frozen=True):
    metadata: _OwnerMetadata


def owner_refs_of(stored: StoredObject) -> tuple[OwnerRef, ...]:
    # Most objects have no owner, so most need no decoding.
    if b'"ownerReferences":' not in stored.data:
        return ()
    return msgspec.json.decode(stored.data, type=_Dependent).metadata.owner_references


def controller_of(owner_refs: tuple[OwnerRef, ...]) -> OwnerRef | None:
    """The reference to the managing controller, if there is one."""
    return next((owner for owner in owner_refs if owner.controller), None)


def new_controller_ref(kind: Kind, owner: Object) -> Object:
    """An owner reference that makes ``owner`` the managing controller."""
    metadata = owner["metadata"]
    return controller_reference(kind.api_version, kind.name, name=metadata["name"], uid=metadata["uid"])
