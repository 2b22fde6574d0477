"""The sources of node metrics, and what they make of answers that are wrong."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from typing import Any

import pytest
from aiohttp import web

from contrib_tests.watched_nodes import json_server
from kubestow.client import http_json
from kubestow.client.http_json import JSONServer
from kubestow.errors import Unreachable
from kubestow.testing import PluginHarness, node
from kubestow_contrib.node_load.collector import UsageSource
from kubestow_contrib.node_load.sources import LoadWatcher, MetricsAPI, Prometheus
from kubestow_contrib.node_load.usage import UsageSample

# -- metrics.k8s.io ----------------------------------------------------------------------------------------------------


class MetricsHarness(PluginHarness):
    """A harness whose API server answers the requests for node metrics."""

    answer: Any = None

    async def request(self, method: str, path: str, body: Any = None) -> Any:
        assert (method, path) == ("GET", "/apis/metrics.k8s.io/v1beta1/nodes")
        return self.answer


def node_metrics(name: str, cpu: Any = "1", memory: Any = "1Gi", timestamp: Any = "2026-01-01T00:00:00Z") -> Any:
    return {"metadata": {"name": name}, "timestamp": timestamp, "usage": {"cpu": cpu, "memory": memory}}


def read_metrics_api(*items: Any) -> Mapping[str, UsageSample]:
    capacity = {"capacity": {"cpu": "4", "memory": "8Gi"}, "allocatable": {"cpu": "3", "memory": "7Gi"}}
    harness = MetricsHarness([node("a", status=capacity), node("b", cpu="2", memory="4Gi"), node("c")])
    harness.answer = {"items": list(items)}
    return asyncio.run(_read(MetricsAPI(harness)))


async def _read(source: UsageSource) -> Mapping[str, UsageSample]:
    return await source.read()


def test_usage_is_a_share_of_the_capacity_or_else_of_what_is_allocatable() -> None:
    found = read_metrics_api(node_metrics("a"), node_metrics("b", "500000000n", "1024Mi"))
    assert {name: (sample.cpu, sample.memory) for name, sample in found.items()} == {"a": (25, 12.5), "b": (25, 25)}
    assert found["a"].time == PluginHarness().time.timestamp()


@pytest.mark.parametrize(
    "bad",
    [
        node_metrics("unknown"),
        node_metrics("c", cpu="one"),
        node_metrics("c", timestamp="yesterday"),
        node_metrics("c", timestamp=None),
        {"metadata": {"name": "c"}},
        None,
    ],
)
def test_metrics_that_cannot_be_read_leave_the_others(bad: Any) -> None:
    assert set(read_metrics_api(bad, node_metrics("a"))) == {"a"}


def test_an_answer_of_another_kind_is_an_error() -> None:
    harness = MetricsHarness()
    harness.answer = {"kind": "Status"}
    with pytest.raises(Unreachable, match="returned no NodeMetricsList"):
        asyncio.run(_read(MetricsAPI(harness)))


# -- Prometheus and load-watcher ---------------------------------------------------------------------------------------


def read_prometheus(handler: Any) -> Mapping[str, UsageSample]:
    async def main() -> Mapping[str, UsageSample]:
        async with json_server(handler) as server:
            source = Prometheus(JSONServer(str(server.make_url("")), token="secret"), {"a", "b"}.__contains__)
            return await source.read()

    return asyncio.run(main())


def vector(*entries: tuple[str, str]) -> web.Response:
    result = [{"metric": {"instance": instance}, "value": [1000.5, value]} for instance, value in entries]
    return web.json_response({"status": "success", "data": {"resultType": "vector", "result": result}})


def test_averages_and_deviations_of_the_recording_rules() -> None:
    queries = {
        "avg_over_time(instance:node_cpu:ratio[15m])": "0.25",
        "stddev_over_time(instance:node_cpu:ratio[15m])": "0.05",
        "avg_over_time(instance:node_memory_utilisation:ratio[15m])": "0.5",
        "stddev_over_time(instance:node_memory_utilisation:ratio[15m])": "0.01",
    }

    async def answer(request: web.Request) -> web.Response:
        assert request.path == "/api/v1/query"
        assert request.headers["Authorization"] == "Bearer secret"
        return vector(("a:9100", queries[request.query["query"]]), ("elsewhere:9100", "1"), ("b", "NaN"))

    found = read_prometheus(answer)
    assert set(found) == {"a", "b"}
    assert found["a"] == UsageSample(1000.5, 25, 50, 5, 1)


def answering(response: Any) -> Any:
    async def answer(request: web.Request) -> web.Response:
        return response() if callable(response) else web.json_response(response)

    return answer


@pytest.mark.parametrize(
    ("response", "problem"),
    [
        (lambda: web.Response(status=503), "returned status 503"),
        (lambda: web.Response(text="<html>"), "malformed response"),
        ({"status": "error", "error": "bad", "data": {"resultType": ""}}, "query failed: bad"),
        ({"status": "success", "data": {"resultType": "scalar", "result": [1, "1"]}}, "query failed: scalar"),
        ([], "not one of the Prometheus HTTP API"),
    ],
)
def test_a_wrong_answer_of_prometheus_is_an_error(response: Any, problem: str) -> None:
    with pytest.raises(Unreachable, match=problem):
        read_prometheus(answering(response))


def test_entries_of_another_form_are_left_out() -> None:
    entries = [{"metric": {}, "value": [1, "1"]}, {"metric": {"instance": "a"}, "value": [1, "much"]}, "nothing"]
    response = {"status": "success", "data": {"resultType": "vector", "result": entries}}
    assert read_prometheus(answering(response)) == {}


def test_a_server_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_json, "_TIME_LIMIT", 0.05)

    async def answer(request: web.Request) -> web.Response:
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    with pytest.raises(Unreachable, match="no answer within"):
        read_prometheus(answer)


def test_a_server_that_is_not_there() -> None:
    with pytest.raises(Unreachable, match=r"http://127\.0\.0\.1:1: Client"):
        asyncio.run(_read(LoadWatcher(JSONServer("http://127.0.0.1:1"))))


@pytest.mark.parametrize(
    "response", [{}, {"window": {"end": "soon"}, "data": {}}, {"window": {"end": 1}, "data": {"NodeMetricsMap": [1]}}]
)
def test_a_wrong_answer_of_load_watcher_is_an_error(response: Any) -> None:
    async def main() -> None:
        async with json_server(answering(response)) as server:
            await LoadWatcher(JSONServer(str(server.make_url("")))).read()

    with pytest.raises(Unreachable, match="not one of load-watcher"):
        asyncio.run(main())


def test_malformed_metrics_of_load_watcher_leave_the_others() -> None:
    cpu, memory = {"type": "CPU", "operator": "AVG", "value": 40}, {"type": "Memory", "operator": "Latest", "value": 50}
    without_value, of_no_type = {"type": "CPU"}, {"type": None, "value": 1}
    by_node = {
        "a": {"metrics": [cpu, {"type": "Memory", "value": "much"}, {"type": "Memory", "value": None}]},
        "b": {"metrics": [without_value, of_no_type, "nothing", memory]},
        "c": {"metrics": 1},
        "d": 1,
        "e": {},
    }

    async def main() -> Mapping[str, UsageSample]:
        document = {"window": {"end": 1000}, "data": {"NodeMetricsMap": by_node}}
        async with json_server(answering(document)) as server:
            return await LoadWatcher(JSONServer(str(server.make_url("")))).read()

    found = asyncio.run(main())
    assert (found["a"].cpu, found["b"].memory) == (40, 50)
    assert math.isnan(found["a"].memory)
    assert all(math.isnan(found[name].cpu) for name in ("b", "c", "d", "e"))
