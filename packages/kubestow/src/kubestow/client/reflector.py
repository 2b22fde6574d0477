"""A reflector: lists and watches one collection of an API server and keeps a subscriber up to date with it.

The collection is listed once and then watched from the resourceVersion of the list. A streaming list (WatchList) does
both over one connection; for a server without it the list is read in pages. A watch that ends or breaks is resumed at
the last resourceVersion, so no event is lost or repeated. The collection is listed again only if the server cannot
resume the watch (410, or another error event) or sent a malformed response. Timing follows client-go: backoff from 0.8
to 30 s, watches of 5 to 10 minutes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import ExitStack, suppress
from functools import partial
from random import Random
from typing import Any, NoReturn
from urllib.parse import quote, urlencode

import msgspec

from kubestow import gc_tuning
from kubestow.api.custom import CustomObject
from kubestow.api.json_text import UNDECODABLE
from kubestow.client.raw_object_cache import RawObjectCache
from kubestow.client.rest.transport import APIStatus, Transport
from kubestow.client.served_versions import ServedVersions, converted_group
from kubestow.client.watch_decoding import (
    Bookmark,
    LineSplitter,
    ListPage,
    ObjectDecoder,
    WatchLine,
)
from kubestow.errors import APIError, Unreachable
from kubestow.log_fields import fields
from kubestow.scheduling.api_calls.retries import Backoff, jittered
from kubestow.scheduling.interfaces import Clock, Resource, Subscriber

_log = logging.getLogger(__name__)

_BACKOFF = Backoff(initial=0.8, factor=2.0, jitter=1.0, limit=30.0)
_BACKOFF_RESET_AFTER = 120.0
_WATCH_SECONDS = 300
_MIN_WATCH_SECONDS = 1.0
#: Servers send bookmarks about once a minute; a watch that is idle for longer than this counts as broken.
_IDLE_TIMEOUT = 150.0
#: A server that supports streaming lists is never idle for this long before the list is complete.
_INITIAL_IDLE_TIMEOUT = 10.0
#: Objects per page. A list from the watch cache of the server ignores the limit.
_PAGE_SIZE = 5000
#: Objects decoded before the event loop runs other tasks.
_DECODE_BATCH = 1000

_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
#: How long after its definition is established a custom resource is listed, in seconds.
_ESTABLISHED_SECONDS = 0.5


class _MalformedResponse(Unreachable):
    """A response cannot be decoded, so events may have been missed and the collection must be listed again."""


class Reflector:
    """Reflects the collection ``resource`` into ``subscriber``; see :meth:`run`.

    ``idle_timeout`` is in seconds; ``raw_objects`` caches the JSON of the objects for extenders. ``versions`` are those
    of the server, by default not discovered yet.
    """

    def __init__(
        self,
        transport: Transport,
        resource: Resource,
        subscriber: Subscriber,
        *,
        clock: Clock,
        random: Random,
        idle_timeout: float = _IDLE_TIMEOUT,
        raw_objects: RawObjectCache | None = None,
        versions: ServedVersions | None = None,
    ) -> None:
        self._transport, self._resource, self._subscriber = transport, resource, subscriber
        self._clock, self._random, self._idle_timeout = clock, random, idle_timeout
        self._raw_objects = raw_objects
        self._failures = _Failures(resource.plural, clock, random)
        on_decoded = None if raw_objects is None else partial(raw_objects.store, resource)
        self._versions = versions or ServedVersions(transport)
        received = partial(self._versions.received, resource) if converted_group(resource) else None
        self._decoder = ObjectDecoder(resource, partial(subscriber.unreadable, resource), on_decoded, received)
        self._collection = _Collection(transport, resource, self._decoder, self._versions)
        self._definition = _Definition(transport, resource, clock)
        self._resource_version = ""  # where the next watch starts; empty: list first
        self._initial: dict[tuple[str, str], Any] | None = None  # the objects of an incomplete streaming list
        self._gc_pause = ExitStack()  # closed when a streaming list is complete
        self._watch_list_supported = True
        self._has_listed = False
        self._not_served = False
        self._reading = asyncio.timeout(None)  # what is in progress, ended by catch_up
        self._is_current = asyncio.Event()  # set when a watch is open or a list complete, or nothing is served

    @property
    def resource(self) -> Resource:
        """What is reflected."""
        return self._resource

    @property
    def seconds_broken(self) -> float:
        """For how long nothing has been read; 0 while a watch is open, or if the last one did not fail."""
        return self._failures.seconds_broken

    async def run(self) -> NoReturn:
        """Keep the subscriber up to date until cancelled; failures are retried with backoff."""
        while True:
            try:
                async with asyncio.timeout(None) as self._reading:
                    await self._run()
            except TimeoutError:
                if not self._reading.expired():
                    raise

    async def catch_up(self) -> None:
        """Resume the watch, or try again, at once instead of after the backoff: return when there is a new watch.

        A watch can be silent because nothing happens, or because its connection is dead; the server begins a new one
        with what has happened since the last event.
        """
        self._is_current.clear()
        self._reading.reschedule(asyncio.get_running_loop().time())
        await self._is_current.wait()

    async def _run(self) -> NoReturn:
        while True:
            try:
                await self._list_or_watch()
            except APIError as error:
                await self._handle_api_error(error)
            except Unreachable as error:
                if isinstance(error, _MalformedResponse):
                    self._resource_version = ""
                await self._failures.back_off(str(error))

    async def _list_or_watch(self) -> None:
        if self._resource_version:
            await self._watch(resourceVersion=self._resource_version)
        elif self._watch_list_supported:
            await self._watch_list()
        else:
            await self._list()

    # -- list ----------------------------------------------------------------------------------------------------------

    async def _watch_list(self) -> None:
        """A watch that starts with all existing objects and continues as an ordinary one."""
        self._decoder.begin_list()
        self._initial = {}
        try:
            with ExitStack() as self._gc_pause:
                self._gc_pause.enter_context(gc_tuning.paused())
                await self._watch(resourceVersionMatch="NotOlderThan", sendInitialEvents="true")
        finally:
            self._initial = None

    async def _list(self) -> None:
        try:
            await self._list_pages(limit=_PAGE_SIZE)
        except APIError as error:
            if error.code != 410:
                raise
            await self._list_pages(limit=0)  # the continue token expired between two pages

    async def _list_pages(self, *, limit: int) -> None:
        with gc_tuning.paused():
            # The first list may come from the server's watch cache; later ones must not be older than what was seen.
            resource_version, objects = await self._collection.read(limit, any_version=not self._has_listed)
        self._replace(resource_version or "0", objects)

    def _replace(self, resource_version: str, objects: list[Any]) -> None:
        self._decoder.end_list()
        if self._raw_objects is not None:
            self._raw_objects.retain(self._resource, objects)
        self._subscriber.replace(self._resource, objects)
        self._resource_version, self._has_listed, self._not_served = resource_version, True, False
        self._failures.recovered()
        self._is_current.set()

    # -- watch ---------------------------------------------------------------------------------------------------------

    async def _watch(self, **query: str) -> None:
        """One watch request. Returns if the server ended the watch regularly, raises otherwise."""
        seconds = int(jittered(_WATCH_SECONDS, 1.0, self._random))
        query |= {"allowWatchBookmarks": "true", "timeoutSeconds": str(seconds), "watch": "true"}
        started, received, splitter = self._clock.monotonic(), 0, LineSplitter()
        async with self._transport.stream(self._collection.path(query), idle_timeout=self._idle_timeout) as chunks:
            if self._initial is None:
                self._failures.watch_opened()
                self._is_current.set()
            while (chunk := await self._next_chunk(chunks)) is not None:
                for line in splitter.feed(chunk):
                    self._handle_line(line)
                    received += 1
        if splitter.has_partial_line:
            raise self._collection.unreachable(f"watch of {self._resource.plural} ended in the middle of an event")
        if self._initial is not None:
            raise self._collection.unreachable(
                f"watch of {self._resource.plural} ended before the initial list was complete"
            )
        if not received and self._clock.monotonic() - started < _MIN_WATCH_SECONDS:
            raise self._collection.unreachable(f"very short watch of {self._resource.plural}: no events received")

    async def _next_chunk(self, chunks: AsyncIterator[bytes]) -> bytes | None:
        if self._initial is None:
            return await anext(chunks, None)
        try:
            async with asyncio.timeout(min(_INITIAL_IDLE_TIMEOUT, self._idle_timeout)):
                return await anext(chunks, None)
        except TimeoutError:  # the server ignored sendInitialEvents
            self._watch_list_supported = False
            raise self._collection.unreachable("no bookmark marks the end of the initial list") from None

    def _handle_line(self, line: bytes) -> None:
        try:
            event = WatchLine.parse(line)
            if event.type == "ERROR":
                status = msgspec.json.decode(event.object, type=APIStatus)
                if status.code != 429:  # the server would repeat the event, so list again unless it is only busy
                    self._resource_version = ""
                raise status.error()
            if event.type == "BOOKMARK":
                self._handle_bookmark(msgspec.json.decode(event.object, type=Bookmark))
                return
        except UNDECODABLE as error:
            raise self._collection.malformed(f"watch event of {self._resource.plural}", error) from None
        deleted = event.type == "DELETED"
        obj = self._decoder.decode_deleted(event.object) if deleted else self._decoder.decode(event.object)
        if obj is None:
            return
        if deleted and self._raw_objects is not None:
            self._raw_objects.delete(self._resource, obj)
        if self._initial is not None:
            key = (obj.metadata.namespace, obj.metadata.name)
            if deleted:
                self._initial.pop(key, None)
            else:
                self._initial[key] = obj
            return
        self._subscriber.apply(self._resource, event.type, obj)
        self._resource_version = obj.metadata.resource_version
        self._failures.recovered()

    def _handle_bookmark(self, bookmark: Bookmark) -> None:
        resource_version = bookmark.metadata.resource_version
        if self._initial is None:
            self._resource_version = resource_version
            self._failures.recovered()
        elif bookmark.ends_initial_events:
            objects, self._initial = list(self._initial.values()), None
            self._replace(resource_version, objects)
            self._gc_pause.close()

    # -- failures ------------------------------------------------------------------------------------------------------

    async def _handle_api_error(self, error: APIError) -> None:
        if error.code == 404 and self._resource.optional:
            if await self._is_served_elsewhere():
                self._resource_version = ""
            else:
                await self._wait_until_served()
            return
        # A role that does not name a resource is refused before the server looks whether there is such a resource.
        if error.code == 403 and self._resource.optional and not await self._versions.has(self._resource):
            await self._wait_until_served()
            return
        if error.code in (400, 410, 422):
            if not self._resource_version and self._watch_list_supported and error.code != 410:
                _log.debug(
                    "%s: streaming lists are not supported (%s), falling back to list",
                    self._resource.plural,
                    error,
                    extra=fields(resource=self._resource.plural, err=str(error)),
                )
                self._watch_list_supported = False
                return
            self._resource_version = ""
        await self._failures.back_off(str(error), at_least=error.retry_after or 0.0)

    async def _is_served_elsewhere(self) -> bool:
        """Whether the server, which may have been upgraded, serves the resource in another version than before."""
        group = converted_group(self._resource)
        if group is None:
            return False
        before = self._versions.addressed(self._resource)
        await self._versions.discover(group)
        return self._versions.addressed(self._resource) != before

    async def _wait_until_served(self) -> None:
        """The server does not serve the resource, so there are no such objects for now."""
        if not self._not_served:
            plural = self._resource.plural
            _log.debug("%s: not served by the API server", plural, extra=fields(resource=plural))
            self._replace("", [])
            self._not_served = True
        self._is_current.set()
        seconds = jittered(self._resource.absent_seconds, 1.0, self._random)
        if not issubclass(self._resource.type, CustomObject):
            await self._clock.sleep(seconds)
            return
        waiting = asyncio.ensure_future(self._clock.sleep(seconds))
        watching = asyncio.ensure_future(self._definition.wait_until_served())
        try:
            await asyncio.wait((waiting, watching), return_when=asyncio.FIRST_COMPLETED)
            if not (watching.done() and watching.result()):
                await waiting
        finally:
            for task in (waiting, watching):
                task.cancel()
            await asyncio.gather(waiting, watching, return_exceptions=True)


class _DefinitionVersion(msgspec.Struct, frozen=True):
    name: str = ""
    served: bool = False


class _DefinitionSpec(msgspec.Struct, frozen=True):
    versions: list[_DefinitionVersion] = []


class _DefinitionCondition(msgspec.Struct, frozen=True):
    type: str = ""
    status: str = ""


class _DefinitionStatus(msgspec.Struct, frozen=True):
    conditions: list[_DefinitionCondition] = []


class _CustomResourceDefinition(msgspec.Struct, frozen=True):
    spec: _DefinitionSpec = _DefinitionSpec()
    status: _DefinitionStatus = _DefinitionStatus()

    def serves(self, version: str) -> bool:
        established = any(each.type == "Established" and each.status == "True" for each in self.status.conditions)
        return established and any(each.name == version and each.served for each in self.spec.versions)


class _Definition:
    """The CustomResourceDefinition of a resource that the API server does not serve yet."""

    def __init__(self, transport: Transport, resource: Resource, clock: Clock) -> None:
        self._transport, self._clock = transport, clock
        group, _, self._version = resource.api_version.partition("/")
        self._name = f"{resource.plural}.{group}"

    async def wait_until_served(self) -> bool:
        """Watch the definition until it serves the version; False if it cannot be watched."""
        query = urlencode({"fieldSelector": f"metadata.name={self._name}", "watch": "true"})
        splitter = LineSplitter()
        with suppress(APIError, Unreachable, *UNDECODABLE):
            async with self._transport.stream(f"{_DEFINITIONS}?{query}", idle_timeout=_IDLE_TIMEOUT) as chunks:
                async for chunk in chunks:
                    for line in splitter.feed(chunk):
                        event = WatchLine.parse(line)
                        if event.type not in ("ADDED", "MODIFIED"):
                            continue
                        if msgspec.json.decode(event.object, type=_CustomResourceDefinition).serves(self._version):
                            # The handler of the resource may come a moment later; a 404 must not repeat this at once.
                            await self._clock.sleep(_ESTABLISHED_SECONDS)
                            return True
        return False


class _Collection:
    """A collection at the API server: the paths of requests, its list, and the errors of its responses."""

    def __init__(
        self, transport: Transport, resource: Resource, decoder: ObjectDecoder, versions: ServedVersions
    ) -> None:
        self._transport, self._resource, self._decoder, self._versions = transport, resource, decoder, versions

    def path(self, query: dict[str, str]) -> str:
        if self._resource.field_selector:
            query = query | {"fieldSelector": self._resource.field_selector}
        encoded = urlencode(sorted(query.items()), quote_via=quote, safe="")
        return f"{self._versions.addressed(self._resource).prefix}/{self._resource.plural}?{encoded}"

    async def read(self, limit: int, *, any_version: bool) -> tuple[str, list[Any]]:
        """All objects, read in pages of ``limit`` (0: in one piece), and their resourceVersion.

        With ``any_version`` they may come from the server's watch cache. Raises APIError and Unreachable.
        """
        self._decoder.begin_list()
        objects: list[Any] = []
        query = {"limit": str(limit)} | ({"resourceVersion": "0"} if any_version else {})
        while True:
            body = await self._transport.request("GET", self.path(query))
            try:
                page = ListPage.parse(body)
            except UNDECODABLE as error:
                raise self.malformed(f"list of {self._resource.plural}", error) from None
            items = page.items or []
            for start in range(0, len(items), _DECODE_BATCH):
                decoded = map(self._decoder.decode, items[start : start + _DECODE_BATCH])
                objects.extend(obj for obj in decoded if obj is not None)
                await asyncio.sleep(0)
            if not page.metadata.continue_:
                return page.metadata.resource_version, objects
            query = {"limit": str(limit), "continue": page.metadata.continue_}

    def unreachable(self, problem: str) -> Unreachable:
        return Unreachable(self._transport.server, problem)

    def malformed(self, what: str, error: Exception) -> _MalformedResponse:
        return _MalformedResponse(self._transport.server, f"malformed {what}: {error}")


class _Failures:
    """Logs the failures to list and watch a collection, and delays the next try."""

    def __init__(self, plural: str, clock: Clock, random: Random) -> None:
        self._plural, self._clock, self._random = plural, clock, random
        self._delays = _BACKOFF.delays(random)
        self._failed_at = float("-inf")
        self._problem = ""
        self._broken_since: float | None = None
        self._is_open = False

    @property
    def seconds_broken(self) -> float:
        since = self._broken_since  # which may change meanwhile: health checks read this in another thread
        return 0.0 if since is None or self._is_open else self._clock.monotonic() - since

    def watch_opened(self) -> None:
        """A watch is open; if it fails before anything is read, it has been broken all the time."""
        self._is_open = True

    async def back_off(self, problem: str, *, at_least: float = 0.0) -> None:
        """Log a failure, as a warning if it is another one than before, and wait, at least so many seconds."""
        level = logging.DEBUG if problem == self._problem else logging.WARNING
        self._problem = problem
        if self._clock.monotonic() - self._failed_at > _BACKOFF_RESET_AFTER:
            self._delays, self._broken_since = _BACKOFF.delays(self._random), None
        if self._broken_since is None:
            self._broken_since = self._clock.monotonic()
        self._is_open = False
        delay = max(next(self._delays), at_least)
        extra = fields(resource=self._plural, err=problem, retryIn=round(delay, 1))
        _log.log(
            level, "failed to list and watch %s: %s; retrying in %.1f s", self._plural, problem, delay, extra=extra
        )
        await self._clock.sleep(delay)
        self._failed_at = self._clock.monotonic()

    def recovered(self) -> None:
        """Something has been read: log the end of a failure if there was one."""
        self._broken_since = None
        if self._problem:
            _log.info("watch of %s re-established", self._plural, extra=fields(resource=self._plural))
            self._problem = ""
