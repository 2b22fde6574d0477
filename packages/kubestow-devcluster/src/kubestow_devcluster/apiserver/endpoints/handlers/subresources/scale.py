"""The scale subresource: the replicas of a workload as an autoscaling/v1 Scale."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kubestow_devcluster.apiserver import field_errors, statuses
from kubestow_devcluster.apiserver.endpoints.handlers.patch import (
    JSON_MERGE_PATCH,
    JSON_PATCH,
    decode_patch,
    is_json_patch,
    patch_type_of,
    patched,
)
from kubestow_devcluster.apiserver.endpoints.request_scope import RequestScope
from kubestow_devcluster.apiserver.endpoints.response import Response
from kubestow_devcluster.apiserver.printers.table import format_selector
from kubestow_devcluster.apiserver.resources.kind import Kind, ScalePaths, value_at, with_value_at
from kubestow_devcluster.apiserver.schema import Object
from kubestow_devcluster.apiserver.schema.types import ANY
from kubestow_devcluster.apiserver.serialization.decoding import decode_body

__all__ = ["get_scale", "patch_scale", "update_scale"]

_METADATA = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


def get_scale(scope: RequestScope) -> Response:
    return Response.json(_scale(scope.kind, scope.kind.decode(scope.get())))


def update_scale(scope: RequestScope) -> Response:
    request = scope.request
    scale = decode_body(request.body, request.headers.content_type, expected="Scale")
    return _update(scope, lambda _: scale)


def patch_scale(scope: RequestScope) -> Response:
    """Patches other than JSON patches are merged as JSON: a Scale has no lists, and an apply records no manager."""
    patch_type_of(scope)
    content = decode_patch(scope.request)
    patch_type = JSON_PATCH if is_json_patch(scope.request) else JSON_MERGE_PATCH
    return _update(scope, lambda scale: patched(scale, content, patch_type, ANY))


def _update(scope: RequestScope, change: Callable[[Object], Any]) -> Response:
    """Set the replicas to those of the changed Scale."""

    def set_replicas(old: Object) -> Object:
        scale = change(_scale(scope.kind, old))
        metadata, replicas = scale.get("metadata") or {}, (scale.get("spec") or {}).get("replicas", 0)
        if type(replicas) is not int:
            problem = "json: cannot unmarshal string into Go struct field ScaleSpec.spec.replicas of type int32"
            raise statuses.bad_request(f'Scale in version "v1" cannot be handled as a Scale: {problem}')
        if replicas < 0:
            error = field_errors.invalid_value("spec.replicas", replicas, "must be greater than or equal to 0")
            raise statuses.invalid("Scale", scope.info.name, [error], group="autoscaling")
        new = with_value_at(old, _paths(scope.kind).spec_replicas, replicas)
        new["metadata"] = dict(old["metadata"])
        new["metadata"]["resourceVersion"] = metadata.get("resourceVersion", "")
        return new

    info, kind = scope.info, scope.kind
    stored = scope.registry.update(
        kind, info.namespace, info.name, set_replicas, scope.write_options, subresource="scale"
    )
    return Response.json(_scale(kind, kind.decode(stored)))


def _scale(kind: Kind, obj: Object) -> Object:
    paths = _paths(kind)
    replicas = value_at(obj, paths.spec_replicas)
    status = {"replicas": value_at(obj, paths.status_replicas) or 0}
    if selector := value_at(obj, paths.selector) if kind.custom is not None else _selector(kind, obj["spec"]):
        status["selector"] = selector
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {field: obj["metadata"][field] for field in _METADATA if field in obj["metadata"]},
        "spec": {"replicas": replicas} if replicas else {},
        "status": status,
    }


def _paths(kind: Kind) -> ScalePaths:
    assert kind.subresources.scale is not None
    return kind.subresources.scale


def _selector(kind: Kind, spec: Object) -> str:
    """The serialized selector; that of a replication controller is a map of labels."""
    selector = spec.get("selector")
    if kind.name == "ReplicationController":
        return ",".join(f"{key}={value}" for key, value in sorted((selector or {}).items()))
    return format_selector(selector)
