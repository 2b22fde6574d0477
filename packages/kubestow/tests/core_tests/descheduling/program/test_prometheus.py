"""A descheduler that asks Prometheus: a server that behaves well or badly, and a real one."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from contrib_tests.prometheus_server import needs_prometheus, prometheus_server
from contrib_tests.watched_nodes import json_server
from core_tests.descheduling.objects import policy
from core_tests.descheduling.program.test_app import LiveCluster
from kubestow.client.http_json import JSONServer, query_vector
from kubestow.descheduling.descheduler_policy import load_policy
from kubestow.descheduling.dry_run.loop_report import LoopReport
from kubestow.descheduling.program.descheduler_app import DeschedulerApp, DeschedulerOptions
from kubestow.descheduling.strategies.plugin_registry import find_plugins
from kubestow.errors import Unreachable
from kubestow_devcluster.cluster import DevCluster

QUERY = 'avg by (instance) (rate(node_cpu_seconds_total{mode!="idle"}[5m]))'
SECRET = "/api/v1/namespaces/default/secrets"


@pytest.fixture
async def cluster() -> AsyncIterator[LiveCluster]:
    async with DevCluster(kubelets=False) as server, aiohttp.ClientSession() as session:
        created = LiveCluster(server, session)
        for name in ("high", "low"):
            await created.create_node(name)
        for number in range(3):
            await created.create_pod(f"p{number}", "high")
        yield created


def vector(**values: float) -> dict[str, Any]:
    entries = [{"metric": {"instance": name}, "value": [time.time(), str(value)]} for name, value in values.items()]
    return {"status": "success", "data": {"resultType": "vector", "result": entries}}


async def run(cluster: LiveCluster, url: str, query: str = QUERY, **provider: Any) -> LoopReport:
    args = {
        "thresholds": {"MetricResource": 20},
        "targetThresholds": {"MetricResource": 60},
        "metricsUtilization": {"source": "Prometheus", "prometheus": {"query": query}},
    }
    providers = [{"source": "Prometheus", "prometheus": {"url": url, **provider}}]
    document = policy("LowNodeUtilization", args, point="balance", metricsProviders=providers, gracePeriodSeconds=0)
    registry, reports = find_plugins(), list[LoopReport]()
    options = DeschedulerOptions()
    await cluster.run(
        DeschedulerApp(load_policy(document, registry=registry), registry, options, on_result=reports.append)
    )
    (report,) = reports
    return report


async def test_a_pod_leaves_the_node_that_prometheus_says_is_busy(cluster: LiveCluster) -> None:
    asked: list[tuple[str, str]] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append((request.query["query"], request.headers.get("Authorization", "")))
        return web.json_response(vector(high=0.9, low=0.05))

    token = base64.b64encode(b"s3cret\n").decode()
    await cluster.request("POST", SECRET, {"metadata": {"name": "prom"}, "data": {"prometheusAuthToken": token}})
    async with json_server(answer) as prometheus:
        reference = {"secretReference": {"namespace": "default", "name": "prom"}}
        report = await run(cluster, str(prometheus.make_url("")), authToken=reference)
    assert asked == [(QUERY, "Bearer s3cret")]
    assert len(report.result.evicted) == 1
    assert len(await cluster.names()) == 2


@pytest.mark.parametrize("data", [None, {}, {"prometheusAuthToken": "AA=="}])
async def test_without_its_token_prometheus_is_not_asked(cluster: LiveCluster, data: dict[str, str] | None) -> None:
    async def answer(request: web.Request) -> web.Response:
        raise AssertionError("asked without token")

    if data is not None:
        await cluster.request("POST", SECRET, {"metadata": {"name": "prom"}, "data": {"other": "YQ==", **data}})
    async with json_server(answer) as prometheus:
        reference = {"secretReference": {"namespace": "default", "name": "prom"}}
        report = await run(cluster, str(prometheus.make_url("")), authToken=reference)
    (error,) = report.result.errors
    assert "prom" in error.problem and ("not found" in error.problem or "no token" in error.problem)
    assert len(await cluster.names()) == 3


@pytest.mark.parametrize(
    ("status", "body", "problem"),
    [
        (500, {}, "returned status 500"),
        (
            200,
            {"status": "error", "data": {"resultType": "vector", "result": []}, "error": "parse"},
            "query failed: parse",
        ),
        (200, {"status": "success", "data": {"resultType": "scalar", "result": [0, "1"]}}, "query failed: scalar"),
        (200, [], "not one of the Prometheus HTTP API"),
        (200, vector(high=float("nan"), low=0.1), "returned nan for node high"),
    ],
)
async def test_nobody_is_evicted_because_of_a_bad_answer(
    cluster: LiveCluster, status: int, body: Any, problem: str
) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.json_response(body, status=status)

    async with json_server(answer) as prometheus:
        report = await run(cluster, str(prometheus.make_url("")))
    (error,) = report.result.errors
    assert problem in error.problem
    assert len(await cluster.names()) == 3


async def test_nobody_is_evicted_while_prometheus_is_away_or_hangs(
    cluster: LiveCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kubestow.client.http_json._TIME_LIMIT", 0.2)
    ended = asyncio.Event()

    async def answer(request: web.Request) -> web.Response:
        await ended.wait()
        return web.json_response({})

    async with json_server(answer) as prometheus:
        hanging = await run(cluster, str(prometheus.make_url("")))
        ended.set()
    away = await run(cluster, "http://127.0.0.1:1")
    assert [len(report.result.errors) for report in (hanging, away)] == [1, 1]
    assert "no answer within" in hanging.result.errors[0].problem
    assert len(await cluster.names()) == 3


@needs_prometheus
async def test_a_real_prometheus_is_asked(cluster: LiveCluster, tmp_path: Path) -> None:
    metrics = 'node:ratio{instance="high:9100"} 0.9\nnode:ratio{instance="low:9100"} 0.1\n'
    query = 'label_replace(node:ratio, "instance", "$1", "instance", "(.+):[0-9]+")'
    async with prometheus_server(tmp_path, metrics) as url:
        await until_scraped(url)
        without_names = await run(cluster, url, "node:ratio")
        found = await run(cluster, url, query)
    assert "no sample with the label" in without_names.result.errors[0].problem
    assert found.result.errors == []
    assert len(await cluster.names()) == 2


async def until_scraped(url: str) -> None:
    """Wait until the server has the metrics of both nodes."""
    while True:
        try:
            if len(await query_vector(JSONServer(url), "node:ratio")) == 2:
                return
        except Unreachable:
            pass  # it has not started yet
        await asyncio.sleep(0.2)
