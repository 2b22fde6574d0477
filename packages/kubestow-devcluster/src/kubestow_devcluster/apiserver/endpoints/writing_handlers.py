"""The create, update, patch and delete handlers, and the parsing of their options.

Update also writes the subresources status, ephemeralcontainers, resize and finalize. Patch reads a patch, applies it by
its type and updates the object; apply can also create it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import msgspec

from kubestow.errors import APIError
from kubestow.http.messages import HTTPResponse
from kubestow.rules.patches import ANY_FIELD, FieldMerge, json_merge_patch, json_patch, strategic_merge_patch
from kubestow_devcluster.apiserver import last_applied, statuses
from kubestow_devcluster.apiserver.endpoints.request_scope import RequestScope
from kubestow_devcluster.apiserver.endpoints.requests import Request
from kubestow_devcluster.apiserver.kinds.kind import Kind
from kubestow_devcluster.apiserver.managed_fields import FieldManager, server_side_apply
from kubestow_devcluster.apiserver.registry.registry import PROPAGATION_FINALIZERS, DeleteOptions, WriteOptions
from kubestow_devcluster.apiserver.schema.types import ListOf, MapOf, Object, Struct, Type, UnmarshalTypeError
from kubestow_devcluster.apiserver.serialization.media_types import decode_body, yaml_duplicates
from kubestow_devcluster.apiserver.storage.store import StoredObject
from kubestow_devcluster.apiserver.typed_validation import type_problems


def create(scope: RequestScope) -> HTTPResponse:
    new, headers = scope.decode()
    check_namespace(scope, new)
    stored = scope.registry.create(scope.kind, scope.info.namespace, new, scope.write_options)
    return scope.encoder.object_response(stored, 201, headers=headers)


def check_namespace(scope: RequestScope, new: Object) -> None:
    """Raises a 400 StatusError when the body names another namespace than the path."""
    namespace = new["metadata"].get("namespace", "")
    if namespace and scope.kind.namespaced and namespace != scope.info.namespace:
        raise statuses.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )


def check_name(scope: RequestScope, new: Object) -> None:
    """Set the name of the path in a body without a name. Raises a 400 StatusError when they differ."""
    name = new["metadata"].setdefault("name", scope.info.name)
    if name != scope.info.name:
        raise statuses.bad_request(
            f"the name of the object ({name}) does not match the name on the URL ({scope.info.name})"
        )


def update(scope: RequestScope) -> HTTPResponse:
    new, headers = scope.decode()
    check_namespace(scope, new)
    check_name(scope, new)
    info, registry, kind = scope.info, scope.registry, scope.kind
    key = kind.key(info.namespace, info.name)
    if scope.collection.get(key) is None and kind.strategy.allow_create_on_update and not info.subresource:
        return scope.encoder.object_response(scope.create(new), 201, headers=headers)

    def replace(old: Object) -> Object:
        expected, actual = new["metadata"].get("uid"), old["metadata"]["uid"]
        if expected and expected != actual:
            raise statuses.uid_conflict(kind.group_resource, key, info.name, expected=expected, actual=actual)
        if kind.namespaced:
            new["metadata"]["namespace"] = info.namespace
        return new

    stored = registry.update(
        kind, info.namespace, info.name, replace, scope.write_options, subresource=info.subresource
    )
    return scope.encoder.object_response(stored, headers=headers)


JSON_PATCH = "application/json-patch+json"
JSON_MERGE_PATCH = "application/merge-patch+json"
_STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
_APPLY_PATCH = "application/apply-patch+yaml"
_PATCH_TYPES = frozenset({JSON_PATCH, JSON_MERGE_PATCH, _STRATEGIC_MERGE_PATCH, _APPLY_PATCH})


def patch(scope: RequestScope) -> HTTPResponse:
    patch_type = patch_type_of(scope)
    if patch_type == _APPLY_PATCH:
        return _apply(scope)
    content = decode_patch(scope.request)
    headers: dict[str, str] = {}

    def change(old: Object) -> Object:
        obj = {"kind": scope.kind.name, "apiVersion": scope.kind.api_version, **old}
        result = patched(obj, content, patch_type, scope.kind.struct)
        new, warnings = scope.read(result, reject=partial(_invalid_patch, patch_type, content, result))
        headers.update(warnings)
        return new

    info = scope.info
    stored = scope.registry.update(
        scope.kind, info.namespace, info.name, change, scope.write_options, subresource=info.subresource
    )
    return scope.encoder.object_response(stored, headers=headers)


def _invalid_patch(
    patch_type: str, content: Any, result: Object, problem: str | UnmarshalTypeError
) -> statuses.StatusError:
    """The failure of a patch whose result does not fit the schema.

    kube-apiserver decodes the result of a strategic merge patch from Go's maps, with messages of their own, and shows
    the patch; it decodes the result of the others from JSON, and shows that.
    """
    if patch_type == _STRATEGIC_MERGE_PATCH:
        if isinstance(problem, UnmarshalTypeError):
            problem = _conversion_problem(problem)
        error = statuses.invalid_value("patch", statuses.go_text(content), problem)
    else:
        error = statuses.invalid_value("patch", msgspec.json.encode(result).decode(), str(problem))
    return statuses.invalid("", "", [error])


#: The kinds of values in Go that JSON becomes, by the names of JSON.
_GO_KINDS = {"array": "slice", "object": "map", "number": "int64"}


def _conversion_problem(error: UnmarshalTypeError) -> str:
    """The message of Go's conversion from maps, of k8s.io/apimachinery/pkg/runtime, for a value of a wrong type."""
    if error.problem:
        return error.problem
    kind = _GO_KINDS.get(error.json_type, error.json_type)
    if error.json_type == "number" and error.expected.startswith("int"):
        return f"cannot convert float64 to {error.expected}"
    if error.expected.startswith("["):
        return f"cannot restore slice from {kind}"
    if error.expected.startswith("map["):
        return f"cannot restore map from {kind}"
    return f"cannot restore struct from: {kind}" if "." in error.expected else f"unrecognized type: {error.expected}"


