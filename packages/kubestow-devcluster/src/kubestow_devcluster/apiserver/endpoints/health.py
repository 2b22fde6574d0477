"""The version, health and metrics endpoints."""

from __future__ import annotations

from collections import Counter

import msgspec

from kubestow.http.messages import HTTPResponse
from kubestow_devcluster.apiserver.endpoints.requests import Request, RequestInfo
from kubestow_devcluster.apiserver.storage.store import Store

KUBERNETES_VERSION = "v1.36.2"

_VERSION = {
    "major": "1",
    "minor": "36",
    "emulationMajor": "1",
    "emulationMinor": "36",
    "minCompatibilityMajor": "1",
    "minCompatibilityMinor": "35",
    "gitVersion": KUBERNETES_VERSION,
    "gitCommit": "0" * 40,
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "kubestow",
    "platform": "linux/amd64",
}
#: The checks of what exists here, with the names and in the order of kube-apiserver's. Post-start hooks are complete
#: before the server listens.
_CHECKS = (
    "ping",
    "log",
    "poststarthook/start-apiextensions-controllers",
    "poststarthook/crd-informer-synced",
    "poststarthook/start-system-namespaces-controller",
    "poststarthook/start-cluster-authentication-info-controller",
    "poststarthook/rbac/bootstrap-roles",
    "poststarthook/scheduling/bootstrap-system-priority-classes",
)
_BOOTSTRAP_ROLES = "poststarthook/rbac/bootstrap-roles"
#: The checks of one endpoint only, after the others.
_ENDPOINTS = {"healthz": (), "livez": (), "readyz": ("shutdown",)}


class HealthEndpoints:
    """The health endpoints. ``has_default_roles``: the default roles of RBAC have been created."""

    def __init__(self, *, has_default_roles: bool) -> None:
        common = [name for name in _CHECKS if has_default_roles or name != _BOOTSTRAP_ROLES]
        self._checks = {endpoint: (*common, *own) for endpoint, own in _ENDPOINTS.items()}

    def serve(self, request: Request, path: str) -> HTTPResponse | None:
        """``/version``, ``/healthz``, ``/livez`` and ``/readyz`` with their checks; None for any other path."""
        if path == "/version":
            return HTTPResponse(200, msgspec.json.format(msgspec.json.encode(_VERSION), indent=2))
        endpoint, _, check = path[1:].partition("/")
        checks = self._checks.get(endpoint)
        if checks is None or (check and check not in checks):
            return None
        if "verbose" not in request.query or check:
            return HTTPResponse.text("ok")
        excluded = request.query.get("exclude", "")
        lines = [f"[+]{name} {'excluded: ok' if name == excluded else 'ok'}" for name in checks]
        if excluded and excluded not in checks:
            lines.append(f'warn: some health checks cannot be excluded: no matches for "{excluded}"')
        return HTTPResponse.text("\n".join([*lines, f"{endpoint} check passed", ""]))


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
