"""The dashboard alone, over HTTP on a socket that others have opened (:mod:`kubestow.serving.dashboard_socket`)."""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack
from socket import socket
from types import TracebackType
from typing import Self

from aiohttp import web

from kubestow.config import FeatureGates, KubeSchedulerConfiguration
from kubestow.log_fields import fields
from kubestow.observability.observability import Observability
from kubestow.scheduling.interfaces import Clock
from kubestow.serving import aiohttp_messages
from kubestow.serving.handlers.dashboard import DashboardHandler
from kubestow.serving.http_messages import StatusError
from kubestow.serving.mux import PathMux

__all__ = ["DashboardServer"]

_log = logging.getLogger(__name__)

#: For responses in progress when the server stops.
_SHUTDOWN_SECONDS = 1.0


class DashboardServer:
    """Serves the dashboard on a listening socket, which stays open. Use as ``async with``."""

    def __init__(
        self,
        listening: socket,
        observability: Observability,
        clock: Clock,
        configuration: KubeSchedulerConfiguration,
        gates: FeatureGates,
    ) -> None:
        self._listening = listening
        self._handler = DashboardHandler(observability, clock, configuration, gates)
        self._mux = PathMux(
            paths={"/dashboard": self._handler.index}, prefixes={"/dashboard/": self._handler}, deletions={}
        )
        self._exit_stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        runner = web.ServerRunner(
            web.Server(self._respond, handler_cancellation=True, access_log=None), shutdown_timeout=_SHUTDOWN_SECONDS
        )
        async with AsyncExitStack() as stack:
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            stack.callback(self._handler.close)
            await web.SockSite(runner, self._listening).start()
            self._exit_stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._exit_stack.aclose()

    async def _respond(self, incoming: web.BaseRequest) -> web.StreamResponse:
        request = aiohttp_messages.parse(incoming)
        try:
            response = await self._mux.handle(request)
        except StatusError as error:
            response = error.response
        except Exception:
            _log.exception("Failed to handle a request", extra=fields(verb=request.method, path=request.path[:256]))
            response = StatusError.internal().response
        if response.stream is None:
            return aiohttp_messages.whole(response)
        return await aiohttp_messages.send_stream(incoming, response)
