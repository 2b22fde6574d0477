"""The handlers of metrics.k8s.io: usage of nodes and pods, which is computed when it is read and never stored."""

from __future__ import annotations

from typing import Protocol

from kubestow_devcluster.apiserver import statuses
from kubestow_devcluster.apiserver.endpoints.request_scope import RequestScope
from kubestow_devcluster.apiserver.endpoints.response import Response
from kubestow_devcluster.apiserver.storage.store import StoredObject

__all__ = ["ResourceMetrics", "get_metrics", "list_metrics"]


class ResourceMetrics(Protocol):
    """Where usage comes from. Both return NodeMetrics or PodMetrics by the key of their node or pod, sorted by key."""

    def nodes(self) -> dict[str, StoredObject]: ...

    def pods(self) -> dict[str, StoredObject]: ...


def get_metrics(scope: RequestScope, metrics: ResourceMetrics) -> Response:
    """Raises a 404 StatusError for an object without metrics, as one that does not run."""
    found = _all(scope, metrics).get(scope.key_prefix + scope.info.name)
    if found is None:
        raise statuses.not_found(scope.kind.group_resource, scope.info.name)
    return scope.encoder.object_response(found)


def list_metrics(scope: RequestScope, metrics: ResourceMetrics) -> Response:
    """All metrics of a namespace or of the cluster that the selectors match, without pagination, as metrics-server."""
    prefix = scope.key_prefix
    objects = [stored for key, stored in _all(scope, metrics).items() if key.startswith(prefix)]
    return scope.encoder.list_response(scope.predicate().select(objects), {})


def _all(scope: RequestScope, metrics: ResourceMetrics) -> dict[str, StoredObject]:
    return metrics.nodes() if scope.kind.plural == "nodes" else metrics.pods()
