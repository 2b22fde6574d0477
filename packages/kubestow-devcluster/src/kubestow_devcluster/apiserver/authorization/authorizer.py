"""The interface of authorizers, and the one that allows everything."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from kubestow_devcluster.apiserver.authentication.users import ALL_UNAUTHENTICATED, UserInfo
from kubestow_devcluster.apiserver.schema import Object

__all__ = ["AlwaysAllow", "Attributes", "Authorizer", "Decision"]


class Attributes(NamedTuple):
    """What a request is about: a resource, or a ``path`` that is none. Absent parts are empty."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""


class Decision(NamedTuple):
    """Whether a request is allowed, and why; the reason can be empty."""

    is_allowed: bool
    reason: str = ""


class Authorizer(Protocol):
    """Decides which requests of which users are allowed."""

    #: Whether requests without credentials are to be authorized, as those of ``system:anonymous``, or are rejected.
    accepts_anonymous: bool

    def authorize(self, user: UserInfo, attributes: Attributes) -> Decision:
        """Whether ``user`` is allowed a request."""

    def rules(self, user: UserInfo, namespace: str) -> tuple[list[Object], list[Object]]:
        """The policy rules for resources in a namespace, and for paths, that ``user`` has."""


class AlwaysAllow:
    """Allows all requests of authenticated users."""

    accepts_anonymous = False

    def authorize(self, user: UserInfo, attributes: Attributes) -> Decision:
        if ALL_UNAUTHENTICATED in user.groups:
            return Decision(False, "unauthenticated users are denied")
        return Decision(True, "all authenticated users are allowed")

    def rules(self, user: UserInfo, namespace: str) -> tuple[list[Object], list[Object]]:
        everything = ["*"]
        return (
            [{"verbs": everything, "apiGroups": everything, "resources": everything}],
            [{"verbs": everything, "nonResourceURLs": everything}],
        )
