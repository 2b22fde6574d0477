"""The handlers of kinds that are evaluated on create and never stored: reviews and TokenRequest."""

from __future__ import annotations

from datetime import timedelta

from kubestow.api.formats.timestamps import timestamp
from kubestow.http.messages import ALL_UNAUTHENTICATED, ANONYMOUS, HTTPResponse, UserInfo
from kubestow_devcluster.apiserver import field_errors, statuses
from kubestow_devcluster.apiserver.endpoints.request_scope import RequestScope
from kubestow_devcluster.apiserver.endpoints.requests import Request
from kubestow_devcluster.apiserver.group_version import GroupResource
from kubestow_devcluster.apiserver.managed_fields.managers import FieldManager, record_update
from kubestow_devcluster.apiserver.schema.types import Object, UnmarshalTypeError, struct_of
from kubestow_devcluster.apiserver.security.authentication import (
    DEFAULT_AUDIENCE,
    BoundObject,
    RequestAuthenticator,
    ServiceAccountTokens,
)
from kubestow_devcluster.apiserver.security.authorization import Attributes, Authorizer, Decision
from kubestow_devcluster.apiserver.serialization.decoding import decode_body
from kubestow_devcluster.apiserver.serialization.negotiation import negotiate_output_media_type


def create_self_subject_review(scope: RequestScope) -> HTTPResponse:
    _decode_review(scope)
    review = {
        "kind": scope.kind.name,
        "apiVersion": scope.kind.api_version,
        "metadata": {"creationTimestamp": scope.registry.now()},
        "status": {"userInfo": _user_info(scope.request.user)},
    }
    return HTTPResponse.json(review, 201)


def create_token_review(scope: RequestScope, authenticator: RequestAuthenticator) -> HTTPResponse:
    """Raises a 400 StatusError for a review without a token."""
    review = _decode_review(scope)
    token = (review.get("spec") or {}).get("token", "")
    if not token:
        raise statuses.bad_request("token is required for TokenReview in authentication")
    user = authenticator.authenticate_token(token)
    if user is None:
        return _response(scope, review, {"user": {}, "error": "invalid bearer token"})
    return _response(scope, review, {"authenticated": True, "user": _user_info(user)})


def create_self_subject_access_review(scope: RequestScope, authorizer: Authorizer) -> HTTPResponse:
    """Raises a 422 StatusError for a review with both or neither kind of attributes."""
    review = _decode_review(scope)
    spec = review.get("spec") or {}
    _check_attributes(scope, spec, [])
    return _response(scope, review, _access_status(authorizer.authorize(scope.request.user, _attributes(spec))))


def create_subject_access_review(scope: RequestScope, authorizer: Authorizer) -> HTTPResponse:
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


def create_self_subject_rules_review(scope: RequestScope, authorizer: Authorizer) -> HTTPResponse:
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


def _response(scope: RequestScope, review: Object, status: Object) -> HTTPResponse:
    kind, spec = scope.kind, {"spec": review["spec"]} if "spec" in review else {}
    fields: Object = {"metadata": {}, **spec}
    manager = FieldManager(scope.write_options.field_manager, "Update", kind.api_version)
    record_update(None, fields, kind.struct, manager, scope.registry.now())
    response = {"kind": kind.name, "apiVersion": kind.api_version, **fields, "status": status}
    return HTTPResponse.json(response, 201)


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


_DEFAULT_EXPIRATION, _MIN_EXPIRATION, _MAX_EXPIRATION = 3600, 600, 2**32


def create_token(scope: RequestScope, tokens: ServiceAccountTokens) -> HTTPResponse:
    """``POST serviceaccounts/NAME/token``. Raises a 422 StatusError for a token that cannot be issued."""
    request, stored = scope.request, scope.get()
    spec = _decode(request)["spec"]
    audiences = spec.get("audiences") or [DEFAULT_AUDIENCE]
    expiration = spec.get("expirationSeconds")
    expiration = _DEFAULT_EXPIRATION if expiration is None else expiration
    errors = []
    if expiration < _MIN_EXPIRATION:
        problem = "may not specify a duration less than 10 minutes"
        errors.append(field_errors.invalid_value("spec.expirationSeconds", expiration, problem))
    elif expiration > _MAX_EXPIRATION:
        problem = "may not specify a duration larger than 2^32 seconds"
        errors.append(field_errors.invalid_value("spec.expirationSeconds", expiration, problem))
    if errors:
        raise statuses.invalid("TokenRequest", stored.name, errors, group="authentication.k8s.io")
    reference = spec.get("boundObjectRef")
    bound_to = [] if reference is None else _bound_objects(scope, stored.name, reference)
    expires = scope.registry.clock() + timedelta(seconds=expiration)
    token_request = {
        "kind": "TokenRequest",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {"name": stored.name, "namespace": stored.namespace, "creationTimestamp": scope.registry.now()},
        "spec": {"audiences": audiences, "expirationSeconds": expiration, "boundObjectRef": reference},
        "status": {
            "token": tokens.issue(stored, audiences, expiration, bound_to),
            "expirationTimestamp": timestamp(expires),
        },
    }
    return HTTPResponse.json(token_request, 201)


def _decode(request: Request) -> Object:
    """The TokenRequest in the body, with a spec. Raises a 400 StatusError."""
    body = decode_body(request.body, request.headers.content_type, expected="TokenRequest")
    try:
        decoded: Object = struct_of("AuthenticationV1TokenRequest").read(body, [])
    except UnmarshalTypeError as error:
        problem = f'TokenRequest in version "v1" cannot be handled as a TokenRequest: {error}'
        raise statuses.bad_request(problem) from None
    return decoded if decoded.get("spec") else {**decoded, "spec": {}}


def _bound_objects(scope: RequestScope, account: str, reference: Object) -> list[BoundObject]:
    """The object that a reference names, and for a pod also its node.

    Raises a 400 StatusError for an object that tokens cannot be bound to, a 404 or 409 one for one that does not exist.
    """
    kind, api_version, name = (reference.get(field) or "" for field in ("kind", "apiVersion", "name"))
    group, _, version = api_version.rpartition("/")
    resource = {"Pod": "pods", "Secret": "secrets", "Node": "nodes"}.get(kind)
    if group or resource is None:
        raise statuses.bad_request(f"cannot bind token to object of type {group}/{version}, Kind={kind}")
    registry = scope.registry
    found_kind = registry.scheme[resource]
    found = found_kind.decode(registry.get(found_kind, scope.info.namespace, name))
    if kind == "Pod" and found["spec"].get("serviceAccountName", "") != account:
        raise statuses.bad_request(
            f'cannot bind token for serviceaccount "{account}" to pod running with different serviceaccount name.'
        )
    uid = found["metadata"]["uid"]
    if reference.get("uid") and reference["uid"] != uid:
        problem = (
            f"the UID in the bound object reference ({reference['uid']}) does not match the UID in record."
            " The object might have been deleted and then recreated"
        )
        raise statuses.conflict(GroupResource("", kind), name, problem)
    bound = [BoundObject(kind.lower(), name, uid)]
    node_name = found["spec"].get("nodeName") if kind == "Pod" else ""
    node = registry.store.collection("nodes").get(node_name) if node_name else None
    if node is None:
        return bound
    return [*bound, BoundObject("node", node.name, registry.scheme["nodes"].decode(node)["metadata"]["uid"])]
