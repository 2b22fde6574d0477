"""The dispatcher: the one place that decides when, in which order and how often the scheduler writes to the API.

Every object has a lane: one request at a time, in the order in which they were requested. Status patches of pods, which
nothing awaits, have the lowest precedence: a task sends them when nothing else is requested of their pod, and until
then newer ones are merged into them. A binding or an eviction goes ahead of them, after the request in progress. When
it succeeds they are dropped, and likewise when the watch shows the pod as bound or deleted. A patch is retried briefly
and is not sent if it changes nothing. A binding is sent once; if its outcome is unknown, the server is read
(semantics 1.8, 4.11, 9.6). It takes a detour, because a Bind plugin or an extender decides how the pod is bound:

    BindingCycles ─► Dispatcher.run_in_binding_turn ─► BindingCycles._bind ─► Bind plugin ─► handle.bind
      ─► PodBinder.post_binding ─► ClusterAPI.bind (of a real server: PodClient in client/object_requests.py)

Requests per second are limited by the transport, whose limit reads share. Events have a recorder and a limit of their
own. A new claim has no lane, because it has no uid yet.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import TypeVar

import msgspec

from kubestow.api.core import Pod, PodCondition, PodStatus
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import APIError, LeaseExpired, Unreachable
from kubestow.framework.status import Status
from kubestow.log_fields import fields
from kubestow.rules.minors import DEFAULT_MINOR, Behaviour, Minor
from kubestow.scheduling.api_calls.retries import Retries
from kubestow.scheduling.environment import Environment, Leadership, NoLeaderElection
from kubestow.scheduling.interfaces import ObjectReference, PodStatusPatch, reference
from kubestow.scheduling.observer import Call

_log = logging.getLogger(__name__)

#: Pods bound or evicted at the same time; further ones wait for a slot.
_MAX_BINDINGS = 512
#: Status patches sent at the same time.
_MAX_STATUS_PATCHES = 16

T = TypeVar("T")

_NO_ELECTION = NoLeaderElection()


@dataclass(frozen=True, slots=True, eq=False)
class _PendingPatch:
    """A status patch to send, and the pauses between the tries that it has left."""

    pod: ObjectReference
    patch: PodStatusPatch
    pauses: Iterator[float]

    def merged_into(self, newer: _PendingPatch) -> _PendingPatch:
        """One pending patch in place of this one and a newer one."""
        return replace(newer, patch=_merged(self.patch, newer.patch))


@dataclass(slots=True, eq=False)
class _Lane:
    """The requests of one object: its lock, how many callers want it, and the status patch that waits for them."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    callers: int = 0
    patch: _PendingPatch | None = None
    writer: asyncio.Task[None] | None = None


class PodBinder:
    """Sends the bindings of pods, each once; if the outcome is unknown, the server is read.

    Where bindings are retried, ``is_wanted`` tells by uid whether a pod may still be bound. A pod with a lane is bound
    while no other request is in progress there.
    """

    def __init__(
        self,
        environment: Environment,
        lanes: Mapping[str, _Lane] = MappingProxyType({}),
        *,
        leadership: Leadership = _NO_ELECTION,
        is_wanted: Callable[[str], bool] = lambda uid: True,
        minor: Minor = DEFAULT_MINOR,
    ) -> None:
        self._environment, self._lanes, self._leadership = environment, lanes, leadership
        self._is_wanted = is_wanted
        self._retries = Retries(environment.clock, environment.random)
        self._is_retried = minor.has(Behaviour.BINDINGS_ARE_RETRIED)

    async def post_binding(self, pod: ObjectReference, node_name: str) -> None:
        """POST the binding of a pod to a node. Raises APIError or Unreachable; it is certainly not bound there then.

        A binding whose response was lost may have been made, and one that conflicts may conflict with itself: a server
        that fails after making it, with Retry-After, receives it twice. Freeing the node's resources in such a case
        would overcommit the node, so the pod stays assumed until the server has been read.
        """
        lane = self._lanes.get(pod.uid)
        async with contextlib.nullcontext() if lane is None else lane.lock:
            if self._is_retried:
                is_wanted = partial(self._is_wanted, pod.uid)
                await self._retries.retry_briefly(lambda: self._post(pod, node_name), is_wanted=is_wanted)
            else:
                await self._post(pod, node_name)

    async def _post(self, pod: ObjectReference, node_name: str) -> None:
        require_lease(self._leadership)
        with _observed(self._environment, Call.POD_BINDING):
            try:
                await self._environment.api.bind(pod, node_name)
            except (APIError, Unreachable) as error:
                may_be_bound = error.in_doubt or (isinstance(error, APIError) and error.code == 409)
                if not may_be_bound or await self.node_of(pod) != node_name:
                    raise

    async def node_of(self, pod: ObjectReference) -> str:
        """The node of a pod according to the server, "" for none. Raises APIError when the server refuses to tell."""
        current = await self.read(pod)
        return "" if current is None else current.spec.node_name

    async def read(self, pod: ObjectReference) -> Pod | None:
        """A pod according to the server, None if it is deleted. Raises APIError when the server refuses to tell."""
        subject = f"pod {pod.namespace}/{pod.name}"
        return await self._retries.retry_until_answered(subject, lambda: self._environment.api.read_pod(pod))


