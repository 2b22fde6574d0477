"""The lookout: observes a scheduler process from outside, and notes which rare paths it takes.

It sees what any observer of a scheduler sees, the deliveries of the watch before the scheduler gets them, and the end
of processes. It reads what the scheduler has in progress, and changes nothing.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence, Set
from typing import Any

from kubestow.api.core import Pod
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import LeaseExpired
from kubestow.framework.status import Code
from kubestow.scheduling.decision.result import Decision
from kubestow.scheduling.events.resources import NODES, PODS
from kubestow.scheduling.interfaces import Resource
from kubestow.scheduling.observer import Observer, Result
from kubestow.scheduling.preemption.evictions import SEVERAL_NODES
from kubestow.scheduling.queued_pod import QueuedPod
from kubestow.scheduling.scheduler import Scheduler
from kubestow_lab.fault_simulation.apiserver.watch_view import WatchView
from kubestow_lab.fault_simulation.marks import Mark, Marks
from kubestow_lab.fault_simulation.scheduler.faulty_plugin import InjectedError

#: Extension points of the faulty plugin whose failures are only logged.
_LOGGED = {"Unreserve": Mark.UNRESERVE_RAISED, "PostBind": Mark.POST_BIND_RAISED}


class Lookout(Observer):
    """Observes one start of a process, whose scheduler is set once it exists."""

    def __init__(self, marks: Marks) -> None:
        self._reach = marks.reach
        self.scheduler: Scheduler | None = None
        #: The pods whose bindings are on the way, by uid.
        self.binding: Set[str] = frozenset()

    @property
    def _is_binding(self) -> bool:
        return self.scheduler is not None and self.scheduler.binding_cycle_count > 0

    @property
    def _is_preempting(self) -> bool:
        return self.scheduler is not None and bool(self.scheduler._preemptions.newest)

    # -- the watch, before the scheduler gets what it delivers -----------------------------------------------------

    def listed(self, view: WatchView, resource: Resource, objects: Sequence[Any]) -> None:
        """A collection is listed; ``view`` is the state before that."""
        if resource != PODS:
            return
        if self._is_preempting:
            self._reach(Mark.RELISTED_IN_PREEMPTION)
        if self._is_binding:
            self._reach(Mark.RELISTED_IN_BINDING)
        uids = {(each.metadata.namespace, each.metadata.name): each.metadata.uid for each in objects}
        for key, known in view.pods.items():
            if key not in uids:
                self._reach(Mark.LIST_HIDES_DELETION)
            elif uids[key] != known.metadata.uid:
                self._reach(Mark.LIST_HIDES_REPLACEMENT)

    def changed(self, view: WatchView, resource: Resource, event_type: str, obj: Any) -> None:
        """An object changes; ``view`` is the state before that."""
        if resource == PODS and obj.spec.node_name and obj.metadata.uid in self.binding:
            self._reach(Mark.BINDING_SHOWN_BEFORE_ANSWER)
        if self.scheduler is None or event_type != "DELETED":
            return
        cluster = self.scheduler.cluster
        if resource == PODS:
            uid = obj.metadata.uid
            if cluster.is_assumed(uid) and not obj.spec.node_name:
                self._reach(Mark.ASSUMED_POD_DELETED)
            if uid in self.scheduler._preemptions.newest:
                self._reach(Mark.PREEMPTOR_DELETED)
        elif resource == NODES:
            self._node_lost(view, obj.metadata.name)

    def _node_lost(self, view: WatchView, name: str) -> None:
        assert self.scheduler is not None
        cluster = self.scheduler.cluster
        assumed = {each.info.uid: each.info.pod for each in cluster.assumed() if each.node_name == name}
        if assumed:
            self._reach(Mark.NODE_LOST_UNDER_ASSUMED_POD)
        if cluster.nominated_pods(name):
            self._reach(Mark.NODE_LOST_UNDER_NOMINATED_POD)
        members = Counter(_job(pod) for pod in view.pods.values() if _job(pod))
        bound = [pod for pod in view.pods.values() if pod.spec.node_name == name]
        lost = Counter(_job(pod) for pod in (*assumed.values(), *bound) if _job(pod))
        settled = Counter(_job(pod) for pod in view.pods.values() if _job(pod) and pod.spec.node_name)
        if any(lost[job] < members[job] and settled[job] < members[job] for job in lost):
            self._reach(Mark.GANG_TORN_BY_NODE)

    # -- the end of a process --------------------------------------------------------------------------------------

    def killed(self) -> None:
        """The process is killed."""
        if self._is_binding:
            self._reach(Mark.KILLED_IN_BINDING)
        if self._is_preempting:
            self._reach(Mark.KILLED_IN_PREEMPTION)

    def stopped(self) -> None:
        """The process is stopped gracefully."""
        if self._is_binding:
            self._reach(Mark.STOPPED_IN_BINDING)

    def lost_lead(self) -> None:
        """Another process holds the lease from now on, or none."""
        if self.scheduler is not None and any(self.scheduler.cluster.assumed()):
            self._reach(Mark.LEASE_LOST_BEFORE_BINDING)

    # -- the observer's interface ----------------------------------------------------------------------------------

    def decision_made(self, decision: Decision, seconds: float) -> None:
        nominated = None if self.scheduler is None else self.scheduler.cluster.nomination(decision.pod.uid)
        if nominated and decision.node_name not in (None, nominated):
            self._reach(Mark.PLACED_BESIDE_NOMINATION)

    def permit_wait_ended(self, info: PodInfo, code: Code, seconds: float) -> None:
        if code is not Code.SUCCESS:
            self._reach(Mark.PERMIT_REJECTED)

    def attempt_ended(self, queued: QueuedPod, result: Result, message: str, seconds: float) -> None:
        if result is Result.SCHEDULED:
            return
        for words, mark in (
            ("rejected due to timeout after waiting", Mark.PERMIT_TIMED_OUT),
            ("cancelled after its time limit", Mark.PRE_BIND_TIMED_OUT),
            ('running Reserve plugin "', Mark.RESERVE_FAILED),
            ("preempted by DefaultPreemption", Mark.VICTIM_STOPPED_IN_PRE_BIND),
            (str(LeaseExpired()), Mark.WRITE_WITHOUT_LEASE),
        ):
            if words in message:
                self._reach(mark)
        if message.endswith(("preempted", "preempted.")):
            self._reach(Mark.VICTIM_STOPPED_ON_PERMIT)
        if self.scheduler is not None and any(True for _ in self.scheduler.queue.in_flight.since(queued.info.uid)):
            self._reach(Mark.EVENT_DURING_ATTEMPT)

    def attempt_over_budget(self, queued: QueuedPod, plugin: str, extension_point: str, seconds: float) -> None:
        self._reach(Mark.ATTEMPT_OVER_BUDGET)

    def preemption_started(self, preemptors: Sequence[PodInfo], node_name: str, victims: Sequence[PodInfo]) -> None:
        self._reach(Mark.GANG_PREEMPTION if node_name == SEVERAL_NODES else Mark.PREEMPTION)

    def evictions_ended(self, preemptor: PodInfo, *, succeeded: bool, seconds: float) -> None:
        if not succeeded:
            self._reach(Mark.EVICTION_FAILED)

    def pod_enqueued(self, place: str, event: str) -> None:
        if event == "UnschedulableTimeout":
            self._reach(Mark.FLUSHED)


def _job(pod: Pod) -> str:
    return pod.metadata.labels.get("job", "")


class LoggedMarks(logging.Handler):
    """Marks of failures that schedulers only log."""

    def __init__(self, marks: Marks) -> None:
        super().__init__(logging.ERROR)
        self._marks = marks

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, InjectedError) and (mark := _LOGGED.get(str(error))):
            self._marks.reach(mark)
