"""Who is asking. Without a token file everybody is the administrator; with one, a bearer token says who."""

from __future__ import annotations

import csv
import hmac
from pathlib import Path

from kubestow.apiserver import statuses
from kubestow.apiserver.messages import ADMIN, User
from kubestow.errors import InputError

__all__ = ["Authenticator", "read_tokens"]

_OPEN_PATHS = ("/healthz", "/livez", "/readyz", "/version")
_ANONYMOUS = User("system:anonymous", ("system:unauthenticated",))


class Authenticator:
    """``tokens`` maps bearer tokens to users; with none, every request is the administrator's."""

    def __init__(self, tokens: dict[str, User] | None = None) -> None:
        self._tokens = {token.encode(): user for token, user in (tokens or {}).items()}

    def user(self, authorization: str, path: str) -> User:
        """Raises a 401 Failure."""
        if not self._tokens:
            return ADMIN
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() == "bearer":
            offered = token.strip().encode()
            # Every token is compared, and in constant time, so that answers do not tell how close a guess was.
            found = [user for known, user in self._tokens.items() if hmac.compare_digest(known, offered)]
            if found:
                return found[0]
        elif not authorization and path.startswith(_OPEN_PATHS):
            return _ANONYMOUS
        raise statuses.unauthorized()


def read_tokens(path: Path) -> dict[str, User]:
    """A token file as kube-apiserver's: lines of ``token,user,uid`` and optionally ``"group1,group2"``.

    Raises InputError naming file and line.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(str(path), f"cannot be read: {error}") from None
    tokens: dict[str, User] = {}
    for number, record in enumerate(csv.reader(lines, skipinitialspace=True), start=1):
        if not record:
            continue
        if len(record) < 3 or not record[0] or not record[1]:
            raise InputError(str(path), "expected token,user,uid[,groups]", place=f"line {number}")
        groups = tuple(group.strip() for group in record[3].split(",")) if len(record) > 3 else ()
        tokens[record[0]] = User(record[1], (*groups, "system:authenticated"))
    if not tokens:
        raise InputError(str(path), "holds no token; expected lines of token,user,uid[,groups]")
    return tokens
