"""The version and health endpoints."""

from __future__ import annotations

import msgspec

from kubestow_devcluster.apiserver.endpoints.request import Request
from kubestow_devcluster.apiserver.endpoints.response import Response

__all__ = ["KUBERNETES_VERSION", "HealthChecks"]

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


class HealthChecks:
    """The health endpoints. ``has_default_roles``: the default roles of RBAC have been created."""

    def __init__(self, *, has_default_roles: bool) -> None:
        common = [name for name in _CHECKS if has_default_roles or name != _BOOTSTRAP_ROLES]
        self._checks = {endpoint: (*common, *own) for endpoint, own in _ENDPOINTS.items()}

    def serve(self, request: Request, path: str) -> Response | None:
        """``/version``, ``/healthz``, ``/livez`` and ``/readyz`` with their checks; None for any other path."""
        if path == "/version":
            return Response(200, msgspec.json.format(msgspec.json.encode(_VERSION), indent=2))
        endpoint, _, check = path[1:].partition("/")
        checks = self._checks.get(endpoint)
        if checks is None or (check and check not in checks):
            return None
        if "verbose" not in request.query or check:
            return Response.text("ok")
        excluded = request.query.get("exclude", "")
        lines = [f"[+]{name} {'excluded: ok' if name == excluded else 'ok'}" for name in checks]
        if excluded and excluded not in checks:
            lines.append(f'warn: some health checks cannot be excluded: no matches for "{excluded}"')
        return Response.text("\n".join([*lines, f"{endpoint} check passed", ""]))
