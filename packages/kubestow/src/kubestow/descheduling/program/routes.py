"""The paths of the descheduler's secure port: metrics and health."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from kubestow.descheduling.program.metrics import DeschedulerMetrics
from kubestow.http.messages import HTTPRequest, HTTPResponse
from kubestow.http.path_mux import Handler, PathMux
from kubestow.observability.observability import exposition
from kubestow.serving.healthz import PING, HealthCheck, HealthChecks

__all__ = ["descheduler_mux"]


def descheduler_mux(metrics: DeschedulerMetrics, lease_problem: Callable[[], str | None]) -> PathMux:
    """/metrics, /healthz, /livez and /readyz; ``lease_problem`` says what is wrong with the Lease, if anything is."""
    election = HealthCheck("leaderElection", lease_problem)
    health = HealthChecks({"healthz": [PING, election], "livez": [PING], "readyz": [PING, election]})
    paths: dict[str, Handler] = {f"/{name}": partial(health.handle, name) for name in health.endpoints}

    def scrape(request: HTTPRequest) -> HTTPResponse:
        body, content_type = exposition(metrics.registry, request.header("accept"))
        return HTTPResponse(200, body, content_type)

    return PathMux(paths=paths | {"/metrics": scrape}, prefixes={}, deletions={})
