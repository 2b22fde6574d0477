"""One HTTP/1.1 connection: a request at a time, its response parsed by httptools.

A connection is an asyncio protocol without tasks of its own: the parser's callbacks fill the response, and one future
wakes the caller when there is something to read. :mod:`.connection_pool` opens connections and hands them out.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, cast

import httptools
import msgspec

#: Bytes of a body that wait to be read before the connection stops receiving.
_MAX_UNREAD = 2**20
#: Bytes received without any of a body: headers, trailers and what frames chunks.
_MAX_OVERHEAD = 2**18
#: Bytes of the body of a failure, which is a Status, and of any body that is read as a whole. The largest is a list in
#: one piece of the pods of a large cluster.
_MAX_FAILURE = 2**20
_MAX_BODY = 2**30


class ConnectionBroken(Exception):
    """The peer closed the connection, or sent something that is not the response to a request.

    ``before_response``: no complete head of a response had arrived.
    """

    def __init__(self, problem: str, *, before_response: bool) -> None:
        super().__init__(problem)
        self.before_response = before_response


class ServerResponse(msgspec.Struct):
    """A response: status code, reason phrase, headers by lower-case name, and the body as far as it has been read."""

    status: int = 0
    reason: str = ""
    headers: dict[bytes, bytes] = {}
    body: bytes = b""


class ServerConnection(asyncio.Protocol):
    """A connection to a server, opened by ``loop.create_connection``."""

    def __init__(self) -> None:
        #: When the connection became idle, on the event loop's clock; the pool sets it, and the next.
        self.idle_since = 0.0
        #: The generation of connections to which it belongs.
        self.generation = 0
        self._transport: asyncio.Transport | None = None
        self._parser: Any = httptools.HttpResponseParser(self)
        self._response = ServerResponse()
        self._chunks: list[bytes] = []
        self._unread = 0
        self._overhead = 0
        self._body_size = 0
        self._waiter: asyncio.Future[None] | None = None
        self._wakes_early = False
        self._has_head = self._complete = True
        #: Why the connection can no longer be used.
        self._problem: str | None = None

    # -- the caller's side ---------------------------------------------------------------------------------------

    @property
    def reusable(self) -> bool:
        """Whether the connection can carry another request: the last response is complete and has been read."""
        transport = self._transport
        is_open = self._problem is None and transport is not None and not transport.is_closing()
        return is_open and self._complete and not self._chunks

    async def request(self, request: bytes, time_limit: float | None = None) -> ServerResponse:
        """Send a request and read the whole response.

        Raises ConnectionBroken, and TimeoutError if it is not complete after ``time_limit`` seconds.
        """
        self._send(request, wakes_early=False)
        while not self._complete:
            await self._wait(time_limit)
        self._response.body = self._take()
        return self._response

    async def open(self, request: bytes, time_limit: float | None = None) -> ServerResponse:
        """Send a request and read the head of the response; :meth:`chunks` reads the body.

        Raises ConnectionBroken, and TimeoutError if nothing arrives for ``time_limit`` seconds.
        """
        self._send(request, wakes_early=True)
        while not self._has_head:
            await self._wait(time_limit)
        return self._response

    async def chunks(self, idle_timeout: float | None = None) -> AsyncGenerator[bytes, None]:
        """The body after :meth:`open`, each time all that has arrived.

        Raises ConnectionBroken, and TimeoutError if nothing arrives for ``idle_timeout`` seconds.
        """
        while True:
            while not self._chunks and not self._complete:
                await self._wait(idle_timeout)
            if not self._chunks:
                return
            yield self._take()

    def close(self) -> None:
        """Close the connection at once; a response that is not complete is lost."""
        if self._transport is not None:
            self._transport.abort()

    async def start_tls(self, context: Any, server_hostname: str) -> None:
        """Encrypt the connection after a proxy has connected it to the server, and start HTTP anew.

        Raises ConnectionBroken if something was received that would count as received over TLS.
        """
        assert self._transport is not None
        if self._chunks:
            raise ConnectionBroken("the proxy sent data before encryption", before_response=True)
        self._parser, self._complete = httptools.HttpResponseParser(self), True
        loop = asyncio.get_running_loop()
        transport = await loop.start_tls(self._transport, self, context, server_hostname=server_hostname)
        assert transport is not None
        self._transport = transport

    def _send(self, request: bytes, *, wakes_early: bool) -> None:
        assert self._complete and not self._chunks, "the connection carries another request"
        self._response, self._has_head, self._complete = ServerResponse(), False, False
        self._overhead = self._body_size = 0
        self._wakes_early = wakes_early
        if self._problem is None and self._transport is not None:
            self._transport.write(request)

    async def _wait(self, time_limit: float | None) -> None:
        """Wait until there is something to read. An ``asyncio.timeout`` would take longer than parsing the response."""
        if self._problem is not None:
            raise ConnectionBroken(self._problem, before_response=not self._response.status)
        loop = asyncio.get_running_loop()
        waiter = self._waiter = loop.create_future()
        timer = None if time_limit is None else loop.call_later(time_limit, _time_out, waiter)
        try:
            await waiter
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()

    def _take(self) -> bytes:
        chunks, self._chunks = self._chunks, []
        if self._unread > _MAX_UNREAD and self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
        self._unread = 0
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # -- called by the event loop --------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are no subclass

    def data_received(self, data: bytes) -> None:
        """Feed the parser."""
        if self._complete:  # data without a request, such as a 408 before the server closes an idle connection
            self.close()
            return
        self._overhead += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._fail("the server changed the protocol")
        except httptools.HttpParserError as error:
            self._fail(f"the response is not HTTP: {error.__context__ or error}")
        if self._overhead > _MAX_OVERHEAD:
            self._fail(f"the response contains more than {_MAX_OVERHEAD} bytes without a body")
        if self._problem is not None:
            self.close()
        elif self._complete or (self._wakes_early and (self._chunks or self._has_head)):
            self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        """End the response: a body without a length is complete, any other response is broken."""
        headers = self._response.headers
        has_length = b"content-length" in headers or b"transfer-encoding" in headers
        if error is None and not self._complete and self._has_head and not has_length:
            self._complete = True
            self._wake()
        elif not self._complete and isinstance(error, OSError) and error.strerror:
            self._fail(error.strerror.lower())
        else:
            self._fail(
                "connection closed in the middle of a response"
                if self._response.status
                else "connection closed before a response"
            )

    def _fail(self, problem: str) -> None:
        if self._problem is None:
            self._problem = problem
        self._wake()

    # -- called by the parser ------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """A response begins. Raises ValueError when there is no request for it."""
        if self._complete:
            raise ValueError("there is more than one response")

    def on_status(self, reason: bytes) -> None:
        """The reason phrase, in one piece or in several."""
        self._response.reason += reason.decode("latin-1")

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header; the last of a name counts. Trailers are ignored."""
        if not self._has_head:
            self._response.headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        """The head is complete."""
        self._response.status = self._parser.get_status_code()
        self._has_head = True
        if self._response.status >= 200:  # interim responses may be without end
            self._overhead = 0
        encoding = self._response.headers.get(b"content-encoding", b"identity")
        if encoding != b"identity":
            raise ValueError(f'content encoding "{encoding.decode("latin-1")}", which was not requested')

    def on_body(self, body: bytes) -> None:
        """A piece of the body. Raises ValueError when it is too large."""
        self._body_size += len(body)
        if self._body_size > _MAX_FAILURE and (self._response.status >= 300 or not self._wakes_early):
            limit = _MAX_FAILURE if self._response.status >= 300 else _MAX_BODY
            if self._body_size > limit:
                raise ValueError(f"the body of the response has more than {limit} bytes")
        self._chunks.append(body)
        self._unread += len(body)
        self._overhead = 0
        if self._wakes_early and self._unread > _MAX_UNREAD and self._transport is not None:
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        """The response is complete."""
        if 100 <= self._response.status < 200:  # an interim response; the one that counts follows
            self._response, self._has_head = ServerResponse(), False
            return
        self._complete = True
        if not self._parser.should_keep_alive() and self._transport is not None:
            self._transport.close()


def _time_out(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_exception(TimeoutError())
