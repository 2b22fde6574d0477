"""The dashboard alone, over HTTP on a Unix socket: how a development cluster's API server gets at it.

The scheduler of ``kubestow up`` has no secure port, and may be a process of its own. The API server forwards requests
for ``/dashboard`` to this socket after it has authenticated and authorized them. Only the user whose processes these
are may connect: the socket is in a directory of mode 0700.
"""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from aiohttp import web

from kubestow.config import FeatureGates, KubeSchedulerConfiguration
from kubestow.errors import InputError
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
    """Serves the dashboard on a socket. Use as ``async with``; raises InputError for a path that cannot be bound."""

    def __init__(
        self,
        socket: Path,
        observability: Observability,
        clock: Clock,
        configuration: KubeSchedulerConfiguration,
        gates: FeatureGates,
    ) -> None:
        self._socket = socket
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
            try:
                await web.UnixSite(runner, self._socket).start()
            except OSError as error:  # such as a path that is too long for a socket
                problem = f"cannot be used for the dashboard: {error.strerror or error}"
                raise InputError(str(self._socket), f"{problem}; set a shorter TMPDIR, or --no-dashboard") from None
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
