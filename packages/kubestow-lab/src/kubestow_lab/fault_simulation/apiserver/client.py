"""The client of one scheduler process: implements the scheduler's port to the cluster.

Requests can be slow, be rejected, or get lost before or after they take effect. Requests in flight when a process is
killed take effect or not at random.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Any, TypeVar

from kubestow.api.core import Pod
from kubestow.client.reflector import Reflector
from kubestow.errors import APIError, Unreachable
from kubestow.scheduling.interfaces import Clock, EventRecord, ObjectReference, PodStatusPatch, Resource, Subscriber
from kubestow.testing.virtual_time import VirtualClock
from kubestow_lab.fault_simulation.apiserver.claim_client import ClaimClient
from kubestow_lab.fault_simulation.apiserver.outages import Outages
from kubestow_lab.fault_simulation.apiserver.server import SimulatedServer, may_be_bound_by_user
from kubestow_lab.fault_simulation.apiserver.transport import SimulatedTransport
from kubestow_lab.fault_simulation.apiserver.watch import UnreliableWatch
from kubestow_lab.fault_simulation.apiserver.watch_view import WatchView
from kubestow_lab.fault_simulation.event_loop import run_frozen_with
from kubestow_lab.fault_simulation.faults import Fault, Faults
from kubestow_lab.fault_simulation.marks import Mark, Marks
from kubestow_lab.fault_simulation.trace import Trace

T = TypeVar("T")

#: Request timeout in seconds.
_TIMEOUT = 30.0
#: What has happened when the answer to a request is lost, by the beginning of what it requests.
_LOST_ANSWERS = {
    "bind": Mark.BINDING_ANSWER_LOST,
    "delete pod": Mark.EVICTION_ANSWER_LOST,
    "patch pod": Mark.STATUS_ANSWER_LOST,
    "patch claim": Mark.CLAIM_ANSWER_LOST,
    "PUT": Mark.LEASE_ANSWER_LOST,
}
#: What has happened when the server refuses a binding, by words of its message.
_REFUSALS = {
    "not found": Mark.BINDING_OF_DELETED_POD,
    "is being deleted": Mark.BINDING_OF_TERMINATING_POD,
    "uid of": Mark.BINDING_OF_REPLACED_POD,
    "is already assigned": Mark.BINDING_OF_BOUND_POD,
    "must not be bound": Mark.BINDING_REFUSED,
}


@dataclass(frozen=True)
class SimulationContext:
    """What all processes share: server, outages, virtual time, faults, trace, and the marks that were reached."""

    server: SimulatedServer
    outages: Outages
    clock: VirtualClock
    faults: Faults
    trace: Trace
    marks: Marks


@dataclass(frozen=True)
class ClientHooks:
    """Called with the uid of a pod before a binding is sent, and with the node's name after the server has bound it.

    ``written`` and ``cancelled`` are called with what another write requests before it is sent, and with any write that
    is cancelled on its way; ``watched`` with a collection whose changes are asked for, the version since which, and the
    last that the view has; ``recorded`` with each event that is reported.
    """

    before_binding: Callable[[str], None]
    bound: Callable[[str, str], None]
    written: Callable[[str], None]
    cancelled: Callable[[str], None]
    watched: Callable[[str, int, int], None]
    recorded: Callable[[EventRecord], None]


class SimulatedClient:
    """Implements :class:`kubestow.scheduling.interfaces.ClusterAPI`.

    With ``http``, watches deliver bytes to the client's reflectors, otherwise objects to the subscriber. Every request
    is added to ``requests`` with its time.
    """

    def __init__(
        self,
        name: str,
        context: SimulationContext,
        view: WatchView,
        *,
        hooks: ClientHooks,
        clock: Clock,
        random: Random,
        http: bool,
        requests: list[tuple[float, str]],
        stalls: bool = False,
    ) -> None:
        self._stalls = stalls
        self.name = name
        self._server, self._outages = context.server, context.outages
        self._faults, self._trace, self._marks = context.faults, context.trace, context.marks
        #: The pods whose bindings are on the way, by uid.
        self.binding: set[str] = set()
        #: Those whose bindings have failed, which the scheduler may read for that reason.
        self._failed: set[str] = set()
        self._view, self._hooks = view, hooks
        self._clock, self._random, self._http, self._requests = clock, random, http, requests

    def transport(self, *, timeout: float = _TIMEOUT) -> SimulatedTransport:
        """A transport whose requests time out after so many seconds."""
        return SimulatedTransport(
            self._server,
            self._outages,
            send=self._request,
            note_request=self._note_request,
            note_watch=self._note_watch,
            faults=self._faults,
            marks=self._marks,
            clock=self._clock,
            timeout=timeout,
        )

    async def subscribe(self, resources: Sequence[Resource], subscriber: Subscriber) -> None:
        view, transport = self._view.through(subscriber), self.transport()
        async with asyncio.TaskGroup() as watching:
            for resource in resources:
                watch: Reflector | UnreliableWatch = (
                    Reflector(transport, resource, view, clock=self._clock, random=self._random)
                    if self._http
                    else UnreliableWatch(self._server, resource, view, self._faults, self._outages, self._marks)
                )
                watching.create_task(watch.run())

    async def bind(self, pod: ObjectReference, node_name: str) -> None:
        def effect() -> None:
            if self._faults.forbids(Fault.FORBIDDEN, pod.uid, asyncio.get_running_loop().time()):
                raise APIError(403, "Forbidden", f"pod {pod.name} must not be bound now")
            if self._faults.occurs(Fault.BOUND_FIRST):
                self._bind_first(pod)
            self._server.bind(pod, node_name, by=self.name)
            self._hooks.bound(pod.uid, node_name)

        self._hooks.before_binding(pod.uid)
        self.binding.add(pod.uid)
        try:
            await self._request(f"bind {pod.name} {node_name}", effect)
        except (APIError, Unreachable) as error:
            self._failed.add(pod.uid)
            for words, mark in _REFUSALS.items():
                if words in str(error):
                    self._marks.reach(mark)
            raise
        finally:
            self.binding.discard(pod.uid)

    def _bind_first(self, pod: ObjectReference) -> None:
        """A user binds a pod whose binding arrives at this moment, to any node."""
        found, nodes = self._server.find(pod), list(self._server.nodes())
        if found is not None and nodes and may_be_bound_by_user(found):
            self._server.bind(pod, self._faults.random.choice(nodes), by="user")

    async def read_pod(self, pod: ObjectReference) -> Pod | None:
        if pod.uid not in self.binding | self._failed:
            self._marks.reach(Mark.BINDING_SHOWN_LATE)
        self._failed.discard(pod.uid)
        return await self._request(f"read {pod.name}", lambda: self._server.find(pod))

    async def patch_pod_status(self, pod: ObjectReference, patch: PodStatusPatch) -> None:
        await self._request(f"patch pod {pod.name}", lambda: self._patch_pod_status(pod, patch))

    def _patch_pod_status(self, pod: ObjectReference, patch: PodStatusPatch) -> None:
        try:
            self._server.patch(pod, patch)
        except APIError as error:
            if error.code == 404:
                self._marks.reach(Mark.STATUS_OF_DELETED_POD)
            raise

    async def request(self, method: str, path: str, body: Any = None) -> Any:
        raise NotImplementedError(f"{method} {path}")

    async def delete_pod(self, pod: ObjectReference) -> None:
        def effect() -> None:
            if self._faults.forbids(Fault.PROTECTED, pod.uid, asyncio.get_running_loop().time()):
                raise APIError(403, "Forbidden", f"pod {pod.name} must not be deleted now")
            self._server.delete(pod)

        await self._request(f"delete pod {pod.name}", effect)

    async def patch(
        self, resource: Resource, obj: ObjectReference, changes: Mapping[str, Any], *, subresource: str = ""
    ) -> str:
        return await self._request(f"patch {obj.name}", lambda: self._server.merge(resource, obj, changes))

    @cached_property
    def resource_claims(self) -> ClaimClient:
        """Writes of resource claims."""
        return ClaimClient(self._server, self._request, self._marks)

    def record(self, event: EventRecord) -> None:
        self._hooks.recorded(event)
        self._trace.note(self.name, event.reason, event.regarding.name, event.note)

    async def _request(self, what: str, effect: Callable[[], T]) -> T:
        """Send a request, which goes on while its process is frozen."""
        return await (run_frozen_with(None, self._send(what, effect)) if self._stalls else self._send(what, effect))

    async def _send(self, what: str, effect: Callable[[], T]) -> T:
        if "/leases" not in what:  # the trace records changes of the holder, not every renewal
            self._trace.note(self.name, "requests", what)
        self._note_request(what)
        if what.startswith(("patch", "delete")):
            self._hooks.written(what)
        restarts = self._outages.restarts
        try:
            await self._network_delay()
            await self._outages.admit()
        except asyncio.CancelledError:
            if what.startswith(("bind", "patch", "delete")):
                self._hooks.cancelled(what)
            takes_effect = self._faults.random.random() < 0.5
            if what.startswith("bind"):
                self._marks.reach(Mark.BINDING_OF_KILLED if takes_effect else Mark.BINDING_LOST_WITH_KILLED)
            if takes_effect:
                with suppress(APIError):
                    effect()
            raise
        if self._faults.occurs(Fault.REJECTED):
            error = self._faults.server_error(of_write=not what.startswith(("read", "GET")))
            if what.startswith("bind") and isinstance(error, APIError) and error.code == 409:
                self._marks.reach(Mark.BINDING_CONFLICTS)
            raise error
        if self._faults.occurs(Fault.REQUEST_LOST):
            if what.startswith("bind"):
                self._marks.reach(Mark.BINDING_LOST)
            await self._lose()
        response = effect()
        try:
            self._outages.check_connection(restarts)
            if self._faults.occurs(Fault.RESPONSE_LOST):
                await self._lose()
            await self._network_delay()
            self._outages.check_connection(restarts)
        except Unreachable:
            for beginning, mark in _LOST_ANSWERS.items():
                if what.startswith(beginning):
                    self._marks.reach(mark)
            raise
        return response

    def _note_request(self, what: str) -> None:
        self._requests.append((self._clock.monotonic(), what))

    def _note_watch(self, resource: Resource, since: int) -> None:
        self._hooks.watched(resource.plural, since, self._view.newest_version(resource))

    async def _network_delay(self) -> None:
        await asyncio.sleep(self._faults.random.uniform(0.0, 0.02))
        if self._faults.occurs(Fault.SLOW):
            await asyncio.sleep(self._faults.random.expovariate(0.5))

    async def _lose(self) -> None:
        """The connection breaks, or the request times out."""
        await asyncio.sleep(self._faults.random.choice((0.0, 0.1, _TIMEOUT)))
        raise self._faults.timeout()
