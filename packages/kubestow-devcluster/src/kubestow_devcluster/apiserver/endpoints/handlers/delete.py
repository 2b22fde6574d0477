"""The delete and deletecollection handlers, and the parsing of their options."""

from __future__ import annotations

from dataclasses import replace

from kubestow_devcluster.apiserver import field_errors, statuses
from kubestow_devcluster.apiserver.endpoints.request_scope import RequestScope
from kubestow_devcluster.apiserver.endpoints.response import Response
from kubestow_devcluster.apiserver.registry.deletion import PROPAGATION_FINALIZERS, DeleteOptions
from kubestow_devcluster.apiserver.registry.registry import WriteOptions
from kubestow_devcluster.apiserver.schema import Object
from kubestow_devcluster.apiserver.serialization.decoding import decode_body
from kubestow_devcluster.apiserver.storage.store import StoredObject

__all__ = ["delete", "delete_collection", "parse_delete_options"]


def delete(scope: RequestScope) -> Response:
    info, kind = scope.info, scope.kind
    requested, write_options = _options(scope)
    delete_options = _with_default_policy(scope, requested, scope.get())
    stored, is_removed = scope.registry.delete(kind, info.namespace, info.name, delete_options, write_options)
    if kind.strategy.returns_deleted_object or not is_removed:
        return scope.encoder.object_response(stored)
    details = statuses.status_details(kind.group_resource, info.name)
    details["uid"] = kind.decode(stored)["metadata"]["uid"]
    return Response(200, statuses.success(details=details))


def delete_collection(scope: RequestScope) -> Response:
    delete_options, write_options = _options(scope)
    resource_version = scope.registry.store.resource_version
    selected = scope.predicate().select(scope.collection.snapshot(scope.key_prefix))
    for stored in selected:
        options = _with_default_policy(scope, delete_options, stored)
        scope.registry.delete(scope.kind, stored.namespace, stored.name, options, write_options)
    return scope.encoder.list_response(selected, {"resourceVersion": str(resource_version)})


def _with_default_policy(scope: RequestScope, options: DeleteOptions, stored: StoredObject) -> DeleteOptions:
    """The options with the propagation policy that deletes of the kind have by default, unless the object has one."""
    policy = scope.kind.strategy.default_propagation_policy
    if options.propagation_policy or not policy:
        return options
    finalizers = scope.kind.decode(stored)["metadata"].get("finalizers") or ()
    if any(finalizer in finalizers for finalizer in filter(None, PROPAGATION_FINALIZERS.values())):
        return options
    return replace(options, propagation_policy=policy)


def _options(scope: RequestScope) -> tuple[DeleteOptions, WriteOptions]:
    """The options of a delete, from its body or its query. Raises a 400 or 422 StatusError."""
    request, write_options = scope.request, scope.write_options
    body: Object = {}
    if request.body.strip():
        body = decode_body(request.body, request.headers.content_type, expected="DeleteOptions")
    delete_options = parse_delete_options(
        body,
        grace_period_seconds=request.number("gracePeriodSeconds"),
        propagation_policy=request.query.get("propagationPolicy", ""),
    )
    return delete_options, replace(write_options, dry_run=write_options.dry_run or _is_dry_run(body))


def _is_dry_run(options: Object) -> bool:
    """Whether a DeleteOptions object asks for a dry run. Raises a 400 or 422 StatusError."""
    directives = options.get("dryRun") or []
    if not isinstance(directives, list):
        raise statuses.bad_request("DeleteOptions: a field has the wrong type")
    if any(directive != "All" for directive in directives):
        error = field_errors.unsupported_value("dryRun", directives, ("All",))
        raise statuses.invalid("DeleteOptions", "", [error], group="meta.k8s.io")
    return bool(directives)


def parse_delete_options(
    body: Object, *, grace_period_seconds: int | None = None, propagation_policy: str = ""
) -> DeleteOptions:
    """A DeleteOptions object; the arguments are used for what it omits. Raises a 400 or 422 StatusError."""
    preconditions = body.get("preconditions") or {}
    grace_period = body.get("gracePeriodSeconds", grace_period_seconds)
    if not isinstance(preconditions, dict) or (grace_period is not None and type(grace_period) is not int):
        raise statuses.bad_request("DeleteOptions: a field has the wrong type")
    if grace_period is not None and grace_period < 0:
        # As in kube-apiserver, a negative period means one second.
        grace_period = 1
    return DeleteOptions(
        grace_period,
        preconditions.get("uid") or "",
        preconditions.get("resourceVersion") or "",
        _propagation_policy(body, propagation_policy),
    )


def _propagation_policy(body: Object, default: str) -> str:
    """The policy; ``orphanDependents`` is its deprecated form. Raises a 422 StatusError."""
    policy, orphan = body.get("propagationPolicy") or default, body.get("orphanDependents")
    if orphan is not None:
        policy = policy or ("Orphan" if orphan else "Background")
    if policy and policy not in PROPAGATION_FINALIZERS:
        error = field_errors.unsupported_value("propagationPolicy", policy, (*PROPAGATION_FINALIZERS, "nil"))
        raise statuses.invalid("DeleteOptions", "", [error], group="meta.k8s.io")
    return str(policy)
