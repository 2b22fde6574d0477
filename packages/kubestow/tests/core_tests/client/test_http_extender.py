"""The extender protocol over HTTP: requests, results and failures."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from core_tests.client.extender_settings import POD, info, node, raw_objects, settings, without_managed_fields
from core_tests.client.scripted_server import Responder, ScriptedServer, disconnect, response
from kubestow.client import http_extender as module
from kubestow.client.http_extender import HTTPExtender
from kubestow.errors import ExtenderError
from kubestow.framework.interface import Victims
from kubestow.scheduling.extenders.stages import ExtenderFilterResponse, ExtenderVictims, PodGone

VICTIM = {"metadata": {"name": "v", "namespace": "default", "uid": "uid-v"}, "spec": {"nodeName": "a"}}
CACHING = {"nodeCacheCapable": True}


@asynccontextmanager
async def extender(server: ScriptedServer, **changes: Any) -> AsyncIterator[HTTPExtender]:
    configured = settings(server.url, **changes)
    async with HTTPExtender(configured, raw_objects(configured, "a", "b", pods=(POD, VICTIM))) as connected:
        yield connected


async def filtered(server: ScriptedServer, body: Any, **changes: Any) -> ExtenderFilterResponse:
    server.respond("POST", "/filter", body if callable(body) else response(200, body))
    async with extender(server, **changes) as connected:
        return await connected.filter(info(), ["a", "b"])


async def problem(server: ScriptedServer, body: Any, **changes: Any) -> str:
    with pytest.raises(ExtenderError) as caught:
        await filtered(server, body, **changes)
    return caught.value.problem


# -- filter ------------------------------------------------------------------------------------------------------------


async def test_a_node_cache_capable_extender_receives_the_whole_pod_and_node_names(server: ScriptedServer) -> None:
    await filtered(server, {"NodeNames": []}, **CACHING)
    (request,) = server.requests
    assert request.headers["Content-Type"] == "application/json"
    assert request.json == {"Pod": without_managed_fields(POD), "Nodes": None, "NodeNames": ["a", "b"]}


async def test_other_extenders_receive_whole_nodes(server: ScriptedServer) -> None:
    await filtered(server, {"Nodes": {"items": []}})
    nodes = {"metadata": {}, "items": [node("a"), node("b")]}
    assert server.requests[0].json == {"Pod": without_managed_fields(POD), "Nodes": nodes, "NodeNames": None}


async def test_a_node_cache_capable_extender_returns_node_names(server: ScriptedServer) -> None:
    body = {
        "Nodes": None,
        "NodeNames": ["b"],
        "FailedNodes": {"a": "no"},
        "FailedAndUnresolvableNodes": {"x": "never"},
        "Error": "",
    }
    assert await filtered(server, body, **CACHING) == ExtenderFilterResponse(["b"], {"a": "no"}, {"x": "never"})


async def test_other_extenders_return_nodes(server: ScriptedServer) -> None:
    assert (await filtered(server, {"Nodes": {"items": [node("b")]}, "NodeNames": ["a"]})).passed == ["b"]


async def test_a_node_cache_capable_extender_may_return_nodes(server: ScriptedServer) -> None:
    assert (await filtered(server, {"Nodes": {"items": [node("b")]}}, **CACHING)).passed == ["b"]


async def test_an_empty_result_passes_no_node(server: ScriptedServer) -> None:
    assert await filtered(server, {}) == ExtenderFilterResponse([])


@pytest.mark.parametrize(
    "body",
    [
        {"nodenames": ["b"], "failedNodes": {"NodeNames": "no"}, "error": ""},
        {"nodeNames": ["b"], "FAILEDNODES": {"NodeNames": "no"}, "FailedAndUnresolvableNodes": None, "Error": None},
        {"NodeNames": ["b"], "FailedNodes": {"NodeNames": "no"}, "Version": 3},
    ],
)
async def test_keys_are_case_insensitive_and_nulls_and_unknown_fields_are_ignored(
    server: ScriptedServer, body: Mapping[str, Any]
) -> None:
    assert await filtered(server, body, **CACHING) == ExtenderFilterResponse(["b"], {"NodeNames": "no"})


async def test_an_error_in_the_result_is_raised(server: ScriptedServer) -> None:
    assert await problem(server, {"NodeNames": ["a"], "Error": "no database"}, **CACHING) == "no database"


@pytest.mark.parametrize("body", [{"NodeNames": ["x"]}, {"Nodes": {"items": [node("x")]}}])
async def test_a_result_with_a_node_that_was_not_sent_is_an_error(server: ScriptedServer, body: Any) -> None:
    expected = f'extender "{server.url}" claims a filtered node "x" which is not found in the input node list'
    assert await problem(server, body, **CACHING) == expected


async def test_a_node_deleted_meanwhile_is_not_sent(server: ScriptedServer) -> None:
    configured = settings(server.url)
    server.respond("POST", "/filter", response(200, {}))
    async with HTTPExtender(configured, raw_objects(configured, "b")) as connected:
        await connected.filter(info(), ["a", "b"])
    assert [item["metadata"]["name"] for item in server.requests[0].json["Nodes"]["items"]] == ["b"]


async def test_no_request_is_sent_for_a_pod_deleted_meanwhile(server: ScriptedServer) -> None:
    configured = settings(server.url)
    async with HTTPExtender(configured, raw_objects(configured, pods=())) as connected:
        with pytest.raises(PodGone, match="pod default/p is gone"):
            await connected.filter(info(), ["a"])
    assert server.requests == []


# -- other verbs -------------------------------------------------------------------------------------------------------


async def test_scores_are_returned_unchanged(server: ScriptedServer) -> None:
    server.respond("POST", "/prioritize", response(200, [{"Host": "a", "Score": 70}, {"host": "x", "score": -1}]))
    async with extender(server, **CACHING) as connected:
        assert await connected.prioritize(info(), ["a", "b"]) == [("a", 70), ("x", -1)]
    assert server.requests[0].json["NodeNames"] == ["a", "b"]


async def test_a_node_cache_capable_extender_receives_victims_by_uid(server: ScriptedServer) -> None:
    meta = {"a": {"Pods": [{"UID": "uid-v"}], "NumPDBViolations": 2}}
    server.respond("POST", "/preempt", response(200, {"NodeNameToMetaVictims": meta}))
    async with extender(server, **CACHING) as connected:
        spared = await connected.preempt(info(), {"a": Victims((info(VICTIM),), 2)})
    assert spared == {"a": ExtenderVictims(["uid-v"], 2)}
    assert server.requests[0].json == {
        "Pod": without_managed_fields(POD),
        "NodeNameToVictims": None,
        "NodeNameToMetaVictims": meta,
    }


async def test_other_extenders_receive_whole_victims_and_return_uids(server: ScriptedServer) -> None:
    result = {"nodeNameToMetaVictims": {"a": {"pods": [{"uid": "uid-v"}], "numPDBViolations": 1}}}
    server.respond("POST", "/preempt", response(200, result))
    async with extender(server) as connected:
        assert await connected.preempt(info(), {"a": Victims((info(VICTIM),), 1)}) == {
            "a": ExtenderVictims(["uid-v"], 1)
        }
    sent = server.requests[0].json
    assert sent["NodeNameToVictims"] == {"a": {"Pods": [VICTIM], "NumPDBViolations": 1}}
    assert sent["NodeNameToMetaVictims"] is None


async def test_a_binding_names_pod_and_node(server: ScriptedServer) -> None:
    server.respond("POST", "/bind", response(200, {"Error": ""}))
    async with extender(server) as connected:
        await connected.bind(info(), "a")
    expected = {"PodName": "p", "PodNamespace": "default", "PodUID": "uid-p", "Node": "a"}
    assert server.requests[0].json == expected


async def test_an_error_in_the_binding_result_is_raised(server: ScriptedServer) -> None:
    server.respond("POST", "/bind", response(200, {"Error": "already bound"}))
    async with extender(server) as connected:
        with pytest.raises(ExtenderError, match="failed at bind: already bound"):
            await connected.bind(info(), "a")


# -- failures ----------------------------------------------------------------------------------------------------------


async def test_trailing_slashes_of_the_prefix_are_ignored(server: ScriptedServer) -> None:
    server.respond("POST", "/api/v2/filter", response(200, {}))
    configured = settings(f"{server.url}/api/v2//")
    async with HTTPExtender(configured, raw_objects(configured)) as connected:
        await connected.filter(info(), [])
    assert server.requests[0].path == "/api/v2/filter"


async def test_a_status_other_than_200_is_an_error(server: ScriptedServer) -> None:
    message = await problem(server, response(204))
    assert message == f"failed filter with extender at URL {server.url}/filter, code 204"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"<html>", "malformed response: invalid JSON"),
        (b"\xff\xfe", "malformed response: invalid JSON"),
        (b"", "malformed response: invalid JSON"),
        (b'{"Error": ' + b"[" * 100_000, "malformed response: invalid JSON"),
        (b'{"Nodes": {"items": [' + b"[" * 100_000, "malformed response: invalid JSON"),
        (b"[]", "malformed response: Expected `object`, got `array`"),
        ({"NodeNames": [3]}, "NodeNames[0]: Expected `str`, got `int`"),
        ({"Nodes": {"items": [{"metadata": {}}]}}, "Nodes.items: Object missing required field `name`"),
    ],
)
async def test_a_malformed_response_is_an_error_that_names_the_position(
    server: ScriptedServer, body: Any, expected: str
) -> None:
    body = response(200, body) if isinstance(body, bytes) else body
    assert expected in await problem(server, body)


async def test_a_timeout_is_an_error(server: ScriptedServer) -> None:
    assert await problem(server, server.hang, httpTimeout="50ms") == f'Post "{server.url}/filter": request timed out'


async def test_a_closed_connection_is_retried_once(server: ScriptedServer) -> None:
    server.respond("POST", "/filter", disconnect)
    assert await filtered(server, {"NodeNames": ["a"]}, **CACHING) == ExtenderFilterResponse(["a"])


async def test_a_second_closed_connection_is_an_error(server: ScriptedServer) -> None:
    server.respond("POST", "/filter", disconnect)
    assert "connection closed before a response" in await problem(server, disconnect)


async def test_a_binding_is_not_retried(server: ScriptedServer) -> None:
    server.respond("POST", "/bind", disconnect)
    async with extender(server) as connected:
        with pytest.raises(ExtenderError, match="connection closed before a response"):
            await connected.bind(info(), "a")
    assert len(server.requests) == 1


async def test_an_unreachable_extender_is_an_error() -> None:
    configured = settings("http://127.0.0.1:9")
    async with HTTPExtender(configured, raw_objects(configured)) as connected:
        with pytest.raises(ExtenderError, match="connection refused"):
            await connected.filter(info(), [])


def endless() -> Responder:
    async def respond(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while request.transport is not None and not request.transport.is_closing():
            await response.write(b" " * 4096)
        return response

    return respond


async def test_reading_stops_at_the_size_limit(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_RESPONSE_ALLOWANCE", 10_000)
    assert "response exceeds" in await problem(server, endless())


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_are_not_followed(server: ScriptedServer, status: int) -> None:
    server.respond("POST", "/elsewhere", response(200, {"NodeNames": ["a"]}))
    server.respond("GET", "/elsewhere", response(200, {"NodeNames": ["a"]}))
    redirect = response(status, {}, Location=f"{server.url}/elsewhere")
    assert f"code {status}" in await problem(server, redirect, **CACHING)
    assert len(server.requests) == 1
