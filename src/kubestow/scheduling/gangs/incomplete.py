"""Who waits for the rest of a gang: told so once that takes long.

Gangs come pod by pod, so nearly everybody waits for a moment; only who waits for longer than a few seconds is told how
many are there, and promised no node meanwhile.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Hashable, Mapping

from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import PluginError
from kubestow.framework.gang import Gang, GangPlugin
from kubestow.framework.profile import Profile
from kubestow.scheduling.failure_handler import UnscheduledPods
from kubestow.scheduling.queue.queued_pod import Place
from kubestow.scheduling.queue.scheduling_queue import SchedulingQueue

__all__ = ["IncompleteGangs"]

_log = logging.getLogger(__name__)

#: How long a gang may be incomplete before its pods are told, in seconds.
_PATIENCE = 3.0


class IncompleteGangs:
    """The pods that wait for the rest of their gang."""

    def __init__(self, queue: SchedulingQueue, unscheduled: UnscheduledPods) -> None:
        self._queue, self._unscheduled = queue, unscheduled
        #: Those that have not been told yet, with the time when they will be (of the event loop), the first first: all
        #: have to be as patient.
        self._untold: dict[str, tuple[float, Profile]] = {}
        self._telling: asyncio.TimerHandle | None = None
        self._speaks = False

    def begin(self, profiles: Mapping[str, Profile]) -> None:
        """Scheduling begins: from now on pods are told, those too that waited before."""
        self._speaks = True
        for queued in self._queue.waiting():
            profile = profiles[queued.info.spec.scheduler_name]
            if self._is_kept_out(queued.info.uid, profile):
                self.kept_out(queued.info, profile)

    def close(self) -> None:
        """Tell nobody any more."""
        self._speaks = False
        if self._telling is not None:
            self._telling.cancel()

    def kept_out(self, info: PodInfo, profile: Profile) -> None:
        """A pod waits for its group or for its siblings. If that takes long, it will be told, and promised nothing."""
        if not self._speaks:
            return
        if not self._is_kept_out(info.uid, profile):  # it has not been waiting up to now
            self._untold.pop(info.uid, None)
        loop = asyncio.get_running_loop()
        self._untold.setdefault(info.uid, (loop.time() + _PATIENCE, profile))
        if self._telling is None:
            self._telling = loop.call_later(_PATIENCE, self._tell)

    def _tell(self) -> None:
        """Tell those who have waited long enough, and once more those of their siblings who know of fewer."""
        loop = asyncio.get_running_loop()
        due = list(itertools.takewhile(lambda uid: self._untold[uid][0] <= loop.time(), self._untold))
        waiting = {uid: self._untold.pop(uid)[1] for uid in due}
        # However many come one after the other, their siblings are not told more often than this.
        self._telling = loop.call_later(_PATIENCE, self._tell) if self._untold else None
        gangs: dict[Hashable, tuple[Gang, Profile]] = {}
        for uid, profile in waiting.items():
            gang = self._gang_of(uid, profile)
            if gang is not None:
                gangs[gang.name] = gang, profile
        for gang, profile in gangs.values():
            waiting |= {sibling: profile for sibling in gang.members.pods if sibling not in self._untold}
        for uid, profile in waiting.items():
            self._tell_one(uid, profile)

    def _gang_of(self, uid: str, profile: Profile) -> Gang | None:
        queued = self._queue.get(uid)
        try:
            return None if queued is None else profile.runtime.gang_of(queued.info)
        except PluginError as error:
            _log.error("%s", error, exc_info=error.__cause__)
            return None

    def _tell_one(self, uid: str, profile: Profile) -> None:
        queued = self._queue.get(uid)
        if queued is not None and self._is_kept_out(uid, profile):
            status = profile.runtime.gang_admission(queued.info)
            if not status.ok:
                self._unscheduled.tell(queued.info, status.message)

    def _is_kept_out(self, uid: str, profile: Profile) -> bool:
        """Whether a pod waits for the rest of its gang by what the queue knows."""
        queued, plugin = self._queue.get(uid), profile.gangs
        if queued is None or queued.place is not Place.GATED or not isinstance(plugin, GangPlugin):
            return False
        return queued.gated_by == plugin.name
