"""A cluster behind an API server, as the scheduler's port sees it: reflectors in, writes and events out.

This module only puts the parts together. Events have connections and a rate limit of their own, so that a flood of them
never delays a binding.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from random import Random
from types import TracebackType
from typing import Any, Self

from kubestow.api.core import Pod
from kubestow.client.event_recorder import EventRecorder
from kubestow.client.pod_client import PodClient, patch_object
from kubestow.client.raw_object_cache import RawObjectCache
from kubestow.client.reflector import Reflector
from kubestow.client.resource_claim_client import ResourceClaimClient
from kubestow.client.rest.credentials import Credentials
from kubestow.client.rest.rate_limiter import RateLimit
from kubestow.client.rest.transport import OnAnswer, Transport
from kubestow.errors import APIError, InputError, Unreachable
from kubestow.scheduling.ports import Clock, EventRecord, ObjectReference, PodStatusPatch, Resource, Subscriber
from kubestow.scheduling.writes.retries import Backoff, is_refusal

__all__ = ["ClusterClient"]

_log = logging.getLogger(__name__)

_REFRESH_SECONDS = 60.0
#: Between questions to a server that has not answered yet.
_BACKOFF = Backoff(initial=0.5, factor=2.0, jitter=0.5, limit=10.0)


class ClusterClient:
    """The ClusterAPI of a real API server. Use as ``async with``.

    ``qps`` and ``burst`` are ``clientConnection``'s limit on requests a second in the long run, and at once; without a
    positive ``qps`` the client is as fast as the server allows. ``host`` is named as the source of events.
    ``raw_objects`` keep what extenders want to see, ``on_answer`` is told of every request.
    """

    def __init__(
        self,
        credentials: Credentials,
        *,
        clock: Clock,
        random: Random,
        qps: float = 0.0,
        burst: int = 0,
        host: str = "",
        raw_objects: RawObjectCache | None = None,
        on_answer: OnAnswer | None = None,
    ) -> None:
        self._credentials, self._clock, self._random = credentials, clock, random
        self._originals = raw_objects
        limits = [RateLimit(qps=qps, burst=burst, clock=clock) if qps > 0 else None for _ in range(2)]
        self._transport = Transport(credentials, clock=clock, limit=limits[0], on_answer=on_answer)
        self._event_transport = Transport(credentials, clock=clock, limit=limits[1], on_answer=on_answer)
        self._pods = PodClient(self._transport)
        self.resource_claims = ResourceClaimClient(self._transport)
        host = host or socket.gethostname()
        self.events = EventRecorder(self._event_transport, host=host, clock=clock, random=random)
        self._open = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as opening:
            await opening.enter_async_context(self._transport)
            await opening.enter_async_context(self._event_transport)
            await opening.enter_async_context(self.events)
            refreshing = asyncio.create_task(self._refresh_credentials())
            opening.callback(refreshing.cancel)
            self._open = opening.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._open.aclose()

    async def _refresh_credentials(self) -> None:
        while True:
            await self._clock.sleep(_REFRESH_SECONDS)
            try:
                await self._credentials.refresh()
            except InputError as error:
                _log.warning("cannot refresh the credentials, going on with the old ones: %s", error)

    async def wait_for_api_server(self) -> None:
        """Wait until the server answers, and say so while it does not. Raises APIError when it turns us away."""
        delays = _BACKOFF.delays(self._random)
        while True:
            try:
                await self._transport.request("GET", "/version")
                return
            except (APIError, Unreachable) as error:
                if is_refusal(error):
                    raise
                delay = next(delays)
                server = self._credentials.server
                _log.warning("no answer from the API server at %s: %s; trying again in %.1f s", server, error, delay)
            await self._clock.sleep(delay)

    async def subscribe(self, resources: Sequence[Resource], subscriber: Subscriber) -> None:
        """Keep the subscriber in step with the collections until cancelled. What it raises ends the subscription."""
        async with asyncio.TaskGroup() as reflecting:
            for resource in resources:
                reflector = Reflector(
                    self._transport,
                    resource,
                    subscriber,
                    clock=self._clock,
                    random=self._random,
                    raw_objects=self._originals,
                )
                reflecting.create_task(reflector.run(), name=f"reflector {resource.plural}")

    async def bind(self, pod: ObjectReference, node_name: str) -> None:
        await self._pods.bind(pod, node_name)

    async def read_pod(self, pod: ObjectReference) -> Pod | None:
        return await self._pods.read_pod(pod)

    async def patch_pod_status(self, pod: ObjectReference, patch: PodStatusPatch) -> None:
        await self._pods.patch_pod_status(pod, patch)

    async def patch(
        self, resource: Resource, obj: ObjectReference, changes: Mapping[str, Any], *, subresource: str = ""
    ) -> str:
        return await patch_object(self._transport, resource, obj, changes, subresource=subresource)

    async def delete_pod(self, pod: ObjectReference) -> None:
        await self._pods.delete_pod(pod)

    def record(self, event: EventRecord) -> None:
        self.events.record(event)
