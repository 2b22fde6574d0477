"""What a descheduler asks for: the objects of a cluster, the results of a policy's Prometheus queries, and evictions.

A loop runs every few minutes and needs the cluster as it is then, so nothing is watched in between: objects are listed
and queries sent anew before each. Whatever Prometheus does, a loop runs: a query that fails has a result that says why,
and the strategy that needs it evicts no pod.

Evictions are requested from the Eviction API, whose server applies the disruption budgets. The loop is synchronous and
runs in a thread of its own, so that the event loop keeps serving metrics and renewing the Lease. Each eviction is a
request on the event loop that the thread waits for.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import concurrent.futures
import logging
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from kubestow.api.json_text import UNDECODABLE
from kubestow.client.cluster_client import ClusterClient
from kubestow.client.http_json import JSONServer, query_vector
from kubestow.client.object_requests import list_pages
from kubestow.client.rest.credentials import SERVICE_ACCOUNT
from kubestow.client.rest.transport import Transport
from kubestow.descheduling.descheduler_policy import DeschedulerPolicy, PrometheusOptions
from kubestow.descheduling.eviction import Eviction, Refusal, RefusedBy
from kubestow.descheduling.interface import ExtensionPoint, Registry
from kubestow.descheduling.snapshot import QueryResult, QuerySample
from kubestow.engine.input.documents import Problems, SourceObject, parse_objects
from kubestow.engine.pipeline.offline_scheduler import SchedulerOptions
from kubestow.errors import APIError, InputError, KubestowError, Unreachable
from kubestow.log_fields import fields
from kubestow.plugins.registry import find_pod_group_apis
from kubestow.rules.minors import Minor
from kubestow.scheduling.events.resources import with_custom
from kubestow.scheduling.interfaces import Resource

_log = logging.getLogger(__name__)

_PATHS = (
    "/api/v1/nodes",
    "/api/v1/pods",
    "/api/v1/namespaces",
    "/api/v1/persistentvolumeclaims",
    "/apis/policy/v1/poddisruptionbudgets",
    "/apis/scheduling.k8s.io/v1/priorityclasses",
)
_METRICS = ("/apis/metrics.k8s.io/v1beta1/nodes", "/apis/metrics.k8s.io/v1beta1/pods")
_NOT_FOUND, _FORBIDDEN = 404, 403


async def find_scheduling_resources(cluster: ClusterClient) -> list[Resource]:
    """The resources that scheduling depends on, in the versions that the API server has.

    Raises APIError and Unreachable.
    """
    await cluster.versions.discover()
    return [cluster.versions.addressed(each) for each in with_custom(api.kind for api in find_pod_group_apis())]


async def emulating_server(options: SchedulerOptions, cluster: ClusterClient) -> SchedulerOptions:
    """Options with the API server's minor version, unless they name one. Raises InputError, APIError, Unreachable."""
    if options.emulated_version:
        return options
    version = await cluster.server_version()
    emulated = str(Minor.of_server(version))
    _log.info("Emulating the API server's version", extra=fields(server=version, emulated=emulated))
    return msgspec.structs.replace(options, emulated_version=emulated)


async def list_cluster(
    transport: Transport, *, for_scheduling: Iterable[Resource], metrics: bool, problems: Problems
) -> Iterable[SourceObject]:
    """The objects that evictions depend on, and those ``for_scheduling``, which scheduling depends on as well.

    With ``metrics`` also what nodes and pods use; a metrics server that fails is logged. Raises APIError and
    Unreachable.
    """
    resources = {f"{resource.prefix}/{resource.plural}": resource for resource in for_scheduling}
    paths = dict.fromkeys((*_PATHS, *resources))
    found: list[tuple[str, bytes]] = []
    for path in paths:
        try:
            pages, _ = await list_pages(transport, path)
        except APIError as error:
            is_optional = path in resources and resources[path].optional
            if error.code not in (_NOT_FOUND, _FORBIDDEN) or not is_optional:
                raise
        else:
            found += ((path, page) for page in pages)
    for path in _METRICS if metrics else ():
        try:
            found += ((path, page) for page in (await list_pages(transport, path))[0])
        except (APIError, Unreachable) as error:
            _log.warning("The metrics server does not respond: %s", error, extra=fields(path=path, err=str(error)))
    return [source for path, page in found for source in parse_objects(page, path, problems)]


_TOKEN_KEY = "prometheusAuthToken"


