"""/debug: answers for a person with curl who asks "why is my pod pending?".

    /debug                              what there is
    /debug/pods/<namespace>/<name>      one pod: where it stands, its last attempt, what it waits for, and what every
                                        node would say of it now (?nodes=N to see more of them)
    /debug/queue                        who waits where (?place=, ?limit=)
    /debug/cache                        what is believed of nodes and of pods not confirmed yet (?node=, ?limit=)

Looking changes nothing. What nodes would say now is asked afresh of the profile's plugins, as a scheduling cycle does;
nobody is preempted, nothing is assumed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from itertools import islice
from typing import Any

import numpy as np

from kubestow.api.timestamps import timestamp
from kubestow.cluster.events import Action, ClusterEvent
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import KubestowError
from kubestow.observability.last_attempts import AttemptRecord, LastAttempts
from kubestow.scheduling.ports import Clock
from kubestow.scheduling.queue.queued_pod import Place, QueuedPod
from kubestow.scheduling.scheduler import Scheduler
from kubestow.serving.http_messages import HTTPRequest, HTTPResponse, StatusError

__all__ = ["SchedulingDebugger"]

_LIMIT = 500
_MOST = 10_000
_NODES = 20

_PLACES = {place.value.replace(" ", "-"): place for place in Place}

Facts = dict[str, Any]


class SchedulingDebugger:
    """Answers about one scheduler."""

    def __init__(self, scheduler: Scheduler, attempts: LastAttempts, clock: Clock) -> None:
        self._scheduler, self._attempts, self._clock = scheduler, attempts, clock

    def index(self) -> HTTPResponse:
        """What there is to ask."""
        return HTTPResponse.json(
            {
                "/debug/pods/<namespace>/<name>": "why a pod is pending, or where it went",
                "/debug/queue": "the queue; ?place=active|backoff|error-backoff|unschedulable|gated, ?limit=N",
                "/debug/cache": "nodes and assumed pods; ?node=NAME, ?limit=N",
            }
        )

    # -- one pod ---------------------------------------------------------------------------------------------------

    def pod(self, namespace: str, name: str, request: HTTPRequest) -> HTTPResponse:
        """Where one pod stands. Raises Failure (404) for one that is not known."""
        info = self._scheduler.handlers.pod(namespace, name)
        key = f"{namespace}/{name}"
        if info is None:
            raise StatusError.not_found(f"pod {key} is not known here: it does not exist, or it has ended")
        attempt = self._attempts.of(key)
        if attempt is not None and attempt.uid != info.uid:
            attempt = None  # it was another pod's of the same name
        queued = self._scheduler.queue.get(info.uid)
        facts: Facts = {"pod": key, "uid": info.uid, "answer": self._sentence(info, queued, attempt)}
        if attempt is not None:
            facts["lastAttempt"] = _told(attempt)
        if queued is not None:
            facts["queue"] = self._waiting(queued)
        nominated = self._scheduler.cluster.nomination(info.uid)
        if nominated:
            facts["nominatedNode"] = nominated
        if not info.spec.node_name and info.spec.scheduler_name in self._scheduler.profiles:
            facts["now"] = self._asked_now(info, _number(request, "nodes", _NODES))
        return HTTPResponse.json(facts)

    def _sentence(self, info: PodInfo, queued: QueuedPod | None, attempt: AttemptRecord | None) -> str:
        if info.spec.node_name:
            return f"it is on node {info.spec.node_name}"
        if info.spec.scheduler_name not in self._scheduler.profiles:
            ours = ", ".join(self._scheduler.profiles)
            return f"its schedulerName is {info.spec.scheduler_name}, which is another scheduler's (here: {ours})"
        placed_pod = self._scheduler.cluster.placed_pod(info.uid)
        if placed_pod is not None:
            held = self._scheduler.waiting.get(info.uid)
            if held is not None:
                return f"it has been given node {placed_pod.node_name}, and is held back by {', '.join(held.pending_plugins)}"
            return f"it has been given node {placed_pod.node_name} and is being bound"
        if queued is None:
            return "it is being scheduled right now"
        return self._where(queued, attempt)

    def _where(self, queued: QueuedPod, attempt: AttemptRecord | None) -> str:
        if queued.place is Place.GATED:
            return f"{queued.gated_by} keeps it out of the queue"
        if queued.place is Place.ACTIVE:
            return f"it is ready and waits for its turn (attempt {queued.attempts + 1})"
        failed = f"attempt {queued.attempts} failed"
        if attempt is not None:
            failed += f": {attempt.message}"
        if queued.place is Place.UNSCHEDULABLE:
            refused = ", ".join(sorted(queued.rejectors | queued.pending)) or "nobody"
            return f"{failed} It is tried again when something changes that {refused} waits for."
        left = max(0.0, queued.backoff_expiration - self._clock.monotonic())
        return f"{failed} It is tried again when its backoff is over, in {left:.0f} s at the latest."

    def _waiting(self, queued: QueuedPod) -> Facts:
        facts = self._entry(queued)
        facts["waitsFor"] = {
            plugin: self._events(queued.info, plugin) for plugin in sorted(queued.rejectors | queued.pending)
        }
        return facts

    def _events(self, info: PodInfo, name: str) -> list[str]:
        """The events that can change a plugin's mind, by their labels."""
        plugins = self._scheduler.profiles[info.spec.scheduler_name].plugins
        plugin = next((plugin for plugin in plugins if plugin.name == name), None)
        events_to_register = (
            [] if plugin is None else [interest for interest in plugin.events_to_register if interest.requeues]
        )
        return sorted({label for interest in events_to_register for label in _labels(interest.event)})

    def _asked_now(self, info: PodInfo, most: int) -> Facts:
        """What the nodes say of a pod at this moment."""
        cluster = self._scheduler.cluster
        total = len(cluster.nodes)
        if not total:
            return {"nodes": 0, "feasible": 0}
        try:
            profile = self._scheduler.profiles[info.spec.scheduler_name]
            found = profile.evaluations.of(cluster, info).feasible(cluster, info)
            if found.error is not None:
                return {"nodes": total, "error": found.error.message}
            facts: Facts = {"nodes": total, "feasible": found.count}
            if found.count:
                rows = np.arange(total)[found.rows]
                facts["feasibleNodes"] = [cluster.nodes.names[row] for row in rows[:most].tolist()]
                return facts
            diagnosis = found.diagnose()
            refused = ((name, diagnosis.status(row)) for row, name in enumerate(cluster.nodes.names[:most]))
            facts["message"] = diagnosis.message()
            facts["byNode"] = [
                {"node": name, "plugin": status.plugin, "code": status.code.value, "reasons": status.reasons}
                for name, status in refused
            ]
        except KubestowError as error:
            return {"nodes": total, "error": str(error)}
        return facts

    # -- the queue -------------------------------------------------------------------------------------------------

    def queue(self, request: HTTPRequest) -> HTTPResponse:
        """Who waits where, the longest waiting first. Raises Failure (400) for a place that does not exist."""
        asked = request.parameter("place")
        if asked is not None and asked not in _PLACES:
            raise StatusError(400, "BadRequest", f"place: expected one of {', '.join(_PLACES)}")
        queue = self._scheduler.queue
        chosen = [queued for queued in queue.waiting() if asked is None or queued.place is _PLACES[asked]]
        chosen.sort(key=lambda queued: queued.timestamp)
        counts = {place.value: count for place, count in queue.counts().items()}
        limit = _number(request, "limit", _LIMIT)
        return HTTPResponse.json(
            {"counts": counts, "shown": min(limit, len(chosen)), "pods": self._entries(chosen, limit)}
        )

    def _entries(self, chosen: Sequence[QueuedPod], limit: int) -> list[Facts]:
        return [{"pod": queued.info.key, **self._entry(queued)} for queued in chosen[:limit]]

    def _entry(self, queued: QueuedPod) -> Facts:
        monotonic, now = self._clock.monotonic(), self._clock.now()
        facts: Facts = {
            "place": queued.place.value,
            "since": timestamp(now - timedelta(seconds=monotonic - queued.timestamp)),
            "priority": queued.info.priority,
            "attempts": queued.attempts,
        }
        if queued.rejectors:
            facts["refusedBy"] = sorted(queued.rejectors)
        if queued.pending:
            facts["pendingOn"] = sorted(queued.pending)
        if queued.gated_by:
            facts["gatedBy"] = queued.gated_by
        if queued.place in (Place.BACKOFF, Place.ERROR_BACKOFF):
            facts["backoffEnds"] = timestamp(now + timedelta(seconds=queued.backoff_expiration - monotonic))
        return facts

    # -- the cache -------------------------------------------------------------------------------------------------

    def cache(self, request: HTTPRequest) -> HTTPResponse:
        """What is believed of nodes. Raises Failure (404) for a node that is not known."""
        cluster = self._scheduler.cluster
        name, limit = request.parameter("node"), _number(request, "limit", _LIMIT)
        if name is not None and name not in cluster.nodes.rows:
            raise StatusError.not_found(f'node "{name}" is not known here')
        rows = range(len(cluster.nodes)) if name is None else [cluster.nodes.rows[name]]
        facts: Facts = {
            "nodes": len(cluster.nodes),
            "pods": cluster.pod_count,
            "assumedPods": [
                {"pod": placed_pod.info.key, "node": placed_pod.node_name}
                for placed_pod in islice(cluster.assumed(), limit)
            ],
            "byNode": [self._node(row, with_pods=name is not None) for row in rows[:limit]],
        }
        return HTTPResponse.json(facts)

    def _node(self, row: int, *, with_pods: bool) -> Facts:
        nodes = self._scheduler.cluster.nodes
        pods = nodes.pods[row].values()
        facts: Facts = {
            "node": nodes.names[row],
            "allocatable": _amounts(nodes.allocatable.at(row)),
            "requested": _amounts(nodes.requested.at(row)),
            "pods": len(pods),
        }
        nominated = [info.key for info in self._scheduler.cluster.nominated_to(nodes.names[row])]
        if nominated:
            facts["nominated"] = nominated
        if with_pods:
            facts["podsHere"] = sorted(info.key for info in pods)
        return facts


