"""The handlers of review kinds: SelfSubjectReview, TokenReview, and the access and rules reviews."""

from __future__ import annotations

from kubestow_devcluster.apiserver import field_errors, statuses
from kubestow_devcluster.apiserver.authentication.authenticator import RequestAuthenticator
from kubestow_devcluster.apiserver.authentication.users import ALL_UNAUTHENTICATED, ANONYMOUS, UserInfo
from kubestow_devcluster.apiserver.authorization.authorizer import Attributes, Authorizer, Decision
from kubestow_devcluster.apiserver.endpoints.request_scope import RequestScope
from kubestow_devcluster.apiserver.endpoints.response import Response
from kubestow_devcluster.apiserver.managed_fields.managers import FieldManager, record_update
from kubestow_devcluster.apiserver.schema import Object
from kubestow_devcluster.apiserver.serialization.decoding import decode_body
from kubestow_devcluster.apiserver.serialization.negotiation import negotiate_output_media_type

__all__ = [
    "create_self_subject_access_review",
    "create_self_subject_review",
    "create_self_subject_rules_review",
    "create_subject_access_review",
    "create_token_review",
]


def create_self_subject_review(scope: RequestScope) -> Response:
    _decode_review(scope)
    review = {
        "kind": scope.kind.name,
        "apiVersion": scope.kind.api_version,
        "metadata": {"creationTimestamp": scope.registry.now()},
        "status": {"userInfo": _user_info(scope.request.user)},
    }
    return Response.json(review, 201)


def create_token_review(scope: RequestScope, authenticator: RequestAuthenticator) -> Response:
    """Raises a 400 StatusError for a review without a token."""
    review = _decode_review(scope)
    token = (review.get("spec") or {}).get("token", "")
    if not token:
        raise statuses.bad_request("token is required for TokenReview in authentication")
    user = authenticator.authenticate_token(token)
    if user is None:
        return _response(scope, review, {"user": {}, "error": "invalid bearer token"})
    return _response(scope, review, {"authenticated": True, "user": _user_info(user)})


def create_self_subject_access_review(scope: RequestScope, authorizer: Authorizer) -> Response:
    """Raises a 422 StatusError for a review with both or neither kind of attributes."""
    review = _decode_review(scope)
    spec = review.get("spec") or {}
    _check_attributes(scope, spec, [])
    return _response(scope, review, _access_status(authorizer.authorize(scope.request.user, _attributes(spec))))


def create_subject_access_review(scope: RequestScope, authorizer: Authorizer) -> Response:
    """SubjectAccessReview and LocalSubjectAccessReview. Raises a 422 StatusError for a review without a subject."""
    review = _decode_review(scope)
    spec = review.get("spec") or {}
    user, groups = spec.get("user", ""), spec.get("groups") or []
    errors = []
    if not user and not groups:
        errors.append(field_errors.invalid_value("spec.user", "", "at least one of user or group must be specified"))
    _check_attributes(scope, spec, errors)
    # An anonymous user is one without its group too.
    groups = [*groups, ALL_UNAUTHENTICATED] if user == ANONYMOUS.name else groups
    decision = authorizer.authorize(UserInfo(user, tuple(groups)), _attributes(spec))
    return _response(scope, review, _access_status(decision))


def create_self_subject_rules_review(scope: RequestScope, authorizer: Authorizer) -> Response:
    review = _decode_review(scope)
    namespace = (review.get("spec") or {}).get("namespace", "")
    resource_rules, path_rules = authorizer.rules(scope.request.user, namespace)
    rules = {"resourceRules": resource_rules, "nonResourceRules": path_rules, "incomplete": False}
    return _response(scope, review, rules)


def _decode_review(scope: RequestScope) -> Object:
    """Raises a 400 StatusError for a body that is not a review of the kind, a 406 if only a conversion is accepted."""
    headers = scope.request.headers
    negotiate_output_media_type(headers.accept, has_protobuf=scope.kind.has_protobuf, has_conversions=False)
    body, content_type = scope.request.body, headers.content_type
    return scope.read(decode_body(body, content_type, expected=scope.kind.name))[0]


def _response(scope: RequestScope, review: Object, status: Object) -> Response:
    kind, spec = scope.kind, {"spec": review["spec"]} if "spec" in review else {}
    fields: Object = {"metadata": {}, **spec}
    manager = FieldManager(scope.write_options.field_manager, "Update", kind.api_version)
    record_update(None, fields, kind.struct, manager, scope.registry.now())
    response = {"kind": kind.name, "apiVersion": kind.api_version, **fields, "status": status}
    return Response.json(response, 201)


def _check_attributes(scope: RequestScope, spec: Object, errors: list[field_errors.FieldError]) -> None:
    """Raises a 422 StatusError unless the review is about either a resource or a path, and without ``errors``."""
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if resource is not None and path is not None:
        problem = "cannot be specified in combination with resourceAttributes"
        errors = [field_errors.invalid_value("spec.nonResourceAttributes", path, problem), *errors]
    elif resource is None and path is None:
        problem = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        errors = [field_errors.invalid_value("spec.resourceAttributes", None, problem), *errors]
    if errors:
        raise statuses.invalid(scope.kind.name, "", errors, group=scope.kind.group)


def _attributes(spec: Object) -> Attributes:
    """What an access review is about."""
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if resource is None:
        return Attributes((path or {}).get("verb", ""), path=(path or {}).get("path", ""))
    fields = ("verb", "group", "resource", "subresource", "namespace", "name")
    return Attributes(*(resource.get(field, "") for field in fields))


def _access_status(decision: Decision) -> Object:
    return {"allowed": decision.is_allowed} | ({"reason": decision.reason} if decision.reason else {})


def _user_info(user: UserInfo) -> Object:
    info: Object = {"username": user.name}
    if user.uid:
        info["uid"] = user.uid
    info["groups"] = list(user.groups)
    if user.extra:
        info["extra"] = user.extra
    return info
