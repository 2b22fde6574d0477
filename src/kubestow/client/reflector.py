"""Keeping a subscriber in step with one collection of an API server: list, watch, and start again after every fault.

A collection is read once as a whole and then followed by a watch, from the version at which the whole was complete. A
streaming list does both over one connection; a server that does not offer it is asked for a list in pages. A watch that
ends or breaks is taken up again at the last version seen, so nothing is lost and nothing is read twice. Only when the
server cannot go on from that version (410, or another failure told inside a watch), or has sent something that cannot
be understood, is the whole collection read anew. Timing follows client-go: failures back off from 0.8 to 30 s, watches
last 5 to 10 minutes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import ExitStack
from functools import partial
from random import Random
from typing import Any, NoReturn
from urllib.parse import quote, urlencode

import msgspec

from kubestow import gc_tuning as collector
from kubestow.client.decoding import (
    UNDECODABLE,
    Bookmark,
    LineSplitter,
    ListPage,
    ObjectDecoder,
    WatchEvent,
    error_event,
)
from kubestow.client.raw_object_cache import RawObjectCache
from kubestow.client.rest.transport import Transport
from kubestow.errors import APIError, Unreachable
from kubestow.scheduling.ports import Clock, Resource, Subscriber
from kubestow.scheduling.writes.retries import Backoff, jittered

__all__ = ["Reflector"]

_log = logging.getLogger(__name__)

_BACKOFF = Backoff(initial=0.8, factor=2.0, jitter=1.0, limit=30.0)
_BACKOFF_FORGOTTEN_AFTER = 120.0
_WATCH_SECONDS = 300
_SHORTEST_WATCH = 1.0
#: Servers send bookmarks about once a minute; a watch that is silent for longer than this may be dead, and asking again
#: costs one request.
_SILENCE = 150.0
#: A server that knows streaming lists does not pause for this long before the list is complete.
_INITIAL_SILENCE = 10.0
#: Objects a page, where lists are paged at all: from the server's cache they come whole.
_PAGE = 5000
#: Objects decoded before other tasks get a turn.
_SLICE = 1000


class _Garbled(Unreachable):
    """The server's answer cannot be understood; what it said between the last good event and now is unknown."""


