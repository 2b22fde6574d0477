"""One scheduler process' way to the API server, as the scheduler's port.

Requests may be slow, get lost on their way there or back, or be refused. A process that dies leaves the requests that
are under way to chance.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from random import Random
from typing import Any, TypeVar

from kubestow.api.core import Pod
from kubestow.client.reflector import Reflector
from kubestow.errors import APIError
from kubestow.scheduling.ports import Clock, EventRecord, ObjectReference, PodStatusPatch, Resource, Subscriber
from tests.fault_simulation.claims import Claims
from tests.fault_simulation.faults import Fault, Faults
from tests.fault_simulation.server import Server
from tests.fault_simulation.sight import Sight
from tests.fault_simulation.trace import Trace
from tests.fault_simulation.watching import Watch
from tests.fault_simulation.wire import Wire

__all__ = ["Connection"]

T = TypeVar("T")

#: Seconds after which a client gives up on an answer.
_TIMEOUT = 30.0


class Connection:
    """Implements :class:`kubestow.scheduling.ports.ClusterAPI`.

    ``before_bind`` is called with the uid of a pod when the server is asked to bind it, ``after_bind`` with the name of
    the node too when it has. If it is ``wired``, watches bring bytes to the client's reflectors, otherwise objects.
    """

    def __init__(
        self,
        name: str,
        server: Server,
        *,
        faults: Faults,
        trace: Trace,
        sight: Sight,
        before_bind: Callable[[str], None],
        after_bind: Callable[[str, str], None],
        clock: Clock,
        random: Random,
        wired: bool,
    ) -> None:
        self.name = name
        self._clock, self._random, self._wired = clock, random, wired
        self._server, self._faults, self._trace, self._sight = server, faults, trace, sight
        self._before_bind, self._after_bind = before_bind, after_bind

    def wire(self, *, patience: float = _TIMEOUT) -> Wire:
        """Connections that give up on an answer after so many seconds."""
        return Wire(self._server, ask=self._request, faults=self._faults, clock=self._clock, patience=patience)

    async def subscribe(self, resources: Sequence[Resource], subscriber: Subscriber) -> None:
        sight, wire = self._sight.through(subscriber), self.wire()
        async with asyncio.TaskGroup() as watching:
            for resource in resources:
                watch: Reflector | Watch = (
                    Reflector(wire, resource, sight, clock=self._clock, random=self._random)
                    if self._wired
                    else Watch(self._server, resource, sight, self._faults)
                )
                watching.create_task(watch.run())

    async def bind(self, pod: ObjectReference, node_name: str) -> None:
        def effect() -> None:
            if self._faults.forbids(pod.uid, asyncio.get_running_loop().time()):
                raise APIError(403, "Forbidden", f"pod {pod.name} may not be bound now")
            self._server.bind(pod, node_name, by=self.name)
            self._after_bind(pod.uid, node_name)

        self._before_bind(pod.uid)
        await self._request(f"bind {pod.name} {node_name}", effect)

    async def read_pod(self, pod: ObjectReference) -> Pod | None:
        return await self._request(f"read {pod.name}", lambda: self._server.find(pod))

    async def patch_pod_status(self, pod: ObjectReference, patch: PodStatusPatch) -> None:
        await self._request(f"patch {pod.name}", lambda: self._server.patch(pod, patch))

    async def delete_pod(self, pod: ObjectReference) -> None:
        await self._request(f"delete {pod.name}", lambda: self._server.delete(pod))

    async def patch(
        self, resource: Resource, obj: ObjectReference, changes: Mapping[str, Any], *, subresource: str = ""
    ) -> str:
        return await self._request(f"patch {obj.name}", lambda: self._server.merge(resource, obj, changes))

    @cached_property
    def resource_claims(self) -> Claims:
        """Claims among the other objects."""
        return Claims(self._server, self._request)

    def record(self, event: EventRecord) -> None:
        self._trace.note(self.name, event.reason, event.regarding.name, event.note)

    async def _request(self, what: str, effect: Callable[[], T]) -> T:
        if "/leases" not in what:  # the trace has who holds it, not that it is being renewed all the time
            self._trace.note(self.name, "asks", what)
        try:
            await self._travel()
        except asyncio.CancelledError:
            if self._faults.random.random() < 0.5:
                with suppress(APIError):
                    effect()
            raise
        if self._faults.strikes(Fault.REFUSED):
            raise self._faults.refusal(of_write=not what.startswith(("read", "GET")))
        if self._faults.strikes(Fault.NOT_SENT):
            await self._unanswered()
        answer = effect()
        if self._faults.strikes(Fault.ANSWER_LOST):
            await self._unanswered()
        await self._travel()
        return answer

    async def _travel(self) -> None:
        await asyncio.sleep(self._faults.random.uniform(0.0, 0.02))
        if self._faults.strikes(Fault.SLOW):
            await asyncio.sleep(self._faults.random.expovariate(0.5))

    async def _unanswered(self) -> None:
        """The connection breaks, or nothing comes until the client gives up."""
        await asyncio.sleep(self._faults.random.choice((0.0, 0.1, _TIMEOUT)))
        raise self._faults.silence()
