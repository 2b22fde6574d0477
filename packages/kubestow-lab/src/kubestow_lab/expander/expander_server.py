"""The services of ``kubestow expander`` on a watched cluster: cluster-autoscaler's gRPC expander, and simulations.

A question is answered synchronously on the event loop, so the cluster cannot change meanwhile. Requests are limited in
size, the time to receive one by HTTP, and the time to answer one. A question that is too large or takes too long is an
error, after which cluster-autoscaler goes on without this expander.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import msgspec
from aiohttp import web

from kubestow import config
from kubestow.api.core import Node, Pod
from kubestow.client.cluster_client import ClusterClient
from kubestow.client.rest.credentials import load_credentials
from kubestow.errors import InputError, InvalidObject, KubestowError
from kubestow.extender.extender_app import server_tls
from kubestow.extender.handle import ReadOnlyHandle
from kubestow.files import read_file
from kubestow.framework.profile import Profile, Registry, build_profile
from kubestow.http import aiohttp_messages
from kubestow.http.aiohttp_messages import BodyTooLarge
from kubestow.http.listener import HTTPListener
from kubestow.http.messages import HTTPResponse
from kubestow.log_fields import fields
from kubestow.plugins.registry import find_pod_group_apis
from kubestow.process import WallClock
from kubestow.scheduling.events.resources import WATCHED, watched
from kubestow.scheduling.events.watch_cache import WatchCache
from kubestow_lab.expander.messages import EXPANDER, SIMULATOR, decode_object, message_class, object_of
from kubestow_lab.expander.scale_up import (
    NodeTemplate,
    OutOfTime,
    QuestionTooLarge,
    RankedOption,
    ScaleUpOption,
    ScaleUpSimulator,
)

try:
    import grpc
except ModuleNotFoundError:
    raise InputError(__name__, "needs gRPC, install kubestow-lab[expander]") from None

_log = logging.getLogger(__name__)

#: The maximum size of a request in bytes: pods and nodes of some kilobytes each.
_MAX_SIZE = 2**26
#: Seconds in which a request by HTTP has to arrive, and in which a question has to be answered: cluster-autoscaler
#: gives up after five.
_RECEIVE_SECONDS = 30.0
_ANSWER_SECONDS = 4.0
#: Calls in progress at once, whose requests are in memory: further ones by gRPC are refused, those by HTTP wait.
_MAX_CALLS = 4
_STOP_SECONDS = 1.0
_NOT_SYNCED = "the cluster has not been listed yet"


class _Nodes(msgspec.Struct, frozen=True):
    node: msgspec.Raw
    count: int = 1


class _SimulateBody(msgspec.Struct, frozen=True):
    """The body of ``POST /v1/simulate``."""

    pods: list[msgspec.Raw]
    nodes: list[_Nodes] = []


class InvalidRequest(KubestowError):
    """A request is malformed, or names something that it does not have."""


@dataclass(frozen=True, slots=True)
class TLSFiles:
    """The files of a server's certificate and key, and of the authority of its clients; "" for none."""

    certificate: str = ""
    key: str = ""
    client_authority: str = ""

    def context(self) -> ssl.SSLContext | None:
        """The context of the HTTP server, None without TLS. Raises InputError for invalid options and files."""
        return server_tls(self.certificate, self.key, self.client_authority)

    def credentials(self) -> grpc.ServerCredentials | None:
        """The same for the gRPC server."""
        if not self.certificate:
            return None
        pair = read_file(Path(self.key)), read_file(Path(self.certificate))
        authority = read_file(Path(self.client_authority)) if self.client_authority else None
        return grpc.ssl_server_credentials([pair], authority, require_client_auth=authority is not None)


