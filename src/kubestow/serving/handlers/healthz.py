"""/healthz, /livez and /readyz: named checks, in the words of Kubernetes' own (semantics 1.4).

Without a parameter the answer is ``ok`` or the list of checks with status 500; ``?verbose`` always lists them,
``?exclude=name`` leaves some out, and ``/readyz/<name>`` asks one alone. Why a check fails is for the log, not for
strangers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client.core import Metric

from kubestow.observability.instruments import Counter, Gauge, Stability
from kubestow.observability.logs import fields
from kubestow.serving.http_messages import HTTPRequest, HTTPResponse, StatusError

__all__ = ["PING", "HealthCheck", "HealthChecks"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """Something that may be wrong; ``problem`` says what, or None."""

    name: str
    problem: Callable[[], str | None]


PING = HealthCheck("ping", lambda: None)
"""Whoever gets an answer knows that the process lives."""


class HealthChecks:
    """The checks of each endpoint (``healthz``, ``livez``, ``readyz``), and how often each was made and how it went."""

    def __init__(self, checks: Mapping[str, Sequence[HealthCheck]]) -> None:
        self._checks = checks
        self.made = Counter(
            "kubernetes_healthchecks_total",
            "Health checks that were made, by outcome.",
            Stability.STABLE,
            ("name", "type", "status"),
        )
        self.state = Gauge(
            "kubernetes_healthcheck",
            "Whether a health check passes.",
            Stability.STABLE,
            ("name", "type"),
            read=lambda: [
                ((check.name, endpoint), float(check.problem() is None))
                for endpoint, all_checks in checks.items()
                for check in all_checks
            ],
        )

    def collect(self) -> Iterator[Metric]:
        """The metrics of /metrics/slis, for prometheus_client."""
        yield self.state.collect()
        yield self.made.collect()

    @property
    def endpoints(self) -> Sequence[str]:
        """Their names."""
        return tuple(self._checks)

    def answer(self, endpoint: str, request: HTTPRequest) -> HTTPResponse:
        """The whole of an endpoint."""
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
            named = ",".join(f'"{name}"' for name in unknown)
            lines.append(f"warn: some health checks cannot be excluded: no matches for {named}\n")
        listing = "".join(lines)
        if failed:
            return HTTPResponse.text(f"{listing}{endpoint} check failed\n", 500)
        return HTTPResponse.text(f"{listing}{endpoint} check passed\n" if "verbose" in request.query else "ok")

    def answer_one(self, endpoint: str, name: str) -> HTTPResponse:
        """One check of an endpoint. Raises Failure (404) when there is none of that name."""
        check = next((check for check in self._checks[endpoint] if check.name == name), None)
        if check is None:
            raise StatusError.not_found()
        if self._passes(endpoint, check):
            return HTTPResponse.text("ok")
        return HTTPResponse.text(f"internal server error: {check.problem()}\n", 500)

    def _passes(self, endpoint: str, check: HealthCheck) -> bool:
        problem = check.problem()
        self.made.at(check.name, endpoint, "success" if problem is None else "error").value += 1
        if problem is not None:
            _log.info("Health check failed", extra=fields(endpoint=endpoint, check=check.name, problem=problem))
        return problem is None
