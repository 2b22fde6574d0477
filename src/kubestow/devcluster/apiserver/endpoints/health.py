"""The version and health endpoints."""

from __future__ import annotations

import msgspec

from kubestow.devcluster.apiserver.endpoints.request import Request
from kubestow.devcluster.apiserver.endpoints.response import Response

__all__ = ["KUBERNETES_VERSION", "serve_health"]

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
_CHECKS = ("ping", "log")
_ENDPOINTS = ("healthz", "livez", "readyz")


def serve_health(request: Request, path: str) -> Response | None:
    """``/version``, ``/healthz``, ``/livez`` and ``/readyz`` with their checks; None for any other path."""
    if path == "/version":
        return Response(200, msgspec.json.format(msgspec.json.encode(_VERSION), indent=2))
    endpoint, _, check = path[1:].partition("/")
    if endpoint not in _ENDPOINTS or (check and check not in _CHECKS):
        return None
    if "verbose" not in request.query or check:
        return Response.text("ok")
    lines = [f"[+]{name} ok" for name in _CHECKS]
    return Response.text("\n".join([*lines, f"{endpoint} check passed", ""]))
