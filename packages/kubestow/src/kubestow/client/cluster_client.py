"""The scheduler's ClusterAPI on a real API server: reflectors in, writes and events out.

Events have connections and a rate limiter of their own, so that many of them never delay a binding.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from random import Random
from typing import Any, Self

import msgspec

from kubestow.api.json_text import UNDECODABLE, parse_json
from kubestow.client.event_recorder import EventRecorder
from kubestow.client.object_requests import PodClient, ResourceClaimClient, list_names, merge_patch, server_version
from kubestow.client.raw_object_cache import RawObjectCache
from kubestow.client.reflector import Reflector
from kubestow.client.rest.credentials import Credentials
from kubestow.client.rest.transport import (
    JSON,
    MERGE_PATCH,
    UNLIMITED,
    OnResponse,
    RateLimit,
    RequestTracer,
    TokenBucketRateLimiter,
    Transport,
)
from kubestow.client.served_versions import ServedVersions
from kubestow.errors import APIError, InputError, Unreachable
from kubestow.log_fields import fields
from kubestow.scheduling.api_calls.retries import Backoff, is_refusal
from kubestow.scheduling.interfaces import Clock, EventRecord, ObjectReference, Resource, Subscriber

_log = logging.getLogger(__name__)

_REFRESH_SECONDS = 60.0
#: Between two requests to an API server that is not available yet.
_BACKOFF = Backoff(initial=0.5, factor=2.0, jitter=0.5, limit=10.0)
#: For how long a new leader waits for its watches.
_CATCH_UP_LIMIT = 30.0
#: A server sends the events since the last watch at once, and nothing marks their end.
_REPLAY_SECONDS = 0.5


class ClusterClient(PodClient):
    """Implements :class:`kubestow.scheduling.interfaces.ClusterAPI`, requests about one pod as a
    :class:`~kubestow.client.object_requests.PodClient`. Use as ``async with``.

    ``rate_limit`` is that of ``clientConnection``; ``host`` (default: the host name) is part of the
    ``reportingInstance`` of events. ``raw_objects`` caches JSON for extenders, ``on_response`` is called after each
    request, ``tracer`` traces them; events are not part of traces.
    """

    def __init__(
        self,
        credentials: Credentials,
        *,
        clock: Clock,
        random: Random,
        rate_limit: RateLimit = UNLIMITED,
        host: str = "",
        raw_objects: RawObjectCache | None = None,
        on_response: OnResponse | None = None,
        tracer: RequestTracer | None = None,
    ) -> None:
        self._credentials, self._clock, self._random = credentials, clock, random
        self._raw_objects = raw_objects
        limiters = [TokenBucketRateLimiter(rate_limit, clock=clock) if rate_limit.qps > 0 else None for _ in range(2)]
        super().__init__(
            Transport(credentials, clock=clock, rate_limiter=limiters[0], on_response=on_response, tracer=tracer)
        )
        self._event_transport = Transport(credentials, clock=clock, rate_limiter=limiters[1], on_response=on_response)
        self.versions = ServedVersions(self._transport)
        self.resource_claims = ResourceClaimClient(self._transport, self.versions)
        host = host or socket.gethostname()
        self.events = EventRecorder(self._event_transport, host=host, clock=clock, random=random)
        self._exit_stack = AsyncExitStack()
        self._reflectors: list[Reflector] = []

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._transport)
            await stack.enter_async_context(self._event_transport)
            await stack.enter_async_context(self.events)
            refreshing = asyncio.create_task(self._refresh_credentials())
            stack.callback(refreshing.cancel)
            self._exit_stack = stack.pop_all()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._exit_stack.aclose()

    async def _refresh_credentials(self) -> None:
        while True:
            await self._clock.sleep(_REFRESH_SECONDS)
            try:
                await self._credentials.refresh()
            except InputError as error:
                text = "cannot refresh the credentials, continuing with the old ones: %s"
                _log.warning(text, error, extra=fields(err=str(error)))

    async def wait_for_api_server(self) -> str:
        """Return once the API server responds: with its version, such as ``v1.36.2``; "" if it does not tell.

        Raises APIError if it rejects the request (401, 403).
        """
        delays = _BACKOFF.delays(self._random)
        while True:
            try:
                return await self.server_version()
            except (APIError, Unreachable) as error:
                server = self._credentials.server
                if isinstance(error, APIError) and is_refusal(error):
                    raise APIError(error.code, error.reason, f"GET {server}/version: {error}") from None
                delay = next(delays)
                extra = fields(server=server, err=str(error), retryIn=round(delay, 1))
                _log.warning(
                    "API server %s is not available: %s; retrying in %.1f s", server, error, delay, extra=extra
                )
            await self._clock.sleep(delay)

    async def server_version(self) -> str:
        """The version of the API server, such as ``v1.36.2``; "" if it does not tell. Raises APIError, Unreachable."""
        return server_version(await self._transport.request("GET", "/version"))

    async def subscribe(self, resources: Sequence[Resource], subscriber: Subscriber) -> None:
        """Reflect the collections into the subscriber until cancelled. An exception of the subscriber is propagated."""
        async with asyncio.TaskGroup() as reflectors:
            for resource in resources:
                reflector = Reflector(
                    self._transport,
                    resource,
                    subscriber,
                    clock=self._clock,
                    random=self._random,
                    raw_objects=self._raw_objects,
                    versions=self.versions,
                )
                self._reflectors.append(reflector)
                reflectors.create_task(reflector.run(), name=f"reflector {resource.plural}")

    async def catch_up(self) -> None:
        """Return when all watches have been opened anew and have had time to deliver what happened before the call.

        Watches that cannot be opened within 30 s are logged, and not waited for.
        """
        catching_up = {asyncio.create_task(each.catch_up()): each.resource.plural for each in self._reflectors}
        if not catching_up:
            return
        try:
            _, late = await asyncio.wait(catching_up, timeout=_CATCH_UP_LIMIT)
        finally:
            for task in catching_up:
                task.cancel()
        if late:
            plurals = ", ".join(sorted(catching_up[task] for task in late))
            text = "scheduling begins with what was known of %s: no watch could be opened within %g s"
            _log.warning(text, plurals, _CATCH_UP_LIMIT, extra=fields(resources=plurals))
        await self._clock.sleep(_REPLAY_SECONDS)

    def broken_watches(self) -> dict[str, float]:
        """For how long each resource has not been read, in seconds; 0 if all is well. By plural and group."""
        return {reflector.resource.qualified_name: reflector.seconds_broken for reflector in self._reflectors}

    async def list_names(self, resource: Resource) -> dict[str, str]:
        """The names of all objects, with their namespaces, by uid. Raises APIError and Unreachable."""
        return await list_names(self._transport, self.versions.addressed(resource))

    async def patch(
        self, resource: Resource, obj: ObjectReference, changes: Mapping[str, Any], *, subresource: str = ""
    ) -> str:
        changes = self.versions.sent(resource, changes)
        return await merge_patch(
            self._transport, self.versions.addressed(resource), obj, changes, subresource=subresource
        )

    async def request(self, method: str, path: str, body: Any = None) -> Any:
        encoded = None if body is None else msgspec.json.encode(body)
        content_type = MERGE_PATCH if method == "PATCH" else JSON
        response = await self._transport.request(method, path, encoded, content_type=content_type)
        try:
            return parse_json(response)
        except UNDECODABLE as error:
            raise Unreachable(self._credentials.server, f"malformed response: {error}") from None

    def record(self, event: EventRecord) -> None:
        self.events.record(event)
