"""Reports on incomplete gangs: why their pods are gated, if that lasts longer than a few seconds.

A gang arrives pod by pod, so almost every member is gated for a moment. Only members that stay gated get a condition
with how many pods there are, and lose their nomination.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping

from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import PluginError
from kubestow.framework.gang import Gang, GangPlugin
from kubestow.framework.profile import Profile
from kubestow.framework.status import Code, Status
from kubestow.scheduling.cycle.failure_handler import FailureHandler
from kubestow.scheduling.interfaces import Clock
from kubestow.scheduling.queue.scheduling_queue import SchedulingQueue
from kubestow.scheduling.queued_pod import Place, QueuedPod

#: How long a pod is gated before that is reported on it, in seconds.
_GRACE_PERIOD = 3.0
#: A timer may fire a moment before its time by another clock, in seconds.
_TOLERANCE = 0.001


class IncompleteGangs:
    """The pods gated because their gang is incomplete, for which no report has been written yet."""

    def __init__(
        self, profiles: Mapping[str, Profile], queue: SchedulingQueue, failure_handler: FailureHandler, clock: Clock
    ) -> None:
        self._profiles, self._queue, self._failure_handler = profiles, queue, failure_handler
        self._clock = clock
        #: When each pod is reported, in seconds of the clock. The grace period is the same for all, so
        #: the pods are in the order of their times.
        self._due: dict[str, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._is_running = False

    def start(self) -> None:
        """Report on gated pods from now on, and on those gated before."""
        self._is_running = True
        for queued in self._queue.pods.values():
            if self._is_gated_by_gang_plugin(queued):
                self._report_later(queued.info.uid)

    def close(self) -> None:
        """Write no further reports."""
        self._is_running = False
        if self._timer is not None:
            self._timer.cancel()

    def pod_gated(self, pod: PodInfo, status: Status) -> None:
        """Report on a pod after the grace period if a gang plugin still gates it then."""
        if not self._is_running or status.code is Code.ERROR or status.plugin != self._gang_plugin(pod):
            return
        queued = self._queue.pods.get(pod.uid)
        if queued is None or not self._is_gated_by_gang_plugin(queued):  # it was not gated before
            self._due.pop(pod.uid, None)
        self._report_later(pod.uid)

    def _report_later(self, uid: str) -> None:
        self._due.setdefault(uid, self._clock.monotonic() + _GRACE_PERIOD)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_GRACE_PERIOD, self._report_due)

    def _report_due(self) -> None:
        """Report on the pods whose grace period has ended, and again on gated siblings, whose reports are outdated."""
        loop, now = asyncio.get_running_loop(), self._clock.monotonic() + _TOLERANCE
        due = list(itertools.takewhile(lambda uid: self._due[uid] <= now, self._due))
        for uid in due:
            del self._due[uid]
        # However many pods arrive one after the other, their siblings get no more reports than this.
        self._timer = loop.call_later(_GRACE_PERIOD, self._report_due) if self._due else None
        members: dict[str, PodInfo] = {}
        for uid in due:
            queued = None if uid in members else self._queue.moves.settle(uid)
            if queued is not None and (gang := self._gang_of(queued.info)) is not None:
                members |= gang.members.pods
        siblings = [uid for uid in members if uid not in self._due]
        for uid in dict.fromkeys((*due, *siblings)):
            self._report(uid)

    def _report(self, uid: str) -> None:
        queued = self._queue.moves.settle(uid)
        if queued is not None and self._is_gated_by_gang_plugin(queued):
            status = self._profiles[queued.info.spec.scheduler_name].gangs.run_gang_pre_enqueue(queued.info)
            if not status.ok:
                self._failure_handler.report_gated(queued.info, status.message)

    def _gang_of(self, pod: PodInfo) -> Gang | None:
        try:
            return self._profiles[pod.spec.scheduler_name].gangs.gang_of(pod)
        except PluginError:
            return None  # the pod's own attempt reports it

    def _is_gated_by_gang_plugin(self, queued: QueuedPod) -> bool:
        return queued.place is Place.GATED and queued.gated_by == self._gang_plugin(queued.info)

    def _gang_plugin(self, pod: PodInfo) -> str | None:
        """The name of the plugin that gates the pods of incomplete gangs in the pod's profile."""
        plugin = self._profiles[pod.spec.scheduler_name].runtime.plugins.gang_source
        return plugin.name if isinstance(plugin, GangPlugin) else None