def patched(obj: Object, content: Any, patch_type: str, type_: Type) -> Object:
    """An object of this type after a patch other than an apply. Raises a 400, 413 or 422 StatusError."""
    try:
        if patch_type == JSON_PATCH:
            return json_patch(obj, content)
        if patch_type == JSON_MERGE_PATCH:
            merged: Object = json_merge_patch(obj, content)
            return merged
        return strategic_merge_patch(obj, content, _TypeSchema(type_))
    except APIError as error:
        details: Object | None = {} if error.code == 422 else None
        raise statuses.StatusError(error.code, error.reason, error.message, details=details) from None


class _TypeSchema(NamedTuple):
    """How the fields of a type merge, for strategic merge patches."""

    type_: Type

    def field(self, name: str) -> FieldMerge:
        if isinstance(self.type_, MapOf):
            return FieldMerge(_TypeSchema(self.type_.item))
        field = self.type_.fields.get(name) if isinstance(self.type_, Struct) else None
        if field is None:
            return ANY_FIELD
        if not isinstance(field.type_, ListOf):
            return FieldMerge(_TypeSchema(field.type_), field.patch_strategy)
        key = field.merge.patch_key if field.merge is not None else ""
        is_merged = field.merge is not None and bool(key or field.merge.patch_by_value)
        return FieldMerge(_TypeSchema(field.type_.item), "merge" if is_merged else "", key)


def patch_type_of(scope: RequestScope) -> str:
    """The media type of a patch. Raises a 415 StatusError for one that the kind does not support."""
    patch_type = scope.request.headers.content_type.partition(";")[0].strip()
    has_schema = bool(scope.kind.model)
    if patch_type not in _PATCH_TYPES or (patch_type == _STRATEGIC_MERGE_PATCH and not has_schema):
        raise statuses.unsupported_media_type("415: Unsupported Media Type", with_details=True)
    return patch_type


