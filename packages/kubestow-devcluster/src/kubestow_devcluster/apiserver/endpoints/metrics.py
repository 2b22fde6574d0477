"""The ``/metrics`` endpoint: requests by verb, resource and code, stored objects, and the resourceVersion.

Names and labels are those of kube-apiserver.
"""

from __future__ import annotations

from collections import Counter

from kubestow_devcluster.apiserver.endpoints.request import Request
from kubestow_devcluster.apiserver.endpoints.request_info import RequestInfo
from kubestow_devcluster.apiserver.storage.store import Store

__all__ = ["RequestMetrics"]

_WRITE_METHODS = frozenset({"POST", "PUT", "PATCH", "DELETE"})


class RequestMetrics:
    """Counts resource requests, and exposes the metrics of ``store`` with them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        #: By verb, group, version, resource, subresource and code: the number of series does not grow with the cluster.
        self._requests: Counter[tuple[str, str, str, str, str, int]] = Counter()

    def count(self, request: Request, info: RequestInfo, code: int) -> None:
        """Count one request for a served kind; a watch is counted when it starts."""
        verb = request.method
        if verb == "GET":
            is_watch = info.watch or (not info.name and request.flag("watch"))
            verb = "WATCH" if is_watch else "GET" if info.name else "LIST"
        elif verb not in _WRITE_METHODS:
            verb = "OTHER"
        # A 404 can have any subresource; only existing ones have their own series.
        subresource = "" if code == 404 else info.subresource
        self._requests[verb, info.group, info.version, info.resource, subresource, code] += 1

    def exposition(self) -> str:
        """The metrics in Prometheus' text format."""
        store = self._store
        lines = [
            "# HELP apiserver_request_total Counter of apiserver requests by verb, group, version, resource and code.",
            "# TYPE apiserver_request_total counter",
            *(
                f'apiserver_request_total{{code="{code}",group="{group}",resource="{resource}",'
                f'subresource="{subresource}",verb="{verb}",version="{version}"}} {count}'
                for (verb, group, version, resource, subresource, code), count in sorted(self._requests.items())
            ),
            "# HELP apiserver_storage_objects Number of stored objects at the time of last check split by kind.",
            "# TYPE apiserver_storage_objects gauge",
            *(f'apiserver_storage_objects{{resource="{name}"}} {n}' for name, n in sorted(store.counts().items())),
            "# HELP apiserver_current_resource_version The resource version of the last write.",
            "# TYPE apiserver_current_resource_version counter",
            f"apiserver_current_resource_version {store.resource_version}",
        ]
        return "\n".join(lines) + "\n"
