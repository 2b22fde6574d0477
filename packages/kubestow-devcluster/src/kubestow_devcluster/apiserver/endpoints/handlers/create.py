"""The create handler, and the checks of a body against the path that create, update and apply share."""

from __future__ import annotations

from kubestow_devcluster.apiserver import statuses
from kubestow_devcluster.apiserver.endpoints.request_scope import RequestScope
from kubestow_devcluster.apiserver.endpoints.response import Response
from kubestow_devcluster.apiserver.schema import Object

__all__ = ["check_name", "check_namespace", "create"]


def create(scope: RequestScope) -> Response:
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
