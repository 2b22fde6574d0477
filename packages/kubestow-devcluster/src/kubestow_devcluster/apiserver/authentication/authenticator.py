"""Authentication of requests by client certificate or bearer token.

A client certificate takes precedence over a token. Requests without credentials are anonymous on the health and version
endpoints, and everywhere if they are authorized there; else they get 401, as do invalid credentials everywhere.
"""

from __future__ import annotations

import hashlib
import hmac
import ssl
from collections.abc import Mapping

from multidict import MultiMapping

from kubestow_devcluster.apiserver import statuses
from kubestow_devcluster.apiserver.authentication.service_account_tokens import ServiceAccountTokens
from kubestow_devcluster.apiserver.authentication.users import ADMIN, ALL_AUTHENTICATED, ANONYMOUS, UserInfo

__all__ = ["RequestAuthenticator"]

_ANONYMOUS_PATHS = frozenset({"/healthz", "/livez", "/readyz", "/version"})


class RequestAuthenticator:
    """Authenticates the bearer tokens in ``tokens``, those of service accounts, and TLS client certificates.

    Without tokens and ``client_certificates``, every request is authenticated as :data:`ADMIN`, unless it has the token
    of a service account. ``accepts_anonymous`` admits requests without credentials everywhere.
    """

    def __init__(
        self,
        tokens: Mapping[str, UserInfo],
        service_account_tokens: ServiceAccountTokens | None = None,
        *,
        client_certificates: bool,
        accepts_anonymous: bool = False,
    ) -> None:
        self._service_account_tokens, self._accepts_anonymous = service_account_tokens, accepts_anonymous
        self._tokens = {token.encode(): user for token, user in tokens.items()}
        self._client_certificates = client_certificates
        #: Whether clients must authenticate.
        self.is_enabled = bool(self._tokens) or client_certificates

    def authenticate_request(self, headers: MultiMapping[str], path: str, connection: ssl.SSLObject | None) -> UserInfo:
        """The user of a request, apart from impersonation. Raises a 401 StatusError.

        The TLS layer has verified the client certificate of ``connection``.
        """
        authorization = headers.get("Authorization", "")
        if self.is_enabled:
            return self._authenticate(authorization, path, connection)
        return (authorization and self._authenticate_token(authorization)) or ADMIN

    def authenticate_token(self, token: str) -> UserInfo | None:
        """The user of a bearer token."""
        presented = token.encode(errors="surrogateescape")
        # All tokens are compared in constant time, so that response times do not reveal how close a guess is.
        found = [user for known, user in self._tokens.items() if hmac.compare_digest(known, presented)]
        if found or self._service_account_tokens is None:
            return found[0] if found else None
        return self._service_account_tokens.verify(token)

    def _authenticate(self, authorization: str, path: str, connection: ssl.SSLObject | None) -> UserInfo:
        if self._client_certificates and connection is not None and (certificate := connection.getpeercert()):
            return _certificate_user(certificate, connection.getpeercert(binary_form=True) or b"")
        user = self._authenticate_token(authorization)
        if user is not None:
            return user
        if not authorization and (self._accepts_anonymous or "/".join(path.split("/", 2)[:2]) in _ANONYMOUS_PATHS):
            return ANONYMOUS
        raise statuses.unauthorized()

    def _authenticate_token(self, authorization: str) -> UserInfo | None:
        """The user of the bearer token in an Authorization header."""
        scheme, _, token = authorization.partition(" ")
        return self.authenticate_token(token.strip()) if scheme.lower() == "bearer" else None


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
