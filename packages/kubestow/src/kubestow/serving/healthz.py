"""/healthz, /livez and /readyz: named health checks in the format of Kubernetes components (semantics 1.4).

The response is ``ok``, or status 500 with the list of checks. ``?verbose`` always lists the checks, ``?exclude=name``
skips some, and ``/readyz/<name>`` runs a single one. The reason of a failure goes to the log, not to clients.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client.core import Metric

from kubestow.http.messages import HTTPRequest, HTTPResponse, StatusError
from kubestow.log_fields import fields
from kubestow.observability.instruments import Counter, Gauge, kubernetes_definition

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """A named check; ``problem`` returns what is wrong, or None."""

    name: str
    problem: Callable[[], str | None]


PING = HealthCheck("ping", lambda: None)
"""Passes whenever the process responds."""


class HealthChecks:
    """The checks by endpoint (``healthz``, ``livez``, ``readyz``), and their metrics for /metrics/slis."""

    def __init__(self, checks: Mapping[str, Sequence[HealthCheck]]) -> None:
        self._checks = checks
        self._executions = Counter(
            "kubernetes_healthchecks_total",
            "Number of executions of each health check, by result.",
            kubernetes_definition("kubernetes_healthchecks_total"),
        )
        self._state = Gauge(
            "kubernetes_healthcheck",
            "Whether the health check passes (1) or fails (0).",
            kubernetes_definition("kubernetes_healthcheck"),
            read=lambda: [
                ((check.name, endpoint), float(check.problem() is None))
                for endpoint, all_checks in checks.items()
                for check in all_checks
            ],
        )

    def collect(self) -> Iterator[Metric]:
        """The metrics of /metrics/slis, for prometheus_client."""
        yield self._state.collect()
        yield self._executions.collect()

    @property
    def endpoints(self) -> Sequence[str]:
        """The names of the endpoints."""
        return tuple(self._checks)

    def handle(self, endpoint: str, request: HTTPRequest) -> HTTPResponse:
        """Run all checks of an endpoint except excluded ones."""
        excluded = {name for value in request.query.get("exclude", ()) for name in value.split(",") if name}
        lines, failed = [], []
        for check in self._checks[endpoint]:
            if check.name in excluded:
                lines.append(f"[+]{check.name} excluded: ok\n")
            elif self._passes(endpoint, check):
                lines.append(f"[+]{check.name} ok\n")
            else:
                failed.append(check.name)
                lines.append(f"[-]{check.name} failed: reason withheld\n")
        unknown = sorted(excluded - {check.name for check in self._checks[endpoint]})
        if unknown:
            names = ",".join(f'"{name}"' for name in unknown)
            lines.append(f"warn: some health checks cannot be excluded: no matches for {names}\n")
        listing = "".join(lines)
        if failed:
            return HTTPResponse.text(f"{listing}{endpoint} check failed\n", 500)
        return HTTPResponse.text(f"{listing}{endpoint} check passed\n" if "verbose" in request.query else "ok")

    def handle_check(self, endpoint: str, name: str, request: HTTPRequest) -> HTTPResponse:
        """Run a single check of an endpoint. Raises StatusError (404) for an unknown name."""
        check = next((check for check in self._checks[endpoint] if check.name == name), None)
        if check is None:
            raise StatusError.not_found()
        if self._passes(endpoint, check):
            return HTTPResponse.text("ok")
        return HTTPResponse.text(f"internal server error: {check.problem()}\n", 500)

    def _passes(self, endpoint: str, check: HealthCheck) -> bool:
        problem = check.problem()
        self._executions.labels(check.name, "success" if problem is None else "error", endpoint).value += 1
        if problem is not None:
            _log.info("Health check failed", extra=fields(endpoint=endpoint, check=check.name, err=problem))
        return problem is None
