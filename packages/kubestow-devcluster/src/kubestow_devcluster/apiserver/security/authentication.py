"""Authentication of requests by client certificate or bearer token, impersonation, and tokens of service accounts.

A client certificate takes precedence over a token. Requests without credentials are anonymous on the health and version
endpoints, and everywhere if they are authorized there; else they get 401, as do invalid credentials everywhere. A token
file has kube-apiserver's format: lines of ``token,user,uid`` and optionally ``"group1,group2"``.

Tokens of service accounts are JSON web tokens that this server issues and verifies. They are signed with a key that is
made at start, so a token is valid until it expires, its service account or the object that it is bound to is deleted,
or the server stops.
"""

from __future__ import annotations

import csv
import hashlib
import hmac
import secrets
import ssl
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote
from uuid import uuid4

import msgspec
from multidict import MultiMapping

from kubestow.errors import InputError
from kubestow.files import read_file
from kubestow.http.messages import ALL_AUTHENTICATED, ALL_UNAUTHENTICATED, ANONYMOUS, UserInfo
from kubestow_devcluster.apiserver import statuses
from kubestow_devcluster.apiserver.storage.store import Store, StoredObject

#: The issuer, and the audience of tokens for the API server.
DEFAULT_AUDIENCE = "https://kubernetes.default.svc.cluster.local"
_HEADER = b'{"alg":"HS256","typ":"JWT"}'


#: The resources of the objects that tokens can be bound to, by their claim.
_BOUND_RESOURCES = {"pod": "pods", "secret": "secrets", "node": "nodes"}
#: Seconds after its deletionTimestamp that the tokens of an object remain valid.
_DELETION_LEEWAY = 60


class BoundObject(NamedTuple):
    """An object that a token is bound to; ``kind`` is that of its claim, in lower case."""

    kind: str
    name: str
    uid: str


class _Metadata(msgspec.Struct, rename="camel"):
    uid: str
    deletion_timestamp: str = ""


class _Identified(msgspec.Struct):
    metadata: _Metadata


class ServiceAccountTokens:
    """Issues and verifies the tokens of the service accounts in ``store``."""

    def __init__(self, store: Store, clock: Callable[[], datetime]) -> None:
        self._accounts, self._clock = store.collection("serviceaccounts"), clock
        self._bound_collections = {claim: store.collection(name) for claim, name in _BOUND_RESOURCES.items()}
        self._key = secrets.token_bytes(32)

    def issue(
        self,
        account: StoredObject,
        audiences: Sequence[str],
        expiration_seconds: int,
        bound_to: Sequence[BoundObject] = (),
    ) -> str:
        """A token of a service account for ``audiences``, bound to an object: a pod with its node, a secret, a node."""
        now = int(self._clock().timestamp())
        bound = {one.kind: {"name": one.name, "uid": one.uid} for one in bound_to}
        claims = {
            "aud": list(audiences),
            "exp": now + expiration_seconds,
            "iat": now,
            "iss": DEFAULT_AUDIENCE,
            "jti": str(uuid4()),
            "kubernetes.io": {
                "namespace": account.namespace,
                **bound,
                "serviceaccount": {"name": account.name, "uid": _uid_of(account)},
            },
            "nbf": now,
            "sub": f"{SERVICE_ACCOUNT_PREFIX}{account.namespace}:{account.name}",
        }
        signed = b".".join((_encode(_HEADER), _encode(msgspec.json.encode(claims))))
        return b".".join((signed, self._signature(signed))).decode()

    def verify(self, token: str) -> UserInfo | None:
        """The service account of a token for this server; None if the token is not valid."""
        signed, _, signature = token.encode(errors="surrogateescape").rpartition(b".")
        if not hmac.compare_digest(self._signature(signed), signature):
            return None
        content = signed.partition(b".")[2]
        claims: dict[str, Any] = msgspec.json.decode(urlsafe_b64decode(content + b"=" * (-len(content) % 4)))
        subject = claims["kubernetes.io"]
        namespace, name, uid = subject["namespace"], subject["serviceaccount"]["name"], subject["serviceaccount"]["uid"]
        account = self._accounts.get(f"{namespace}/{name}")
        is_expired = claims["exp"] <= self._clock().timestamp()
        if is_expired or DEFAULT_AUDIENCE not in claims["aud"] or account is None or _uid_of(account) != uid:
            return None
        if not self._has_bound_object(subject):
            return None
        groups = (*service_account_groups(namespace), ALL_AUTHENTICATED)
        extra = {"authentication.kubernetes.io/credential-id": [f"JTI={claims['jti']}"]}
        for claim in ("node", "pod"):
            if claim in subject:
                extra[f"authentication.kubernetes.io/{claim}-name"] = [subject[claim]["name"]]
                extra[f"authentication.kubernetes.io/{claim}-uid"] = [subject[claim]["uid"]]
        return UserInfo(claims["sub"], groups, uid, extra)

    def _has_bound_object(self, subject: dict[str, Any]) -> bool:
        """Whether the object that a token is bound to exists; the node of a pod is information only."""
        claim = next((one for one in ("pod", "secret", "node") if one in subject), None)
        if claim is None:
            return True
        name = subject[claim]["name"]
        stored = self._bound_collections[claim].get(name if claim == "node" else f"{subject['namespace']}/{name}")
        if stored is None:
            return False
        metadata = msgspec.json.decode(stored.data, type=_Identified).metadata
        if metadata.deletion_timestamp:
            valid_until = datetime.fromisoformat(metadata.deletion_timestamp).timestamp() + _DELETION_LEEWAY
            if valid_until < self._clock().timestamp():
                return False
        return bool(metadata.uid == subject[claim]["uid"])

    def _signature(self, signed: bytes) -> bytes:
        return _encode(hmac.digest(self._key, signed, hashlib.sha256))


