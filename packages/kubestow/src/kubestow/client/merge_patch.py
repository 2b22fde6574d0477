"""JSON merge patches of objects of any resource, with optimistic concurrency."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from kubestow.api.meta import APIObject, ObjectMeta, decode
from kubestow.client.rest.transport import MERGE_PATCH, Transport
from kubestow.scheduling.interfaces import ObjectReference, Resource

__all__ = ["merge_patch"]


async def merge_patch(
    transport: Transport,
    resource: Resource,
    obj: ObjectReference,
    changes: Mapping[str, Any],
    *,
    subresource: str = "",
) -> str:
    """PATCH an object, or its ``subresource``, once, and return its new resourceVersion.

    The uid and the resourceVersion of ``obj`` are preconditions. Raises APIError (409 if the object has changed) and
    Unreachable.
    """
    metadata = {**changes.get("metadata", {}), "uid": obj.uid, "resourceVersion": obj.resource_version}
    body = msgspec.json.encode({**changes, "metadata": {name: value for name, value in metadata.items() if value}})
    namespace = f"/namespaces/{obj.namespace}" if resource.namespaced and obj.namespace else ""
    path = f"{resource.prefix}{namespace}/{resource.plural}/{obj.name}"
    if subresource:
        path = f"{path}/{subresource}"
    patched = await transport.request("PATCH", path, body, content_type=MERGE_PATCH)
    return decode(_MetadataOnly, patched).metadata.resource_version


class _MetadataOnly(APIObject, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
