"""Lists of whole collections, read in pages of one resourceVersion: the pages themselves, or the names in them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from urllib.parse import urlencode

import msgspec

from kubestow.api.meta import UNDECODABLE
from kubestow.client.rest.transport import Transport
from kubestow.errors import APIError, Unreachable
from kubestow.scheduling.interfaces import Resource

_PAGE_SIZE, _NAMES_PAGE_SIZE = 1000, 500
_GONE = 410


class _ListMeta(msgspec.Struct, rename={"next": "continue", "version": "resourceVersion"}):
    next: str = ""
    version: str = ""


class _List(msgspec.Struct):
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)


class _ObjectMeta(msgspec.Struct):
    name: str = ""
    namespace: str = ""
    uid: str = ""


class _Object(msgspec.Struct):
    metadata: _ObjectMeta


class _Names(msgspec.Struct):
    items: list[_Object] | None = None


async def list_names(transport: Transport, resource: Resource) -> dict[str, str]:
    """The names of all objects, as ``namespace/name`` if they have a namespace, by uid.

    Raises APIError, also for a continue token that has expired, and Unreachable.
    """
    names: dict[str, str] = {}
    path = f"{resource.prefix}/{resource.plural}"
    async for page, _ in _pages(transport, path, resource.field_selector, _NAMES_PAGE_SIZE):
        try:
            items = msgspec.json.decode(page, type=_Names).items or ()
        except UNDECODABLE as error:
            raise Unreachable(transport.server, f"malformed list at {path}: {error}") from None
        for meta in (item.metadata for item in items):
            names[meta.uid] = f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name
    return names


async def list_pages(transport: Transport, path: str, field_selector: str = "") -> tuple[list[bytes], str]:
    """The pages of a list as JSON, and the resourceVersion of all of them. Raises APIError and Unreachable.

    If the server compacts that version away before the last page, the list is read again in one piece.
    """
    for limit in (_PAGE_SIZE, 0):
        pages, version = [], ""
        try:
            async for page, page_version in _pages(transport, path, field_selector, limit):
                pages.append(page)
                version = version or page_version
        except APIError as error:
            if error.code != _GONE or not limit:
                raise
        else:
            break
    return pages, version


async def _pages(transport: Transport, path: str, field_selector: str, limit: int) -> AsyncIterator[tuple[bytes, str]]:
    token = ""
    while True:
        query = {"limit": limit, "continue": token, "fieldSelector": field_selector}
        encoded = urlencode({key: value for key, value in query.items() if value})
        page = await transport.request("GET", f"{path}?{encoded}" if encoded else path)
        try:
            metadata = msgspec.json.decode(page, type=_List).metadata
        except UNDECODABLE as error:
            raise Unreachable(transport.server, f"malformed list at {path}: {error}") from None
        yield page, metadata.version
        token = metadata.next
        if not token:
            return
