"""Reviews at the API server (TokenReviews, SubjectAccessReviews), with cached results.

Concurrent reviews of the same subject share one request. Tokens are cached by a keyed digest, and the caches are
bounded, so clients cannot exhaust memory.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Generic, TypeVar

import msgspec

from kubestow.client.rest.transport import Transport
from kubestow.errors import APIError, Unreachable

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

    async def find_or_request(self, key: Hashable, review: Callable[[], Awaitable[T]]) -> T:
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


async def create_review(
    transport: Transport, path: str, kind: str, group: str, spec: dict[str, Any], review: type[T]
) -> T:
    """Create an object of a review ``kind`` and return the response, decoded as ``review``. Raises ReviewFailed."""
    body = {"kind": kind, "apiVersion": f"{group}.k8s.io/v1", "spec": spec}
    try:
        async with asyncio.timeout(_TIMEOUT):
            return msgspec.json.decode(await transport.request("POST", path, msgspec.json.encode(body)), type=review)
    except (APIError, Unreachable, TimeoutError, msgspec.DecodeError) as error:
        raise ReviewFailed(f"{kind} at {transport.server}: {str(error) or 'timed out'}") from None
