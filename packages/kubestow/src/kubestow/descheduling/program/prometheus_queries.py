"""The Prometheus queries of a policy, asked anew before each loop.

Whatever Prometheus does, a loop runs: a query that fails has a result that says why, and the strategy that needs it
evicts no pod.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping

import msgspec

from kubestow.api.meta import UNDECODABLE
from kubestow.client.http_json import JSONServer, query_vector
from kubestow.client.rest.credentials import SERVICE_ACCOUNT
from kubestow.client.rest.transport import Transport
from kubestow.descheduling.descheduler_policy import DeschedulerPolicy, ExtensionPoint, PrometheusOptions
from kubestow.descheduling.interface import Registry
from kubestow.descheduling.snapshot import QueryResult, QuerySample
from kubestow.errors import APIError, InputError, Unreachable

_TOKEN_KEY = "prometheusAuthToken"


class _Secret(msgspec.Struct, frozen=True):
    """A secret of the API server."""

    data: dict[str, str] = {}


async def query_results(
    policy: DeschedulerPolicy, registry: Registry, transport: Transport
) -> Mapping[str, QueryResult]:
    """The results of the queries of all strategies, by query; none without a Prometheus among ``metricsProviders``."""
    queries, prometheus = _queries(policy, registry), policy.prometheus
    if prometheus is None or not queries:
        return {}
    try:
        server = JSONServer(prometheus.url, await _token(prometheus, transport), ca_file=_ca_file())
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


def _ca_file() -> str:
    authority = SERVICE_ACCOUNT / "ca.crt"
    return str(authority) if authority.is_file() else ""
