"""Two questions put to an API server: whose token is this, and may they do that? Its answers hold for a while.

What is asked at the same time by many is asked once. Tokens are remembered by a digest under a key of this process, and
only so many answers are kept, so strangers cannot fill the memory.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Generic, TypeVar

import msgspec

from kubestow.client.rest.transport import Transport
from kubestow.errors import APIError, Unreachable
from kubestow.serving.http_messages import UserInfo

__all__ = ["AccessReviewer", "ReviewCache", "ReviewFailed", "TokenReviewer"]

_log = logging.getLogger(__name__)

#: Seconds that an API server may take for one answer.
_TIMEOUT = 10.0
_MOST = 4096

T = TypeVar("T")


class ReviewFailed(Exception):
    """The API server did not answer, or not to the question."""


class ReviewCache(Generic[T]):
    """Answers for a while. ``ttl`` says how many seconds each is good for; ``monotonic`` is the clock."""

    def __init__(self, ttl: Callable[[T], float], monotonic: Callable[[], float], *, most: int = _MOST) -> None:
        self._ttl, self._monotonic, self._most = ttl, monotonic, most
        self._answers: OrderedDict[Hashable, tuple[float, T]] = OrderedDict()
        self._asking: dict[Hashable, asyncio.Task[T]] = {}

    async def get(self, key: Hashable, ask: Callable[[], Awaitable[T]]) -> T:
        """The answer that is known, or a new one. What asking raises is raised to all who wait, and forgotten."""
        known = self._answers.get(key)
        if known is not None and known[0] > self._monotonic():
            return known[1]
        asking = self._asking.get(key)
        if asking is None:
            asking = self._asking[key] = asyncio.ensure_future(self._ask(key, ask))
        return await asyncio.shield(asking)

    async def _ask(self, key: Hashable, ask: Callable[[], Awaitable[T]]) -> T:
        try:
            answer = await ask()
        finally:
            del self._asking[key]
        self._answers[key] = (self._monotonic() + self._ttl(answer), answer)
        self._answers.move_to_end(key)
        while len(self._answers) > self._most:
            self._answers.popitem(last=False)
        return answer


class _UserInfo(msgspec.Struct):
    username: str = ""
    uid: str = ""
    groups: list[str] | None = None
    extra: dict[str, list[str]] | None = None


class _TokenStatus(msgspec.Struct):
    authenticated: bool = False
    user: _UserInfo = msgspec.field(default_factory=_UserInfo)
    error: str = ""


class _TokenReview(msgspec.Struct):
    status: _TokenStatus = msgspec.field(default_factory=_TokenStatus)


class _AccessStatus(msgspec.Struct):
    allowed: bool = False
    denied: bool = False
    reason: str = ""


class _AccessReview(msgspec.Struct):
    status: _AccessStatus = msgspec.field(default_factory=_AccessStatus)


class TokenReviewer:
    """Asks whose tokens are."""

    def __init__(self, transport: Transport, *, ttl: float, monotonic: Callable[[], float]) -> None:
        self._transport = transport
        self._key = secrets.token_bytes(32)
        self._known: ReviewCache[UserInfo | None] = ReviewCache(lambda _: ttl, monotonic)

    async def user(self, token: str) -> UserInfo | None:
        """Whose token it is, None when nobody's. Raises ReviewFailed."""
        digest = hashlib.blake2b(token.encode(errors="surrogateescape"), key=self._key, digest_size=32).digest()
        return await self._known.get(digest, lambda: self._ask(token))

    async def _ask(self, token: str) -> UserInfo | None:
        path = "/apis/authentication.k8s.io/v1/tokenreviews"
        review = await _review(self._transport, path, "TokenReview", "authentication", {"token": token}, _TokenReview)
        found = review.status
        if not found.authenticated:
            return None
        user = found.user
        return UserInfo(user.username, tuple(user.groups or ()), user.uid, user.extra or {})


class AccessReviewer:
    """Asks what users may do."""

    def __init__(
        self, transport: Transport, *, allowed_ttl: float, denied_ttl: float, monotonic: Callable[[], float]
    ) -> None:
        self._transport = transport
        self._known: ReviewCache[tuple[bool, str]] = ReviewCache(
            lambda answer: allowed_ttl if answer[0] else denied_ttl, monotonic
        )

    async def allowed(self, user: UserInfo, verb: str, path: str) -> tuple[bool, str]:
        """Whether a user may, and the API server's reason. Raises ReviewFailed."""
        spec = {
            "user": user.name,
            "groups": list(user.groups),
            "uid": user.uid,
            "extra": {name: list(values) for name, values in user.extra.items()},
            "nonResourceAttributes": {"path": path, "verb": verb},
        }
        return await self._known.get(msgspec.json.encode(spec, order="sorted"), lambda: self._ask(spec))

    async def _ask(self, spec: dict[str, Any]) -> tuple[bool, str]:
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        review = await _review(self._transport, path, "SubjectAccessReview", "authorization", spec, _AccessReview)
        return review.status.allowed and not review.status.denied, review.status.reason


async def _review(transport: Transport, path: str, kind: str, group: str, spec: dict[str, Any], answer: type[T]) -> T:
    body = {"kind": kind, "apiVersion": f"{group}.k8s.io/v1", "spec": spec}
    try:
        async with asyncio.timeout(_TIMEOUT):
            return msgspec.json.decode(await transport.request("POST", path, msgspec.json.encode(body)), type=answer)
    except (APIError, Unreachable, TimeoutError, msgspec.DecodeError) as error:
        raise ReviewFailed(f"{kind} at {transport.server}: {error or 'no answer in time'}") from None
