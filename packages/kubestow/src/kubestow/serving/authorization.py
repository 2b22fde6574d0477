"""Authorization (semantics 1.4): always-allowed paths, the group system:masters, otherwise SubjectAccessReviews."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from kubestow.client.rest.transport import Transport
from kubestow.http.messages import StatusError, UserInfo
from kubestow.log_fields import fields
from kubestow.serving.reviews import ReviewCache, ReviewFailed, create_review

_log = logging.getLogger(__name__)

_MASTERS = "system:masters"


class _AccessReviewStatus(msgspec.Struct):
    allowed: bool = False
    denied: bool = False
    reason: str = ""


class _AccessReview(msgspec.Struct):
    status: _AccessReviewStatus = msgspec.field(default_factory=_AccessReviewStatus)


class AccessReviewer:
    """Authorizes users by SubjectAccessReviews; results are cached for the TTLs (seconds)."""

    def __init__(
        self, transport: Transport, *, allowed_ttl: float, denied_ttl: float, monotonic: Callable[[], float]
    ) -> None:
        self._transport = transport
        self._cache: ReviewCache[tuple[bool, str]] = ReviewCache(
            lambda result: allowed_ttl if result[0] else denied_ttl, monotonic
        )

    async def review(self, user: UserInfo, verb: str, path: str) -> tuple[bool, str]:
        """Whether the user is allowed to use a non-resource path, and the reason. Raises ReviewFailed."""
        spec = {
            "user": user.name,
            "groups": list(user.groups),
            "uid": user.uid,
            "extra": {name: list(values) for name, values in user.extra.items()},
            "nonResourceAttributes": {"path": path, "verb": verb},
        }
        return await self._cache.find_or_request(msgspec.json.encode(spec, order="sorted"), lambda: self._review(spec))

    async def _review(self, spec: dict[str, Any]) -> tuple[bool, str]:
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        review = await create_review(self._transport, path, "SubjectAccessReview", "authorization", spec, _AccessReview)
        return review.status.allowed and not review.status.denied, review.status.reason


class DelegatingAuthorizer:
    """Authorizes requests. Without an ``access_reviewer`` all other requests are denied."""

    def __init__(self, always_allow_paths: Sequence[str], access_reviewer: AccessReviewer | None = None) -> None:
        self._paths = frozenset(path for path in always_allow_paths if not path.endswith("*"))
        self._prefixes = tuple(path[:-1] for path in always_allow_paths if path.endswith("*"))
        self._access_reviewer = access_reviewer

    async def authorize(self, user: UserInfo, verb: str, path: str) -> None:
        """Raises StatusError: 403 if the request is denied, 500 if the review failed."""
        if _MASTERS in user.groups or path in self._paths or path.startswith(self._prefixes):
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
