"""The HTTP server of the extender protocol (semantics 5.5).

A request is evaluated synchronously on the event loop, so the cluster state cannot change meanwhile. The bodies in
memory are limited, each and in sum, and so is the time to receive one. Errors are returned in the ``Error`` field
where the protocol has one, otherwise as an HTTP status; repeated errors are logged once.
"""

from __future__ import annotations

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
from kubestow.extender.profile_extender import ExtenderCapabilities, ProfileExtender
from kubestow.http import aiohttp_messages
from kubestow.http.aiohttp_messages import BodyTooLarge
from kubestow.http.listener import HTTPListener
from kubestow.http.messages import HTTPResponse
from kubestow.log_fields import fields
from kubestow.scheduling.events.watch_cache import WatchCache

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
        # kube-scheduler gives up a request after a few seconds, which must not interrupt a binding.
        listener = HTTPListener(self._respond, name="extender", cancels=False)
        try:
            listening_on = await listener.listen(host, port, tls=tls)
        except OSError as error:
            raise KubestowError(f"cannot listen on {host}:{port}: {error.strerror or error}") from None
        try:
            yield listening_on
        finally:
            await listener.stop()

    # -- over HTTP -------------------------------------------------------------------------------------------------

    async def _respond(self, incoming: web.BaseRequest) -> web.StreamResponse:
        name = incoming.rel_url.path.removeprefix("/")
        is_verb = name in self._capabilities.verbs
        if not is_verb and name not in ("healthz", "livez", "readyz"):
            response = HTTPResponse.text("404: Not Found", 404)
        elif incoming.method not in (("POST",) if is_verb else ("GET", "HEAD")):
            response = HTTPResponse.text("405: Method Not Allowed", 405)
        elif is_verb:
            response = await self._call(name, incoming)
        elif name == "readyz" and not self._is_ready():
            response = HTTPResponse.text(_NOT_SYNCED, 503)
        else:
            response = HTTPResponse.text("ok\n")
        return aiohttp_messages.whole(response)

    async def _call(self, name: str, incoming: web.BaseRequest) -> HTTPResponse:
        if not self._is_ready():
            return HTTPResponse.text(_NOT_SYNCED, 503)
        verbs: dict[str, Verb] = {"filter": self.filter, "prioritize": self.prioritize}
        verbs |= {"preempt": self.preempt, "bind": self.bind}
        try:
            async with self._body(incoming) as body:
                result = await verbs[name](body)
        except _Refused as refused:
            return self._error_response(name, refused.status, str(refused))
        except InvalidObject as error:
            return self._error_response(name, 400, f"invalid request: {error}")
        except KubestowError as error:
            return self._error_response(name, 500, str(error))
        return HTTPResponse(200, msgspec.json.encode(result))

    @asynccontextmanager
    async def _body(self, incoming: web.BaseRequest) -> AsyncIterator[bytes]:
        """The body of a request, which counts towards the total while in use. Raises _Refused."""
        counted = 0

        def count(size: int) -> None:
            nonlocal counted
            counted += size
            self._total_size += size
            if self._total_size > _MAX_TOTAL_SIZE:
                raise _Refused(503, f"the requests in progress exceed {_MAX_TOTAL_SIZE} bytes")

        try:
            try:
                body = await aiohttp_messages.read_body(
                    incoming, max_size=self._max_size, seconds=_RECEIVE_SECONDS, received=count
                )
            except BodyTooLarge as error:
                raise _Refused(413, str(error)) from None
            except TimeoutError:
                raise _Refused(408, f"the request did not arrive within {_RECEIVE_SECONDS:g} s") from None
            yield body
        finally:
            self._total_size -= counted

    def _error_response(self, verb: str, status: int, error: str) -> HTTPResponse:
        self._log_error(verb, error)
        return HTTPResponse.text(f"{error}\n", status)

    def _log_error(self, verb: str, error: str) -> None:
        level = logging.DEBUG if self._last_errors.get(verb) == error else logging.WARNING
        self._last_errors[verb] = error
        _log.log(level, "%s: %s", verb, error, extra=fields(verb=verb, err=error))

    def _is_ready(self) -> bool:
        return self._cache.synced or not self._capabilities.node_cache_capable

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
            victims = {}
            for name, full in (args.node_name_to_victims or {}).items():
                pods = [wire.MetaPod(uid=wire.uid_of(pod)) for pod in full.pods]
                victims[name] = wire.MetaVictims(pods=pods, num_pdb_violations=full.num_pdb_violations)
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
