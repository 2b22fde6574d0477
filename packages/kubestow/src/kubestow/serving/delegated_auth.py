"""Authentication and authorization of requests, delegated to the API server (semantics 1.4).

A request is authenticated by a front proxy, a client certificate, a bearer token, or it is anonymous. They are tried in
this order, which is the API server's. A request with invalid credentials is rejected; only a request without
credentials is ``system:anonymous``. It is authorized for always-allowed paths and the group system:masters, otherwise
by a SubjectAccessReview.

TLS verifies that a client certificate is signed by a CA of either bundle (:mod:`kubestow.http.tls`): that for users, or
that for front proxies. :class:`ClientTrust` finds out by which one, because a CA of front proxies must not authenticate
users.

Concurrent reviews of the same subject share one request. Tokens are cached by a keyed digest, and the caches are
bounded, so clients cannot exhaust memory.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from urllib.parse import unquote

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature

from kubestow.client.rest.transport import Transport
from kubestow.errors import APIError, InputError, Unreachable
from kubestow.http.messages import ALL_AUTHENTICATED, ANONYMOUS, HTTPRequest, PeerCertificate, StatusError, UserInfo
from kubestow.log_fields import fields
from kubestow.serving.options import RequestHeaderOptions

_log = logging.getLogger(__name__)

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


@dataclass(frozen=True, slots=True)
class ClientTrust:
    """CA bundles in PEM, and the headers of front proxies. Raises InputError for an invalid bundle."""

    client_ca: bytes = b""
    request_header_ca: bytes = b""
    request_headers: RequestHeaderOptions = field(default_factory=RequestHeaderOptions)
    _client_cas: list[x509.Certificate] = field(init=False, repr=False, compare=False)
    _request_header_cas: list[x509.Certificate] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_client_cas", _certificates(self.client_ca, "client CA"))
        object.__setattr__(
            self, "_request_header_cas", _certificates(self.request_header_ca, "requestheader client CA")
        )

    @property
    def bundle(self) -> bytes:
        """Both bundles, for TLS."""
        return b"\n".join(part for part in (self.client_ca, self.request_header_ca) if part)

    def is_front_proxy(self, certificate: PeerCertificate) -> bool:
        """Whether a verified certificate belongs to a front proxy."""
        names = self.request_headers.allowed_names
        return (not names or certificate.common_name in names) and _issued_by(certificate, self._request_header_cas)

    def is_client(self, certificate: PeerCertificate) -> bool:
        """Whether a verified certificate belongs to a user.

        If there are front proxies too, it must be issued directly by a client CA, because an intermediate CA could
        belong to either bundle.
        """
        return not self._request_header_cas or _issued_by(certificate, self._client_cas)


def _certificates(pem: bytes, subject: str) -> list[x509.Certificate]:
    if not pem.strip():
        return []
    try:
        return x509.load_pem_x509_certificates(pem)
    except (ValueError, x509.InvalidVersion) as error:
        raise InputError(subject, f"expected certificates in PEM: {error}") from None


def _issued_by(certificate: PeerCertificate, authorities: Sequence[x509.Certificate]) -> bool:
    try:
        issued = x509.load_der_x509_certificate(certificate.der)
    except (ValueError, x509.InvalidVersion):
        return False
    return any(_verifies(issued, authority) for authority in authorities)


def _verifies(issued: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        issued.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


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
        return await self._cache.find_or_request(digest, lambda: self._review(token))

    async def _review(self, token: str) -> UserInfo | None:
        path = "/apis/authentication.k8s.io/v1/tokenreviews"
        review = await create_review(
            self._transport, path, "TokenReview", "authentication", {"token": token}, _TokenReview
        )
        if not review.status.authenticated:
            return None
        user = review.status.user
        return UserInfo(user.username, tuple(user.groups or ()), user.uid, user.extra or {})


class DelegatingAuthenticator:
    """Authenticates requests. Without a ``token_reviewer`` every token is invalid."""

    def __init__(self, trust: ClientTrust, token_reviewer: TokenReviewer | None = None) -> None:
        self.trust, self._token_reviewer = trust, token_reviewer

    async def authenticate(self, request: HTTPRequest) -> UserInfo:
        """The user of a request. Raises StatusError (401) for invalid credentials."""
        has_credentials = False
        if request.certificate is not None:
            has_credentials = True
            user = self._front_proxy_user(request) or self._certificate_user(request.certificate)
            if user is not None:
                return user
        token = _bearer_token(request)
        if token is not None:
            has_credentials = True
            user = await self._token_user(token)
            if user is not None:
                return user
        if has_credentials:
            raise StatusError.unauthorized()
        return ANONYMOUS

    def _front_proxy_user(self, request: HTTPRequest) -> UserInfo | None:
        assert request.certificate is not None
        if not self.trust.is_front_proxy(request.certificate):
            return None
        headers = self.trust.request_headers
        name = next(iter(_values(request, headers.username_headers)), "")
        if not name:
            return None
        uid = next(iter(_values(request, headers.uid_headers)), "")
        groups = tuple(_values(request, headers.group_headers))
        return _authenticated(UserInfo(name, groups, uid, _extra(request.headers, headers.extra_header_prefixes)))

    def _certificate_user(self, certificate: PeerCertificate) -> UserInfo | None:
        if not certificate.common_name or not self.trust.is_client(certificate):
            return None
        return _authenticated(UserInfo(certificate.common_name, certificate.organizations))

    async def _token_user(self, token: str) -> UserInfo | None:
        if self._token_reviewer is None or not token.isascii():
            return None
        try:
            user = await self._token_reviewer.user(token)
        except ReviewFailed as error:
            _log.warning("Unable to authenticate the request", extra=fields(err=str(error)))
            raise StatusError.unauthorized() from None
        return None if user is None else _authenticated(user)


def _authenticated(user: UserInfo) -> UserInfo:
    if ALL_AUTHENTICATED in user.groups:
        return user
    return UserInfo(user.name, (*user.groups, ALL_AUTHENTICATED), user.uid, user.extra)


def _bearer_token(request: HTTPRequest) -> str | None:
    values = request.headers.get("authorization")
    if not values:
        return None
    scheme, _, token = values[0].strip().partition(" ")
    return (token.strip() or None) if scheme.lower() == "bearer" else None


def _values(request: HTTPRequest, names: Sequence[str]) -> list[str]:
    return [value for name in names for value in request.headers.get(name, ()) if value]


def _extra(headers: Mapping[str, Sequence[str]], prefixes: Sequence[str]) -> dict[str, list[str]]:
    extra: dict[str, list[str]] = {}
    for name, values in headers.items():
        prefix = next((prefix for prefix in prefixes if name.startswith(prefix)), None)
        if prefix is not None:
            extra.setdefault(unquote(name.removeprefix(prefix)), []).extend(values)
    return extra


_MASTERS = "system:masters"


class _AccessReviewStatus(msgspec.Struct):
    allowed: bool = False
    denied: bool = False
    reason: str = ""


class _AccessReview(msgspec.Struct):
    status: _AccessReviewStatus = msgspec.field(default_factory=_AccessReviewStatus)


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
        return await self._cache.find_or_request(msgspec.json.encode(spec, order="sorted"), lambda: self._review(spec))

    async def _review(self, spec: dict[str, Any]) -> tuple[bool, str]:
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        review = await create_review(self._transport, path, "SubjectAccessReview", "authorization", spec, _AccessReview)
        return review.status.allowed and not review.status.denied, review.status.reason


class DelegatingAuthorizer:
    """Authorizes requests. Without an ``access_reviewer`` all other requests are denied."""

    def __init__(self, always_allow_paths: Sequence[str], access_reviewer: AccessReviewer | None = None) -> None:
        self._paths = frozenset(path for path in always_allow_paths if not path.endswith("*"))
        self._prefixes = tuple(path[:-1] for path in always_allow_paths if path.endswith("*"))
        self._access_reviewer = access_reviewer

    async def authorize(self, user: UserInfo, verb: str, path: str) -> None:
        """Raises StatusError: 403 if the request is denied, 500 if the review failed."""
        if _MASTERS in user.groups or path in self._paths or path.startswith(self._prefixes):
            return
        if self._access_reviewer is None:
            raise StatusError.forbidden(user, verb, path)
        try:
            allowed, reason = await self._access_reviewer.review(user, verb, path)
        except ReviewFailed as error:
            _log.warning("Unable to authorize the request", extra=fields(user=user.name, path=path, err=str(error)))
            raise StatusError.internal() from None
        if not allowed:
            raise StatusError.forbidden(user, verb, path, reason)
