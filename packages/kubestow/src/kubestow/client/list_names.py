"""The names of the objects of a collection, read in pages."""

from __future__ import annotations

from urllib.parse import urlencode

import msgspec

from kubestow.client.decoding import UNDECODABLE
from kubestow.client.rest.transport import Transport
from kubestow.errors import Unreachable
from kubestow.scheduling.interfaces import Resource

__all__ = ["list_names"]

_PAGE_SIZE = "500"


class _ObjectMeta(msgspec.Struct):
    name: str = ""
    namespace: str = ""
    uid: str = ""


class _Object(msgspec.Struct):
    metadata: _ObjectMeta


class _ListMeta(msgspec.Struct, rename="camel"):
    continue_: str = msgspec.field(default="", name="continue")


class _Page(msgspec.Struct):
    metadata: _ListMeta
    items: list[_Object] | None = None


async def list_names(transport: Transport, resource: Resource) -> dict[str, str]:
    """The names of all objects, as ``namespace/name`` if they have a namespace, by uid.

    Raises APIError, also for a continue token that has expired, and Unreachable.
    """
    names: dict[str, str] = {}
    query = {"limit": _PAGE_SIZE}
    if resource.field_selector:
        query["fieldSelector"] = resource.field_selector
    while True:
        body = await transport.request("GET", f"{resource.prefix}/{resource.plural}?{urlencode(query)}")
        try:
            page = msgspec.json.decode(body, type=_Page)
        except UNDECODABLE as error:
            raise Unreachable(transport.server, f"malformed list of {resource.plural}: {error}") from None
        for meta in (item.metadata for item in page.items or ()):
            names[meta.uid] = f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name
        if not page.metadata.continue_:
            return names
        query["continue"] = page.metadata.continue_
