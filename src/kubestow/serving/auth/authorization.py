"""Whether somebody may (semantics 1.4): some paths anybody, ``system:masters`` all, else the API server says."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from kubestow.observability.logs import fields
from kubestow.serving.auth.reviews import AccessReviewer, ReviewFailed
from kubestow.serving.http_messages import StatusError, UserInfo

__all__ = ["DelegatingAuthorizer"]

_log = logging.getLogger(__name__)

_MASTERS = "system:masters"


class DelegatingAuthorizer:
    """Lets requests pass or not. ``reviews`` is None where nobody can be asked; then nothing else is allowed."""

    def __init__(self, always_allow: Sequence[str], reviews: AccessReviewer | None = None) -> None:
        self._paths = frozenset(path for path in always_allow if not path.endswith("*"))
        self._prefixes = tuple(path[:-1] for path in always_allow if path.endswith("*"))
        self._reviews = reviews

    async def check(self, user: UserInfo, verb: str, path: str) -> None:
        """Raises Failure: 403 when they may not, 500 when that cannot be found out."""
        if _MASTERS in user.groups or self._is_open(path):
            return
        if self._reviews is None:
            raise StatusError.forbidden(user, verb, path)
        try:
            allowed, reason = await self._reviews.allowed(user, verb, path)
        except ReviewFailed as error:
            _log.warning("Unable to authorize a request", extra=fields(user=user.name, path=path, err=str(error)))
            raise StatusError.internal() from None
        if not allowed:
            raise StatusError.forbidden(user, verb, path, reason)

    def _is_open(self, path: str) -> bool:
        return path in self._paths or (bool(self._prefixes) and path.startswith(self._prefixes))
