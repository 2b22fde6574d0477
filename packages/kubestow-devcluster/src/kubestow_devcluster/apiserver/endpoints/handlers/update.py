"""The update handler (PUT), also for the subresources status, ephemeralcontainers, resize and finalize."""

from __future__ import annotations

from kubestow_devcluster.apiserver import statuses
from kubestow_devcluster.apiserver.endpoints.handlers.create import check_name, check_namespace
from kubestow_devcluster.apiserver.endpoints.request_scope import RequestScope
from kubestow_devcluster.apiserver.endpoints.response import Response
from kubestow_devcluster.apiserver.schema import Object

__all__ = ["update"]


def update(scope: RequestScope) -> Response:
    new, headers = scope.decode()
    check_namespace(scope, new)
    check_name(scope, new)
    info, registry, kind = scope.info, scope.registry, scope.kind
    key = kind.key(info.namespace, info.name)
    if scope.collection.get(key) is None and kind.strategy.allow_create_on_update and not info.subresource:
        stored = registry.create(kind, info.namespace, new, scope.write_options)
        return scope.encoder.object_response(stored, 201, headers=headers)

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
