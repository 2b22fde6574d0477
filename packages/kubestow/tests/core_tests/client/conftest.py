"""Fixtures: a scripted server, clocks, and a transport connected to the server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from random import Random

import pytest

from core_tests.client.clocks import AutoAdvancingClock, ManualClock
from core_tests.client.scripted_server import ScriptedServer, scripted_server
from kubestow.client.rest.credentials import Credentials
from kubestow.client.rest.transport import Transport


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with scripted_server() as server:
        yield server


@pytest.fixture
def clock() -> AutoAdvancingClock:
    return AutoAdvancingClock()


@pytest.fixture
def manual_clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def random() -> Random:
    return Random(1)


@pytest.fixture
async def transport(server: ScriptedServer, clock: AutoAdvancingClock) -> AsyncIterator[Transport]:
    async with Transport(Credentials(server.url), clock=clock) as connected:
        yield connected
