"""Questions about identities and rights. Whoever the server knows may do everything, and is told so."""

from __future__ import annotations

from typing import Any

from kubestow.devcluster.apiserver import field_errors, statuses
from kubestow.devcluster.apiserver.authentication import ANONYMOUS, UNAUTHENTICATED, Authenticator
from kubestow.devcluster.apiserver.requests import Answer, UserInfo
from kubestow.devcluster.apiserver.resources import Object
from kubestow.devcluster.apiserver.serialization import negotiation
from kubestow.devcluster.apiserver.verbs.call import Call

__all__ = ["may_i", "may_they", "what_may_i", "who_am_i", "whose_token"]

_ALL = ["*"]
_ALLOWED: Object = {"allowed": True, "reason": "everybody whom this server knows may do everything"}
_REFUSED: Object = {"allowed": False, "reason": "this server lets nobody in whom it does not know"}


def _answered(call: Call, question: Object, status: Object) -> Answer:
    review: Object = {"kind": call.kind.name, "apiVersion": call.kind.api_version, "metadata": {}}
    if "spec" in question:
        review["spec"] = question["spec"]
    review["status"] = status
    return Answer.json(review, 201)


def _question(call: Call) -> Object:
    """Raises a 400 Failure for a body that is not such a review."""
    decoded = negotiation.decode(call.request.body, call.request.content_type, expected=call.kind.name)
    return call.read(decoded)[0]


def may_i(call: Call) -> Answer:
    question = _question(call)
    _check_attributes(call, question.get("spec") or {}, [])
    return _answered(call, question, _verdict(call.request.user.name, call.request.user.groups))


def may_they(call: Call) -> Answer:
    """About any user. Raises a 422 Failure for a question that names nobody."""
    question = _question(call)
    spec = question.get("spec") or {}
    user, groups = spec.get("user", ""), spec.get("groups") or []
    causes = []
    if not user and not groups:
        causes.append(field_errors.invalid_value("spec.user", "", "at least one of user or group must be specified"))
    _check_attributes(call, spec, causes)
    return _answered(call, question, _verdict(user, groups))


def _check_attributes(call: Call, spec: Object, causes: list[field_errors.Cause]) -> None:
    """A question is about a resource or about a path. Raises a 422 Failure."""
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if resource is not None and path is not None:
        problem = "cannot be specified in combination with resourceAttributes"
        causes = [field_errors.invalid_value("spec.nonResourceAttributes", path, problem), *causes]
    elif resource is None and path is None:
        problem = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        causes = [field_errors.invalid_value("spec.resourceAttributes", None, problem), *causes]
    if causes:
        raise statuses.invalid(call.kind.name, "", causes, group=call.kind.group)


def _verdict(user: str, groups: Any) -> Object:
    return _REFUSED if user == ANONYMOUS.name or UNAUTHENTICATED in groups else _ALLOWED


def what_may_i(call: Call) -> Answer:
    rules = {
        "resourceRules": [{"verbs": _ALL, "apiGroups": _ALL, "resources": _ALL}],
        "nonResourceRules": [{"verbs": _ALL, "nonResourceURLs": _ALL}],
        "incomplete": False,
    }
    return _answered(call, _question(call), rules)


def who_am_i(call: Call) -> Answer:
    _question(call)
    return Answer.json(
        {
            "kind": call.kind.name,
            "apiVersion": call.kind.api_version,
            "metadata": {"creationTimestamp": call.registry.now()},
            "status": {"userInfo": _info(call.request.user)},
        },
        201,
    )


def whose_token(call: Call, authenticator: Authenticator) -> Answer:
    """Raises a 400 Failure for a question without a token."""
    question = _question(call)
    token = (question.get("spec") or {}).get("token", "")
    if not token:
        raise statuses.bad_request("token is required for TokenReview in authentication")
    user = authenticator.holder(token)
    if user is None:
        return _answered(call, question, {"user": {}, "error": "invalid bearer token"})
    return _answered(call, question, {"authenticated": True, "user": _info(user)})


def _info(user: UserInfo) -> Object:
    info: Object = {"username": user.name}
    if user.uid:
        info["uid"] = user.uid
    info["groups"] = list(user.groups)
    if user.extra:
        info["extra"] = user.extra
    return info
