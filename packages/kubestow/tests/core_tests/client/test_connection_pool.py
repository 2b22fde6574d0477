"""Connections: reuse, limits, proxies, and responses that a well-behaved server would not send."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from core_tests.client.clocks import AutoAdvancingClock
from kubestow.client.rest import server_connection
from kubestow.client.rest.connection_pool import ConnectionPool
from kubestow.client.rest.credentials import Credentials
from kubestow.client.rest.transport import Transport
from kubestow.errors import APIError, Unreachable
from kubestow.http.certificates import CertificateAuthority

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@asynccontextmanager
async def raw_server(handler: Handler, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """A server that sends and receives bytes; its URL."""
    handling: set[asyncio.Task[None] | None] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handling.add(asyncio.current_task())
        with suppress(ConnectionError, ssl.SSLError, asyncio.IncompleteReadError):
            await handler(reader, writer)
        writer.close()
        with suppress(ConnectionError, ssl.SSLError):
            await writer.wait_closed()

    server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=tls)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        await asyncio.gather(*(task for task in handling if task is not None))


async def head_of(reader: asyncio.StreamReader) -> str:
    return (await reader.readuntil(b"\r\n\r\n")).decode()


def responds(*pieces: bytes) -> Handler:
    """Sends some bytes after the first request, in separate writes, and closes the connection."""

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        for piece in pieces:
            writer.write(piece)
            await writer.drain()

    return handler


@pytest.fixture
def clock() -> AutoAdvancingClock:
    return AutoAdvancingClock()


async def get(url: str, clock: AutoAdvancingClock, path: str = "/x") -> bytes:
    async with Transport(Credentials(url), clock=clock) as transport:
        return await transport.request("GET", path)


# -- responses -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pieces", "body"),
    [
        ((OK,), b"ok"),
        (tuple(bytes([byte]) for byte in OK), b"ok"),
        ((b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\no\r\n", b"1\r\nk\r\n0\r\n\r\n"), b"ok"),
        ((b"HTTP/1.1 200 OK\r\n\r\no", b"k"), b"ok"),
        ((b"HTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\n", OK), b"ok"),
        ((b"HTTP/1.1 204 No Content\r\n\r\n",), b""),
    ],
    ids=["length", "byte by byte", "chunked", "until the end of the connection", "interim response", "no content"],
)
async def test_a_body_is_read_however_its_end_is_marked(
    clock: AutoAdvancingClock, pieces: tuple[bytes, ...], body: bytes
) -> None:
    async with raw_server(responds(*pieces)) as url:
        assert await get(url, clock) == body


@pytest.mark.parametrize(
    ("pieces", "problem"),
    [
        ((b"SSH-2.0-OpenSSH_9\r\n",), "the response is not HTTP"),
        ((b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok",), "connection closed in the middle of a response"),
        ((b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\no",), "in the middle of a response"),
        ((b"HTTP/1.1 200 OK\r\nContent-Le",), "connection closed before a response"),
        ((), "connection closed before a response"),
    ],
)
async def test_a_broken_response_is_unreachable_and_says_why(
    clock: AutoAdvancingClock, pieces: tuple[bytes, ...], problem: str
) -> None:
    async with raw_server(responds(*pieces)) as url:
        with pytest.raises(Unreachable, match=problem):
            await get(url, clock)


async def test_a_long_stream_is_received_as_fast_as_it_is_read(clock: AutoAdvancingClock) -> None:
    size, count = 2**16, 200
    written = 0

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        await head_of(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (size * count))
        for _ in range(count):
            writer.write(b"x" * size)
            await writer.drain()
            written += size

    async with raw_server(handler) as url, Transport(Credentials(url), clock=clock) as transport:
        received, largest = 0, 0
        async with transport.stream("/watch", idle_timeout=60) as chunks:
            async for chunk in chunks:
                received += len(chunk)
                largest = max(largest, len(chunk))
        assert received == size * count
        assert largest < received / 2  # the connection stopped receiving while nothing was read


async def test_a_path_cannot_end_the_request_line(clock: AutoAdvancingClock) -> None:
    heads = []

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await head_of(reader))
        writer.write(OK)

    async with raw_server(handler) as url:
        await get(url, clock, "/a b\r\nX-Evil: 1/\u00e9?q=%20")
    assert heads[0].startswith("GET /a%20b%0D%0AX-Evil:%201/%C3%A9?q=%20 HTTP/1.1\r\n")


# -- responses that a server should not send -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "head",
    [b"X-Long: " + b"x" * 2**21, b"".join(b"X-%d: x\r\n" % number for number in range(2**18))],
    ids=["one long header", "many headers"],
)
async def test_the_size_of_headers_is_bounded(clock: AutoAdvancingClock, head: bytes) -> None:
    async with raw_server(responds(b"HTTP/1.1 200 OK\r\n", head)) as url:
        with pytest.raises(Unreachable, match="more than 262144 bytes without a body"):
            await get(url, clock)


async def test_the_size_of_trailers_is_bounded(clock: AutoAdvancingClock) -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n"
    async with raw_server(responds(head, b"X-Long: " + b"x" * 2**21)) as url:
        with pytest.raises(Unreachable, match="more than 262144 bytes without a body"):
            await get(url, clock)


async def test_a_trailer_is_not_a_header(clock: AutoAdvancingClock) -> None:
    rejection = b"HTTP/1.1 503 No\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nno\r\n0\r\nRetry-After: 3\r\n\r\n"
    async with raw_server(responds(rejection)) as url:
        with pytest.raises(APIError, match="503 No: no"):
            await get(url, clock)
    assert clock.slept == []


async def test_an_empty_header_is_valid(clock: AutoAdvancingClock) -> None:
    async with raw_server(responds(OK.replace(b"\r\n", b"\r\nX-Empty:\r\n", 1))) as url:
        assert await get(url, clock) == b"ok"


async def test_a_second_response_to_one_request_is_not_used(clock: AutoAdvancingClock) -> None:
    connections = 0

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await head_of(reader)
        writer.write(OK + b"HTTP/1.1 500 Split\r\nContent-Length: 5\r\n\r\nsplit")
        await reader.read()

    async with raw_server(handler) as url, Transport(Credentials(url), clock=clock) as transport:
        for _ in range(2):
            assert await transport.request("GET", "/x") == b"ok"
    assert connections == 2


async def test_a_change_of_protocol_is_a_broken_response(clock: AutoAdvancingClock) -> None:
    head = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n"
    async with raw_server(responds(head)) as url:
        with pytest.raises(Unreachable, match="the server changed the protocol"):
            await get(url, clock)


async def test_a_body_that_is_compressed_without_being_asked_is_a_broken_response(clock: AutoAdvancingClock) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n\x1f\x8b"
    async with raw_server(responds(head)) as url:
        with pytest.raises(Unreachable, match='content encoding "gzip", which was not requested'):
            await get(url, clock)


async def test_interim_responses_do_not_extend_the_time_limit(clock: AutoAdvancingClock) -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        while True:  # slowly, so that they do not reach the limit of their size within the time limit
            writer.write(b"HTTP/1.1 102 Processing\r\n\r\n")
            await writer.drain()
            await asyncio.sleep(0.01)

    async with raw_server(handler) as url, Transport(Credentials(url), clock=clock, timeout=0.1) as transport:
        with pytest.raises(Unreachable, match="request timed out"):
            await transport.request("GET", "/x")


async def test_a_body_that_ends_with_a_reset_connection_is_broken(clock: AutoAdvancingClock) -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nhalf")
        await writer.drain()
        await asyncio.sleep(0)
        reset(writer)

    async with raw_server(handler) as url:
        with pytest.raises(Unreachable, match="connection reset by peer"):
            await get(url, clock)


def reset(writer: asyncio.StreamWriter) -> None:
    """Close a connection with RST."""
    linger = struct.pack("ii", 1, 0)
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    writer.transport.abort()


async def test_a_host_name_that_cannot_be_looked_up_is_unreachable(clock: AutoAdvancingClock) -> None:
    with pytest.raises(Unreachable, match="no such host"):
        await get(f"http://{'a' * 64}.example", clock)


# -- reuse ---------------------------------------------------------------------------------------------------------


def closes_when_reused(requests: list[str]) -> Handler:
    """Answers the first request of a connection and closes the connection at the second, without an answer."""

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await head_of(reader))
        writer.write(OK)
        requests.append(await head_of(reader))

    return handler


async def test_a_read_on_a_closed_connection_is_sent_again(clock: AutoAdvancingClock) -> None:
    requests: list[str] = []
    async with raw_server(closes_when_reused(requests)) as url, Transport(Credentials(url), clock=clock) as transport:
        for _ in range(2):
            assert await transport.request("GET", "/x") == b"ok"
    assert len(requests) == 3


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_a_write_on_a_closed_connection_is_not_sent_again(clock: AutoAdvancingClock, method: str) -> None:
    """It may have taken effect, and would conflict with itself."""
    requests: list[str] = []
    async with raw_server(closes_when_reused(requests)) as url, Transport(Credentials(url), clock=clock) as transport:
        await transport.request("GET", "/x")
        with pytest.raises(Unreachable, match="connection closed before a response") as caught:
            await transport.request(method, "/x", b"")
    assert caught.value.in_doubt
    assert len(requests) == 2


async def test_a_connection_whose_response_was_not_awaited_is_not_used_again(clock: AutoAdvancingClock) -> None:
    arrived, answered = asyncio.Event(), asyncio.Event()

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if "/slow" in await head_of(reader):
            arrived.set()
            await answered.wait()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nslow")
        else:
            writer.write(OK)

    async with raw_server(handler) as url, Transport(Credentials(url), clock=clock) as transport:
        slow = asyncio.create_task(transport.request("GET", "/slow"))
        await arrived.wait()
        slow.cancel()
        await asyncio.gather(slow, return_exceptions=True)
        answered.set()
        assert await transport.request("GET", "/x") == b"ok"


async def test_interim_responses_without_end_break_the_connection(clock: AutoAdvancingClock) -> None:
    interim = b"HTTP/1.1 100 Continue\r\n\r\n" * 1000
    async with raw_server(responds(*[interim] * 1000)) as url:
        with pytest.raises(Unreachable, match="more than 262144 bytes without a body"):
            await get(url, clock)


async def test_the_body_of_a_failure_is_limited(clock: AutoAdvancingClock) -> None:
    head = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 100000000\r\n\r\n"
    async with raw_server(responds(head, *[b"x" * 2**16] * 1600)) as url:
        with pytest.raises(Unreachable, match="more than 1048576 bytes"):
            await get(url, clock)
        async with Transport(Credentials(url), clock=clock) as transport:
            with pytest.raises(Unreachable, match="more than 1048576 bytes"):
                async with transport.stream("/x", idle_timeout=600):
                    pass


async def test_a_body_that_is_read_as_a_whole_is_limited(
    clock: AutoAdvancingClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_connection, "_MAX_BODY", 2**21)
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 3000000\r\n\r\n"
    async with raw_server(responds(head, *[b"x" * 10**6] * 3)) as url:
        with pytest.raises(Unreachable, match="more than 2097152 bytes"):
            await get(url, clock)


async def test_requests_beyond_the_limit_wait_for_a_connection_in_order(clock: AutoAdvancingClock) -> None:
    async with raw_server(responds()) as url:
        pool = ConnectionPool(url, tls=lambda: None, limit=1)
        first, _ = await pool.acquire()
        acquired: list[int] = []

        async def take(number: int) -> None:
            connection, _ = await pool.acquire()
            acquired.append(number)
            pool.release(connection)

        waiting = [asyncio.create_task(take(number)) for number in range(5)]
        await asyncio.sleep(0)
        waiting[1].cancel()
        await asyncio.sleep(0)
        assert acquired == []
        pool.release(first)
        await asyncio.gather(*waiting, return_exceptions=True)
        assert acquired == [0, 2, 3, 4]
        pool.close()


async def test_streams_do_not_count_towards_the_limit() -> None:
    async with raw_server(responds()) as url:
        pool = ConnectionPool(url, tls=lambda: None, limit=1)
        stream, _ = await pool.acquire()
        waiting = asyncio.create_task(pool.acquire())
        await asyncio.sleep(0)
        assert not waiting.done()
        pool.begin_stream(stream)
        await waiting
        with pytest.raises(TimeoutError):
            await pool.acquire(time_limit=0.001)
        pool.close()


async def test_a_burst_of_requests_opens_few_connections(clock: AutoAdvancingClock) -> None:
    connections = 0

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        with suppress(asyncio.IncompleteReadError):
            while True:
                await head_of(reader)
                writer.write(OK)

    async with raw_server(handler) as url:
        async with Transport(Credentials(url), clock=clock) as transport:
            await asyncio.gather(*(transport.request("GET", "/x") for _ in range(300)))
        assert connections <= 32


async def test_a_waiting_request_gets_its_turn_after_a_failure_to_connect() -> None:
    async with raw_server(responds()) as url:
        pass  # nothing listens there any more
    pool = ConnectionPool(url, tls=lambda: None, limit=1)
    results = await asyncio.gather(*(pool.acquire() for _ in range(3)), return_exceptions=True)
    assert [type(result) for result in results] == [ConnectionRefusedError] * 3


async def test_connections_that_were_idle_for_long_are_closed() -> None:
    async with raw_server(responds()) as url:
        pool = ConnectionPool(url, tls=lambda: None, idle_timeout=-1)
        connection, _ = await pool.acquire()
        pool.release(connection)
        assert not connection.reusable
        pool.close()


async def test_a_response_that_arrives_as_its_request_is_cancelled_is_not_mixed_with_the_next() -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError):
            while True:
                await head_of(reader)
                writer.write(OK)

    async with raw_server(handler) as url:
        pool = ConnectionPool(url, tls=lambda: None)
        connection, _ = await pool.acquire()
        request = asyncio.create_task(connection.request(b"GET /x HTTP/1.1\r\n\r\n"))
        await asyncio.sleep(0)
        connection.data_received(OK)  # wakes the task
        request.cancel()
        await asyncio.gather(request, return_exceptions=True)
        pool.release(connection)
        other, reused = await pool.acquire()
        assert not reused
        assert (await other.request(b"GET /x HTTP/1.1\r\n\r\n")).body == b"ok"
        pool.close()


async def test_a_connection_that_was_idle_for_long_is_not_used_again() -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with raw_server(handler) as url:
        pool = ConnectionPool(url, tls=lambda: None, idle_timeout=1000)
        connection, _ = await pool.acquire()
        pool.release(connection)
        connection.idle_since -= 1001
        _, reused = await pool.acquire()
        assert not reused
        assert not connection.reusable
        pool.close()


async def test_a_request_that_is_cancelled_anywhere_leaves_no_connection_in_use(clock: AutoAdvancingClock) -> None:
    """Cancelled after each number of iterations of the event loop, from before the connection is opened to the end."""

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError):
            while True:
                await head_of(reader)
                writer.write(OK[:-1])
                await writer.drain()
                await asyncio.sleep(0)
                writer.write(OK[-1:])

    async with raw_server(handler) as url:
        for iterations in range(40):
            async with Transport(Credentials(url), clock=clock) as transport:
                pool = transport._pool
                assert pool is not None
                request = asyncio.create_task(transport.request("GET", "/x"))
                for _ in range(iterations):
                    await asyncio.sleep(0)
                request.cancel()
                await asyncio.gather(request, return_exceptions=True)
                assert not pool._in_use
                assert pool._opening == 0
                assert await transport.request("GET", "/x") == b"ok"


# -- proxies -------------------------------------------------------------------------------------------------------


async def test_plain_requests_go_to_the_proxy_with_the_whole_url(clock: AutoAdvancingClock) -> None:
    heads = []

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await head_of(reader))
        writer.write(OK)

    async with raw_server(proxy) as url:
        credentials = Credentials("http://api.example:8080", proxy=url.replace("//", "//me:p%40ss@"))
        async with Transport(credentials, clock=clock) as transport:
            assert await transport.request("GET", "/api/v1/pods") == b"ok"
    assert heads[0].startswith("GET http://api.example:8080/api/v1/pods HTTP/1.1\r\nHost: api.example:8080\r\n")
    assert "Proxy-Authorization: Basic bWU6cEBzcw==\r\n" in heads[0]


async def test_encrypted_requests_pass_a_tunnel_of_the_proxy(clock: AutoAdvancingClock, tmp_path: Path) -> None:
    tls_server, tls_client = tls_contexts(tmp_path)
    heads = []

    async def api_server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            heads.append(await head_of(reader))
            writer.write(OK)

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await head_of(reader))
        behind_reader, behind_writer = await asyncio.open_connection(*behind.removeprefix("http://").split(":"))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(pipe(reader, behind_writer), pipe(behind_reader, writer))

    async with raw_server(api_server, tls_server) as behind, raw_server(proxy) as url:
        credentials = Credentials("https://localhost:6443", tls=tls_client, proxy=url.replace("//", "//me:secret@"))
        async with Transport(credentials, clock=clock) as transport:
            for _ in range(2):
                assert await transport.request("GET", "/version") == b"ok"
    assert [head.partition("\r\n")[0] for head in heads] == [
        "CONNECT localhost:6443 HTTP/1.1",
        "GET /version HTTP/1.1",
        "GET /version HTTP/1.1",
    ]
    assert "Proxy-Authorization" in heads[0]
    assert "Proxy-Authorization" not in heads[1]


async def test_a_proxy_that_refuses_a_tunnel_is_named_in_the_error(clock: AutoAdvancingClock) -> None:
    refusal = b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n"
    problem = "the proxy refused the connection: 407 Proxy Authentication Required"
    async with raw_server(responds(refusal)) as url:
        credentials = Credentials("https://api.example", proxy=url)
        async with Transport(credentials, clock=clock) as transport:
            with pytest.raises(Unreachable, match=problem):
                await transport.request("GET", "/version")


async def test_plain_requests_through_a_proxy_contain_the_path_of_the_server_once(clock: AutoAdvancingClock) -> None:
    heads = []

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await head_of(reader))
        writer.write(OK)

    async with (
        raw_server(proxy) as url,
        Transport(Credentials("http://me@api.example/k8s", proxy=url), clock=clock) as transport,
    ):
        await transport.request("GET", "/version")
    assert heads[0].startswith("GET http://api.example/k8s/version HTTP/1.1\r\n")


async def test_an_address_with_colons_is_in_brackets_for_a_proxy(clock: AutoAdvancingClock) -> None:
    heads = []

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await head_of(reader))
        writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")

    async with (
        raw_server(proxy) as url,
        Transport(Credentials("https://[fd00::1]:6443", proxy=url), clock=clock) as transport,
    ):
        with pytest.raises(Unreachable, match="403 Forbidden"):
            await transport.request("GET", "/version")
    assert heads[0].startswith("CONNECT [fd00::1]:6443 HTTP/1.1\r\nHost: [fd00::1]:6443\r\n")


async def test_bytes_before_the_encryption_of_a_tunnel_are_an_error(clock: AutoAdvancingClock) -> None:
    injected = b"HTTP/1.1 200 OK\r\n\r\nforged"
    async with (
        raw_server(responds(injected)) as url,
        Transport(Credentials("https://api.example", proxy=url), clock=clock) as transport,
    ):
        with pytest.raises(Unreachable, match="the proxy sent data before encryption"):
            await transport.request("GET", "/version")


def tls_contexts(directory: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """The contexts of a server on localhost and of a client that trusts it."""
    authority = CertificateAuthority.generate("test")
    certificate, key = directory / "tls.crt", directory / "tls.key"
    authority.issue_server_certificate(["localhost"]).write(certificate, key)
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(certificate, key)
    return server, ssl.create_default_context(cadata=authority.certificate.decode())


async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(2**16):
            writer.write(data)
    writer.close()
    await writer.wait_closed()