class ExpanderServer:
    """Answers questions about the cluster of a configured scheduler. Raises ConfigurationError and PluginError."""

    def __init__(
        self, configuration: config.KubeSchedulerConfiguration, registry: Registry, gates: config.FeatureGates
    ) -> None:
        self.cache = WatchCache(find_pod_group_apis(), gates=gates)
        self._random = Random()
        handle = ReadOnlyHandle(self.cache.cluster, gates, self._random)
        self._profiles: dict[str, Profile] = {
            each.scheduler_name: build_profile(
                each, registry, handle, percentage_of_nodes_to_score=configuration.percentage_of_nodes_to_score
            )
            for each in configuration.profiles
        }
        self._handle = handle
        self._http_calls = asyncio.Semaphore(_MAX_CALLS)
        self._simulator = ScaleUpSimulator(self.cache.cluster, self._profiles, monotonic=time.monotonic)

    # -- running -------------------------------------------------------------------------------------------------------

    async def watch(self, *, kubeconfig: str, context: str, master: str, on_ready: Callable[[], None]) -> None:
        """Watch the cluster until cancelled; ``on_ready`` is called when it has been listed.

        Raises InputError and APIError.
        """
        self.cache.on_synced = on_ready
        self._handle.start_periodic_work()
        credentials = await load_credentials(kubeconfig, context=context, master=master)
        async with ClusterClient(credentials, clock=WallClock(), random=self._random) as cluster:
            await cluster.wait_for_api_server()
            await cluster.versions.discover()
            kinds = {
                kind for profile in self._profiles.values() for each in profile.plugins for kind in each.watched_kinds()
            }
            additional = [resource for resource in watched(kinds) if resource not in WATCHED]
            self.cache.expect(additional)
            await cluster.subscribe((*self.cache.watched, *additional), self.cache)

    @asynccontextmanager
    async def listen(
        self, host: str, port: int, http_port: int | None, tls: TLSFiles | None = None
    ) -> AsyncIterator[tuple[int, int | None]]:
        """Serve gRPC, and HTTP unless its port is None, and yield the two ports; 0 selects a free one.

        Raises InputError for invalid certificates, and KubestowError if a port is in use.
        """
        tls = tls or TLSFiles()
        context, credentials = tls.context(), tls.credentials()
        limit = [("grpc.max_receive_message_length", _MAX_SIZE), ("grpc.so_reuseport", 0)]
        server = grpc.aio.server(options=limit, maximum_concurrent_rpcs=_MAX_CALLS)
        for service, method, answer in (
            (EXPANDER, "BestOptions", self._best_options),
            (SIMULATOR, "Simulate", self._simulate),
        ):
            request = message_class(f"{service.rpartition('.')[0]}.{method}Request")
            handler = grpc.unary_unary_rpc_method_handler(
                self._handler(answer), request.FromString, lambda response: response.SerializeToString()
            )
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))
        async with AsyncExitStack() as stack:
            address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            try:
                bound = (
                    server.add_insecure_port(address)
                    if credentials is None
                    else server.add_secure_port(address, credentials)
                )
            except RuntimeError:
                raise KubestowError(f"cannot listen on {address}: the address is in use or unknown") from None
            await server.start()
            stack.push_async_callback(server.stop, _STOP_SECONDS)
            http_bound = None
            if http_port is not None:
                listener = HTTPListener(self._respond, name="simulations")
                try:
                    http_bound = await listener.listen(host, http_port, tls=context)
                except OSError as error:
                    raise KubestowError(f"cannot listen on {host}:{http_port}: {error.strerror or error}") from None
                stack.push_async_callback(listener.stop)
            yield bound, http_bound

    # -- gRPC ----------------------------------------------------------------------------------------------------------

    def _handler(self, answer: Callable[[Any, float], Any]) -> Callable[[Any, Any], Any]:
        """The handler of a method: its answer, or the failure as a status."""

        async def handle(request: Any, context: Any) -> Any:
            if not self.cache.synced:
                await context.abort(grpc.StatusCode.UNAVAILABLE, _NOT_SYNCED)
            remaining = context.time_remaining()
            try:
                return answer(request, min(_ANSWER_SECONDS, _ANSWER_SECONDS if remaining is None else remaining))
            except KubestowError as error:
                _log.warning("%s", error, extra=fields(err=str(error)))
                await context.abort(_status_of(error), str(error))

        return handle

    def _best_options(self, request: Any, seconds: float) -> Any:
        """BestOptions: the best of the options, without their pods, as cluster-autoscaler reads only the node group."""
        ranked = self._simulator.best_options([_option(each, request) for each in request.options], seconds)
        response = message_class("grpcplugin.BestOptionsResponse")()
        for each in ranked:
            response.options.add(  # type: ignore[attr-defined]  # made of a descriptor
                nodeGroupId=each.option.node_group, nodeCount=each.option.template.count, debug=str(each)
            )
        _log_best(ranked, len(request.options))
        return response

    def _simulate(self, request: Any, seconds: float) -> Any:
        pods = [decode_object(Pod, encoded) for encoded in request.pods]
        nodes = [NodeTemplate(decode_object(Node, each.node), each.count or 1) for each in request.nodes]
        response: Any = message_class("kubestow.simulation.v1.SimulateResponse")()
        for placement in self._answer(pods, nodes, seconds)["placements"]:
            response.placements.add(**placement)
        response.fits = all(placement.node for placement in response.placements)
        return response

    # -- HTTP ----------------------------------------------------------------------------------------------------------

    async def _respond(self, incoming: web.BaseRequest) -> web.StreamResponse:
        path, method = incoming.rel_url.path, incoming.method
        if path == "/v1/simulate":
            response = HTTPResponse.text("405: Method Not Allowed", 405)
            if method == "POST":
                async with self._http_calls:
                    response = await self._simulate_body(incoming)
        elif path in ("/healthz", "/livez", "/readyz") and method in ("GET", "HEAD"):
            is_ready = path != "/readyz" or self.cache.synced
            response = HTTPResponse.text("ok\n") if is_ready else HTTPResponse.text(f"{_NOT_SYNCED}\n", 503)
        else:
            response = HTTPResponse.text("404: Not Found", 404)
        return aiohttp_messages.whole(response)

    async def _simulate_body(self, incoming: web.BaseRequest) -> HTTPResponse:
        try:
            body = await aiohttp_messages.read_body(
                incoming, max_size=_MAX_SIZE, seconds=_RECEIVE_SECONDS, received=lambda size: None
            )
        except BodyTooLarge as error:
            return HTTPResponse.text(f"{error}\n", 413)
        except TimeoutError:
            return HTTPResponse.text(f"the request did not arrive within {_RECEIVE_SECONDS:g} s\n", 408)
        if not self.cache.synced:
            return HTTPResponse.text(f"{_NOT_SYNCED}\n", 503)
        try:
            question = msgspec.json.decode(body, type=_SimulateBody)
            pods = [_decoded(Pod, raw, f"pods[{number}]") for number, raw in enumerate(question.pods)]
            nodes = [
                NodeTemplate(_decoded(Node, each.node, f"nodes[{number}].node"), each.count)
                for number, each in enumerate(question.nodes)
            ]
            return HTTPResponse(200, msgspec.json.encode(self._answer(pods, nodes, _ANSWER_SECONDS)))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return HTTPResponse.text(f"invalid request: {error}\n", 400)
        except (InvalidObject, InvalidRequest, QuestionTooLarge) as error:
            return HTTPResponse.text(f"invalid request: {error}\n", 400)
        except KubestowError as error:
            _log.warning("%s", error, extra=fields(err=str(error)))
            return HTTPResponse.text(f"{error}\n", 503 if isinstance(error, OutOfTime) else 500)

    def _answer(self, pods: list[Pod], nodes: list[NodeTemplate], seconds: float) -> dict[str, Any]:
        """Whether all pods fit with some nodes more, and where each goes, or why to none."""
        if any(template.count < 0 for template in nodes):
            raise InvalidRequest("count: expected a number of nodes, not a negative one")
        placements = self._simulator.simulate(pods, nodes, seconds)
        return {
            "fits": all(placement.node_name for placement in placements),
            "placements": [
                {
                    "namespace": placement.pod.metadata.namespace,
                    "name": placement.pod.metadata.name,
                    "node": placement.node_name,
                    "reason": placement.reason,
                }
                for placement in placements
            ],
        }


