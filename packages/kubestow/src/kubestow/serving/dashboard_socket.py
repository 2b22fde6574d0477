"""The Unix socket of the dashboard: how a development cluster's API server gets at it.

The scheduler of ``kubestow up`` has no secure port, and may be a process of its own. The API server forwards requests
for ``/dashboard``, ``/debug/pods`` and ``/configz`` to this socket after it has authenticated and authorized them. Only
the user whose processes these are may connect: the socket is in a directory of mode 0700.

The socket listens from the start, and is served from the first connection on: what serves it takes longer to import
than the scheduler takes to become ready.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self

from kubestow.config import FeatureGates, KubeSchedulerConfiguration
from kubestow.errors import InputError
from kubestow.log_fields import fields
from kubestow.observability.observability import Observability
from kubestow.scheduling.interfaces import Clock

if TYPE_CHECKING:
    from kubestow.http.listener import HTTPListener
    from kubestow.serving.dashboard_handler import DashboardHandler

_log = logging.getLogger(__name__)

_BACKLOG = 128
#: For responses in progress when the server stops.
_SHUTDOWN_SECONDS = 1.0


class DashboardSocket:
    """Use as ``async with``; raises InputError for a path that cannot be bound."""

    def __init__(
        self,
        path: Path,
        observability: Observability,
        clock: Clock,
        configuration: KubeSchedulerConfiguration,
        gates: FeatureGates,
    ) -> None:
        self._path, self._observability, self._clock = path, observability, clock
        self._configuration, self._gates = configuration, gates
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._starting: asyncio.Task[None] | None = None
        self._exit_stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        try:
            self._listening.bind(str(self._path))
        except OSError as error:  # such as a path that is too long for a socket
            self._listening.close()
            problem = f"cannot be used for the dashboard: {error.strerror or error}"
            raise InputError(str(self._path), f"{problem}; set a shorter TMPDIR, or --no-dashboard") from None
        self._listening.listen(_BACKLOG)
        self._listening.setblocking(False)
        asyncio.get_running_loop().add_reader(self._listening, self._start_serving)
        return self

    async def __aexit__(self, *error: object) -> None:
        asyncio.get_running_loop().remove_reader(self._listening)
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.gather(self._starting, return_exceptions=True)
        await self._exit_stack.aclose()
        self._listening.close()

    def _start_serving(self) -> None:
        """The first connection is waiting in the backlog of the socket."""
        asyncio.get_running_loop().remove_reader(self._listening)
        self._starting = asyncio.create_task(self._serve(), name="dashboard")

    async def _serve(self) -> None:
        try:
            handler = await asyncio.to_thread(self._create_handler)  # pods are scheduled while modules are imported
            listener = self._listener(handler)
        except Exception as error:  # scheduling goes on without it
            _log.exception("Unable to serve the dashboard", extra=fields(err=str(error)))
            return
        listener.accept(self._listening)
        self._exit_stack.push_async_callback(listener.stop)
        self._exit_stack.callback(handler.close)

    def _create_handler(self) -> DashboardHandler:
        from kubestow.http import listener  # noqa: F401 - aiohttp takes the longest to import
        from kubestow.serving.dashboard_handler import DashboardHandler

        return DashboardHandler(self._observability, self._clock, self._configuration, self._gates)

    def _listener(self, handler: DashboardHandler) -> HTTPListener:
        from aiohttp import web

        from kubestow.http import aiohttp_messages, messages
        from kubestow.http.listener import HTTPListener
        from kubestow.serving.debug import debug_pod
        from kubestow.serving.zpages import configz

        debug = partial(debug_pod, self._observability, self._clock)
        prefixes: dict[str, messages.PrefixHandler] = {"/dashboard/": handler, "/debug/pods/": debug}
        paths: dict[str, messages.Handler] = {
            "/dashboard": handler.index,
            "/configz": partial(configz, self._configuration),
        }
        mux = messages.PathMux(paths=paths, prefixes=prefixes, deletions={})

        async def respond(incoming: web.BaseRequest) -> web.StreamResponse:
            response = await messages.respond(aiohttp_messages.parse(incoming), mux.handle)
            if response.stream is None:
                return aiohttp_messages.whole(response)
            return await aiohttp_messages.send_stream(incoming, response)

        return HTTPListener(respond, name="dashboard", shutdown_seconds=_SHUTDOWN_SECONDS)
