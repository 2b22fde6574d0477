"""TokenReviews and SubjectAccessReviews at the API server, with cached results.

Concurrent reviews of the same subject share one request. Tokens are cached by a keyed digest, and the caches are
bounded, so clients cannot exhaust memory.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Generic, TypeVar

import msgspec

from kubestow.client.rest.transport import Transport
from kubestow.errors import APIError, Unreachable
from kubestow.serving.http_messages import UserInfo

__all__ = ["AccessReviewer", "ReviewCache", "ReviewFailed", "TokenReviewer"]

#: Seconds for one review.
_TIMEOUT = 10.0
_CACHE_SIZE = 4096

T = TypeVar("T")


class ReviewFailed(Exception):
    """The API server could not be reached, or its response is not a review."""


class ReviewCache(Generic[T]):
    """A bounded cache. ``ttl`` returns the seconds for which a result is valid; ``monotonic`` is the clock."""

    def __init__(self, ttl: Callable[[T], float], monotonic: Callable[[], float], *, size: int = _CACHE_SIZE) -> None:
        self._ttl, self._monotonic, self._size = ttl, monotonic, size
        self._results: OrderedDict[Hashable, tuple[float, T]] = OrderedDict()
        self._in_flight: dict[Hashable, asyncio.Task[T]] = {}

    async def get(self, key: Hashable, review: Callable[[], Awaitable[T]]) -> T:
        """The cached result, or that of ``review``. An exception is raised to all waiters and not cached."""
        cached = self._results.get(key)
        if cached is not None and cached[0] > self._monotonic():
            return cached[1]
        task = self._in_flight.get(key)
        if task is None:
            task = self._in_flight[key] = asyncio.ensure_future(self._review(key, review))
        return await asyncio.shield(task)

    async def _review(self, key: Hashable, review: Callable[[], Awaitable[T]]) -> T:
        try:
            result = await review()
        finally:
            del self._in_flight[key]
        self._results[key] = (self._monotonic() + self._ttl(result), result)
        self._results.move_to_end(key)
        while len(self._results) > self._size:
            self._results.popitem(last=False)
        return result


class _User(msgspec.Struct):
    username: str = ""
    uid: str = ""
    groups: list[str] | None = None
    extra: dict[str, list[str]] | None = None


class _TokenReviewStatus(msgspec.Struct):
    authenticated: bool = False
    user: _User = msgspec.field(default_factory=_User)


class _TokenReview(msgspec.Struct):
    status: _TokenReviewStatus = msgspec.field(default_factory=_TokenReviewStatus)


class _AccessReviewStatus(msgspec.Struct):
    allowed: bool = False
    denied: bool = False
    reason: str = ""


class _AccessReview(msgspec.Struct):
    status: _AccessReviewStatus = msgspec.field(default_factory=_AccessReviewStatus)


class TokenReviewer:
    """Authenticates tokens by TokenReviews; results are cached for ``ttl`` seconds."""

    def __init__(self, transport: Transport, *, ttl: float, monotonic: Callable[[], float]) -> None:
        self._transport = transport
        self._digest_key = secrets.token_bytes(32)
        self._cache: ReviewCache[UserInfo | None] = ReviewCache(lambda _: ttl, monotonic)

    async def user(self, token: str) -> UserInfo | None:
        """The user of the token, None if the token is invalid. Raises ReviewFailed."""
        encoded = token.encode(errors="surrogateescape")
        digest = hashlib.blake2b(encoded, key=self._digest_key, digest_size=32).digest()
        return await self._cache.get(digest, lambda: self._review(token))

    async def _review(self, token: str) -> UserInfo | None:
        path = "/apis/authentication.k8s.io/v1/tokenreviews"
        review = await _create(self._transport, path, "TokenReview", "authentication", {"token": token}, _TokenReview)
        if not review.status.authenticated:
            return None
        user = review.status.user
        return UserInfo(user.username, tuple(user.groups or ()), user.uid, user.extra or {})


class AccessReviewer:
    """Authorizes users by SubjectAccessReviews; results are cached for the TTLs (seconds)."""

    def __init__(
        self, transport: Transport, *, allowed_ttl: float, denied_ttl: float, monotonic: Callable[[], float]
    ) -> None:
        self._transport = transport
        self._cache: ReviewCache[tuple[bool, str]] = ReviewCache(
            lambda result: allowed_ttl if result[0] else denied_ttl, monotonic
        )

    async def review(self, user: UserInfo, verb: str, path: str) -> tuple[bool, str]:
        """Whether the user is allowed to use a non-resource path, and the reason. Raises ReviewFailed."""
        spec = {
            "user": user.name,
            "groups": list(user.groups),
            "uid": user.uid,
            "extra": {name: list(values) for name, values in user.extra.items()},
            "nonResourceAttributes": {"path": path, "verb": verb},
        }
        return await self._cache.get(msgspec.json.encode(spec, order="sorted"), lambda: self._review(spec))

    async def _review(self, spec: dict[str, Any]) -> tuple[bool, str]:
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        review = await _create(self._transport, path, "SubjectAccessReview", "authorization", spec, _AccessReview)
        return review.status.allowed and not review.status.denied, review.status.reason


async def _create(transport: Transport, path: str, kind: str, group: str, spec: dict[str, Any], review: type[T]) -> T:
    body = {"kind": kind, "apiVersion": f"{group}.k8s.io/v1", "spec": spec}
    try:
        async with asyncio.timeout(_TIMEOUT):
            return msgspec.json.decode(await transport.request("POST", path, msgspec.json.encode(body)), type=review)
    except (APIError, Unreachable, TimeoutError, msgspec.DecodeError) as error:
        raise ReviewFailed(f"{kind} at {transport.server}: {str(error) or 'timed out'}") from None
