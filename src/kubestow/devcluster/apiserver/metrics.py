"""What ``/metrics`` says: requests by verb, resource and status, and what is stored.

The names and labels are those of kube-apiserver, as far as there is something to say.
"""

from __future__ import annotations

from collections import Counter

from kubestow.devcluster.apiserver.paths import Target
from kubestow.devcluster.apiserver.requests import Request
from kubestow.devcluster.apiserver.storage.store import Store

__all__ = ["Metrics"]

_WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})


class Metrics:
    def __init__(self, store: Store) -> None:
        self._store = store
        #: By verb, group, version, resource, subresource and code, so that series do not grow with the cluster.
        self._requests: Counter[tuple[str, str, str, str, str, int]] = Counter()

    def count(self, request: Request, target: Target, code: int) -> None:
        """Note one answered request for a kind that is served; a watch counts when it begins."""
        verb = request.method
        if verb == "GET":
            is_watch = target.watch or (not target.name and request.flag("watch"))
            verb = "WATCH" if is_watch else "GET" if target.name else "LIST"
        elif verb not in _WRITES:
            verb = "OTHER"
        # Anything may be asked for; only what was found has a series of its own.
        below = "" if code == 404 else target.subresource
        self._requests[verb, target.group, target.version, target.resource, below, code] += 1

    def exposition(self) -> str:
        """The text format of Prometheus."""
        store = self._store
        lines = [
            "# HELP apiserver_request_total Counter of apiserver requests by verb, group, version, resource and code.",
            "# TYPE apiserver_request_total counter",
            *(
                f'apiserver_request_total{{code="{code}",group="{group}",resource="{resource}",'
                f'subresource="{below}",verb="{verb}",version="{version}"}} {count}'
                for (verb, group, version, resource, below, code), count in sorted(self._requests.items())
            ),
            "# HELP apiserver_storage_objects Number of stored objects at the time of last check split by kind.",
            "# TYPE apiserver_storage_objects gauge",
            *(f'apiserver_storage_objects{{resource="{name}"}} {n}' for name, n in sorted(store.counts().items())),
            "# HELP apiserver_current_resource_version The version of the last write.",
            "# TYPE apiserver_current_resource_version counter",
            f"apiserver_current_resource_version {store.resource_version}",
        ]
        return "\n".join(lines) + "\n"
