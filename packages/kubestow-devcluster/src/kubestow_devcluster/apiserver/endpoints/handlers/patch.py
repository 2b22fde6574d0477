"""The patch handler: reads a patch, applies it by its type and updates the object; apply can also create it."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from kubestow.errors import APIError
from kubestow.rules.patches import ANY_FIELD, FieldMerge, json_merge_patch, json_patch, strategic_merge_patch
from kubestow_devcluster.apiserver import field_errors, statuses
from kubestow_devcluster.apiserver.endpoints.handlers.create import check_name, check_namespace
from kubestow_devcluster.apiserver.endpoints.request import Request
from kubestow_devcluster.apiserver.endpoints.request_scope import RequestScope
from kubestow_devcluster.apiserver.endpoints.response import Response
from kubestow_devcluster.apiserver.managed_fields.managers import FieldManager
from kubestow_devcluster.apiserver.managed_fields.server_side_apply import server_side_apply, undeclared_fields
from kubestow_devcluster.apiserver.schema import ListOf, MapOf, Object, Struct, Type
from kubestow_devcluster.apiserver.serialization.decoding import decode_body, yaml_duplicates

__all__ = ["JSON_MERGE_PATCH", "JSON_PATCH", "decode_patch", "is_json_patch", "patch", "patch_type_of", "patched"]

JSON_PATCH = "application/json-patch+json"
JSON_MERGE_PATCH = "application/merge-patch+json"
_STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
_APPLY_PATCH = "application/apply-patch+yaml"
_PATCH_TYPES = frozenset({JSON_PATCH, JSON_MERGE_PATCH, _STRATEGIC_MERGE_PATCH, _APPLY_PATCH})


def patch(scope: RequestScope) -> Response:
    patch_type = patch_type_of(scope)
    if patch_type == _APPLY_PATCH:
        return _apply(scope)
    content = decode_patch(scope.request)
    headers: dict[str, str] = {}

    def change(old: Object) -> Object:
        obj = {"kind": scope.kind.name, "apiVersion": scope.kind.api_version, **old}
        new, warnings = scope.read(patched(obj, content, patch_type, scope.kind.struct))
        headers.update(warnings)
        return new

    info = scope.info
    stored = scope.registry.update(
        scope.kind, info.namespace, info.name, change, scope.write_options, subresource=info.subresource
    )
    return scope.encoder.object_response(stored, headers=headers)


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


def _apply(scope: RequestScope) -> Response:
    kind, info, registry = scope.kind, scope.info, scope.registry
    config, headers = _decode_configuration(scope)
    manager = FieldManager(scope.request.field_manager, "Apply", kind.api_version, info.subresource)
    force, now = scope.request.flag("force"), registry.now()

    def applied(live: Object | None) -> Object:
        obj = server_side_apply(live, config, kind.struct, manager, force=force, time=now)
        managed_fields = obj["metadata"].get("managedFields")
        new, _ = scope.read(obj)
        if managed_fields:
            new["metadata"]["managedFields"] = managed_fields
        return new

    if scope.collection.get(kind.key(info.namespace, info.name)) is None:
        if info.subresource:
            raise statuses.not_found(kind.group_resource, info.name)
        stored = registry.create_applied(kind, info.namespace, applied(None), scope.write_options)
        return scope.encoder.object_response(stored, 201, headers=headers)
    stored = registry.update(
        kind, info.namespace, info.name, applied, scope.write_options, subresource=info.subresource, applied=True
    )
    return scope.encoder.object_response(stored, headers=headers)


def _decode_configuration(scope: RequestScope) -> tuple[Object, dict[str, str]]:
    """The applied configuration, and warning headers. Raises a 400 or 422 StatusError."""
    kind = scope.kind
    if not scope.request.query.get("fieldManager"):
        error = field_errors.required_value("fieldManager", "is required for apply patch")
        raise statuses.invalid("PatchOptions", "", [error], group="meta.k8s.io")
    config = decode_body(scope.request.body, _APPLY_PATCH, expected=kind.name)
    if "kind" not in config or "apiVersion" not in config:
        missing = "Kind" if "kind" not in config else "apiVersion"
        body = msgspec.json.encode(config).decode()
        raise statuses.bad_request(f"failed to decode apply patch: Object '{missing}' is missing in '{body}'")
    _check_declared(scope, config)
    if scope.request.field_validation == "Strict" and (duplicates := yaml_duplicates(scope.request.body)):
        raise statuses.bad_request(f"error strict decoding YAML: error converting YAML to JSON: {duplicates}")
    _, headers = scope.read(config)
    config = {field: value for field, value in config.items() if field not in ("kind", "apiVersion")}
    config["metadata"] = config.get("metadata") or {}
    if "managedFields" in config["metadata"]:
        raise statuses.bad_request("metadata.managedFields must be nil")
    check_namespace(scope, config)
    check_name(scope, config)
    if scope.info.subresource != "status" and kind.subresources.status:
        config.pop("status", None)
    return config, headers


def _check_declared(scope: RequestScope, config: Object) -> None:
    """Raises a StatusError for fields that the schema does not have, with kube-apiserver's unexpected code 500."""
    kind, info = scope.kind, scope.info
    undeclared = undeclared_fields(config, kind.struct)
    if not undeclared:
        return
    problems = [f"{path}: field not declared in schema" for path in undeclared]
    text = problems[0] if len(problems) == 1 else "\n  ".join(["errors:", *problems])
    identity = f"{info.namespace}/{info.name}; {kind.group}/{kind.version}, Kind={kind.name}"
    raise statuses.internal(f"failed to create typed patch object ({identity}): {text}")
