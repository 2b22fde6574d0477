"""A stage for every test: a server of its own, on which simulated nodes run what is bound to them, or nobody does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kubestow.client.rest.credentials import Credentials
from kubestow.client.rest.transport import Transport
from kubestow.devcluster.cluster import DevCluster
from kubestow.wall_clock import WallClock
from tests.integration.fixture import Stage


@asynccontextmanager
async def set_up(*, simulate: bool) -> AsyncIterator[Stage]:
    async with (
        DevCluster(kubelets=simulate) as server,
        Transport(Credentials(server.url), clock=WallClock()) as transport,
    ):
        stage = Stage(server.url, transport)
        async with stage.watching():
            yield stage


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    """Nodes are objects and nothing more: pods stay as they are until somebody changes them."""
    async with set_up(simulate=False) as stage:
        yield stage


@pytest.fixture
async def live_stage() -> AsyncIterator[Stage]:
    """Kubelets start what is bound to their nodes, and let go what is deleted."""
    async with set_up(simulate=True) as stage:
        yield stage
