"""Get and list, with resource versions, selectors and pages."""

from __future__ import annotations

import asyncio
import base64
from bisect import bisect_left
from typing import Any

import msgspec

from kubestow.devcluster.apiserver import field_errors, statuses
from kubestow.devcluster.apiserver.requests import Answer, Request
from kubestow.devcluster.apiserver.selectors import EVERYTHING
from kubestow.devcluster.apiserver.storage.store import Expired, Store, StoredObject
from kubestow.devcluster.apiserver.verbs.call import Call

__all__ = ["get", "list_", "parse_version", "wait_for_version"]

#: Seconds a read of a version from the future waits for it.
PATIENCE = 3.0

_TOO_OLD_LIST = "The resourceVersion for the provided list is too old."
_TOO_OLD_CONTINUE = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without"
    " the continue parameter, or use the continue token in this response to retrieve the remainder of the results."
    " Continuing with the provided token results in an inconsistent list - objects that were created, modified, or"
    " deleted between the time the first chunk was returned and now may show up in the list."
)


def get(call: Call) -> Answer:
    return call.view.one(call.registry.get(call.kind, call.target.namespace, call.target.name))


async def list_(call: Call) -> Answer:
    request, store = call.request, call.registry.store
    _check_version_match(request)
    call.request.number("timeoutSeconds")
    chosen, view = call.selector(), call.view
    limit = max(request.number("limit") or 0, 0)
    token = request.query.get("continue", "")
    if token:
        if request.query.get("resourceVersion", "0") not in ("", "0"):
            raise statuses.bad_request("specifying resource version is not allowed when using continue")
        objects, version = _continued(call, _Token.decode(token))
    else:
        objects, version = await _snapshot(call)
    chosen_objects = chosen.select(objects) if chosen != EVERYTHING else objects
    metadata: dict[str, Any] = {"resourceVersion": str(version)}
    if limit and len(chosen_objects) > limit:
        page = chosen_objects[:limit]
        last = page[-1].key[len(call.prefix) :]
        metadata["continue"] = _Token(rv=version, start=f"/{last}\0").encode()
        if chosen == EVERYTHING:
            metadata["remainingItemCount"] = len(chosen_objects) - limit
        chosen_objects = page
    if version < 0:
        metadata["resourceVersion"] = str(store.resource_version)
    return view.many(chosen_objects, metadata)


def parse_version(text: str) -> int | None:
    """A resourceVersion parameter, None when absent. Raises a 400 Failure."""
    if not text:
        return None
    if not (text.isascii() and text.isdigit()):
        problem = f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'
        raise statuses.bad_request(f"invalid resource version: {problem}")
    # Longer than any such number: not worth the quadratic time that reading it takes.
    if len(text) > 100 or (version := int(text)) >= 2**64:
        problem = f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": value out of range'
        raise statuses.bad_request(f"invalid resource version: {problem}")
    return version


async def wait_for_version(store: Store, version: int) -> None:
    """Return once the store has reached ``version``. Raises a 504 Failure when it does not in time."""
    deadline = asyncio.get_running_loop().time() + PATIENCE
    while store.resource_version < version:
        left = deadline - asyncio.get_running_loop().time()
        if left <= 0:
            raise statuses.version_too_large(version, store.resource_version)
        await asyncio.sleep(min(left, 0.05))


def _check_version_match(request: Request) -> None:
    match, version = request.query.get("resourceVersionMatch", ""), request.query.get("resourceVersion", "")
    problem: field_errors.Cause | None = None
    if match and request.query.get("continue"):
        problem = _forbidden_match("resourceVersionMatch is forbidden when continue is provided")
    elif match and not version:
        problem = _forbidden_match("resourceVersionMatch is forbidden unless resourceVersion is provided")
    elif match not in ("", "Exact", "NotOlderThan"):
        problem = field_errors.unsupported_value("resourceVersionMatch", match, ("Exact", "NotOlderThan"))
    elif "sendInitialEvents" in request.query:
        problem = field_errors.forbidden_value("sendInitialEvents", "sendInitialEvents is forbidden for list")
    elif match == "Exact" and version == "0":
        problem = _forbidden_match('resourceVersionMatch "Exact" is forbidden for resourceVersion "0"')
    if problem is not None:
        raise statuses.invalid("ListOptions", "", [problem], group="meta.k8s.io")


def _forbidden_match(problem: str) -> field_errors.Cause:
    return field_errors.forbidden_value("resourceVersionMatch", problem)


async def _snapshot(call: Call) -> tuple[list[StoredObject], int]:
    store, request = call.registry.store, call.request
    version = parse_version(request.query.get("resourceVersion", ""))
    if version is not None and version > store.resource_version:
        await wait_for_version(store, version)
    limited = bool(request.number("limit"))
    match = request.query.get("resourceVersionMatch", "")
    if version and (match == "Exact" or (limited and not match)):
        return _at(call, version, _TOO_OLD_LIST), version
    return call.collection.snapshot(call.prefix), store.resource_version


def _at(call: Call, version: int, too_old: str, *, continue_: str = "") -> list[StoredObject]:
    try:
        return call.collection.snapshot_at(version, call.prefix)
    except Expired:
        raise statuses.expired(too_old, continue_=continue_) from None


class _Token(msgspec.Struct):
    """A continue token: the version of the whole list (-1: what is there now), the key after which it goes on."""

    rv: int
    start: str
    v: str = "meta.k8s.io/v1"

    def encode(self) -> str:
        made = msgspec.json.encode({"v": self.v, "rv": self.rv, "start": self.start})
        return base64.urlsafe_b64encode(made).rstrip(b"=").decode()

    @classmethod
    def decode(cls, text: str) -> _Token:
        try:
            raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
            token = msgspec.json.decode(raw, type=cls)
        except (ValueError, msgspec.DecodeError) as error:
            raise statuses.bad_request(f"invalid continue token: continue key is not valid: {error}") from None
        if token.v != "meta.k8s.io/v1":
            raise statuses.bad_request("continue key is not valid: server does not recognize this encoded version")
        return token


def _continued(call: Call, token: _Token) -> tuple[list[StoredObject], int]:
    start = call.prefix + token.start.lstrip("/")
    if token.rv < 0:
        objects, version = call.collection.snapshot(call.prefix), call.registry.store.resource_version
    else:
        fresh = _Token(rv=-1, start=token.start.lstrip("/")).encode()
        objects, version = _at(call, token.rv, _TOO_OLD_CONTINUE, continue_=fresh), token.rv
    return objects[bisect_left(objects, start, key=lambda stored: stored.key) :], version
