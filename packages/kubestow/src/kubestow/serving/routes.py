"""The paths of a scheduler's secure port (semantics 1.4).

They are served as soon as the process starts, also on a standby. What needs a scheduler (readiness, gauges, /debug,
the data of /dashboard) reports its absence until there is one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from operator import itemgetter

from prometheus_client import CollectorRegistry

from kubestow.config import FeatureGates, KubeSchedulerConfiguration
from kubestow.http.messages import Handler, HTTPRequest, HTTPResponse, PathMux, PrefixHandler, StatusError
from kubestow.observability.instruments import exposition
from kubestow.observability.observability import Observability
from kubestow.process import Heartbeat
from kubestow.scheduling.interfaces import Clock
from kubestow.serving.dashboard_handler import DashboardHandler
from kubestow.serving.debug import SchedulingDebugger, debug_pod
from kubestow.serving.healthz import PING, HealthCheck, HealthChecks, loop_check
from kubestow.serving.zpages import ZPages, configz

#: A scheduler that has not read a resource for longer than this is not ready; about five attempts to list it.
_WATCH_GRACE = 60.0
#: A leader is unhealthy when its lease has been expired for longer than this many seconds.
_LEASE_GRACE = 20.0


@dataclass(frozen=True, slots=True)
class ComponentInfo:
    """The settings that the process shows: the effective configuration, feature gates and flags."""

    configuration: KubeSchedulerConfiguration
    gates: FeatureGates
    flags: Mapping[str, str]


class SchedulerRoutes:
    """The handlers of all paths; ``observability`` provides the scheduler once there is one.

    ``heartbeat`` is that of its event loop. Health checks may run in any thread, all else on that loop.
    """

    def __init__(
        self, component: ComponentInfo, observability: Observability, heartbeat: Heartbeat, clock: Clock
    ) -> None:
        self._component, self._observability, self._clock = component, observability, clock
        self._heartbeat = heartbeat
        self._health = HealthChecks(self._checks())
        #: Its streams are to be closed before the server is.
        self.dashboard = DashboardHandler(observability, clock, component.configuration, component.gates)

    def mux(self) -> PathMux:
        """The handlers by path."""
        prefixes: dict[str, PrefixHandler] = {
            f"/{name}/": partial(self._health.handle_check, name) for name in self._health.endpoints
        }
        prefixes["/debug/pods/"] = partial(debug_pod, self._observability, self._clock)
        prefixes["/debug/pprof"] = _no_pprof
        prefixes["/dashboard/"] = self.dashboard
        return PathMux(paths=self._paths(), prefixes=prefixes, deletions={"/metrics": self._reset_metrics})

    def _paths(self) -> dict[str, Handler]:
        zpages = ZPages(
            self._component.flags,
            minor=self._component.gates.minor,
            server_version=lambda: self._observability.server_version,
            paths=["/configz", "/flagz", "/healthz", "/livez", "/metrics", "/readyz"],
            now=self._clock.now,
        )
        paths: dict[str, Handler] = {f"/{name}": partial(self._health.handle, name) for name in self._health.endpoints}
        paths["/configz"] = partial(configz, self._component.configuration)
        if self._component.gates.enabled("ComponentFlagz"):
            paths["/flagz"] = zpages.flagz
        if self._component.gates.enabled("ComponentStatusz"):
            paths["/statusz"] = zpages.statusz
        observability = self._observability
        paths["/metrics"] = lambda request: HTTPResponse(200, *observability.scrape(request.header("accept")))
        paths["/metrics/resources"] = lambda request: HTTPResponse(
            200, *observability.scrape_resources(request.header("accept"))
        )
        paths["/metrics/slis"] = self._slis
        paths["/debug"] = paths["/debug/"] = lambda request: self._debugger().index()
        paths["/debug/queue"] = lambda request: self._debugger().queue(request)
        paths["/dashboard"] = self.dashboard.index
        paths["/debug/cache"] = lambda request: self._debugger().cache(request)
        return paths

    # -- metrics -------------------------------------------------------------------------------------------------------

    def _reset_metrics(self, request: HTTPRequest) -> HTTPResponse:
        self._observability.metrics.reset()
        return HTTPResponse.text("metrics reset\n")

    def _slis(self, request: HTTPRequest) -> HTTPResponse:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self._health)
        return HTTPResponse(200, *exposition(registry, request.header("accept")))

    # -- debug ---------------------------------------------------------------------------------------------------------

    def _debugger(self) -> SchedulingDebugger:
        return SchedulingDebugger.of(self._observability, self._clock)

    # -- health --------------------------------------------------------------------------------------------------------

    def _checks(self) -> dict[str, list[HealthCheck]]:
        leader_elect = self._component.configuration.leader_election.leader_elect
        election = [HealthCheck("leaderElection", self._lease_problem)] if leader_elect else []
        shutdown = HealthCheck("shutdown", self._shutdown_problem)
        synced = HealthCheck("sched-handler-sync", self._sync_problem)
        watches = HealthCheck("watches", self._watch_problem)
        loop = loop_check(self._heartbeat)
        return {
            "healthz": [*(election or [PING]), loop],
            "livez": [PING, loop],
            "readyz": [*election, shutdown, synced, watches, loop],
        }

    def _lease_problem(self) -> str | None:
        leadership = self._observability.leadership
        overdue = 0.0 if leadership is None else leadership.overdue
        if overdue <= _LEASE_GRACE:
            return None
        return f"failed election to renew leadership on lease, {overdue:.0f} s overdue"

    def _watch_problem(self) -> str | None:
        broken = self._observability.broken_watches()
        resource, seconds = max(broken.items(), key=itemgetter(1), default=("", 0.0))
        return None if seconds <= _WATCH_GRACE else f"{resource} not read for {seconds:.0f} s"

    def _shutdown_problem(self) -> str | None:
        return "process is shutting down" if self._observability.is_shutting_down() else None

    def _sync_problem(self) -> str | None:
        scheduler = self._observability.scheduler
        synced = scheduler is not None and scheduler.synced.is_set()
        return None if synced else "handlers are not fully synchronized"


def _no_pprof(rest: str, request: HTTPRequest) -> HTTPResponse:
    raise StatusError.not_found("Go's pprof profiles are not available, see /debug")
