"""The dispatcher: the one place that says when, in which order and how often the scheduler's writes go out.

Every object has a lane: one request at a time, and who asked first goes first. Only status patches of pods, which
nobody waits for, stand back: they are sent by a task when nothing else is asked of their pod, and while they are
pending newer ones merge with them. A binding or an eviction overtakes them, after the one that is under way; once it
has succeeded they are pointless and dropped, as they are once the watch tells that the pod is bound or gone. A patch is
tried again briefly, and one that would change nothing is not sent; a binding is made once, and in doubt the server is
asked what became of it (semantics 1.8, 4.11, 9.6).

How many requests a second go out is not said here but by the transport, whose limit reads share. Events have a queue,
and a limit, of their own; a new claim has no lane because it has no uid yet.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field, replace
from random import Random
from typing import TypeVar

from kubestow.api.core import PodCondition
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import APIError, Unreachable
from kubestow.framework.status import Status
from kubestow.scheduling.observer import Call, Observer
from kubestow.scheduling.ports import Clock, ClusterAPI, ObjectReference, PodStatusPatch, reference
from kubestow.scheduling.writes.retries import Retries
from kubestow.scheduling.writes.status_patches import beyond, both

__all__ = ["Dispatcher"]

_log = logging.getLogger(__name__)

#: Pods that are bound or evicted at once; further ones wait for a slot.
_BINDINGS = 512
#: Status patches at once.
_STATUSES = 16

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class _Pending:
    """A status patch that is to be written, and the pauses between the tries that are left to it."""

    pod: ObjectReference
    patch: PodStatusPatch
    pauses: Iterator[float]

    def after(self, older: _Pending) -> _Pending:
        """What is to be written in place of both."""
        return replace(self, patch=both(older.patch, self.patch))


@dataclass(slots=True, eq=False)
class _Lane:
    """One object: whose turn it is, how many calls are waited for, what is pending, and the task that writes that."""

    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    calls: int = 0
    pending: _Pending | None = None
    writer: asyncio.Task[None] | None = None


class Dispatcher:
    """Sends writes to the cluster API. ``known`` gives a pod's last state as the API server told it."""

    def __init__(
        self,
        api: ClusterAPI,
        *,
        clock: Clock,
        random: Random,
        known: Callable[[str], PodInfo | None],
        observer: Observer,
    ) -> None:
        self._api, self._clock, self._known, self._observer = api, clock, known, observer
        self._retries = Retries(clock, random)
        self._lanes: dict[str, _Lane] = {}
        #: What has been sent of pods that are not bound yet, by uid: the watch may not have told of it so far.
        self._sent: dict[str, PodStatusPatch] = {}
        self._asked: Counter[Call] = Counter()
        self._binding_slots, self._status_slots = asyncio.Semaphore(_BINDINGS), asyncio.Semaphore(_STATUSES)
        self._is_closed = False

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """The tasks that write what nobody waits for."""
        return [lane.writer for lane in self._lanes.values() if lane.writer is not None]

    def pending(self) -> Counter[Call]:
        """How many calls of a kind have been asked for and are not done."""
        statuses = sum(1 for lane in self._lanes.values() if lane.pending is not None or lane.writer is not None)
        return self._asked + Counter({Call.POD_STATUS_PATCH: statuses})

    def close(self) -> None:
        """Begin nothing new in the background."""
        self._is_closed = True

    # -- statuses, which nobody waits for --------------------------------------------------------------------------

    def patch_status(self, pod: ObjectReference, patch: PodStatusPatch) -> None:
        """Have a pod's status written soon, as far as that changes anything; what goes wrong is logged."""
        known = self._known(pod.uid)
        if known is None or known.spec.node_name:
            return
        lane = self._lanes.get(pod.uid)
        if lane is not None and lane.pending is not None:
            patch = both(lane.pending.patch, patch)
        news = beyond(patch, known.status, self._sent.get(pod.uid))
        if lane is None:
            if news is None:
                return
            lane = self._lanes[pod.uid] = _Lane()
        lane.pending = None if news is None else _Pending(pod, news, self._retries.pauses())
        self._go_on(pod.uid, lane)

    def settled(self, uid: str) -> None:
        """The watch has told that a pod is bound or gone: there is nothing more to say on it."""
        self._sent.pop(uid, None)
        lane = self._lanes.get(uid)
        if lane is not None:
            lane.pending = None

    async def _write_statuses(self, uid: str, lane: _Lane) -> None:
        """Send what is pending until nothing is, or until another call wants the lane."""
        try:
            while lane.pending is not None and not lane.calls:
                async with self._status_slots:
                    pause = await self._write_status(lane)
                if pause:
                    await self._clock.sleep(pause)
        finally:
            lane.writer = None
            self._go_on(uid, lane)

    async def _write_status(self, lane: _Lane) -> float:
        """One try of what is pending, if it still is; the pause until the next one, in seconds.

        What has failed and may be tried again is pending again, and gives way to what is newer.
        """
        taken = lane.pending
        if taken is None or lane.calls:
            return 0.0
        pod, patch, lane.pending = taken.pod, taken.patch, None
        sent = self._sent.get(pod.uid)
        self._sent[pod.uid] = patch if sent is None else both(sent, patch)
        try:
            async with lane.turn:
                await self._executed(Call.POD_STATUS_PATCH, self._api.patch_pod_status(pod, patch))
        except (APIError, Unreachable) as error:
            again = taken if lane.pending is None else lane.pending.after(taken)
            pause = self._retries.pause_after(error, again.pauses)
            if pause is None:
                if not _is_gone(error):
                    _log.warning("status of pod %s/%s not updated: %s", pod.namespace, pod.name, error)
            elif pod.uid in self._sent:  # or else it has been settled meanwhile
                lane.pending = again
                return pause
        return 0.0

    # -- bindings and evictions ------------------------------------------------------------------------------------

    async def binding(self, uid: str, step: Callable[[], Awaitable[Status]]) -> Status:
        """Take the step that binds a pod, whoever does it and how; no status of the pod is on its way meanwhile."""
        lane = self._enter(uid)
        try:
            async with self._binding_slots:
                async with lane.turn:  # what is under way
                    pass
                status = await step()
            if status.ok:
                lane.pending = None
            return status
        finally:
            self._leave(uid, lane)

    async def bind(self, pod: ObjectReference, node_name: str) -> None:
        """Bind a pod to a node, for certain. Raises APIError or Unreachable; then the pod is not bound there.

        A binding whose answer is lost may have been made all the same, and one that conflicts may do so with itself: a
        server that fails after it has made it, and asks for patience, gets it a second time. Were the pod taken for
        unbound then, the room that it takes would be given away until the watch says better; so it keeps its place
        until the server answers.
        """
        await self.write(pod.uid, Call.POD_BINDING, lambda: self._bound(pod, node_name))

    async def _bound(self, pod: ObjectReference, node_name: str) -> None:
        try:
            await self._api.bind(pod, node_name)
        except (APIError, Unreachable) as error:
            may_be_made = error.in_doubt or _is_conflict(error)
            if not may_be_made or await self.node_of(pod) != node_name:
                raise

    async def retry_until_answered(self, subject: str, read: Callable[[], Awaitable[T]]) -> T:
        """What a question brings in the end, however long the server takes. Raises APIError when it refuses to say."""
        return await self._retries.retry_until_answered(subject, read)

    async def node_of(self, pod: ObjectReference) -> str:
        """Where the server has a pod, "" if nowhere. Raises APIError when it refuses to say."""
        current = await self.retry_until_answered(f"pod {pod.namespace}/{pod.name}", lambda: self._api.read_pod(pod))
        return "" if current is None else current.spec.node_name

    async def evict(self, pod: PodInfo, why: PodCondition) -> None:
        """Say on a pod why it has to go, and then delete it. Raises APIError (404: it is gone) or Unreachable."""
        async with self._binding_slots:
            await self._in_lane(pod.uid, Call.POD_DELETION, lambda lane: self._evicted(pod, why, lane))

    async def _evicted(self, pod: PodInfo, why: PodCondition, lane: _Lane) -> None:
        named, current = reference(pod), self._known(pod.uid) or pod
        patch = beyond(PodStatusPatch((why,)), current.status, None)
        if patch is not None:
            await self._briefly(Call.POD_STATUS_PATCH, lambda: self._api.patch_pod_status(named, patch))
        await self._briefly(Call.POD_DELETION, lambda: self._api.delete_pod(named))
        lane.pending = None

    async def _briefly(self, call: Call, request: Callable[[], Awaitable[None]]) -> None:
        await self._retries.briefly(lambda: self._executed(call, request()))

    # -- anything else ---------------------------------------------------------------------------------------------

    async def write(self, uid: str, call: Call, request: Callable[[], Awaitable[T]]) -> T:
        """Write to an object when it is its turn, once: what a failure means is the caller's to say.

        Such a write is made of the object as it was read, and holds for that version alone. So it is neither merged
        with others nor repeated: whoever asked reads the object again and finds out what is still to be done.
        """
        return await self._in_lane(uid, call, lambda lane: self._executed(call, request()))

    async def _executed(self, call: Call, request: Awaitable[T]) -> T:
        """What a request brings; whoever watches is told how it went."""
        began, succeeded = self._clock.monotonic(), False
        try:
            answer = await request
            succeeded = True
        finally:
            self._observer.written(call, succeeded=succeeded, seconds=self._clock.monotonic() - began)
        return answer

    # -- lanes -----------------------------------------------------------------------------------------------------

    async def _in_lane(self, uid: str, call: Call, carry_out: Callable[[_Lane], Awaitable[T]]) -> T:
        lane = self._enter(uid)
        self._asked[call] += 1
        try:
            async with lane.turn:
                return await carry_out(lane)
        finally:
            self._asked[call] -= 1
            self._leave(uid, lane)

    def _enter(self, uid: str) -> _Lane:
        lane = self._lanes.get(uid)
        if lane is None:
            lane = self._lanes[uid] = _Lane()
        lane.calls += 1
        return lane

    def _leave(self, uid: str, lane: _Lane) -> None:
        lane.calls -= 1
        self._go_on(uid, lane)

    def _go_on(self, uid: str, lane: _Lane) -> None:
        """Have what is pending written once nothing else is asked of a lane; one of which nothing is asked is gone."""
        if lane.calls or lane.writer is not None:
            return
        if lane.pending is None or self._is_closed:
            del self._lanes[uid]
        else:
            lane.writer = asyncio.create_task(self._write_statuses(uid, lane))


def _is_gone(error: APIError | Unreachable) -> bool:
    return isinstance(error, APIError) and error.code == 404


def _is_conflict(error: APIError | Unreachable) -> bool:
    return isinstance(error, APIError) and error.code == 409
