"""The end of a listening socket."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from aiohttp import web

from kubestow.http.listener import HTTPListener


async def test_a_connection_that_arrives_while_listening_ends_is_no_error() -> None:
    async def answer(incoming: web.BaseRequest) -> web.StreamResponse:
        return web.Response()

    errors: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: errors.append(context))
    listener = HTTPListener(answer, name="test")
    port = await listener.listen("127.0.0.1", 0)
    await asyncio.sleep(0)
    with socket.create_connection(("127.0.0.1", port)):
        await asyncio.sleep(0)  # the loop has seen the connection, and has not accepted it yet
        await listener.stop()
    assert errors == []