def _uid_of(account: StoredObject) -> str:
    return msgspec.json.decode(account.data, type=_Identified).metadata.uid


def _encode(content: bytes) -> bytes:
    return urlsafe_b64encode(content).rstrip(b"=")


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
            if self._client_certificates and connection is not None and (certificate := connection.getpeercert()):
                # The user is the common name of the certificate, the groups are its organizations.
                subject: Any = certificate.get("subject", ())
                attributes = [pair for relative in subject for pair in relative]
                common_names = [value for name, value in attributes if name == "commonName"]
                if not common_names:
                    raise statuses.unauthorized()
                groups = [value for name, value in attributes if name == "organizationName"]
                digest = hashlib.sha256(connection.getpeercert(binary_form=True) or b"").hexdigest()
                extra = {"authentication.kubernetes.io/credential-id": [f"X509SHA256={digest}"]}
                return UserInfo(common_names[0], (*groups, ALL_AUTHENTICATED), extra=extra)
            user = self._authenticate_token(authorization)
            if user is not None:
                return user
            if not authorization and (self._accepts_anonymous or "/".join(path.split("/", 2)[:2]) in _ANONYMOUS_PATHS):
                return ANONYMOUS
            raise statuses.unauthorized()
        return (authorization and self._authenticate_token(authorization)) or ADMIN

    def authenticate_token(self, token: str) -> UserInfo | None:
        """The user of a bearer token."""
        presented = token.encode(errors="surrogateescape")
        # All tokens are compared in constant time, so that response times do not reveal how close a guess is.
        found = [user for known, user in self._tokens.items() if hmac.compare_digest(known, presented)]
        if found or self._service_account_tokens is None:
            return found[0] if found else None
        return self._service_account_tokens.verify(token)

    def _authenticate_token(self, authorization: str) -> UserInfo | None:
        """The user of the bearer token in an Authorization header."""
        scheme, _, token = authorization.partition(" ")
        return self.authenticate_token(token.strip()) if scheme.lower() == "bearer" else None


#: The name of a service account as a user is this, its namespace, a colon and its name.
SERVICE_ACCOUNT_PREFIX = "system:serviceaccount:"


def service_account_groups(namespace: str) -> tuple[str, str]:
    """The groups of all service accounts, and of those in a namespace."""
    return "system:serviceaccounts", f"system:serviceaccounts:{namespace}"


#: The user of all requests to a server without authentication.
ADMIN = UserInfo("system:admin", ("system:masters", ALL_AUTHENTICATED))


def read_token_file(path: Path) -> dict[str, UserInfo]:
    """The users by token. Raises InputError with file and line."""
    try:
        lines = read_file(path).decode().splitlines()
    except UnicodeDecodeError as error:
        raise InputError(str(path), f"cannot be read: {error}") from None
    tokens: dict[str, UserInfo] = {}
    records = csv.reader(lines, skipinitialspace=True)
    while True:
        try:
            record = next(records, None)
        except csv.Error as error:
            raise InputError(str(path), f"invalid CSV: {error}", place=f"line {records.line_num}") from None
        number = records.line_num
        if record is None:
            break
        if not record:
            continue
        if len(record) < 3 or not record[0] or not record[1]:
            raise InputError(str(path), "expected token,user,uid[,groups]", place=f"line {number}")
        groups = tuple(group.strip() for group in record[3].split(",") if group.strip()) if len(record) > 3 else ()
        tokens[record[0]] = UserInfo(record[1], (*groups, ALL_AUTHENTICATED), record[2])
    if not tokens:
        raise InputError(str(path), "contains no tokens; expected lines of token,user,uid[,groups]")
    return tokens


_HEADERS = ("Impersonate-User", "Impersonate-Group", "Impersonate-Uid")
_EXTRA_PREFIX = "impersonate-extra-"


def is_impersonation(headers: MultiMapping[str]) -> bool:
    return any(header in headers for header in _HEADERS)


def impersonated_user(headers: MultiMapping[str]) -> UserInfo:
    """The impersonated user. Raises a 400 StatusError for headers without a user or with unprintable values."""
    name = headers.get("Impersonate-User", "")
    groups = tuple(headers.getall("Impersonate-Group", ()))
    if not name:
        raise statuses.bad_request("requested impersonation of groups or a uid without impersonating a user")
    if not all(value.isprintable() for header, value in headers.items() if header.lower().startswith("impersonate-")):
        raise statuses.bad_request("impersonation headers must be printable text")
    if not groups and name.startswith(SERVICE_ACCOUNT_PREFIX):
        groups = service_account_groups(name.removeprefix(SERVICE_ACCOUNT_PREFIX).partition(":")[0])
    implied = ALL_UNAUTHENTICATED if name == ANONYMOUS.name else ALL_AUTHENTICATED
    groups = groups if implied in groups else (*groups, implied)
    extra: dict[str, list[str]] = {}
    for header, value in headers.items():
        if header.lower().startswith(_EXTRA_PREFIX):
            extra.setdefault(unquote(header.lower().removeprefix(_EXTRA_PREFIX)), []).append(value)
    return UserInfo(name, groups, headers.get("Impersonate-Uid", ""), extra)
