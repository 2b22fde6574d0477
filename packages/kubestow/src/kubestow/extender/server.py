"""The HTTP server of the extender protocol (semantics 5.5).

A request is evaluated synchronously on the event loop, so the cluster state cannot change meanwhile. The bodies in
memory are limited, each and in sum, and so is the time to receive one. Errors are returned in the ``Error`` field
where the protocol has one, otherwise as an HTTP status; repeated errors are logged once.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

import msgspec
from aiohttp import web
from msgspec import Raw

from kubestow.api import extender as wire
from kubestow.api.core import Pod
from kubestow.api.meta import decode
from kubestow.errors import InvalidObject, KubestowError
from kubestow.extender.capabilities import ExtenderCapabilities
from kubestow.extender.profile_extender import ProfileExtender
from kubestow.extender.watch_cache import WatchCache
from kubestow.log_fields import fields

__all__ = ["ExtenderServer"]

_log = logging.getLogger(__name__)

#: The maximum size of a request with the names of nodes, in bytes: a pod of 1.5 MiB, and the victims on all nodes.
_MAX_REQUEST_SIZE = 2**24
#: The maximum size of a request with whole nodes: the objects of about five thousand nodes.
_MAX_REQUEST_SIZE_WITH_NODES = 2**27
#: The maximum size of all requests in memory at a time.
_MAX_TOTAL_SIZE = 2**28
#: Seconds in which a request has to arrive; kube-scheduler itself gives up after 5 by default.
_RECEIVE_SECONDS = 30.0
_NOT_CACHE_CAPABLE = "the extender runs without a cache and needs full nodes, set nodeCacheCapable: false"
_NOT_SYNCED = "the cache is not synced yet\n"

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Verb = Callable[[bytes], Awaitable[msgspec.Struct | list[wire.HostPriority]]]


class _Refused(Exception):
    """A request is too large or too slow; the response has this status."""

    def __init__(self, status: int, problem: str) -> None:
        super().__init__(problem)
        self.status = status


class ExtenderServer:
    """Serves the verbs of an extender's capabilities; ``bind`` implements the bind verb."""

    def __init__(
        self,
        extender: ProfileExtender,
        cache: WatchCache,
        capabilities: ExtenderCapabilities,
        bind: Callable[[wire.BindingArgs], Awaitable[None]] | None = None,
    ) -> None:
        self._extender, self._cache, self._capabilities, self._bind_pod = extender, cache, capabilities, bind
        self._max_size = _MAX_REQUEST_SIZE if capabilities.node_cache_capable else _MAX_REQUEST_SIZE_WITH_NODES
        self._total_size = 0
        self._last_errors: dict[str, str] = {}

    @asynccontextmanager
    async def listen(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
        """Serve within the context and yield the port; 0 selects a free one. Raises KubestowError if it is in use."""
        # A small compressed body may decompress to a thousand times its size.
        runner = web.AppRunner(self._application(), access_log=None, shutdown_timeout=1.0, auto_decompress=False)
        await runner.setup()
        try:
            await web.TCPSite(runner, host, port, ssl_context=tls, backlog=1024).start()
        except OSError as error:
            await runner.cleanup()
            raise KubestowError(f"cannot listen on {host}:{port}: {error.strerror or error}") from None
        try:
            yield int(runner.addresses[0][1])
        finally:
            await runner.cleanup()

    def _application(self) -> web.Application:
        application = web.Application()
        verbs: Mapping[str, Verb] = {
            "filter": self.filter,
            "prioritize": self.prioritize,
            "preempt": self.preempt,
            "bind": self.bind,
        }
        for name in self._capabilities.verbs:
            application.router.add_post(f"/{name}", self._handler(name, verbs[name]))
        for path in ("/healthz", "/livez"):
            application.router.add_get(path, _healthz)
        application.router.add_get("/readyz", self._readyz)
        return application

    # -- over HTTP -------------------------------------------------------------------------------------------------

    def _handler(self, name: str, verb: Verb) -> Handler:
        async def handle(request: web.Request) -> web.Response:
            if not self._is_ready():
                return web.Response(status=503, text=_NOT_SYNCED)
            try:
                async with self._body(request) as body:
                    result = await verb(body)
            except _Refused as refused:
                return self._error_response(name, refused.status, str(refused))
            except InvalidObject as error:
                return self._error_response(name, 400, f"invalid request: {error}")
            except KubestowError as error:
                return self._error_response(name, 500, str(error))
            return web.Response(body=msgspec.json.encode(result), content_type="application/json")

        return handle

    @asynccontextmanager
    async def _body(self, request: web.Request) -> AsyncIterator[bytes]:
        """The body of a request, which counts towards the total while in use. Raises _Refused."""
        body = bytearray()
        try:
            try:
                async with asyncio.timeout(_RECEIVE_SECONDS):
                    async for chunk in request.content.iter_any():
                        body += chunk
                        self._total_size += len(chunk)
                        self._check_size(len(body))
            except TimeoutError:
                raise _Refused(408, f"the request did not arrive within {_RECEIVE_SECONDS:g} s") from None
            yield bytes(body)
        finally:
            self._total_size -= len(body)

    def _check_size(self, size: int) -> None:
        if size > self._max_size:
            raise _Refused(413, f"the request exceeds {self._max_size} bytes")
        if self._total_size > _MAX_TOTAL_SIZE:
            raise _Refused(503, f"the requests in progress exceed {_MAX_TOTAL_SIZE} bytes")

    def _error_response(self, verb: str, status: int, error: str) -> web.Response:
        self._log_error(verb, error)
        return web.Response(status=status, text=f"{error}\n")

    def _log_error(self, verb: str, error: str) -> None:
        level = logging.DEBUG if self._last_errors.get(verb) == error else logging.WARNING
        self._last_errors[verb] = error
        _log.log(level, "%s: %s", verb, error, extra=fields(verb=verb, err=error))

    def _is_ready(self) -> bool:
        return self._cache.synced or not self._capabilities.node_cache_capable

    async def _readyz(self, request: web.Request) -> web.Response:
        return web.Response(text="ok\n") if self._is_ready() else web.Response(status=503, text=_NOT_SYNCED)

    # -- the verbs -------------------------------------------------------------------------------------------------

    async def filter(self, body: bytes) -> wire.FilterResult:
        """Handle filter. Raises InvalidObject for an invalid request."""
        args = wire.read(wire.ExtenderArgs, body)
        pod = decode(Pod, args.pod)
        try:
            names, nodes = self._nodes(args)
            result = self._extender.filter(pod, names)
        except KubestowError as error:
            if isinstance(error, InvalidObject):
                raise
            self._log_error("filter", str(error))
            return wire.FilterResult(error=str(error))
        feasible = result.feasible
        return wire.FilterResult(
            nodes=None if nodes is None else wire.NodeList(items=[nodes[name] for name in feasible]),
            node_names=feasible if nodes is None else None,
            failed_nodes=result.failed,
            failed_and_unresolvable_nodes=result.unresolvable,
        )

    async def prioritize(self, body: bytes) -> list[wire.HostPriority]:
        """Handle prioritize. Raises InvalidObject for an invalid request, KubestowError if a plugin fails."""
        args = wire.read(wire.ExtenderArgs, body)
        pod = decode(Pod, args.pod)
        names, _ = self._nodes(args)
        return [wire.HostPriority(host=name, score=score) for name, score in self._extender.prioritize(pod, names)]

    async def preempt(self, body: bytes) -> wire.PreemptionResult:
        """Handle preempt. Raises InvalidObject for an invalid request, KubestowError if a plugin fails."""
        args = wire.read(wire.PreemptionArgs, body)
        victims = args.node_name_to_meta_victims
        if victims is None:
            victims = {name: _meta(full) for name, full in (args.node_name_to_victims or {}).items()}
        return wire.PreemptionResult(node_name_to_meta_victims=self._extender.preempt(decode(Pod, args.pod), victims))

    async def bind(self, body: bytes) -> wire.BindingResult:
        """Handle bind. Raises InvalidObject for an invalid request."""
        assert self._bind_pod is not None
        try:
            await self._bind_pod(wire.read(wire.BindingArgs, body))
        except InvalidObject:
            raise
        except KubestowError as error:
            self._log_error("bind", str(error))
            return wire.BindingResult(error=str(error))
        return wire.BindingResult()

    def _nodes(self, args: wire.ExtenderArgs) -> tuple[list[str], Mapping[str, Raw] | None]:
        """The names of the nodes of a request, and the nodes themselves if the request has them."""
        if args.nodes is None:
            if not self._capabilities.node_cache_capable:
                raise KubestowError(_NOT_CACHE_CAPABLE)
            return args.node_names or [], None
        nodes = {wire.name_of(node): node for node in args.nodes.items}
        if not self._capabilities.node_cache_capable:
            self._cache.set_nodes(nodes)
        return list(nodes), nodes


def _meta(victims: wire.Victims) -> wire.MetaVictims:
    pods = [wire.MetaPod(uid=wire.uid_of(pod)) for pod in victims.pods]
    return wire.MetaVictims(pods=pods, num_pdb_violations=victims.num_pdb_violations)


async def _healthz(request: web.Request) -> web.Response:
    return web.Response(text="ok\n")