def decode_patch(request: Request) -> Any:
    """The body of a patch in JSON: a list for a JSON patch, else an object. Raises a 400 StatusError."""
    try:
        content = msgspec.json.decode(request.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise statuses.bad_request(f"error decoding patch: {error}") from None
    if not isinstance(content, (dict, list)):
        raise statuses.bad_request("error decoding patch: the body is neither an object nor a list")
    if isinstance(content, list) and not is_json_patch(request):
        raise statuses.bad_request(
            "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}"
        )
    return content


def is_json_patch(request: Request) -> bool:
    return "json-patch" in request.headers.content_type


def _apply(scope: RequestScope) -> HTTPResponse:
    kind, info, registry = scope.kind, scope.info, scope.registry
    document, config, headers = _decode_configuration(scope)
    manager = FieldManager(scope.request.field_manager, "Apply", kind.api_version, info.subresource)
    is_kubectl = manager.name == last_applied.MANAGER
    force, now = scope.request.flag("force"), registry.now()

    def applied(live: Object | None) -> Object:
        forced = {}
        if live is not None and is_kubectl and not force:
            forced = last_applied.unchanged_fields(live, kind.struct, kind.api_version)
        obj = server_side_apply(live, config, kind.struct, manager, force=force, forced=forced, time=now)
        if is_kubectl:
            last_applied.update_annotation(obj, document)
        managed_fields = obj["metadata"].get("managedFields")
        new, _ = scope.read(obj)
        if managed_fields:
            new["metadata"]["managedFields"] = managed_fields
        return new

    if scope.collection.get(kind.key(info.namespace, info.name)) is None:
        if info.subresource:
            raise statuses.not_found(kind.group_resource, info.name)
        stored = scope.create(applied(None), applied=True)
        return scope.encoder.object_response(stored, 201, headers=headers)
    stored = registry.update(
        kind, info.namespace, info.name, applied, scope.write_options, subresource=info.subresource, applied=True
    )
    return scope.encoder.object_response(stored, headers=headers)


def _decode_configuration(scope: RequestScope) -> tuple[Object, Object, dict[str, str]]:
    """The body, the configuration to apply, and warning headers. Raises a 400, 422 or 500 StatusError."""
    kind = scope.kind
    if not scope.request.query.get("fieldManager"):
        error = statuses.required_value("fieldManager", "is required for apply patch")
        raise statuses.invalid("PatchOptions", "", [error], group="meta.k8s.io")
    document = decode_body(scope.request.body, _APPLY_PATCH, expected=kind.name)
    if "kind" not in document or "apiVersion" not in document:
        missing = "Kind" if "kind" not in document else "apiVersion"
        body = msgspec.json.encode(document).decode()
        raise statuses.bad_request(f"failed to decode apply patch: Object '{missing}' is missing in '{body}'")
    identity = _check_types(scope, document)
    if scope.request.field_validation == "Strict" and (duplicates := yaml_duplicates(scope.request.body)):
        raise statuses.bad_request(f"error strict decoding YAML: error converting YAML to JSON: {duplicates}")
    _, headers = scope.read(document, reject=partial(_cannot_be_converted, scope, identity))
    config = {field: value for field, value in document.items() if field not in ("kind", "apiVersion")}
    config["metadata"] = dict(config.get("metadata") or {})
    check_namespace(scope, config)
    check_name(scope, config)
    if scope.info.subresource != "status" and kind.subresources.status:
        config.pop("status", None)
    return document, config, headers


def _check_types(scope: RequestScope, config: Object) -> str:
    """What errors call the object of an applied configuration.

    Raises a 400 StatusError for another version than that of the path, and a StatusError for values that do not have
    the types of the schema: it has the code 500, as kube-apiserver's.
    """
    kind, metadata, version = scope.kind, config.get("metadata"), config.get("apiVersion")
    if version != kind.api_version:
        specified = version if isinstance(version, str) else ""
        raise statuses.bad_request(
            "Incorrect version specified in apply patch. "
            f"Specified patch version: {specified}, expected: {kind.api_version}"
        )
    metadata = metadata if isinstance(metadata, dict) else {}
    if metadata.get("managedFields") is not None:
        raise statuses.bad_request("metadata.managedFields must be nil")
    named = [name if isinstance(name := metadata.get(field), str) else "" for field in ("namespace", "name")]
    identity = f"{'/'.join(named)}; {_group_version_kind(kind)}"
    if problems := type_problems(config, kind.struct):
        text = problems[0] if len(problems) == 1 else "\n  ".join(["errors:", *problems])
        raise statuses.internal(f"failed to create typed patch object ({identity}): {text}")
    return identity


def _cannot_be_converted(scope: RequestScope, identity: str, problem: str | UnmarshalTypeError) -> statuses.StatusError:
    """The failure of an apply whose values have the types of the schema, but not the form: "one" is no quantity."""
    if isinstance(problem, UnmarshalTypeError):
        problem = _conversion_problem(problem)
    return statuses.internal(
        f"failed to convert new object ({identity}) to proper version: unable to convert unstructured object to"
        f" {_group_version_kind(scope.kind)}: {problem}"
    )


def _group_version_kind(kind: Kind) -> str:
    return f"{kind.group}/{kind.version}, Kind={kind.name}"


def delete(scope: RequestScope) -> HTTPResponse:
    info, kind = scope.info, scope.kind
    requested, write_options = _options(scope)
    delete_options = _with_default_policy(scope, requested, scope.get())
    stored, is_removed = scope.registry.delete(kind, info.namespace, info.name, delete_options, write_options)
    if kind.strategy.returns_deleted_object or not is_removed:
        return scope.encoder.object_response(stored)
    details = statuses.status_details(kind.group_resource, info.name)
    details["uid"] = kind.decode(stored)["metadata"]["uid"]
    return HTTPResponse(200, statuses.success(details=details))


def delete_collection(scope: RequestScope) -> HTTPResponse:
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
    directives = body.get("dryRun") or []
    if not isinstance(directives, list):
        raise statuses.bad_request("DeleteOptions: a field has the wrong type")
    if any(directive != "All" for directive in directives):
        error = statuses.unsupported_value("dryRun", directives, ("All",))
        raise statuses.invalid("DeleteOptions", "", [error], group="meta.k8s.io")
    return delete_options, replace(write_options, dry_run=write_options.dry_run or bool(directives))


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
    # The policy; ``orphanDependents`` is its deprecated form. Raises a 422 StatusError.
    policy, orphan = body.get("propagationPolicy") or propagation_policy, body.get("orphanDependents")
    if orphan is not None:
        policy = policy or ("Orphan" if orphan else "Background")
    if policy and policy not in PROPAGATION_FINALIZERS:
        error = statuses.unsupported_value("propagationPolicy", policy, (*PROPAGATION_FINALIZERS, "nil"))
        raise statuses.invalid("DeleteOptions", "", [error], group="meta.k8s.io")
    return DeleteOptions(
        grace_period, preconditions.get("uid") or "", preconditions.get("resourceVersion") or "", str(policy)
    )