def _told(attempt: AttemptRecord) -> Facts:
    facts: Facts = {
        "number": attempt.number,
        "endedAt": timestamp(attempt.ended_at),
        "seconds": round(attempt.seconds, 6),
        "result": attempt.result,
    }
    if attempt.node_name:
        facts["node"] = attempt.node_name
    if attempt.message:
        facts["message"] = attempt.message
    return facts


def _labels(event: ClusterEvent) -> Iterator[str]:
    if event.is_wildcard:
        yield "anything"
        return
    for action in (Action.ALL, Action.UPDATE):
        if event.action & action == action:
            yield ClusterEvent(event.resource, action).label
            event = ClusterEvent(event.resource, event.action & ~action)
    for action in Action:
        if event.action & action and action.bit_count() == 1:
            yield ClusterEvent(event.resource, action).label


def _amounts(amounts: Mapping[str, int]) -> dict[str, int | str]:
    """CPU as Kubernetes writes millicores, everything else as it is counted."""
    return {name: f"{amount}m" if name == "cpu" else amount for name, amount in amounts.items() if amount}


def _number(request: HTTPRequest, name: str, default: int) -> int:
    text = request.parameter(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise StatusError(400, "BadRequest", f"{name}: expected a number")
    return min(int(text), _MOST)
