"""The extender protocol, served (semantics 5.5): requests in, opinions out.

Every request is answered in one go on the event loop, so nothing moves while an opinion is formed. What cannot be
answered says so where the protocol has a place for it, else by the HTTP status, and is logged once.
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
from kubestow.extending.mirror import Mirror
from kubestow.extending.opinions import Opinions
from kubestow.extending.stanza import Offer

__all__ = ["Service"]

_log = logging.getLogger(__name__)

#: The longest request, in bytes: room for the full objects of about ten thousand nodes.
_LONGEST = 2**28
_UNCACHED = "this extender knows only the nodes it is sent; configure it with nodeCacheCapable: false"

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Verb = Callable[[bytes], Awaitable[msgspec.Struct | list[wire.HostPriority]]]


class Service:
    """Answers the verbs of an offer. ``bind`` does the binding where that is offered."""

    def __init__(
        self,
        opinions: Opinions,
        mirror: Mirror,
        offer: Offer,
        bind: Callable[[wire.BindingArgs], Awaitable[None]] | None = None,
    ) -> None:
        self._opinions, self._mirror, self._offer, self._bind_pod = opinions, mirror, offer, bind
        self._problems: dict[str, str] = {}

    @asynccontextmanager
    async def listening(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
        """Serve while inside; gives the port, which is any free one for 0. Raises KubestowError if it cannot be had."""
        runner = web.AppRunner(self._application(), access_log=None, shutdown_timeout=1.0)
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
        application = web.Application(client_max_size=_LONGEST)
        verbs: Mapping[str, Verb] = {
            "filter": self.filter,
            "prioritize": self.prioritize,
            "preempt": self.preempt,
            "bind": self.bind,
        }
        for name in self._offer.verbs:
            application.router.add_post(f"/{name}", self._handler(name, verbs[name]))
        for path in ("/healthz", "/livez"):
            application.router.add_get(path, _healthy)
        application.router.add_get("/readyz", self._ready)
        return application

    # -- over HTTP -------------------------------------------------------------------------------------------------

    def _handler(self, name: str, verb: Verb) -> Handler:
        async def handle(request: web.Request) -> web.Response:
            if self._is_filling():
                return web.Response(status=503, text="the cluster has not been read yet\n")
            try:
                answer = await verb(await request.read())
            except InvalidObject as error:
                return self._failed(name, 400, f"the request cannot be read: {error}")
            except KubestowError as error:
                return self._failed(name, 500, str(error))
            return web.Response(body=msgspec.json.encode(answer), content_type="application/json")

        return handle

    def _failed(self, verb: str, status: int, problem: str) -> web.Response:
        self._tell(verb, problem)
        return web.Response(status=status, text=f"{problem}\n")

    def _tell(self, verb: str, problem: str) -> None:
        level = logging.DEBUG if self._problems.get(verb) == problem else logging.WARNING
        self._problems[verb] = problem
        _log.log(level, "%s: %s", verb, problem)

    def _is_filling(self) -> bool:
        return self._offer.cached and not self._mirror.synced

    async def _ready(self, request: web.Request) -> web.Response:
        if self._is_filling():
            return web.Response(status=503, text="the cluster has not been read yet\n")
        return web.Response(text="ok\n")

    # -- the verbs -------------------------------------------------------------------------------------------------

    async def filter(self, body: bytes) -> wire.FilterResult:
        """Answer filter. Raises InvalidObject for a request that cannot be read."""
        args = wire.read(wire.ExtenderArgs, body)
        pod = decode(Pod, args.pod)
        try:
            names, nodes = self._nodes(args)
            verdicts = self._opinions.filter(pod, names)
        except KubestowError as error:
            if isinstance(error, InvalidObject):
                raise
            self._tell("filter", str(error))
            return wire.FilterResult(error=str(error))
        passed = verdicts.passed
        return wire.FilterResult(
            nodes=None if nodes is None else wire.NodeList(items=[nodes[name] for name in passed]),
            node_names=passed if nodes is None else None,
            failed_nodes=verdicts.failed,
            failed_and_unresolvable_nodes=verdicts.unresolvable,
        )

    async def prioritize(self, body: bytes) -> list[wire.HostPriority]:
        """Answer prioritize. Raises KubestowError when there is no answer."""
        args = wire.read(wire.ExtenderArgs, body)
        pod = decode(Pod, args.pod)
        names, _ = self._nodes(args)
        return [wire.HostPriority(host=name, score=score) for name, score in self._opinions.prioritize(pod, names)]

    async def preempt(self, body: bytes) -> wire.PreemptionResult:
        """Answer preempt: the candidates on which the pod would fit without the victims. Raises KubestowError."""
        args = wire.read(wire.PreemptionArgs, body)
        victims = args.node_name_to_meta_victims
        if victims is None:
            victims = {name: _meta(given) for name, given in (args.node_name_to_victims or {}).items()}
        return wire.PreemptionResult(node_name_to_meta_victims=self._opinions.preempt(decode(Pod, args.pod), victims))

    async def bind(self, body: bytes) -> wire.BindingResult:
        """Answer bind."""
        assert self._bind_pod is not None
        try:
            await self._bind_pod(wire.read(wire.BindingArgs, body))
        except InvalidObject:
            raise
        except KubestowError as error:
            self._tell("bind", str(error))
            return wire.BindingResult(error=str(error))
        return wire.BindingResult()

    def _nodes(self, args: wire.ExtenderArgs) -> tuple[list[str], Mapping[str, Raw] | None]:
        """The names of the nodes that are asked about, and the nodes if it was those that were sent."""
        if args.nodes is None:
            if not self._offer.cached:
                raise KubestowError(_UNCACHED)
            return args.node_names or [], None
        nodes = {wire.name_of(node): node for node in args.nodes.items}
        if not self._offer.cached:
            self._mirror.show(nodes)
        return list(nodes), nodes


def _meta(victims: wire.Victims) -> wire.MetaVictims:
    pods = [wire.MetaPod(uid=wire.uid_of(pod)) for pod in victims.pods]
    return wire.MetaVictims(pods=pods, num_pdb_violations=victims.num_pdb_violations)


async def _healthy(request: web.Request) -> web.Response:
    return web.Response(text="ok\n")
