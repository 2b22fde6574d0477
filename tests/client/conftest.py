"""The server, clocks and the transport between them that the tests of the client share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from random import Random

import pytest

from kubestow.client.rest.credentials import Credentials
from kubestow.client.rest.transport import Transport
from tests.client.clocks import HeldClock, LeapingClock
from tests.client.scripted_server import ScriptedServer, running


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with running() as scripted:
        yield scripted


@pytest.fixture
def clock() -> LeapingClock:
    return LeapingClock()


@pytest.fixture
def held_clock() -> HeldClock:
    return HeldClock()


@pytest.fixture
def random() -> Random:
    return Random(1)


@pytest.fixture
async def transport(server: ScriptedServer, clock: LeapingClock) -> AsyncIterator[Transport]:
    async with Transport(Credentials(server.url), clock=clock) as connected:
        yield connected
