"""The user of a request, and the well-known users and groups."""

from __future__ import annotations

from kubestow.http.messages import ALL_AUTHENTICATED, ALL_UNAUTHENTICATED, ANONYMOUS, UserInfo

__all__ = [
    "ADMIN",
    "ALL_AUTHENTICATED",
    "ALL_UNAUTHENTICATED",
    "ANONYMOUS",
    "SERVICE_ACCOUNT_PREFIX",
    "UserInfo",
    "service_account_groups",
]

#: The name of a service account as a user is this, its namespace, a colon and its name.
SERVICE_ACCOUNT_PREFIX = "system:serviceaccount:"


def service_account_groups(namespace: str) -> tuple[str, str]:
    """The groups of all service accounts, and of those in a namespace."""
    return "system:serviceaccounts", f"system:serviceaccounts:{namespace}"


#: The user of all requests to a server without authentication.
ADMIN = UserInfo("system:admin", ("system:masters", ALL_AUTHENTICATED))
