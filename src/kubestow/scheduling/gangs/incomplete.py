"""Who waits for the rest of a gang: told so once that takes long.

Gangs come pod by pod, so nearly everybody waits for a moment; only who waits for longer than a few seconds is told how
many are there, and promised no node meanwhile.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Hashable, Mapping

from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.gang import Gang, GangPlugin
from kubestow.framework.profile import Profile
from kubestow.scheduling.failure_handler import UnscheduledPods
from kubestow.scheduling.queue.queued_pod import Place
from kubestow.scheduling.queue.scheduling_queue import SchedulingQueue

__all__ = ["IncompleteGangs"]

#: How long a gang may be incomplete before its pods are told, in seconds.
_PATIENCE = 3.0


class IncompleteGangs:
    """The pods that wait for the rest of their gang."""

    def __init__(self, queue: SchedulingQueue, unscheduled: UnscheduledPods) -> None:
        self._queue, self._unscheduled = queue, unscheduled
        #: Those that have not been told yet, with the time when they will be (of the event loop), the first first: all
        #: have to be as patient.
        self._untold: dict[str, tuple[float, GangPlugin]] = {}
        self._telling: asyncio.TimerHandle | None = None
        self._speaks = False

    def begin(self, profiles: Mapping[str, Profile]) -> None:
        """Scheduling begins: from now on pods are told, those too that waited before."""
        self._speaks = True
        for queued in self._queue.waiting():
            plugin = profiles[queued.info.spec.scheduler_name].gangs
            if isinstance(plugin, GangPlugin) and self._is_kept_out(queued.info.uid, plugin):
                self.kept_out(queued.info, plugin)

    def close(self) -> None:
        """Tell nobody any more."""
        self._speaks = False
        if self._telling is not None:
            self._telling.cancel()

    def kept_out(self, info: PodInfo, plugin: GangPlugin) -> None:
        """A pod waits for its group or for its siblings. If that takes long, it will be told, and promised nothing."""
        if not self._speaks:
            return
        if not self._is_kept_out(info.uid, plugin):  # it has not been waiting up to now
            self._untold.pop(info.uid, None)
        loop = asyncio.get_running_loop()
        self._untold.setdefault(info.uid, (loop.time() + _PATIENCE, plugin))
        if self._telling is None:
            self._telling = loop.call_later(_PATIENCE, self._tell)

    def _tell(self) -> None:
        """Tell those who have waited long enough, and once more those of their siblings who know of fewer."""
        loop = asyncio.get_running_loop()
        due = list(itertools.takewhile(lambda uid: self._untold[uid][0] <= loop.time(), self._untold))
        waiting = {uid: self._untold.pop(uid)[1] for uid in due}
        # However many come one after the other, their siblings are not told more often than this.
        self._telling = loop.call_later(_PATIENCE, self._tell) if self._untold else None
        gangs: dict[Hashable, tuple[Gang, GangPlugin]] = {}
        for uid, plugin in waiting.items():
            queued = self._queue.get(uid)
            gang = plugin.gang_of(queued.info) if queued is not None else None
            if gang is not None:
                gangs[gang.name] = gang, plugin
        for gang, plugin in gangs.values():
            waiting |= {sibling: plugin for sibling in gang.members.pods if sibling not in self._untold}
        for uid, plugin in waiting.items():
            self._tell_one(uid, plugin)

    def _tell_one(self, uid: str, plugin: GangPlugin) -> None:
        queued = self._queue.get(uid)
        if queued is not None and self._is_kept_out(uid, plugin):
            status = plugin.pre_enqueue(queued.info)
            if not status.ok:
                self._unscheduled.tell(queued.info, status.message)

    def _is_kept_out(self, uid: str, plugin: GangPlugin) -> bool:
        """Whether a pod waits for the rest of its gang by what the queue knows."""
        queued = self._queue.get(uid)
        return queued is not None and queued.place is Place.GATED and queued.gated_by == plugin.name