class Reflector:
    """Reflects one resource into one subscriber, see :meth:`run`."""

    def __init__(
        self,
        transport: Transport,
        resource: Resource,
        subscriber: Subscriber,
        *,
        clock: Clock,
        random: Random,
        silence: float = _SILENCE,
        raw_objects: RawObjectCache | None = None,
    ) -> None:
        self._transport, self._resource, self._subscriber = transport, resource, subscriber
        self._clock, self._random, self._silence = clock, random, silence
        self._originals = raw_objects
        keep = None if raw_objects is None else partial(raw_objects.saw, resource)
        self._reader = ObjectDecoder(resource, self._unreadable, keep)
        self._version = ""  # where the next watch begins; empty: the collection has to be read as a whole
        self._initial: dict[tuple[str, str], Any] | None = None  # a streaming list while it is incomplete
        self._loading = ExitStack()  # what has to end when the list is complete
        self._server_streams = True
        self._was_listed = False
        self._is_absent = False
        self._delays = _BACKOFF.delays(random)
        self._failed_at = float("-inf")
        self._problem = ""

    async def run(self) -> NoReturn:
        """Keep the subscriber in step until cancelled, through every outage."""
        while True:
            try:
                await self._advance()
            except APIError as error:
                await self._after_refusal(error)
            except Unreachable as error:
                await self._after_outage(error)

    async def _advance(self) -> None:
        if self._version:
            await self._watch()
        elif self._server_streams:
            await self._stream_list()
        else:
            await self._list()

    # -- reading the whole collection

    async def _stream_list(self) -> None:
        """A watch that begins with all objects there are; once they are complete it goes on as any other."""
        self._reader.start_over()
        self._initial = {}
        try:
            with ExitStack() as self._loading:
                self._loading.enter_context(collector.paused())
                await self._follow(resourceVersionMatch="NotOlderThan", sendInitialEvents="true")
        finally:
            self._initial = None

    async def _list(self) -> None:
        try:
            await self._list_pages(limit=_PAGE)
        except APIError as error:
            if error.code != 410:
                raise
            await self._list_pages(limit=0)  # the pages expired faster than they could be read

    async def _list_pages(self, *, limit: int) -> None:
        with collector.paused():
            version, objects = await self._read_pages(limit)
        self._complete(version or "0", objects)

    async def _read_pages(self, limit: int) -> tuple[str, list[Any]]:
        self._reader.start_over()
        objects: list[Any] = []
        # The first list may come from the server's cache. Later ones must not be older than what was already seen.
        query = {"limit": str(limit)} | ({} if self._was_listed else {"resourceVersion": "0"})
        while True:
            page = await self._page(query)
            await self._read_items(page.items or [], objects)
            if not page.metadata.continue_:
                return page.metadata.resource_version, objects
            query = {"limit": str(limit), "continue": page.metadata.continue_}

    async def _page(self, query: dict[str, str]) -> ListPage:
        body = await self._transport.request("GET", self._path(query))
        try:
            return ListPage.parse(body)
        except UNDECODABLE as error:
            raise self._garbled(f"a list of {self._resource.plural} that is none: {error}") from None

    async def _read_items(self, items: list[msgspec.Raw], objects: list[Any]) -> None:
        for start in range(0, len(items), _SLICE):
            read = map(self._reader.read, items[start : start + _SLICE])
            objects.extend(obj for obj in read if obj is not None)
            await asyncio.sleep(0)

    def _complete(self, version: str, objects: list[Any]) -> None:
        if self._originals is not None:
            self._originals.only(self._resource, objects)
        self._subscriber.replace(self._resource, objects)
        self._version, self._was_listed, self._is_absent = version, True, False
        self._healthy()

    # -- following it

    async def _watch(self) -> None:
        await self._follow(resourceVersion=self._version)

    async def _follow(self, **query: str) -> None:
        """One watch, to its end. Ends without an error only when the server ended it in good order."""
        seconds = int(jittered(_WATCH_SECONDS, 1.0, self._random))
        query |= {"allowWatchBookmarks": "true", "timeoutSeconds": str(seconds), "watch": "true"}
        began, received, lines = self._clock.monotonic(), 0, LineSplitter()
        async with self._transport.stream(self._path(query), silence=self._silence) as chunks:
            while (chunk := await self._next(chunks)) is not None:
                for line in lines.feed(chunk):
                    self._take(line)
                    received += 1
        if lines.unfinished:
            raise Unreachable(self._transport.server, f"cut the watch of {self._resource.plural} inside an event")
        if self._initial is not None:
            raise Unreachable(
                self._transport.server, f"ended the list of {self._resource.plural} before it was complete"
            )
        if not received and self._clock.monotonic() - began < _SHORTEST_WATCH:
            raise Unreachable(self._transport.server, f"ended the watch of {self._resource.plural} at once")

    async def _next(self, chunks: AsyncIterator[bytes]) -> bytes | None:
        if self._initial is None:
            return await anext(chunks, None)
        try:
            async with asyncio.timeout(min(_INITIAL_SILENCE, self._silence)):
                return await anext(chunks, None)
        except TimeoutError:  # it took the request for an ordinary watch
            self._server_streams = False
            raise Unreachable(self._transport.server, "does not say when a streaming list is complete") from None

    def _take(self, line: bytes) -> None:
        try:
            event = WatchEvent.parse(line)
            if event.type == "ERROR":
                raise self._unable_to_go_on(error_event(event.object))
            if event.type == "BOOKMARK":
                self._mark(Bookmark.parse(event.object))
                return
        except UNDECODABLE as error:
            raise self._garbled(f"a watch event of {self._resource.plural} that is none: {error}") from None
        deleted = event.type == "DELETED"
        obj = self._reader.read_deleted(event.object) if deleted else self._reader.read(event.object)
        if obj is None:
            return
        if deleted and self._originals is not None:
            self._originals.gone(self._resource, obj)
        if self._initial is not None:
            self._collect(obj, deleted=deleted)
            return
        self._subscriber.apply(self._resource, event.type, obj)
        self._version = obj.metadata.resource_version
        self._healthy()

    def _collect(self, obj: Any, *, deleted: bool) -> None:
        assert self._initial is not None
        key = (obj.metadata.namespace, obj.metadata.name)
        if deleted:
            self._initial.pop(key, None)
        else:
            self._initial[key] = obj

    def _mark(self, bookmark: Bookmark) -> None:
        version = bookmark.metadata.resource_version
        if self._initial is None:
            self._version = version
            self._healthy()
        elif bookmark.ends_initial_events:
            objects, self._initial = list(self._initial.values()), None
            self._complete(version, objects)
            self._loading.close()

    # -- faults

    async def _after_refusal(self, error: APIError) -> None:
        if error.code == 404 and self._resource.optional:
            await self._absent()
            return
        if error.code in (400, 410, 422):
            if not self._version and self._server_streams and error.code != 410:
                _log.debug("%s: no streaming lists here (%s)", self._resource.plural, error)
                self._server_streams = False
                return
            self._version = ""
        await self._back_off(str(error), at_least=error.retry_after or 0.0)

    async def _after_outage(self, error: Unreachable) -> None:
        if isinstance(error, _Garbled):
            self._version = ""
        await self._back_off(str(error))

    async def _absent(self) -> None:
        """The server does not serve the resource: there are no such objects, for now."""
        if not self._is_absent:
            _log.debug("%s: not served here", self._resource.plural)
            self._complete("", [])
            self._is_absent = True
        await self._clock.sleep(jittered(self._resource.absent_seconds, 1.0, self._random))

    async def _back_off(self, problem: str, *, at_least: float = 0.0) -> None:
        level = logging.DEBUG if problem == self._problem else logging.WARNING
        self._problem = problem
        if self._clock.monotonic() - self._failed_at > _BACKOFF_FORGOTTEN_AFTER:
            self._delays = _BACKOFF.delays(self._random)
        delay = max(next(self._delays), at_least)
        _log.log(level, "%s: %s; trying again in %.1f s", self._resource.plural, problem, delay)
        await self._clock.sleep(delay)
        self._failed_at = self._clock.monotonic()

    def _healthy(self) -> None:
        if self._problem:
            _log.info("%s: in step again", self._resource.plural)
            self._problem = ""

    def _unable_to_go_on(self, error: APIError) -> APIError:
        """What a server says inside a watch, which may be so each time that it comes to this version."""
        if error.code != 429:
            self._version = ""
        return error

    def _garbled(self, what: str) -> _Garbled:
        return _Garbled(self._transport.server, f"sent {what}")

    def _unreadable(self, subject: str, problem: str) -> None:
        self._subscriber.unreadable(self._resource, subject, problem)

    def _path(self, query: dict[str, str]) -> str:
        if self._resource.field_selector:
            query = query | {"fieldSelector": self._resource.field_selector}
        encoded = urlencode(sorted(query.items()), quote_via=quote, safe="")
        return f"{self._resource.prefix}/{self._resource.plural}?{encoded}"
