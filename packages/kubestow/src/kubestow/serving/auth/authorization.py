"""Authorization (semantics 1.4): always-allowed paths, the group system:masters, otherwise SubjectAccessReviews."""

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
    """Authorizes requests. Without an ``access_reviewer`` all other requests are denied."""

    def __init__(self, always_allow_paths: Sequence[str], access_reviewer: AccessReviewer | None = None) -> None:
        self._paths = frozenset(path for path in always_allow_paths if not path.endswith("*"))
        self._prefixes = tuple(path[:-1] for path in always_allow_paths if path.endswith("*"))
        self._access_reviewer = access_reviewer

    async def authorize(self, user: UserInfo, verb: str, path: str) -> None:
        """Raises StatusError: 403 if the request is denied, 500 if the review failed."""
        if _MASTERS in user.groups or self._is_always_allowed(path):
            return
        if self._access_reviewer is None:
            raise StatusError.forbidden(user, verb, path)
        try:
            allowed, reason = await self._access_reviewer.review(user, verb, path)
        except ReviewFailed as error:
            _log.warning("Unable to authorize the request", extra=fields(user=user.name, path=path, err=str(error)))
            raise StatusError.internal() from None
        if not allowed:
            raise StatusError.forbidden(user, verb, path, reason)

    def _is_always_allowed(self, path: str) -> bool:
        return path in self._paths or (bool(self._prefixes) and path.startswith(self._prefixes))
