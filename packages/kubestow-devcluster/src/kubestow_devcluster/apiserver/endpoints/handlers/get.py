"""The get handler."""

from __future__ import annotations

from kubestow_devcluster.apiserver.endpoints.request_scope import RequestScope
from kubestow_devcluster.apiserver.endpoints.response import Response

__all__ = ["get"]


def get(scope: RequestScope) -> Response:
    return scope.encoder.object_response(scope.get())
