"""Evictions: what preemption decided, carried out in the background (semantics 9.6).

While a pod's victims are being evicted the pod is gated at PreEnqueue; the deletion of the last victim is the event
that brings it back. All victims but the last are evicted together and the last only if that went well, so that the room
is complete when the pod returns. A victim that is on its way to be bound is not deleted: it is taken back in memory.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

from kubestow.api.core import PodCondition
from kubestow.api.timestamps import timestamp
from kubestow.cluster.pods.index import PlacedPod
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import APIError
from kubestow.scheduling.observer import Observer
from kubestow.scheduling.ports import Clock, ClusterAPI, EventRecord, PodStatusPatch, reference
from kubestow.scheduling.writes.dispatcher import Dispatcher

__all__ = ["Evictions"]

_log = logging.getLogger(__name__)

#: What stands for the node of a preemption on several (semantics 9.7).
_EVERYWHERE = "cluster"


@dataclass(slots=True, eq=False)
class _Attempt:
    """One preemption that is being carried out, for one pod or for several together.

    ``kind`` and ``uid`` are those of the pod or group that it is for; ``last`` is the last victim once only that one is
    left. ``taken_back`` are the placements that victims had which were still on their way to be bound, by their uid.
    """

    preemptors: Sequence[PodInfo]
    uid: str
    node_name: str
    kind: str = "pod"
    last: PodInfo | None = None
    taken_back: dict[str, PlacedPod] = field(default_factory=dict)

    def __str__(self) -> str:
        named = self.preemptors[0].key if self.kind == "pod" else self.uid
        return f"{self.kind} {named} on node {self.node_name}"


class Evictions:
    """Evicts victims and clears the nominations of pods that were outranked.

    ``known`` gives a pod's last state as the API server told it, ``placed_pod`` the room that it takes on a
    node, if only by assumption, None when it takes none; ``cancel_binding`` ends the binding cycle of a pod, by uid, if it
    is not too late; ``activate`` brings a preemptor back to the queue when no event will.
    """

    def __init__(
        self,
        api: ClusterAPI,
        *,
        dispatcher: Dispatcher,
        cancel_binding: Callable[[str], bool],
        clock: Clock,
        known: Callable[[str], PodInfo | None],
        placed_pod: Callable[[str], PlacedPod | None],
        activate: Callable[[str], None],
        observer: Observer,
    ) -> None:
        self._api = api
        self._dispatcher = dispatcher
        self._take_back = cancel_binding
        self._clock = clock
        self._known = known
        self._placement = placed_pod
        self._activate = activate
        self._observer = observer
        self._tasks: set[asyncio.Task[None]] = set()
        #: The newest attempt of each preemptor. An older one may still wait for its last answer.
        self._preempting: dict[str, _Attempt] = {}

    def is_preempting(self, uid: str) -> bool:
        """Whether a pod's evictions are still being carried out."""
        attempt = self._preempting.get(uid)
        if attempt is None:
            return False
        if attempt.last is None:
            return True
        victim = self._known(attempt.last.uid)
        return victim is not None and not victim.terminating

    def start(
        self,
        preemptor: PodInfo,
        node_name: str,
        *,
        victims: Sequence[PodInfo],
        lower_priority_nominated: Sequence[PodInfo],
    ) -> None:
        """Begin to make room for a pod. Victims that are being deleted already are left alone."""
        self._begin(_Attempt([preemptor], preemptor.uid, node_name), victims, lower_priority_nominated)

    def start_for_group(
        self,
        preemptors: Sequence[PodInfo],
        group: str,
        *,
        victims: Sequence[PodInfo],
        lower_priority_nominated: Sequence[PodInfo],
    ) -> None:
        """Begin to make room for pods that belong together, wherever their victims are; ``group`` is its uid."""
        self._begin(_Attempt(preemptors, group, _EVERYWHERE, kind="podgroup"), victims, lower_priority_nominated)

    def _begin(
        self, attempt: _Attempt, victims: Sequence[PodInfo], lower_priority_nominated: Sequence[PodInfo]
    ) -> None:
        self._observer.preempted(attempt.preemptors[0], attempt.node_name, len(victims))
        live = [victim for victim in victims if not victim.terminating]
        if not live:
            return
        for preemptor in attempt.preemptors:
            self._preempting[preemptor.uid] = attempt
        task = asyncio.create_task(
            self._make_room(attempt, victims=live, lower_priority_nominated=lower_priority_nominated)
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """What has been begun and not carried out."""
        return list(self._tasks)

    async def _make_room(
        self, attempt: _Attempt, *, victims: Sequence[PodInfo], lower_priority_nominated: Sequence[PodInfo]
    ) -> None:
        began = self._clock.monotonic()
        for pod in lower_priority_nominated:
            self._dispatcher.patch_status(reference(pod), PodStatusPatch(nominated_node_name=""))
        try:
            *others, last = victims
            await _all_done([self._evict(victim, attempt) for victim in others])
            attempt.last = last
            await self._evict(last, attempt)
        except Exception as error:  # whatever it is, the pod must not stay gated
            _log.warning("cannot make room for %s: %s", attempt, error)
            self._tell_evicted(attempt, began, succeeded=False)
            self._end(attempt, activate=True)
        else:
            self._tell_evicted(attempt, began, succeeded=True)
            # The last one may have left its node while the pod was gated; then nothing will bring the pod back.
            self._end(attempt, activate=not any(self._is_leaving(victim, attempt) for victim in victims))

    def _is_leaving(self, victim: PodInfo, attempt: _Attempt) -> bool:
        """Whether a victim still takes the room that it is to leave; one that was taken back may have got it anew."""
        placed_pod = self._placement(victim.uid)
        return placed_pod is not None and placed_pod is attempt.taken_back.get(victim.uid, placed_pod)

    def _tell_evicted(self, attempt: _Attempt, began: float, *, succeeded: bool) -> None:
        seconds = self._clock.monotonic() - began
        self._observer.evicted(attempt.preemptors[0], succeeded=succeeded, seconds=seconds)

    def _end(self, attempt: _Attempt, *, activate: bool) -> None:
        for preemptor in attempt.preemptors:
            if self._preempting.get(preemptor.uid) is attempt:
                del self._preempting[preemptor.uid]
        if activate:
            for preemptor in attempt.preemptors:
                self._activate(preemptor.uid)

    async def _evict(self, victim: PodInfo, attempt: _Attempt) -> None:
        placed_pod = self._placement(victim.uid)
        if placed_pod is None:
            return  # its binding failed, or it is gone
        if self._take_back(victim.uid):
            attempt.taken_back[victim.uid] = placed_pod
            self._record(victim, attempt, " (in kube-scheduler memory).")
            return
        try:
            await self._dispatcher.evict(victim, self._disruption(attempt))
        except APIError as error:
            if error.code == 404:
                return  # gone by itself
            raise
        self._record(victim, attempt, "")

    def _disruption(self, attempt: _Attempt) -> PodCondition:
        scheduler_name = attempt.preemptors[0].spec.scheduler_name
        return PodCondition(
            type="DisruptionTarget",
            status="True",
            reason="PreemptionByScheduler",
            message=f"{scheduler_name}: preempting to accommodate a higher priority {attempt.kind}",
            last_transition_time=timestamp(self._clock.now()),
        )

    def _record(self, victim: PodInfo, attempt: _Attempt, where: str) -> None:
        preemptor = attempt.preemptors[0]
        self._api.record(
            EventRecord(
                regarding=reference(victim),
                related=reference(preemptor),
                reason="Preempted",
                action="Preempting",
                note=f"Preempted by {attempt.kind} {attempt.uid} on node {attempt.node_name}{where}",
                reporting_controller=preemptor.spec.scheduler_name,
            )
        )


async def _all_done(evictions: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Wait for all, also when one fails: none may go on once the attempt is over. Raises the first failure."""
    for outcome in await asyncio.gather(*evictions, return_exceptions=True):
        if outcome is not None:
            raise outcome
