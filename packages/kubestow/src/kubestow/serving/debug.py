"""/debug: the queue, the cache, and why a pod is pending.

    /debug                              an index
    /debug/pods/<namespace>/<name>      one pod: its state, its last attempt, the events that requeue it, and the result
                                        of filtering now (?nodes=N for more nodes)
    /debug/queue                        the pods in the scheduling queue (?place=, ?limit=)
    /debug/cache                        nodes and assumed pods in the scheduler cache (?node=, ?limit=)

Requests do not change any state. Filtering runs PreFilter and Filter of the pod's profile as a scheduling cycle does,
without preemption and without assuming the pod.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from itertools import islice
from typing import Any

import numpy as np

from kubestow.api.formats.timestamps import timestamp
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import KubestowError
from kubestow.http.messages import HTTPRequest, HTTPResponse, StatusError
from kubestow.observability.observability import Observability
from kubestow.observability.pod_states import PodStates
from kubestow.observability.recent_attempts import AttemptRecord, RecentAttempts
from kubestow.scheduling.interfaces import Clock
from kubestow.scheduling.queued_pod import Place, QueuedPod
from kubestow.scheduling.scheduler import Scheduler

_DEFAULT_LIMIT = 500
_MAX_LIMIT = 10_000
_DEFAULT_NODES = 20

_PLACES = {place.value.replace(" ", "-"): place for place in Place}

JSONObject = dict[str, Any]


class SchedulingDebugger:
    """The handlers of /debug for one scheduler."""

    def __init__(self, scheduler: Scheduler, attempts: RecentAttempts, clock: Clock) -> None:
        self._scheduler, self._clock = scheduler, clock
        self._states = PodStates(scheduler, attempts, clock)

    @classmethod
    def of(cls, observability: Observability, clock: Clock) -> SchedulingDebugger:
        """The handlers for the observed scheduler. Raises StatusError (503) before there is one."""
        if observability.scheduler is None:
            raise StatusError(503, "ServiceUnavailable", "the scheduler is still starting")
        return cls(observability.scheduler, observability.attempts, clock)

    def index(self) -> HTTPResponse:
        """The paths below /debug."""
        return HTTPResponse.indented_json(
            {
                "/debug/pods/<namespace>/<name>": "why a pod is pending, or its node; ?nodes=N",
                "/debug/queue": "the queue; ?place=active|backoff|error-backoff|unschedulable|gated, ?limit=N",
                "/debug/cache": "nodes and assumed pods; ?node=NAME, ?limit=N",
            }
        )

    # -- one pod -------------------------------------------------------------------------------------------------------

    def pod(self, namespace: str, name: str, request: HTTPRequest) -> HTTPResponse:
        """The state of one pod. Raises StatusError (404) for a pod that does not exist or has terminated."""
        info = self._scheduler.pods.named(namespace, name)
        key = f"{namespace}/{name}"
        if info is None:
            raise StatusError.not_found(f"pod {key} is unknown: it does not exist, or it has terminated")
        attempt, queued = self._states.last_attempt(info), self._scheduler.queue.pods.get(info.uid)
        content: JSONObject = {"pod": key, "uid": info.uid, "summary": self._states.summary(info)}
        if attempt is not None:
            content["lastAttempt"] = _attempt(attempt)
        if queued is not None:
            events = self._states.requeue_events(info.spec.scheduler_name, queued.rejectors | queued.pending_plugins)
            content["queue"] = self._queue_entry(queued) | {"requeueEvents": events}
        nominated = self._scheduler.cluster.nomination(info.uid)
        if nominated:
            content["nominatedNode"] = nominated
        if not info.spec.node_name and info.spec.scheduler_name in self._scheduler.profiles:
            content["now"] = self._filter(info, _count(request, "nodes", _DEFAULT_NODES))
        return HTTPResponse.indented_json(content)

    def _filter(self, info: PodInfo, limit: int) -> JSONObject:
        """The result of filtering all nodes at this moment; ``limit`` applies to the nodes listed."""
        cluster = self._scheduler.cluster
        total = len(cluster.nodes)
        if not total:
            return {"nodes": 0, "feasible": 0}
        try:
            profile = self._scheduler.profiles[info.spec.scheduler_name]
            feasible = profile.evaluations.of(info).find_feasible(info)
            if feasible.error is not None:
                return {"nodes": total, "error": feasible.error.message}
            content: JSONObject = {"nodes": total, "feasible": feasible.count}
            if feasible.count:
                rows = np.arange(total)[feasible.rows]
                content["feasibleNodes"] = [cluster.nodes.names[row] for row in rows[:limit].tolist()]
                return content
            diagnosis = feasible.diagnose()
            statuses = ((name, diagnosis.status(row)) for row, name in enumerate(cluster.nodes.names[:limit]))
            content["message"] = diagnosis.message()
            content["byNode"] = [
                {"node": name, "plugin": status.plugin, "code": status.code.value, "reasons": status.reasons}
                for name, status in statuses
            ]
        except KubestowError as error:
            return {"nodes": total, "error": str(error)}
        return content

    # -- the queue -----------------------------------------------------------------------------------------------------

    def queue(self, request: HTTPRequest) -> HTTPResponse:
        """The pods in the queue by age, oldest first. Raises StatusError (400) for an unknown place."""
        place = request.parameter("place")
        if place is not None and place not in _PLACES:
            raise StatusError(400, "BadRequest", f"place: expected one of {', '.join(_PLACES)}")
        queue = self._scheduler.queue
        selected = [queued for queued in queue.pods.values() if place is None or queued.place is _PLACES[place]]
        selected.sort(key=lambda queued: queued.timestamp)
        limit = _count(request, "limit", _DEFAULT_LIMIT)
        return HTTPResponse.indented_json(
            {
                "counts": {place.value: count for place, count in queue.counts().items()},
                "shown": min(limit, len(selected)),
                "pods": [{"pod": queued.info.key, **self._queue_entry(queued)} for queued in selected[:limit]],
            }
        )

    def _queue_entry(self, queued: QueuedPod) -> JSONObject:
        monotonic, now = self._clock.monotonic(), self._clock.now()
        content: JSONObject = {
            "place": queued.place.value,
            "since": timestamp(now - timedelta(seconds=monotonic - queued.timestamp)),
            "priority": queued.info.priority,
            "attempts": queued.attempts,
        }
        if queued.rejectors:
            content["rejectedBy"] = sorted(queued.rejectors)
        if queued.pending_plugins:
            content["pendingPlugins"] = sorted(queued.pending_plugins)
        if queued.gated_by:
            content["gatedBy"] = queued.gated_by
        if queued.place in (Place.BACKOFF, Place.ERROR_BACKOFF):
            content["backoffExpires"] = timestamp(now + timedelta(seconds=queued.backoff_expiration - monotonic))
        return content

    # -- the cache -----------------------------------------------------------------------------------------------------

    def cache(self, request: HTTPRequest) -> HTTPResponse:
        """The nodes and assumed pods in the cache. Raises StatusError (404) for an unknown node."""
        cluster = self._scheduler.cluster
        name, limit = request.parameter("node"), _count(request, "limit", _DEFAULT_LIMIT)
        if name is not None and name not in cluster.nodes.rows:
            raise StatusError.not_found(f'node "{name}" is unknown')
        rows = range(len(cluster.nodes)) if name is None else [cluster.nodes.rows[name]]
        return HTTPResponse.indented_json(
            {
                "nodes": len(cluster.nodes),
                "pods": cluster.pod_count,
                "assumedPods": [
                    {"pod": placed_pod.info.key, "node": placed_pod.node_name}
                    for placed_pod in islice(cluster.assumed(), limit)
                ],
                "byNode": [self._node(row, with_pods=name is not None) for row in rows[:limit]],
            }
        )

    def _node(self, row: int, *, with_pods: bool) -> JSONObject:
        nodes = self._scheduler.cluster.nodes
        pods = nodes.pods[row].values()
        content: JSONObject = {
            "node": nodes.names[row],
            "allocatable": _amounts(nodes.allocatable.at(row)),
            "requested": _amounts(nodes.requested.at(row)),
            "pods": len(pods),
        }
        nominated = [info.key for info in self._scheduler.cluster.nominated_pods(nodes.names[row])]
        if nominated:
            content["nominated"] = nominated
        if with_pods:
            content["podNames"] = sorted(info.key for info in pods)
        return content


def debug_pod(observability: Observability, clock: Clock, rest: str, request: HTTPRequest) -> HTTPResponse:
    """Handle what is below /debug/pods/. Raises StatusError: 404 for an unknown pod, 503 without a scheduler yet."""
    namespace, slash, name = rest.partition("/")
    if not slash or not name or "/" in name:
        raise StatusError.not_found("expected /debug/pods/<namespace>/<name>")
    return SchedulingDebugger.of(observability, clock).pod(namespace, name, request)


def _attempt(attempt: AttemptRecord) -> JSONObject:
    content: JSONObject = {
        "number": attempt.number,
        "endedAt": timestamp(attempt.ended_at),
        "seconds": round(attempt.seconds, 6),
        "result": attempt.result,
    }
    if attempt.node_name:
        content["node"] = attempt.node_name
    if attempt.message:
        content["message"] = attempt.message
    return content


def _amounts(amounts: Mapping[str, int]) -> dict[str, int | str]:
    """CPU in Kubernetes notation (millicores), other resources in their unit."""
    return {name: f"{amount}m" if name == "cpu" else amount for name, amount in amounts.items() if amount}


def _count(request: HTTPRequest, name: str, default: int) -> int:
    text = request.parameter(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise StatusError(400, "BadRequest", f"{name}: expected a number")
    return min(int(text), _MAX_LIMIT)
