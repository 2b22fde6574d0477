"""The user of a request: well-known users and groups, impersonation, and token files.

A token file has kube-apiserver's format: lines of ``token,user,uid`` and optionally ``"group1,group2"``.
"""

from __future__ import annotations

import csv
from pathlib import Path
from urllib.parse import unquote

from multidict import MultiMapping

from kubestow.errors import InputError
from kubestow.http.messages import ALL_AUTHENTICATED, ALL_UNAUTHENTICATED, ANONYMOUS, UserInfo
from kubestow_devcluster.apiserver import statuses

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
    return UserInfo(name, groups, headers.get("Impersonate-Uid", ""), _extra(headers))


def _extra(headers: MultiMapping[str]) -> dict[str, list[str]]:
    extra: dict[str, list[str]] = {}
    for header, value in headers.items():
        if header.lower().startswith(_EXTRA_PREFIX):
            extra.setdefault(unquote(header.lower().removeprefix(_EXTRA_PREFIX)), []).append(value)
    return extra