def require_lease(leadership: Leadership) -> None:
    """Raise LeaseExpired if another scheduler may lead by now.

    A lost lease ends the process, but after a long stall a write may have its turn before. So each write asks right
    before it is sent.
    """
    if not leadership.holds_lease:
        raise LeaseExpired


class Dispatcher:
    """Sends writes to the cluster API. ``known_pod`` gives a pod's last state from the watch, by uid.

    ``may_be_bound`` tells by uid whether the binding of a pod may be sent once more.
    """

    def __init__(
        self,
        environment: Environment,
        *,
        known_pod: Callable[[str], PodInfo | None],
        leadership: Leadership = _NO_ELECTION,
        may_be_bound: Callable[[str], bool] = lambda uid: True,
        minor: Minor = DEFAULT_MINOR,
    ) -> None:
        self._leadership = leadership
        self._environment, self._api, self._clock = environment, environment.api, environment.clock
        self._known_pod = known_pod
        #: How failed requests are retried, those that plugins make themselves included.
        self.retries = Retries(environment.clock, environment.random)
        self._lanes: defaultdict[str, _Lane] = defaultdict(_Lane)
        self.binder = PodBinder(environment, self._lanes, leadership=leadership, is_wanted=may_be_bound, minor=minor)
        #: The status patches sent of pods that are not bound yet, by uid; the watch may not have shown them so far.
        self._sent: dict[str, PodStatusPatch] = {}
        self._in_progress: Counter[Call] = Counter()
        self._binding_slots = asyncio.Semaphore(_MAX_BINDINGS)
        self._status_slots = asyncio.Semaphore(_MAX_STATUS_PATCHES)
        self._is_closed = False

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """The tasks that send status patches."""
        return [lane.writer for lane in self._lanes.values() if lane.writer is not None]

    def pending_calls(self) -> Counter[Call]:
        """How many calls of each kind have been requested and have not ended."""
        statuses = sum(1 for lane in self._lanes.values() if lane.patch is not None or lane.writer is not None)
        return self._in_progress + Counter({Call.POD_STATUS_PATCH: statuses})

    def close(self) -> None:
        """Send no further status patches."""
        self._is_closed = True

    # -- status patches ------------------------------------------------------------------------------------------

    def patch_status(self, pod: ObjectReference, patch: PodStatusPatch) -> None:
        """Have a pod's status patched, as far as that changes anything. Returns at once; failures are logged."""
        known = self._known_pod(pod.uid)
        if known is None or known.spec.node_name:
            return
        lane = self._lanes.get(pod.uid)
        if lane is not None and lane.patch is not None:
            patch = _merged(lane.patch.patch, patch)
        changes = _remaining_changes(patch, known.status, self._sent.get(pod.uid))
        if lane is None:
            if changes is None:
                return
            lane = self._lanes[pod.uid]
        lane.patch = None if changes is None else _PendingPatch(pod, changes, self.retries.pauses())
        self._advance(pod.uid, lane)

    def pod_settled(self, uid: str) -> None:
        """The watch shows a pod as bound or deleted: drop the status patches that wait."""
        self._sent.pop(uid, None)
        lane = self._lanes.get(uid)
        if lane is not None:
            lane.patch = None

    async def _write_pending_patches(self, uid: str, lane: _Lane) -> None:
        """Send the pending patch until there is none, or until a caller wants the lane."""
        try:
            while lane.patch is not None and not lane.callers:
                async with self._status_slots:
                    pause = await self._try_patch(lane)
                if pause:
                    await self._clock.sleep(pause)
        finally:
            lane.writer = None
            self._advance(uid, lane)

    async def _try_patch(self, lane: _Lane) -> float:
        """Send the pending patch once; returns the pause before the next try, in seconds.

        A patch that failed and can be retried is pending again, merged with those requested meanwhile.
        """
        taken = lane.patch
        if taken is None or lane.callers:
            return 0.0
        pod, patch, lane.patch = taken.pod, taken.patch, None
        sent = self._sent.get(pod.uid)
        self._sent[pod.uid] = patch if sent is None else _merged(sent, patch)
        try:
            async with lane.lock:
                require_lease(self._leadership)
                with _observed(self._environment, Call.POD_STATUS_PATCH):
                    await self._api.patch_pod_status(pod, patch)
        except (APIError, Unreachable) as error:
            retried = taken if lane.patch is None else taken.merged_into(lane.patch)
            pause = self.retries.pause_after(error, retried.pauses)
            if pause is None:
                if not isinstance(error, APIError) or error.code != 404:
                    key = f"{pod.namespace}/{pod.name}"
                    _log.warning("status of pod %s not updated: %s", key, error, extra=fields(pod=key, err=str(error)))
            elif pod.uid in self._sent:  # else the pod has been settled meanwhile
                lane.patch = retried
                return pause
        return 0.0

    # -- bindings and evictions ----------------------------------------------------------------------------------

    async def run_in_binding_turn(self, uid: str, bind: Callable[[], Awaitable[Status]]) -> Status:
        """Await ``bind``, and return its status, when it is the pod's turn: after the request in progress, in a slot.

        Meanwhile no status of the pod is written; once it is bound, the status patches that wait are pointless.
        """
        lane = self._lanes[uid]
        lane.callers += 1
        try:
            async with self._binding_slots:
                # Wait for the request in progress. Not held during bind(), which comes back through PodBinder for it.
                async with lane.lock:
                    pass
                self._in_progress[Call.POD_BINDING] += 1
                try:
                    status = await bind() if self._leadership.holds_lease else Status.error(str(LeaseExpired()))
                finally:
                    self._in_progress[Call.POD_BINDING] -= 1
                if status.ok:
                    lane.patch = None
                return status
        finally:
            self._leave(uid, lane)

    async def evict(self, pod: PodInfo, disruption: PodCondition) -> None:
        """Set the disruption condition of a pod, then delete it.

        Raises APIError (404: the pod was deleted already) or Unreachable.
        """
        named = reference(pod)
        async with self._binding_slots, self._lane(pod.uid, Call.POD_DELETION) as lane:
            current = self._known_pod(pod.uid) or pod
            patch = _remaining_changes(PodStatusPatch((disruption,)), current.status, None)
            if patch is not None:
                await self._send_briefly(Call.POD_STATUS_PATCH, lambda: self._api.patch_pod_status(named, patch))
            await self._send_briefly(Call.POD_DELETION, lambda: self._api.delete_pod(named))
            lane.patch = None

    async def _send_briefly(self, call: Call, request: Callable[[], Awaitable[None]]) -> None:
        async def send() -> None:
            require_lease(self._leadership)
            with _observed(self._environment, call):
                await request()

        await self.retries.retry_briefly(send)

    # -- other writes --------------------------------------------------------------------------------------------

    async def write(self, uid: str, call: Call, request: Callable[[], Awaitable[T]]) -> T:
        """Send a write to an object once, when it is its turn.

        Such a write is based on the object as it was read, with its resourceVersion as precondition, so it is neither
        merged nor retried: the caller reads the object again and determines what is left to do.
        """
        async with self._lane(uid, call):
            require_lease(self._leadership)
            with _observed(self._environment, call):
                return await request()

    # -- lanes ---------------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _lane(self, uid: str, call: Call) -> AsyncIterator[_Lane]:
        """An object's lane, held for the requests of one call."""
        lane = self._lanes[uid]
        lane.callers += 1
        self._in_progress[call] += 1
        try:
            async with lane.lock:
                yield lane
        finally:
            self._in_progress[call] -= 1
            self._leave(uid, lane)

    def _leave(self, uid: str, lane: _Lane) -> None:
        lane.callers -= 1
        self._advance(uid, lane)

    def _advance(self, uid: str, lane: _Lane) -> None:
        """Send the pending patch of a lane that has no callers; delete a lane that has no patch either."""
        if lane.callers or lane.writer is not None:
            return
        if lane.patch is None or self._is_closed:
            del self._lanes[uid]
        else:
            lane.writer = self._environment.concurrency.start(self._write_pending_patches(uid, lane))


