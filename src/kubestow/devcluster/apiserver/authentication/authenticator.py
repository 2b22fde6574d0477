"""Authentication of requests by client certificate or bearer token.

A client certificate takes precedence over a token. Requests without credentials are anonymous on the health and version
endpoints and get 401 elsewhere; invalid credentials get 401 everywhere. Authenticated users can impersonate any user.
"""

from __future__ import annotations

import hashlib
import hmac
import ssl
from collections.abc import Mapping

from multidict import MultiMapping

from kubestow.devcluster.apiserver import statuses
from kubestow.devcluster.apiserver.authentication.impersonation import impersonated_user, is_impersonation
from kubestow.devcluster.apiserver.authentication.users import ADMIN, ALL_AUTHENTICATED, ANONYMOUS, UserInfo

__all__ = ["RequestAuthenticator"]

_ANONYMOUS_PATHS = frozenset({"/healthz", "/livez", "/readyz", "/version"})


class RequestAuthenticator:
    """Authenticates the bearer tokens in ``tokens`` and, with ``client_certificates``, TLS client certificates.

    With neither, every request is authenticated as :data:`ADMIN`.
    """

    def __init__(self, tokens: Mapping[str, UserInfo], *, client_certificates: bool) -> None:
        self._tokens = {token.encode(): user for token, user in tokens.items()}
        self._client_certificates = client_certificates
        self._is_disabled = not self._tokens and not client_certificates

    def authenticate_request(self, headers: MultiMapping[str], path: str, connection: ssl.SSLObject | None) -> UserInfo:
        """The user of a request, or the one it impersonates. Raises a 400 or 401 StatusError.

        The TLS layer has verified the client certificate of ``connection``.
        """
        user = ADMIN if self._is_disabled else self._authenticate(headers.get("Authorization", ""), path, connection)
        return impersonated_user(headers) if is_impersonation(headers) else user

    def authenticate_token(self, token: str) -> UserInfo | None:
        """The user of a bearer token."""
        presented = token.encode(errors="surrogateescape")
        # All tokens are compared in constant time, so that response times do not reveal how close a guess is.
        found = [user for known, user in self._tokens.items() if hmac.compare_digest(known, presented)]
        return found[0] if found else None

    def _authenticate(self, authorization: str, path: str, connection: ssl.SSLObject | None) -> UserInfo:
        if self._client_certificates and connection is not None and (certificate := connection.getpeercert()):
            return _certificate_user(certificate, connection.getpeercert(binary_form=True) or b"")
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() == "bearer" and (user := self.authenticate_token(token.strip())) is not None:
            return user
        if not authorization and "/" + path.split("/", 2)[1] in _ANONYMOUS_PATHS:
            return ANONYMOUS
        raise statuses.unauthorized()


def _certificate_user(certificate: Mapping[str, object], encoded: bytes) -> UserInfo:
    """The common name of a certificate, with its organizations as groups. Raises a 401 StatusError."""
    subject = certificate.get("subject", ())
    attributes = [pair for relative in subject for pair in relative]  # type: ignore[attr-defined]
    common_names = [value for name, value in attributes if name == "commonName"]
    if not common_names:
        raise statuses.unauthorized()
    groups = [value for name, value in attributes if name == "organizationName"]
    credential_id = f"X509SHA256={hashlib.sha256(encoded).hexdigest()}"
    extra = {"authentication.kubernetes.io/credential-id": [credential_id]}
    return UserInfo(common_names[0], (*groups, ALL_AUTHENTICATED), extra=extra)
