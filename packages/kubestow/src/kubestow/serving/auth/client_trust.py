"""The CAs whose client certificates are accepted: one bundle for users, one for front proxies.

TLS verifies that a certificate is signed by a CA of either bundle (:mod:`kubestow.serving.tls`). This module finds out
by which one, because a CA of front proxies must not authenticate users.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from cryptography import x509
from cryptography.exceptions import InvalidSignature

from kubestow.errors import InputError
from kubestow.serving.http_messages import PeerCertificate
from kubestow.serving.options import RequestHeaderOptions

__all__ = ["ClientTrust"]


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
    except ValueError as error:
        raise InputError(subject, f"expected certificates in PEM: {error}") from None


def _issued_by(certificate: PeerCertificate, authorities: Sequence[x509.Certificate]) -> bool:
    try:
        issued = x509.load_der_x509_certificate(certificate.der)
    except ValueError:
        return False
    return any(_verifies(issued, authority) for authority in authorities)


def _verifies(issued: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        issued.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True
