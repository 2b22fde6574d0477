"""Impersonation: the user that the ``Impersonate-*`` headers of a request name."""

from __future__ import annotations

from urllib.parse import unquote

from multidict import MultiMapping

from kubestow_devcluster.apiserver import statuses
from kubestow_devcluster.apiserver.authentication.users import (
    ALL_AUTHENTICATED,
    ALL_UNAUTHENTICATED,
    ANONYMOUS,
    SERVICE_ACCOUNT_PREFIX,
    UserInfo,
    service_account_groups,
)

__all__ = ["impersonated_user", "is_impersonation"]

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