class _Secret(msgspec.Struct, frozen=True):
    data: dict[str, str] = {}


async def query_results(
    policy: DeschedulerPolicy, registry: Registry, transport: Transport
) -> Mapping[str, QueryResult]:
    """The results of the queries of all strategies, by query; none without a Prometheus among ``metricsProviders``."""
    queries, prometheus = _queries(policy, registry), policy.prometheus
    if prometheus is None or not queries:
        return {}
    authority = SERVICE_ACCOUNT / "ca.crt"
    ca_file = str(authority) if authority.is_file() else ""
    try:
        server = JSONServer(prometheus.url, await _token(prometheus, transport), ca_file=ca_file)
    except (APIError, Unreachable, InputError) as error:
        return {query: QueryResult(problem=str(error)) for query in queries}
    return {query: await _result(server, query) for query in queries}


def _queries(policy: DeschedulerPolicy, registry: Registry) -> list[str]:
    found: dict[str, None] = {}
    for profile in policy.profiles:
        arguments = {config.name: config.args for config in reversed(profile.plugin_config)}
        for point in (ExtensionPoint.DESCHEDULE, ExtensionPoint.BALANCE):
            for name in profile.plugins.enabled(point):
                found |= dict.fromkeys(registry[name].prometheus_queries(arguments[name]))
    return list(found)


async def _result(server: JSONServer, query: str) -> QueryResult:
    try:
        samples = await query_vector(server, query)
    except Unreachable as error:
        return QueryResult(problem=str(error))
    return QueryResult([QuerySample(*sample) for sample in samples])


async def _token(prometheus: PrometheusOptions, transport: Transport) -> str:
    """The token in the secret that the policy names, or else that of the pod's service account; "" without either.

    Raises APIError, Unreachable, and InputError for a secret without a token.
    """
    reference = prometheus.auth_token.secret_reference if prometheus.auth_token else None
    if reference is None:
        token_file = SERVICE_ACCOUNT / "token"
        return token_file.read_text().strip() if token_file.is_file() else ""
    subject = f"secret {reference.namespace}/{reference.name}"
    body = await transport.request("GET", f"/api/v1/namespaces/{reference.namespace}/secrets/{reference.name}")
    try:
        token = base64.b64decode(msgspec.json.decode(body, type=_Secret).data[_TOKEN_KEY]).decode().strip()
    except (*UNDECODABLE, KeyError, binascii.Error, UnicodeDecodeError):
        token = ""
    if not token or not token.isprintable():
        raise InputError(subject, f"has no token under {_TOKEN_KEY}")
    return token


_REQUESTED_BY = "sigs.k8s.io/descheduler"


class LoopStopped(KubestowError):
    """The process is ending, so no further pod is evicted."""


class APIEvictions:
    """An eviction backend on an API server; ``stop`` ends a loop that is running in another thread."""

    def __init__(self, transport: Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._stopped = False
        self._request: concurrent.futures.Future[bytes] | None = None

    def stop(self) -> None:
        """Have the loop end with LoopStopped at its next eviction, or the one in progress."""
        self._stopped = True
        if self._request is not None:
            self._request.cancel()

    def evict(self, eviction: Eviction) -> Refusal | None:
        """Request an eviction and wait for the response. Raises LoopStopped. Not to be called on the event loop."""
        if self._stopped:
            raise LoopStopped("stopped")
        request = self._transport.request("POST", *eviction_request(eviction))
        self._request = asyncio.run_coroutine_threadsafe(request, self._loop)
        try:
            self._request.result()
        except concurrent.futures.CancelledError:
            raise LoopStopped("stopped") from None
        except (APIError, Unreachable) as error:
            return Refusal(RefusedBy.API_SERVER, str(error))
        return None


def eviction_request(eviction: Eviction) -> tuple[str, bytes]:
    """The path and the body of a request for an eviction.

    It is one of exactly this pod: another one of its name, created since, is not evicted.
    """
    metadata = eviction.pod.metadata
    options: dict[str, Any] = {"preconditions": {"uid": metadata.uid}}
    if eviction.grace_period is not None:
        options["gracePeriodSeconds"] = eviction.grace_period
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {
            "name": metadata.name,
            "namespace": metadata.namespace,
            "annotations": {"reason": eviction.explanation, "requested-by": _REQUESTED_BY},
        },
        "deleteOptions": options,
    }
    return f"/api/v1/namespaces/{metadata.namespace}/pods/{metadata.name}/eviction", msgspec.json.encode(body)
