"""Who is asking (semantics 1.4): a front proxy's client, the holder of a certificate or of a token, or anybody.

They are tried in this order, which is the API server's. Credentials that are shown and turn out to be nobody's end it;
only who shows none is ``system:anonymous``. Whose certificates are believed is in :mod:`kubestow.serving.auth.client_trust`.
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
    """Finds out who is asking. ``reviews`` is None where tokens cannot be asked about."""

    def __init__(self, trust: ClientTrust, reviews: TokenReviewer | None = None) -> None:
        self.trust, self._reviews = trust, reviews

    async def user(self, request: HTTPRequest) -> UserInfo:
        """Raises Failure (401) for credentials that are nobody's."""
        shown = False
        if request.certificate is not None:
            shown = True
            found = self._behind_proxy(request) or self._with_certificate(request.certificate)
            if found is not None:
                return found
        token = _bearer_token(request)
        if token is not None:
            shown = True
            found = await self._with_token(token)
            if found is not None:
                return found
        if shown:
            raise StatusError.unauthorized()
        return ANONYMOUS

    def _behind_proxy(self, request: HTTPRequest) -> UserInfo | None:
        assert request.certificate is not None
        if not self.trust.is_proxy(request.certificate):
            return None
        proxies = self.trust.proxies
        name = next(iter(_values(request, proxies.username_headers)), "")
        if not name:
            return None
        uid = next(iter(_values(request, proxies.uid_headers)), "")
        groups = tuple(_values(request, proxies.group_headers))
        return _known(UserInfo(name, groups, uid, _extra(request.headers, proxies.extra_prefixes)))

    def _with_certificate(self, certificate: PeerCertificate) -> UserInfo | None:
        if not certificate.common_name or not self.trust.is_client(certificate):
            return None
        return _known(UserInfo(certificate.common_name, certificate.organizations))

    async def _with_token(self, token: str) -> UserInfo | None:
        if self._reviews is None or not token.isascii():
            return None
        try:
            user = await self._reviews.user(token)
        except ReviewFailed as error:
            _log.warning("Unable to authenticate a request", extra=fields(err=str(error)))
            raise StatusError.unauthorized() from None
        return None if user is None else _known(user)


def _known(user: UserInfo) -> UserInfo:
    if _AUTHENTICATED in user.groups:
        return user
    return UserInfo(user.name, (*user.groups, _AUTHENTICATED), user.uid, user.extra)


def _bearer_token(request: HTTPRequest) -> str | None:
    """The token of the Authorization header; None where there is none."""
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
