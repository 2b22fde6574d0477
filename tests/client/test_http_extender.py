"""The extender protocol over HTTP: what is sent, what answers mean, and everything that can go wrong on the way."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from kubestow.client import http_extender as module
from kubestow.client.http_extender import HTTPExtender
from kubestow.errors import ExtenderError
from kubestow.framework.interface import Victims
from kubestow.scheduling.extenders.port import Filtered, PodGone, Spared
from tests.client.extender_settings import POD, info, node, raw_objects, settings, without_managed_fields
from tests.client.scripted_server import Answer, ScriptedServer, answer, disconnect

VICTIM = {"metadata": {"name": "v", "namespace": "default", "uid": "uid-v"}, "spec": {"nodeName": "a"}}
CACHING = {"nodeCacheCapable": True}


@asynccontextmanager
async def extender(server: ScriptedServer, **changed: Any) -> AsyncIterator[HTTPExtender]:
    one = settings(server.url, **changed)
    async with HTTPExtender(one, raw_objects(one, "a", "b", pods=(POD, VICTIM))) as connected:
        yield connected


async def filtered(server: ScriptedServer, body: Any, **changed: Any) -> Filtered:
    server.answers("POST", "/filter", body if callable(body) else answer(200, body))
    async with extender(server, **changed) as connected:
        return await connected.filter(info(), ["a", "b"])


async def problem(server: ScriptedServer, body: Any, **changed: Any) -> str:
    with pytest.raises(ExtenderError) as caught:
        await filtered(server, body, **changed)
    return caught.value.problem


# -- filter ------------------------------------------------------------------------------------------------------------


async def test_a_caching_extender_gets_the_whole_pod_and_names(server: ScriptedServer) -> None:
    await filtered(server, {"NodeNames": []}, **CACHING)
    (asked,) = server.asked
    assert asked.headers["Content-Type"] == "application/json"
    assert asked.json == {"Pod": without_managed_fields(POD), "Nodes": None, "NodeNames": ["a", "b"]}


async def test_another_gets_whole_nodes(server: ScriptedServer) -> None:
    await filtered(server, {"Nodes": {"items": []}})
    nodes = {"metadata": {}, "items": [node("a"), node("b")]}
    assert server.asked[0].json == {"Pod": without_managed_fields(POD), "Nodes": nodes, "NodeNames": None}


async def test_the_answer_of_a_caching_extender_names_nodes(server: ScriptedServer) -> None:
    body = {
        "Nodes": None,
        "NodeNames": ["b"],
        "FailedNodes": {"a": "no"},
        "FailedAndUnresolvableNodes": {"x": "never"},
        "Error": "",
    }
    assert await filtered(server, body, **CACHING) == Filtered(["b"], {"a": "no"}, {"x": "never"})


async def test_the_answer_of_another_holds_nodes(server: ScriptedServer) -> None:
    assert (await filtered(server, {"Nodes": {"items": [node("b")]}, "NodeNames": ["a"]})).passed == ["b"]


async def test_a_caching_extender_may_answer_with_nodes(server: ScriptedServer) -> None:
    assert (await filtered(server, {"Nodes": {"items": [node("b")]}}, **CACHING)).passed == ["b"]


async def test_an_empty_answer_passes_nothing(server: ScriptedServer) -> None:
    assert await filtered(server, {}) == Filtered([])


@pytest.mark.parametrize(
    "body",
    [
        {"nodenames": ["b"], "failedNodes": {"NodeNames": "no"}, "error": ""},
        {"nodeNames": ["b"], "FAILEDNODES": {"NodeNames": "no"}, "FailedAndUnresolvableNodes": None, "Error": None},
        {"NodeNames": ["b"], "FailedNodes": {"NodeNames": "no"}, "Version": 3},
    ],
)
async def test_keys_are_read_in_any_case_with_nulls_and_with_others(
    server: ScriptedServer, body: Mapping[str, Any]
) -> None:
    assert await filtered(server, body, **CACHING) == Filtered(["b"], {"NodeNames": "no"})


async def test_an_extenders_own_error_is_an_error(server: ScriptedServer) -> None:
    assert await problem(server, {"NodeNames": ["a"], "Error": "no database"}, **CACHING) == "no database"


@pytest.mark.parametrize("body", [{"NodeNames": ["x"]}, {"Nodes": {"items": [node("x")]}}])
async def test_a_node_that_was_not_sent_is_an_error(server: ScriptedServer, body: Any) -> None:
    claim = f'extender "{server.url}" claims a filtered node "x" which is not found in the input node list'
    assert await problem(server, body, **CACHING) == claim


async def test_a_node_that_is_gone_by_now_is_not_sent(server: ScriptedServer) -> None:
    one = settings(server.url)
    server.answers("POST", "/filter", answer(200, {}))
    async with HTTPExtender(one, raw_objects(one, "b")) as connected:
        await connected.filter(info(), ["a", "b"])
    assert [item["metadata"]["name"] for item in server.asked[0].json["Nodes"]["items"]] == ["b"]


async def test_a_pod_that_is_gone_by_now_is_not_asked_about(server: ScriptedServer) -> None:
    one = settings(server.url)
    async with HTTPExtender(one, raw_objects(one, pods=())) as connected:
        with pytest.raises(PodGone, match="pod default/p is gone"):
            await connected.filter(info(), ["a"])
    assert server.asked == []


# -- the other verbs ---------------------------------------------------------------------------------------------------


async def test_scores_are_read_as_they_are(server: ScriptedServer) -> None:
    server.answers("POST", "/prioritize", answer(200, [{"Host": "a", "Score": 70}, {"host": "x", "score": -1}]))
    async with extender(server, **CACHING) as connected:
        assert await connected.prioritize(info(), ["a", "b"]) == [("a", 70), ("x", -1)]
    assert server.asked[0].json["NodeNames"] == ["a", "b"]


async def test_a_caching_extender_gets_victims_by_uid(server: ScriptedServer) -> None:
    meta = {"a": {"Pods": [{"UID": "uid-v"}], "NumPDBViolations": 2}}
    server.answers("POST", "/preempt", answer(200, {"NodeNameToMetaVictims": meta}))
    async with extender(server, **CACHING) as connected:
        spared = await connected.preempt(info(), {"a": Victims((info(VICTIM),), 2)})
    assert spared == {"a": Spared(["uid-v"], 2)}
    assert server.asked[0].json == {
        "Pod": without_managed_fields(POD),
        "NodeNameToVictims": None,
        "NodeNameToMetaVictims": meta,
    }


async def test_another_gets_victims_in_full_and_answers_by_uid(server: ScriptedServer) -> None:
    answered = {"nodeNameToMetaVictims": {"a": {"pods": [{"uid": "uid-v"}], "numPDBViolations": 1}}}
    server.answers("POST", "/preempt", answer(200, answered))
    async with extender(server) as connected:
        assert await connected.preempt(info(), {"a": Victims((info(VICTIM),), 1)}) == {"a": Spared(["uid-v"], 1)}
    asked = server.asked[0].json
    assert asked["NodeNameToVictims"] == {"a": {"Pods": [VICTIM], "NumPDBViolations": 1}}
    assert asked["NodeNameToMetaVictims"] is None


async def test_a_binding_names_pod_and_node(server: ScriptedServer) -> None:
    server.answers("POST", "/bind", answer(200, {"Error": ""}))
    async with extender(server) as connected:
        await connected.bind(info(), "a")
    expected = {"PodName": "p", "PodNamespace": "default", "PodUID": "uid-p", "Node": "a"}
    assert server.asked[0].json == expected


async def test_a_refused_binding_is_an_error(server: ScriptedServer) -> None:
    server.answers("POST", "/bind", answer(200, {"Error": "taken"}))
    async with extender(server) as connected:
        with pytest.raises(ExtenderError, match="failed at bind: taken"):
            await connected.bind(info(), "a")


# -- what goes wrong ---------------------------------------------------------------------------------------------------


async def test_slashes_at_the_end_of_the_prefix_do_not_count(server: ScriptedServer) -> None:
    server.answers("POST", "/api/v2/filter", answer(200, {}))
    one = settings(f"{server.url}/api/v2//")
    async with HTTPExtender(one, raw_objects(one)) as connected:
        await connected.filter(info(), [])
    assert server.asked[0].path == "/api/v2/filter"


async def test_only_status_200_will_do(server: ScriptedServer) -> None:
    said = await problem(server, answer(204))
    assert said == f"failed filter with extender at URL {server.url}/filter, code 204"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"<html>", "the answer cannot be read: not JSON"),
        (b"\xff\xfe", "the answer cannot be read: not JSON"),
        (b"", "the answer cannot be read: not JSON"),
        (b'{"Error": ' + b"[" * 100_000, "the answer cannot be read: not JSON"),
        (b'{"Nodes": {"items": [' + b"[" * 100_000, "the answer cannot be read: not JSON"),
        (b"[]", "the answer cannot be read: Expected `object`, got `array`"),
        ({"NodeNames": [3]}, "NodeNames[0]: Expected `str`, got `int`"),
        ({"Nodes": {"items": [{"metadata": {}}]}}, "Nodes.items: Object missing required field `name`"),
    ],
)
async def test_nonsense_is_an_error_that_says_where(server: ScriptedServer, body: Any, said: str) -> None:
    body = answer(200, body) if isinstance(body, bytes) else body
    assert said in await problem(server, body)


async def test_an_answer_that_does_not_come_in_time_is_an_error(server: ScriptedServer) -> None:
    assert await problem(server, server.hold, httpTimeout="50ms") == f'Post "{server.url}/filter": no answer in time'


async def test_a_connection_that_closes_is_tried_once_more(server: ScriptedServer) -> None:
    server.answers("POST", "/filter", disconnect)
    assert await filtered(server, {"NodeNames": ["a"]}, **CACHING) == Filtered(["a"])


async def test_connections_that_close_are_an_error(server: ScriptedServer) -> None:
    server.answers("POST", "/filter", disconnect)
    assert "closed the connection without an answer" in await problem(server, disconnect)


async def test_a_binding_is_asked_for_once(server: ScriptedServer) -> None:
    server.answers("POST", "/bind", disconnect)
    async with extender(server) as connected:
        with pytest.raises(ExtenderError, match="closed the connection without an answer"):
            await connected.bind(info(), "a")
    assert len(server.asked) == 1


async def test_an_extender_that_is_not_there_is_an_error() -> None:
    one = settings("http://127.0.0.1:9")
    async with HTTPExtender(one, raw_objects(one)) as connected:
        with pytest.raises(ExtenderError, match="connection refused"):
            await connected.filter(info(), [])


def endless() -> Answer:
    async def respond(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while request.transport is not None and not request.transport.is_closing():
            await response.write(b" " * 4096)
        return response

    return respond


async def test_an_answer_without_end_is_not_read_to_its_end(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SPARE", 10_000)
    assert "the answer is longer than" in await problem(server, endless())
