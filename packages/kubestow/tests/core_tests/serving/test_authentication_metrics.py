"""The metrics of authentication and authorization."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from core_tests.client.scripted_server import ScriptedServer, failure, response, scripted_server
from core_tests.observability.harness import samples
from core_tests.serving.harness import (
    ACCESS_REVIEWS,
    TOKEN_REVIEWS,
    SecurePort,
    access_review,
    delegating_options,
    secure_port,
    token_review,
)


@pytest.fixture
async def api() -> AsyncIterator[ScriptedServer]:
    async with scripted_server() as server:
        yield server


def by_result(server: SecurePort, name: str) -> dict[str, float]:
    """The samples of a metric, by result."""
    scraped = samples(server.observability.scrape()[0])
    return {dict(labels)["result"]: value for (sample, labels), value in scraped.items() if sample == name}


async def test_an_allowed_request_is_recorded(api: ScriptedServer, tmp_path: Path) -> None:
    api.respond("POST", TOKEN_REVIEWS, token_review("prometheus"))
    api.respond("POST", ACCESS_REVIEWS, access_review(True))
    async with secure_port(delegating_options(api, tmp_path)) as server:
        await server.get("/metrics", token="good")
        assert by_result(server, "authentication_duration_seconds_count") == {"success": 1}
        assert by_result(server, "authorization_attempts_total") == {"allowed": 1}
        assert by_result(server, "authorization_duration_seconds_count") == {"allowed": 1}
        assert by_result(server, "authorization_duration_seconds_sum")["allowed"] > 0


async def test_an_invalid_token_is_recorded_as_an_authentication_failure(api: ScriptedServer, tmp_path: Path) -> None:
    api.respond("POST", TOKEN_REVIEWS, response(201, {"status": {"authenticated": False}}))
    async with secure_port(delegating_options(api, tmp_path)) as server:
        await server.get("/metrics", token="bad")
        assert by_result(server, "authentication_duration_seconds_count") == {"failure": 1}
        assert by_result(server, "authorization_attempts_total") == {}


async def test_a_forbidden_request_is_recorded_as_denied(api: ScriptedServer, tmp_path: Path) -> None:
    api.respond("POST", ACCESS_REVIEWS, access_review(False))
    async with secure_port(delegating_options(api, tmp_path)) as server:
        await server.get("/metrics")
        assert by_result(server, "authorization_attempts_total") == {"denied": 1}
        assert by_result(server, "authorization_duration_seconds_count") == {"denied": 1}


async def test_a_failed_review_is_recorded_as_an_error(api: ScriptedServer, tmp_path: Path) -> None:
    api.respond("POST", ACCESS_REVIEWS, failure(403, "Forbidden"))
    async with secure_port(delegating_options(api, tmp_path)) as server:
        await server.get("/metrics")
        assert by_result(server, "authorization_attempts_total") == {"error": 1}
        assert by_result(server, "authorization_duration_seconds_count") == {"error": 1}
