"""The get and list handlers, also of metrics.k8s.io.

A list has the current state or that of an earlier resourceVersion, by selectors and with pagination. Metrics are the
usage of nodes and pods, which is computed when it is read and never stored.
"""

from __future__ import annotations

import asyncio
import base64
from bisect import bisect_left
from typing import Any, Protocol

import msgspec

from kubestow.http.messages import HTTPResponse
from kubestow_devcluster.apiserver import field_errors, statuses
from kubestow_devcluster.apiserver.endpoints.request_scope import RequestScope
from kubestow_devcluster.apiserver.endpoints.requests import Request
from kubestow_devcluster.apiserver.storage.selectors import EVERYTHING
from kubestow_devcluster.apiserver.storage.store import Expired, StoredObject


def get(scope: RequestScope) -> HTTPResponse:
    return scope.encoder.object_response(scope.get())


def parse_resource_version(text: str) -> int | None:
    """A resourceVersion parameter, None when it is empty. Raises a 400 StatusError."""
    if not text:
        return None
    if not (text.isascii() and text.isdigit()):
        problem = f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'
        raise statuses.bad_request(f"invalid resource version: {problem}")
    # Parsing a long number takes quadratic time.
    if len(text) > 100 or (resource_version := int(text)) >= 2**64:
        problem = f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": value out of range'
        raise statuses.bad_request(f"invalid resource version: {problem}")
    return resource_version


def validate_list_options(request: Request) -> None:
    """Validate the options of a list. Raises a 422 StatusError."""
    match, resource_version = request.query.get("resourceVersionMatch", ""), request.query.get("resourceVersion", "")
    error: field_errors.FieldError | None = None
    if match and request.query.get("continue"):
        error = _forbidden_match("resourceVersionMatch is forbidden when continue is provided")
    elif match and not resource_version:
        error = _forbidden_match("resourceVersionMatch is forbidden unless resourceVersion is provided")
    elif match not in ("", "Exact", "NotOlderThan"):
        error = field_errors.unsupported_value("resourceVersionMatch", match, ("Exact", "NotOlderThan"))
    elif "sendInitialEvents" in request.query:
        error = field_errors.forbidden_value("sendInitialEvents", "sendInitialEvents is forbidden for list")
    elif match == "Exact" and resource_version == "0":
        error = _forbidden_match('resourceVersionMatch "Exact" is forbidden for resourceVersion "0"')
    if error is not None:
        raise statuses.invalid("ListOptions", "", [error], group="meta.k8s.io")


def wants_initial_events(request: Request) -> bool | None:
    """Whether a watch starts with the current state and a bookmark (a streaming list); None if it does not say.

    Raises a 422 StatusError.
    """
    match = request.query.get("resourceVersionMatch", "")
    problem = ""
    if "sendInitialEvents" in request.query and match != "NotOlderThan":
        problem = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
    elif "sendInitialEvents" not in request.query and match:
        problem = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
    if problem:
        raise statuses.invalid("ListOptions", "", [_forbidden_match(problem)], group="meta.k8s.io")
    return request.flag("sendInitialEvents") if "sendInitialEvents" in request.query else None


def _forbidden_match(problem: str) -> field_errors.FieldError:
    return field_errors.forbidden_value("resourceVersionMatch", problem)


_VERSION = "meta.k8s.io/v1"


class ContinueToken(msgspec.Struct):
    """``rv`` is the resourceVersion of the list, -1 for the current state; ``start`` the key to start from."""

    rv: int
    start: str
    v: str = _VERSION

    def encode(self) -> str:
        token = msgspec.json.encode({"v": self.v, "rv": self.rv, "start": self.start})
        return base64.urlsafe_b64encode(token).rstrip(b"=").decode()

    @classmethod
    def decode(cls, text: str) -> ContinueToken:
        """Raises a 400 StatusError."""
        try:
            raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
            token = msgspec.json.decode(raw, type=cls)
        except (ValueError, msgspec.DecodeError) as error:
            raise statuses.bad_request(f"invalid continue token: continue key is not valid: {error}") from None
        if token.v != _VERSION:
            raise statuses.bad_request("continue key is not valid: server does not recognize this encoded version")
        return token


#: Seconds that a list at a future resourceVersion waits for it.
_FUTURE_VERSION_TIMEOUT = 3.0

_EXPIRED_LIST = "The resourceVersion for the provided list is too old."
_EXPIRED_CONTINUE = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without"
    " the continue parameter, or use the continue token in this response to retrieve the remainder of the results."
    " Continuing with the provided token results in an inconsistent list - objects that were created, modified, or"
    " deleted between the time the first chunk was returned and now may show up in the list."
)


async def list_objects(scope: RequestScope) -> HTTPResponse:
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
        # Wait until the store has reached ``resource_version``. Raises a 504 StatusError after the timeout.
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _FUTURE_VERSION_TIMEOUT
        while store.resource_version < resource_version:
            remaining = deadline - loop.time()
            if remaining <= 0:
                raise statuses.resource_version_too_large(resource_version, store.resource_version)
            await asyncio.sleep(min(remaining, 0.05))
    is_limited = bool(request.number("limit"))
    match = request.query.get("resourceVersionMatch", "")
    if resource_version and (match == "Exact" or (is_limited and not match)):
        return _snapshot_at(scope, resource_version, _EXPIRED_LIST), resource_version
    return scope.collection.snapshot(scope.key_prefix), store.resource_version


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


class ResourceMetrics(Protocol):
    """Where usage comes from. Both return NodeMetrics or PodMetrics by the key of their node or pod, sorted by key."""

    def nodes(self) -> dict[str, StoredObject]: ...

    def pods(self) -> dict[str, StoredObject]: ...


def get_metrics(scope: RequestScope, metrics: ResourceMetrics) -> HTTPResponse:
    """Raises a 404 StatusError for an object without metrics, as one that does not run."""
    found = _all(scope, metrics).get(scope.key_prefix + scope.info.name)
    if found is None:
        raise statuses.not_found(scope.kind.group_resource, scope.info.name)
    return scope.encoder.object_response(found)


def list_metrics(scope: RequestScope, metrics: ResourceMetrics) -> HTTPResponse:
    """All metrics of a namespace or of the cluster that the selectors match, without pagination, as metrics-server."""
    prefix = scope.key_prefix
    objects = [stored for key, stored in _all(scope, metrics).items() if key.startswith(prefix)]
    return scope.encoder.list_response(scope.predicate().select(objects), {})


def _all(scope: RequestScope, metrics: ResourceMetrics) -> dict[str, StoredObject]:
    return metrics.nodes() if scope.kind.plural == "nodes" else metrics.pods()
