"""The token subresource of service accounts (TokenRequest)."""

from __future__ import annotations

from datetime import timedelta

from kubestow.api.formats.timestamps import timestamp
from kubestow_devcluster.apiserver import field_errors, statuses
from kubestow_devcluster.apiserver.authentication.service_account_tokens import (
    DEFAULT_AUDIENCE,
    BoundObject,
    ServiceAccountTokens,
)
from kubestow_devcluster.apiserver.endpoints.request import Request
from kubestow_devcluster.apiserver.endpoints.request_scope import RequestScope
from kubestow_devcluster.apiserver.endpoints.response import Response
from kubestow_devcluster.apiserver.schema import Object, UnmarshalTypeError, struct_of
from kubestow_devcluster.apiserver.schema.group_version import GroupResource
from kubestow_devcluster.apiserver.serialization.decoding import decode_body

__all__ = ["create_token"]

_DEFAULT_EXPIRATION, _MIN_EXPIRATION, _MAX_EXPIRATION = 3600, 600, 2**32


def create_token(scope: RequestScope, tokens: ServiceAccountTokens) -> Response:
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
        "metadata": {
            "name": stored.name,
            "namespace": stored.namespace,
            "creationTimestamp": scope.registry.now(),
        },
        "spec": {"audiences": audiences, "expirationSeconds": expiration, "boundObjectRef": reference},
        "status": {
            "token": tokens.issue(stored, audiences, expiration, bound_to),
            "expirationTimestamp": timestamp(expires),
        },
    }
    return Response.json(token_request, 201)


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
