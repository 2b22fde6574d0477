"""Owner references: who an object belongs to, and making something belong to somebody."""

from __future__ import annotations

import msgspec

from kubestow.devcluster.apiserver.resources import Kind, Object
from kubestow.devcluster.apiserver.storage.store import Stored

__all__ = ["Owner", "controller_among", "owner_reference", "owners_of", "uid_of"]


class Owner(msgspec.Struct, frozen=True, rename="camel"):
    """One owner reference. At most one of an object's owners is its ``controller``."""

    kind: str
    name: str
    uid: str
    api_version: str = ""
    controller: bool = False
    block_owner_deletion: bool = False


class _Identity(msgspec.Struct, frozen=True, rename="camel"):
    uid: str = ""
    owner_references: tuple[Owner, ...] = ()


class _Identified(msgspec.Struct, frozen=True):
    metadata: _Identity


def owners_of(stored: Stored) -> tuple[Owner, ...]:
    # Most objects have no owner, and need no decoding to tell.
    if b'"ownerReferences":' not in stored.data:
        return ()
    return msgspec.json.decode(stored.data, type=_Identified).metadata.owner_references


def uid_of(stored: Stored) -> str:
    return msgspec.json.decode(stored.data, type=_Identified).metadata.uid


def controller_among(owners: tuple[Owner, ...]) -> Owner | None:
    return next((owner for owner in owners if owner.controller), None)


def owner_reference(kind: Kind, owner: Object) -> Object:
    """The reference that makes ``owner`` an object's controller."""
    return {
        "apiVersion": kind.api_version,
        "kind": kind.name,
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
