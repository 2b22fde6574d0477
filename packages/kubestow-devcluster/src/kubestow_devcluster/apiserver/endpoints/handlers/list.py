"""The list handler: the current state or that of an earlier resourceVersion, by selectors and with pagination."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from typing import Any

from kubestow_devcluster.apiserver import statuses
from kubestow_devcluster.apiserver.endpoints.handlers.continue_token import ContinueToken
from kubestow_devcluster.apiserver.endpoints.handlers.list_options import (
    parse_resource_version,
    validate_list_options,
)
from kubestow_devcluster.apiserver.endpoints.request_scope import RequestScope
from kubestow_devcluster.apiserver.endpoints.response import Response
from kubestow_devcluster.apiserver.selectors import EVERYTHING
from kubestow_devcluster.apiserver.storage.store import Expired, Store, StoredObject

__all__ = ["list_objects"]

#: Seconds that a list at a future resourceVersion waits for it.
_FUTURE_VERSION_TIMEOUT = 3.0

_EXPIRED_LIST = "The resourceVersion for the provided list is too old."
_EXPIRED_CONTINUE = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without"
    " the continue parameter, or use the continue token in this response to retrieve the remainder of the results."
    " Continuing with the provided token results in an inconsistent list - objects that were created, modified, or"
    " deleted between the time the first chunk was returned and now may show up in the list."
)


async def list_objects(scope: RequestScope) -> Response:
    request, store = scope.request, scope.registry.store
    validate_list_options(request)
    request.number("timeoutSeconds")
    predicate, encoder = scope.predicate(), scope.encoder
    limit = max(request.number("limit") or 0, 0)
    token = request.query.get("continue", "")
    if token:
        if request.query.get("resourceVersion", "0") not in ("", "0"):
            raise statuses.bad_request("specifying resource version is not allowed when using continue")
        objects, resource_version = _continued_snapshot(scope, ContinueToken.decode(token))
    else:
        objects, resource_version = await _snapshot(scope)
    selected = predicate.select(objects) if predicate != EVERYTHING else objects
    metadata: dict[str, Any] = {"resourceVersion": str(resource_version)}
    if limit and len(selected) > limit:
        page = selected[:limit]
        last = page[-1].key[len(scope.key_prefix) :]
        metadata["continue"] = ContinueToken(rv=resource_version, start=f"/{last}\0").encode()
        if predicate == EVERYTHING:
            metadata["remainingItemCount"] = len(selected) - limit
        selected = page
    if resource_version < 0:
        metadata["resourceVersion"] = str(store.resource_version)
    return encoder.list_response(selected, metadata)


async def _snapshot(scope: RequestScope) -> tuple[list[StoredObject], int]:
    """The objects of a list without a continue token, and their resourceVersion."""
    store, request = scope.registry.store, scope.request
    resource_version = parse_resource_version(request.query.get("resourceVersion", ""))
    if resource_version is not None and resource_version > store.resource_version:
        await _wait_for_resource_version(store, resource_version)
    is_limited = bool(request.number("limit"))
    match = request.query.get("resourceVersionMatch", "")
    if resource_version and (match == "Exact" or (is_limited and not match)):
        return _snapshot_at(scope, resource_version, _EXPIRED_LIST), resource_version
    return scope.collection.snapshot(scope.key_prefix), store.resource_version


async def _wait_for_resource_version(store: Store, resource_version: int) -> None:
    """Wait until the store has reached ``resource_version``. Raises a 504 StatusError after the timeout."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _FUTURE_VERSION_TIMEOUT
    while store.resource_version < resource_version:
        remaining = deadline - loop.time()
        if remaining <= 0:
            raise statuses.resource_version_too_large(resource_version, store.resource_version)
        await asyncio.sleep(min(remaining, 0.05))


def _continued_snapshot(scope: RequestScope, token: ContinueToken) -> tuple[list[StoredObject], int]:
    """The objects from the start of a continue token on, and the resourceVersion of the token."""
    start = scope.key_prefix + token.start.lstrip("/")
    if token.rv < 0:
        objects = scope.collection.snapshot(scope.key_prefix)
        resource_version = scope.registry.store.resource_version
    else:
        current = ContinueToken(rv=-1, start=token.start.lstrip("/")).encode()
        objects = _snapshot_at(scope, token.rv, _EXPIRED_CONTINUE, continue_=current)
        resource_version = token.rv
    return objects[bisect_left(objects, start, key=lambda stored: stored.key) :], resource_version


def _snapshot_at(
    scope: RequestScope, resource_version: int, expired_message: str, *, continue_: str = ""
) -> list[StoredObject]:
    try:
        return scope.collection.snapshot_at(resource_version, scope.key_prefix)
    except Expired:
        raise statuses.expired(expired_message, continue_=continue_) from None
