"""Owner references: reading them from stored objects, and creating controller references."""

from __future__ import annotations

import msgspec

from kubestow_devcluster.apiserver.resources import Kind, Object
from kubestow_devcluster.apiserver.storage.store import StoredObject

__all__ = ["OwnerRef", "controller_of", "new_controller_ref", "owner_refs_of"]


class OwnerRef(msgspec.Struct, frozen=True, rename="camel"):
    """``metadata.ownerReferences[]`` with the fields that controllers read."""

    kind: str
    name: str
    uid: str
    api_version: str = ""
    controller: bool = False
    block_owner_deletion: bool = False


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    owner_references: tuple[OwnerRef, ...] = ()


class _Dependent(msgspec.Struct, frozen=True):
    metadata: _Metadata


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
    return {
        "apiVersion": kind.api_version,
        "kind": kind.name,
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
