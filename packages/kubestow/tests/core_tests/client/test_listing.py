"""Lists of whole collections."""

from __future__ import annotations

import pytest

from core_tests.client.scripted_server import ScriptedServer, failure, response
from kubestow.client.object_requests import list_pages
from kubestow.client.rest.transport import Transport
from kubestow.errors import Unreachable

NODES = "/api/v1/nodes"


async def test_the_pages_have_one_resource_version(server: ScriptedServer, transport: Transport) -> None:
    first = response(200, b'{"metadata":{"resourceVersion":"7","continue":"a b"},"items":[1]}')
    last = response(200, b'{"metadata":{"resourceVersion":"7"},"items":[2]}')
    server.respond("GET", NODES, first, last)
    pages, version = await list_pages(transport, NODES, "spec.unschedulable=false")
    assert [page[-5:] for page in pages] == [b":[1]}", b":[2]}"]
    assert version == "7"
    assert server.requests[1].query == {
        "limit": "1000",
        "continue": "a b",
        "fieldSelector": "spec.unschedulable=false",
    }


async def test_a_list_whose_token_has_expired_is_read_in_one_piece(
    server: ScriptedServer, transport: Transport
) -> None:
    first = response(200, b'{"metadata":{"resourceVersion":"7","continue":"a"}}')
    whole = response(200, b'{"metadata":{"resourceVersion":"9"}}')
    server.respond("GET", NODES, first, failure(410, "Expired"), whole)
    pages, version = await list_pages(transport, NODES)
    assert (len(pages), version) == (1, "9")
    assert server.requests[2].query == {}


async def test_a_list_that_is_not_json_is_unreachable(server: ScriptedServer, transport: Transport) -> None:
    server.respond("GET", NODES, response(200, b"<html>log in</html>"))
    with pytest.raises(Unreachable, match="malformed list at /api/v1/nodes"):
        await list_pages(transport, NODES)
