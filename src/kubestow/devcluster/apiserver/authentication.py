"""Who is asking: the holder of a client certificate or of a bearer token, or, where neither is asked for, the
administrator.

Where credentials are asked for, whoever shows none may look at health and version as ``system:anonymous`` and is
refused everything else; whoever shows wrong ones is refused everything. Nobody's rights are told apart, so whoever got
in may also speak as another (impersonation), and is treated as that user.
"""

from __future__ import annotations

import csv
import hashlib
import hmac
import ssl
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote

from multidict import MultiMapping

from kubestow.devcluster.apiserver import statuses
from kubestow.devcluster.apiserver.requests import ADMIN, UserInfo
from kubestow.errors import InputError

__all__ = ["ANONYMOUS", "AUTHENTICATED", "UNAUTHENTICATED", "Authenticator", "read_tokens"]

AUTHENTICATED, UNAUTHENTICATED = "system:authenticated", "system:unauthenticated"
ANONYMOUS = UserInfo("system:anonymous", (UNAUTHENTICATED,))

_OPEN_PATHS = frozenset({"/healthz", "/livez", "/readyz", "/version"})
_SERVICE_ACCOUNT = "system:serviceaccount:"
_IMPERSONATION = ("Impersonate-User", "Impersonate-Group", "Impersonate-Uid")
_IMPERSONATED_EXTRA = "impersonate-extra-"


class Authenticator:
    """``tokens`` maps bearer tokens to users; ``certificates``: whether client certificates say who is asking.

    With neither, every request is the administrator's.
    """

    def __init__(self, tokens: Mapping[str, UserInfo] | None = None, *, certificates: bool = False) -> None:
        self._tokens = {token.encode(): user for token, user in (tokens or {}).items()}
        self._certificates = certificates
        self._is_open = not self._tokens and not certificates

    def user(self, headers: MultiMapping[str], path: str, peer: ssl.SSLObject | None = None) -> UserInfo:
        """Raises a 401 Failure. ``peer`` is the other end of a TLS connection, its certificate checked already."""
        user = ADMIN if self._is_open else self._known(headers.get("Authorization", ""), path, peer)
        if any(header in headers for header in _IMPERSONATION):
            return _impersonated(headers)
        return user

    def holder(self, token: str) -> UserInfo | None:
        """Whose token this is."""
        offered = token.encode(errors="surrogateescape")
        # Every token is compared, and in constant time, so that answers do not tell how close a guess was.
        found = [user for known, user in self._tokens.items() if hmac.compare_digest(known, offered)]
        return found[0] if found else None

    def _known(self, authorization: str, path: str, peer: ssl.SSLObject | None) -> UserInfo:
        if self._certificates and peer is not None and (certificate := peer.getpeercert()):
            return _named(certificate, peer.getpeercert(binary_form=True) or b"")
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() == "bearer" and (user := self.holder(token.strip())) is not None:
            return user
        if not authorization and _is_open(path):
            return ANONYMOUS
        raise statuses.unauthorized()


def _is_open(path: str) -> bool:
    return "/" + path.split("/", 2)[1] in _OPEN_PATHS


def _named(certificate: Mapping[str, object], encoded: bytes) -> UserInfo:
    """The user a certificate names: its common name, with the organizations as groups. Raises a 401 Failure."""
    subject = certificate.get("subject", ())
    names = [pair for relative in subject for pair in relative]  # type: ignore[attr-defined]
    common = [value for name, value in names if name == "commonName"]
    if not common:
        raise statuses.unauthorized()
    groups = [value for name, value in names if name == "organizationName"]
    identifier = f"X509SHA256={hashlib.sha256(encoded).hexdigest()}"
    extra = {"authentication.kubernetes.io/credential-id": [identifier]}
    return UserInfo(common[0], (*groups, AUTHENTICATED), extra=extra)


def _impersonated(headers: MultiMapping[str]) -> UserInfo:
    """The user that the request is made as. Raises a 400 Failure for headers that name none."""
    name = headers.get("Impersonate-User", "")
    groups = tuple(headers.getall("Impersonate-Group", ()))
    if not name:
        raise statuses.bad_request("groups, a uid or extra values are to be impersonated, and no user")
    if not all(value.isprintable() for header, value in headers.items() if header.lower().startswith("impersonate-")):
        raise statuses.bad_request("the user to be impersonated is not readable text")
    if not groups and name.startswith(_SERVICE_ACCOUNT):
        namespace = name.removeprefix(_SERVICE_ACCOUNT).partition(":")[0]
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")
    implied = UNAUTHENTICATED if name == ANONYMOUS.name else AUTHENTICATED
    extra: dict[str, list[str]] = {}
    for header, value in headers.items():
        if header.lower().startswith(_IMPERSONATED_EXTRA):
            extra.setdefault(unquote(header.lower().removeprefix(_IMPERSONATED_EXTRA)), []).append(value)
    groups = groups if implied in groups else (*groups, implied)
    return UserInfo(name, groups, headers.get("Impersonate-Uid", ""), extra)


def read_tokens(path: Path) -> dict[str, UserInfo]:
    """A token file as kube-apiserver's: lines of ``token,user,uid`` and optionally ``"group1,group2"``.

    Raises InputError naming file and line.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        problem = getattr(error, "strerror", None) or error
        raise InputError(str(path), f"cannot be read: {problem}") from None
    tokens: dict[str, UserInfo] = {}
    for number, record in enumerate(csv.reader(lines, skipinitialspace=True), start=1):
        if not record:
            continue
        if len(record) < 3 or not record[0] or not record[1]:
            raise InputError(str(path), "expected token,user,uid[,groups]", place=f"line {number}")
        groups = tuple(group.strip() for group in record[3].split(",") if group.strip()) if len(record) > 3 else ()
        tokens[record[0]] = UserInfo(record[1], (*groups, AUTHENTICATED), record[2])
    if not tokens:
        raise InputError(str(path), "holds no token; expected lines of token,user,uid[,groups]")
    return tokens
