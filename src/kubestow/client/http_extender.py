"""Extenders over HTTP (semantics 2.6, 5.5): one service each, with connections, TLS and a time limit of its own.

The protocol's messages are in :mod:`kubestow.api.extender`; what an answer means for a decision is the business of
:mod:`kubestow.scheduling.extenders.port`. Whatever goes wrong between question and answer becomes an ExtenderError: no
connection, no answer in time, a status other than 200, too long an answer, one that does not decode, an error that the
extender itself reports.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self, TypeVar

import aiohttp
import msgspec
from msgspec import Raw

from kubestow import config
from kubestow.api import extender as wire
from kubestow.client.extender_tls import tls_context
from kubestow.client.raw_object_cache import RawObjectCache
from kubestow.client.rest.proxies import proxy_from_environment
from kubestow.client.rest.transport import JSON, USER_AGENT, problem_of
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import ExtenderError, InvalidObject
from kubestow.framework.interface import Victims
from kubestow.scheduling.extenders.port import Filtered, PodGone, Spared

__all__ = ["HTTPExtender", "HTTPExtenders"]

T = TypeVar("T")

_TIMEOUT = 5.0
#: An answer may repeat what was sent; reasons and whatever else come on top, up to so many bytes.
_SPARE = 2**24


class HTTPExtenders:
    """All extenders of a configuration. Use as ``async with``, which gives them in the order of the configuration.

    Raises InputError for TLS settings that cannot be used.
    """

    def __init__(self, settings: Sequence[config.Extender], raw_objects: RawObjectCache) -> None:
        self._extenders = [HTTPExtender(one, raw_objects) for one in settings]
        self._open = AsyncExitStack()

    async def __aenter__(self) -> list[HTTPExtender]:
        async with AsyncExitStack() as opening:
            for extender in self._extenders:
                await opening.enter_async_context(extender)
            self._open = opening.pop_all()
        return self._extenders

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._open.aclose()


class HTTPExtender:
    """Implements :class:`kubestow.scheduling.extenders.port.Extender`. Use as ``async with``."""

    def __init__(self, settings: config.Extender, raw_objects: RawObjectCache) -> None:
        self.settings = settings
        self._originals = raw_objects
        self._base = settings.url_prefix.rstrip("/")
        self._tls = tls_context(settings)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=self._tls, keepalive_timeout=90),
            headers={"User-Agent": USER_AGENT},
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=self.settings.http_timeout.seconds or _TIMEOUT),
            proxy=proxy_from_environment(self._base, os.environ),
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._session is not None
        await self._session.close()

    # -- the verbs -------------------------------------------------------------------------------------------------

    async def filter(self, pod: PodInfo, names: Sequence[str]) -> Filtered:
        """Which of some nodes are left. Raises ExtenderError, also for a node that was not sent."""
        verb = self.settings.filter_verb
        result = await self._ask(verb, self._question(verb, pod, names), wire.FilterResult)
        if result.error:
            raise self._error(verb, result.error)
        passed = self._passed(verb, result)
        sent = frozenset(names)
        for name in passed:
            if name not in sent:
                claim = f'claims a filtered node "{name}" which is not found in the input node list'
                raise self._error(verb, f'extender "{self.settings.url_prefix}" {claim}')
        return Filtered(passed, result.failed_nodes, result.failed_and_unresolvable_nodes)

    def _passed(self, verb: str, result: wire.FilterResult) -> Sequence[str]:
        """The names of the nodes in an answer: those that the extender was to give, or else the nodes."""
        if self.settings.node_cache_capable and result.node_names is not None:
            return result.node_names
        items = [] if result.nodes is None else result.nodes.items
        try:
            return [wire.name_of(node) for node in items]
        except InvalidObject as error:
            raise self._nonsense(verb, f"Nodes.items: {error}") from None

    async def prioritize(self, pod: PodInfo, names: Sequence[str]) -> Sequence[tuple[str, int]]:
        """Scores of nodes, as they are. Raises ExtenderError."""
        verb = self.settings.prioritize_verb
        scores = await self._ask(verb, self._question(verb, pod, names), list[wire.HostPriority])
        return [(one.host, one.score) for one in scores]

    async def preempt(self, pod: PodInfo, offers: Mapping[str, Victims]) -> Mapping[str, Spared]:
        """Which of some candidates are left, and whom to evict there. Raises ExtenderError."""
        verb = self.settings.preempt_verb
        original = self._pod(verb, pod)
        if self.settings.node_cache_capable:
            by_uid = {
                name: wire.MetaVictims(
                    pods=[wire.MetaPod(uid=victim.uid) for victim in victims.pods],
                    num_pdb_violations=victims.violations,
                )
                for name, victims in offers.items()
            }
            question = wire.PreemptionArgs(pod=original, node_name_to_meta_victims=by_uid)
        else:
            in_full = {name: self._victims(victims) for name, victims in offers.items()}
            question = wire.PreemptionArgs(pod=original, node_name_to_victims=in_full)
        result = await self._ask(verb, question, wire.PreemptionResult)
        return {
            name: Spared([victim.uid for victim in victims.pods], victims.num_pdb_violations)
            for name, victims in result.node_name_to_meta_victims.items()
        }

    async def bind(self, pod: PodInfo, node_name: str) -> None:
        """Bind a pod. Raises ExtenderError; the pod may be bound all the same."""
        verb = self.settings.bind_verb
        question = wire.BindingArgs(pod_name=pod.name, pod_namespace=pod.namespace, pod_uid=pod.uid, node=node_name)
        result = await self._ask(verb, question, wire.BindingResult)
        if result.error:
            raise self._error(verb, result.error)

    # -- questions -------------------------------------------------------------------------------------------------

    def _question(self, verb: str, pod: PodInfo, names: Sequence[str]) -> wire.ExtenderArgs:
        if self.settings.node_cache_capable:
            return wire.ExtenderArgs(pod=self._pod(verb, pod), node_names=list(names))
        nodes = (self._originals.node(name) for name in names)
        items = [node for node in nodes if node is not None]  # the others are gone by now
        return wire.ExtenderArgs(pod=self._pod(verb, pod), nodes=wire.NodeList(items=items))

    def _pod(self, verb: str, pod: PodInfo) -> Raw:
        original = self._originals.pod(pod.namespace, pod.name, pod.uid)
        if original is None:
            raise PodGone(self.settings.url_prefix, verb, f"pod {pod.key} is gone")
        return original

    def _victims(self, victims: Victims) -> wire.Victims:
        pods = (self._originals.pod(pod.namespace, pod.name, pod.uid) for pod in victims.pods)
        return wire.Victims(pods=[pod for pod in pods if pod is not None], num_pdb_violations=victims.violations)

    # -- over the wire ---------------------------------------------------------------------------------------------

    async def _ask(self, verb: str, question: msgspec.Struct, kind: type[T]) -> T:
        body = msgspec.json.encode(question)
        answer = await self._post(verb, body)
        try:
            return wire.read(kind, answer)
        except InvalidObject as error:
            raise self._nonsense(verb, str(error)) from None

    async def _post(self, verb: str, body: bytes) -> bytes:
        """The body of the answer. A connection that the extender was closing just then is not the last word."""
        try:
            try:
                return await self._send(verb, body)
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError, ConnectionResetError):
                if verb == self.settings.bind_verb:
                    raise
                return await self._send(verb, body)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise self._error(verb, f'Post "{self._base}/{verb}": {problem_of(error)}') from error

    async def _send(self, verb: str, body: bytes) -> bytes:
        assert self._session is not None, "the extender is used outside its async with"
        url = f"{self._base}/{verb}"
        server_name = self.settings.tls_config.server_name if self.settings.tls_config is not None else ""
        async with self._session.post(
            url, data=body, headers={"Content-Type": JSON}, server_hostname=server_name or None
        ) as response:
            if response.status != 200:
                raise self._error(verb, f"failed {verb} with extender at URL {url}, code {response.status}")
            return await self._read(verb, response, len(body) + _SPARE)

    async def _read(self, verb: str, response: aiohttp.ClientResponse, limit: int) -> bytes:
        parts: list[bytes] = []
        size = 0
        async for part in response.content.iter_any():
            size += len(part)
            if size > limit:
                raise self._error(verb, f"the answer is longer than {limit} bytes")
            parts.append(part)
        return b"".join(parts)

    def _nonsense(self, verb: str, problem: str) -> ExtenderError:
        return self._error(verb, f"the answer cannot be read: {problem}")

    def _error(self, verb: str, problem: str) -> ExtenderError:
        return ExtenderError(self.settings.url_prefix, verb, problem)
