"""Authentication (semantics 1.4): a front proxy, a client certificate, a bearer token, or an anonymous request.

They are tried in this order, which is the API server's. A request with invalid credentials is rejected; only a request
without credentials is ``system:anonymous``. Which certificates are accepted is up to
:mod:`kubestow.serving.auth.client_trust`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from urllib.parse import unquote

from kubestow.observability.logs import fields
from kubestow.serving.auth.client_trust import ClientTrust
from kubestow.serving.auth.reviews import ReviewFailed, TokenReviewer
from kubestow.serving.http_messages import HTTPRequest, PeerCertificate, StatusError, UserInfo

__all__ = ["ANONYMOUS", "DelegatingAuthenticator"]

_log = logging.getLogger(__name__)

ANONYMOUS = UserInfo("system:anonymous", ("system:unauthenticated",))
_AUTHENTICATED = "system:authenticated"


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
    if _AUTHENTICATED in user.groups:
        return user
    return UserInfo(user.name, (*user.groups, _AUTHENTICATED), user.uid, user.extra)


def _bearer_token(request: HTTPRequest) -> str | None:
    """The token of the Authorization header; None if there is none."""
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
