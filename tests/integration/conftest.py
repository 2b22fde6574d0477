"""A fresh API server for every test, with or without simulated kubelets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kubestow.client.rest.credentials import Credentials
from kubestow.client.rest.transport import Transport
from kubestow.process import WallClock
from kubestow_devcluster.cluster import DevCluster
from tests.integration.fixture import ClusterFixture


@asynccontextmanager
async def set_up(*, simulate: bool) -> AsyncIterator[ClusterFixture]:
    async with (
        DevCluster(kubelets=simulate) as server,
        Transport(Credentials(server.url), clock=WallClock()) as transport,
    ):
        fixture = ClusterFixture(server.url, transport)
        async with fixture.watching():
            yield fixture


@pytest.fixture
async def cluster() -> AsyncIterator[ClusterFixture]:
    """A cluster without kubelets: bound pods do not start, deleted pods with a grace period do not end."""
    async with set_up(simulate=False) as fixture:
        yield fixture


@pytest.fixture
async def cluster_with_kubelets() -> AsyncIterator[ClusterFixture]:
    """A cluster whose kubelets start bound pods and remove deleted ones."""
    async with set_up(simulate=True) as fixture:
        yield fixture