def _decoded(kind: type[Any], raw: msgspec.Raw, place: str) -> Any:
    """An object of a request, with Kubernetes' defaults. Raises InvalidRequest, naming the place."""
    encoded = bytes(raw)
    if encoded[:1] != b"{":
        raise InvalidRequest(f"{place}: expected an object")
    try:
        return decode_object(kind, encoded)
    except InvalidObject as error:
        raise InvalidRequest(f"{place}: {error}") from None


def _option(option: Any, request: Any) -> ScaleUpOption:
    """An option of cluster-autoscaler, with the nodes and pods as bytes since 1.35, or as messages before."""
    group = option.nodeGroupId
    encoded: Mapping[str, bytes] = request.nodeBytesMap
    if group in encoded:
        node = decode_object(Node, encoded[group])
    elif group in request.nodeMap:
        node = object_of(Node, request.nodeMap[group])
    else:
        raise InvalidRequest(f"option {group}: the request has no node of this group")
    pods = [decode_object(Pod, each) for each in option.podBytes] or [object_of(Pod, each) for each in option.pod]
    return ScaleUpOption(group, NodeTemplate(node, max(1, option.nodeCount)), pods)


def _status_of(error: KubestowError) -> grpc.StatusCode:
    if isinstance(error, OutOfTime):
        return grpc.StatusCode.DEADLINE_EXCEEDED
    if isinstance(error, QuestionTooLarge):
        return grpc.StatusCode.RESOURCE_EXHAUSTED
    if isinstance(error, InvalidObject | InvalidRequest | InputError):
        return grpc.StatusCode.INVALID_ARGUMENT
    return grpc.StatusCode.INTERNAL


def _log_best(ranked: list[RankedOption], options: int) -> None:
    best = ", ".join(each.option.node_group for each in ranked) or "none, as no option helps any pod"
    _log.info("best of %d options: %s", options, best, extra=fields(options=options, best=best))


async def serve_expander(
    server: ExpanderServer,
    *,
    host: str,
    port: int,
    http_port: int | None,
    tls: TLSFiles,
    kubeconfig: str,
    context: str,
    master: str,
    on_listening: Callable[[int, int | None], None],
    on_ready: Callable[[], None],
) -> None:
    """Serve until cancelled. Raises InputError, APIError and KubestowError."""
    async with server.listen(host, port, http_port, tls) as (bound, http_bound):
        on_listening(bound, http_bound)
        await server.watch(kubeconfig=kubeconfig, context=context, master=master, on_ready=on_ready)
        await asyncio.get_running_loop().create_future()