@contextlib.contextmanager
def _observed(environment: Environment, call: Call) -> Iterator[None]:
    """Report the outcome and duration of a request to the observer."""
    began, succeeded = environment.duration_clock(), False
    try:
        yield
        succeeded = True
    finally:
        environment.observer.api_call_ended(call, succeeded=succeeded, seconds=environment.duration_clock() - began)


def _merged(older: PodStatusPatch, newer: PodStatusPatch) -> PodStatusPatch:
    """One patch in place of two: the newest condition of each type, replaced as a whole, and the newest nomination."""
    replaced = {condition.type for condition in newer.conditions}
    kept = tuple(condition for condition in older.conditions if condition.type not in replaced)
    nomination = older.nominated_node_name if newer.nominated_node_name is None else newer.nominated_node_name
    return PodStatusPatch((*kept, *newer.conditions), nomination)


def _remaining_changes(patch: PodStatusPatch, status: PodStatus, sent: PodStatusPatch | None) -> PodStatusPatch | None:
    """The part of a patch that changes a status; None if nothing does.

    A different lastTransitionTime alone is no change. ``status`` may be older than the patches ``sent`` last; what
    contradicts those is part of the result, too.
    """
    sent = sent or PodStatusPatch()
    conditions = tuple(
        wanted
        for wanted in patch.conditions
        if not any(_are_equal(known, wanted) for known in status.conditions)
        or any(each.type == wanted.type and not _are_equal(each, wanted) for each in sent.conditions)
    )
    nomination = patch.nominated_node_name
    if nomination == status.nominated_node_name and sent.nominated_node_name in (None, nomination):
        nomination = None
    return PodStatusPatch(conditions, nomination) if conditions or nomination is not None else None


def _are_equal(one: PodCondition, other: PodCondition) -> bool:
    return msgspec.structs.replace(one, last_transition_time=other.last_transition_time) == other
