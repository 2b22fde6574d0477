"""Who is asking (reference 1.4): a front proxy's client, the holder of a certificate or of a token, or anybody.

They are tried in this order, which is the API server's. Credentials that are shown and turn out to be nobody's end it;
only who shows none is ``system:anonymous``. That a certificate comes from one of our authorities TLS has made sure of
already (:mod:`kubestow.serving.tls`); here it is told apart which of them signed it, for an authority of front proxies
must not make users.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import unquote

from cryptography import x509
from cryptography.exceptions import InvalidSignature

from kubestow.errors import InputError
from kubestow.observability.logs import fields
from kubestow.serving.messages import Failure, PeerCertificate, Request, User
from kubestow.serving.reviews import ReviewFailed, TokenReviews

__all__ = ["ANONYMOUS", "Authenticator", "Trust"]

_log = logging.getLogger(__name__)

ANONYMOUS = User("system:anonymous", ("system:unauthenticated",))
_AUTHENTICATED = "system:authenticated"


@dataclass(frozen=True, slots=True)
class Trust:
    """Whose certificates are believed; authorities are in PEM. Raises InputError when they are not.

    ``proxy_names`` are the front proxies that may speak for others, none means all of their authorities' making.
    Header names are in lower case.
    """

    client_authorities: bytes = b""
    proxy_authorities: bytes = b""
    proxy_names: tuple[str, ...] = ()
    username_headers: tuple[str, ...] = ()
    uid_headers: tuple[str, ...] = ()
    group_headers: tuple[str, ...] = ()
    extra_prefixes: tuple[str, ...] = ()
    _clients: list[x509.Certificate] = field(init=False, repr=False, compare=False)
    _proxies: list[x509.Certificate] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_clients", _certificates(self.client_authorities, "client certificate authorities"))
        object.__setattr__(self, "_proxies", _certificates(self.proxy_authorities, "front proxies' authorities"))

    @property
    def authorities(self) -> bytes:
        """All of them, for TLS."""
        return b"\n".join(part for part in (self.client_authorities, self.proxy_authorities) if part)

    def is_proxy(self, certificate: PeerCertificate) -> bool:
        """Whether a certificate is a front proxy's that may speak for others."""
        named = not self.proxy_names or certificate.common_name in self.proxy_names
        return named and _issued_by(certificate, self._proxies)

    def is_client(self, certificate: PeerCertificate) -> bool:
        """Whether a certificate, which TLS has verified, is a user's.

        Where there are front proxies too, it has to be signed by an authority of users itself: of certificates in
        between nobody could tell on whose side they are.
        """
        return not self._proxies or _issued_by(certificate, self._clients)


class Authenticator:
    """Finds out who is asking. ``reviews`` is None where tokens cannot be asked about."""

    def __init__(self, trust: Trust, reviews: TokenReviews | None = None) -> None:
        self.trust, self._reviews = trust, reviews

    async def user(self, request: Request) -> User:
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
            raise Failure.unauthorized()
        return ANONYMOUS

    def _behind_proxy(self, request: Request) -> User | None:
        assert request.certificate is not None
        if not self.trust.is_proxy(request.certificate):
            return None
        name = next(iter(_values(request, self.trust.username_headers)), "")
        if not name:
            return None
        uid = next(iter(_values(request, self.trust.uid_headers)), "")
        groups = tuple(_values(request, self.trust.group_headers))
        return _known(User(name, groups, uid, _extra(request.headers, self.trust.extra_prefixes)))

    def _with_certificate(self, certificate: PeerCertificate) -> User | None:
        if not certificate.common_name or not self.trust.is_client(certificate):
            return None
        return _known(User(certificate.common_name, certificate.organizations))

    async def _with_token(self, token: str) -> User | None:
        if self._reviews is None or not token.isascii():
            return None
        try:
            user = await self._reviews.user(token)
        except ReviewFailed as error:
            _log.warning("Unable to authenticate a request", extra=fields(err=str(error)))
            raise Failure.unauthorized() from None
        return None if user is None else _known(user)


def _known(user: User) -> User:
    if _AUTHENTICATED in user.groups:
        return user
    return User(user.name, (*user.groups, _AUTHENTICATED), user.uid, user.extra)


def _bearer_token(request: Request) -> str | None:
    """The token of the Authorization header; None where there is none."""
    values = request.headers.get("authorization")
    if not values:
        return None
    scheme, _, token = values[0].strip().partition(" ")
    return (token.strip() or None) if scheme.lower() == "bearer" else None


def _values(request: Request, names: Sequence[str]) -> list[str]:
    return [value for name in names for value in request.headers.get(name, ()) if value]


def _extra(headers: Mapping[str, Sequence[str]], prefixes: Sequence[str]) -> dict[str, list[str]]:
    extra: dict[str, list[str]] = {}
    for name, values in headers.items():
        prefix = next((prefix for prefix in prefixes if name.startswith(prefix)), None)
        if prefix is not None:
            extra.setdefault(unquote(name.removeprefix(prefix)), []).extend(values)
    return extra


def _certificates(pem: bytes, subject: str) -> list[x509.Certificate]:
    if not pem.strip():
        return []
    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError as error:
        raise InputError(subject, f"expected certificates in PEM: {error}") from None


def _issued_by(certificate: PeerCertificate, authorities: Sequence[x509.Certificate]) -> bool:
    try:
        issued = x509.load_der_x509_certificate(certificate.der)
    except ValueError:
        return False
    return any(_signed(issued, authority) for authority in authorities)


def _signed(issued: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        issued.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True
