"""Who asks and whether they may is counted, and how long it takes to find out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.client.scripted_server import ScriptedServer, answer, failure, running
from tests.observability.watched import samples
from tests.serving.ports import ACCESS, TOKENS, Port, behind, belongs_to, may, port


@pytest.fixture
async def api() -> AsyncIterator[ScriptedServer]:
    async with running() as scripted:
        yield scripted


def counted(at: Port, name: str) -> dict[str, float]:
    """The samples of a metric, by result."""
    found = samples(at.observability.scrape()[0])
    return {dict(labels)["result"]: value for (its, labels), value in found.items() if its == name}


async def test_those_who_are_let_in_are_counted(api: ScriptedServer, tmp_path: Path) -> None:
    api.answers("POST", TOKENS, belongs_to("prometheus"))
    api.answers("POST", ACCESS, may(True))
    async with port(behind(api, tmp_path)) as at:
        await at.get("/metrics", token="good")
        assert counted(at, "authentication_duration_seconds_count") == {"success": 1}
        assert counted(at, "authorization_attempts_total") == {"allowed": 1}
        assert counted(at, "authorization_duration_seconds_count") == {"allowed": 1}
        assert counted(at, "authorization_duration_seconds_sum")["allowed"] > 0


async def test_a_token_that_is_nobodys_is_a_failure_of_authentication(api: ScriptedServer, tmp_path: Path) -> None:
    api.answers("POST", TOKENS, answer(201, {"status": {"authenticated": False}}))
    async with port(behind(api, tmp_path)) as at:
        await at.get("/metrics", token="bad")
        assert counted(at, "authentication_duration_seconds_count") == {"failure": 1}
        assert counted(at, "authorization_attempts_total") == {}


async def test_those_who_may_not_are_counted_as_denied(api: ScriptedServer, tmp_path: Path) -> None:
    api.answers("POST", ACCESS, may(False))
    async with port(behind(api, tmp_path)) as at:
        await at.get("/metrics")
        assert counted(at, "authorization_attempts_total") == {"denied": 1}
        assert counted(at, "authorization_duration_seconds_count") == {"denied": 1}


async def test_an_api_server_in_trouble_is_counted_as_an_error(api: ScriptedServer, tmp_path: Path) -> None:
    api.answers("POST", ACCESS, failure(403, "Forbidden"))
    async with port(behind(api, tmp_path)) as at:
        await at.get("/metrics")
        assert counted(at, "authorization_attempts_total") == {"error": 1}
        assert counted(at, "authorization_duration_seconds_count") == {"error": 1}
