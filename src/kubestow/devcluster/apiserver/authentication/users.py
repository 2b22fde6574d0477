"""The user of a request, and the well-known users and groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["ADMIN", "ALL_AUTHENTICATED", "ALL_UNAUTHENTICATED", "ANONYMOUS", "UserInfo"]

ALL_AUTHENTICATED, ALL_UNAUTHENTICATED = "system:authenticated", "system:unauthenticated"


@dataclass(frozen=True, slots=True)
class UserInfo:
    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, Sequence[str]] = field(default_factory=dict, hash=False)


#: The user of all requests to a server without authentication.
ADMIN = UserInfo("system:admin", ("system:masters", ALL_AUTHENTICATED))
ANONYMOUS = UserInfo("system:anonymous", (ALL_UNAUTHENTICATED,))
