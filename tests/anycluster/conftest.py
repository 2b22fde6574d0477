"""A place in a cluster: the embedded server, or the one that ``KUBESTOW_TEST_KUBECONFIG`` leads to."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from kubestow.client.rest.credentials import load_credentials
from kubestow.client.rest.transport import Transport
from kubestow.devcluster.cluster import DevCluster
from kubestow.wall_clock import WallClock
from tests.anycluster.place import Place

KUBECONFIG = os.environ.get("KUBESTOW_TEST_KUBECONFIG", "")


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    """A namespace of its own, with everything in it taken away afterwards."""
    async with AsyncExitStack() as open_:
        master = ""
        if not KUBECONFIG:
            server = await open_.enter_async_context(DevCluster(nodes=0))
            master = server.url
        credentials = await load_credentials(KUBECONFIG, master=master)
        transport = await open_.enter_async_context(Transport(credentials, clock=WallClock()))
        yield await open_.enter_async_context(Place(transport, credentials, KUBECONFIG, master))
