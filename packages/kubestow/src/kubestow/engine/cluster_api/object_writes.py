"""In-memory writes of API objects, with uid and resourceVersion as preconditions, as an API server checks them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from kubestow.api.meta import ObjectMeta, convert
from kubestow.cluster.changes.catalog import Catalog, KubernetesObject
from kubestow.errors import APIError
from kubestow.rules.patches import json_merge_patch
from kubestow.scheduling.interfaces import ObjectReference, Resource

T = TypeVar("T", bound=KubernetesObject)


class VersionedStore(Generic[T]):
    """The observed objects of a catalog. Every change gets a new resourceVersion and ends what was assumed."""

    def __init__(self, catalog: Catalog[T]) -> None:
        self._catalog = catalog
        self._version = 0

    def __iter__(self) -> Iterator[T]:
        """All objects, in the order of namespace and name."""
        return iter(self._catalog)

    def get(self, namespace: str, name: str) -> T | None:
        """An object as last written, or None."""
        return self._catalog.as_observed(namespace, name)

    def put(self, obj: T, /) -> T:
        """Create or replace an object; returns it with its new resourceVersion."""
        old = self.get(obj.metadata.namespace, obj.metadata.name)
        known = "" if old is None else old.metadata.resource_version
        self._version = max(self._version, int(known) if known.isdigit() else 0) + 1
        metadata = msgspec.structs.replace(obj.metadata, resource_version=str(self._version))
        written: T = msgspec.structs.replace(obj, metadata=metadata)  # type: ignore[type-var]
        self._catalog.put(written)
        return written

    def remove(self, namespace: str, name: str, /) -> None:
        """Remove an object, if it exists."""
        self._catalog.remove(namespace, name)


def merge_patched(resource: Resource, current: T | None, obj: ObjectReference, changes: Mapping[str, Any]) -> T:
    """The object after a JSON merge patch, with uid and resourceVersion of ``obj`` as preconditions.

    Raises APIError: 404 without a current object, 409 if a precondition fails.
    """
    if current is None:
        raise APIError(404, "NotFound", f'{resource.qualified_name} "{obj.name}" not found')
    check_preconditions(resource, current.metadata, uid=obj.uid, resource_version=obj.resource_version)
    patched: T = convert(resource.type, json_merge_patch(msgspec.to_builtins(current), changes))
    return patched


def check_preconditions(resource: Resource, current: ObjectMeta, *, uid: str, resource_version: str) -> None:
    """Check the preconditions of a write; empty ones always hold. Raises APIError (409)."""
    failed = f'Operation cannot be fulfilled on {resource.qualified_name} "{current.name}"'
    if uid not in ("", current.uid):
        text = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {current.uid}"
        raise APIError(409, "Conflict", f"{failed}: {text}")
    if resource_version not in ("", current.resource_version):
        text = "the object has been modified; please apply your changes to the latest version and try again"
        raise APIError(409, "Conflict", f"{failed}: {text}")
