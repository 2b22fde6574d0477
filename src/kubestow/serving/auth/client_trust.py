"""Whose certificates are believed: authorities of users, and of front proxies that speak for others.

That a certificate comes from one of our authorities TLS has made sure of already (:mod:`kubestow.serving.tls`); here it
is told apart which of them signed it, for an authority of front proxies must not make users.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from cryptography import x509
from cryptography.exceptions import InvalidSignature

from kubestow.errors import InputError
from kubestow.serving.http_messages import PeerCertificate

__all__ = ["ClientTrust", "FrontProxies"]


@dataclass(frozen=True, slots=True)
class FrontProxies:
    """Who may speak for others, and in which headers they say for whom. Authorities are in PEM.

    ``names`` are the proxies' common names, none means all of their authorities' making. Headers are in lower case.
    """

    authorities: bytes = b""
    names: tuple[str, ...] = ()
    username_headers: tuple[str, ...] = ()
    uid_headers: tuple[str, ...] = ()
    group_headers: tuple[str, ...] = ()
    extra_prefixes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ClientTrust:
    """Whose certificates are believed; authorities are in PEM. Raises InputError when they are not."""

    client_authorities: bytes = b""
    proxies: FrontProxies = FrontProxies()
    _clients: list[x509.Certificate] = field(init=False, repr=False, compare=False)
    _proxies: list[x509.Certificate] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_clients", _certificates(self.client_authorities, "client certificate authorities"))
        object.__setattr__(self, "_proxies", _certificates(self.proxies.authorities, "front proxies' authorities"))

    @property
    def authorities(self) -> bytes:
        """All of them, for TLS."""
        return b"\n".join(part for part in (self.client_authorities, self.proxies.authorities) if part)

    def is_proxy(self, certificate: PeerCertificate) -> bool:
        """Whether a certificate is a front proxy's that may speak for others."""
        names = self.proxies.names
        return (not names or certificate.common_name in names) and _issued_by(certificate, self._proxies)

    def is_client(self, certificate: PeerCertificate) -> bool:
        """Whether a certificate, which TLS has verified, is a user's.

        Where there are front proxies too, it has to be signed by an authority of users itself: of certificates in
        between nobody could tell on whose side they are.
        """
        return not self._proxies or _issued_by(certificate, self._clients)


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
