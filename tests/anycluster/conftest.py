"""A sandbox in a cluster: the embedded server, or the one of ``KUBESTOW_TEST_KUBECONFIG``."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from kubestow.client.rest.credentials import load_credentials
from kubestow.client.rest.transport import Transport
from kubestow.process import WallClock
from kubestow_devcluster.cluster import DevCluster
from tests.anycluster.sandbox import ClusterSandbox

KUBECONFIG = os.environ.get("KUBESTOW_TEST_KUBECONFIG", "")


@pytest.fixture
async def sandbox() -> AsyncIterator[ClusterSandbox]:
    """A sandbox with its own namespace; everything in it is deleted after the test."""
    async with AsyncExitStack() as stack:
        master = ""
        if not KUBECONFIG:
            server = await stack.enter_async_context(DevCluster(nodes=0))
            master = server.url
        credentials = await load_credentials(KUBECONFIG, master=master)
        transport = await stack.enter_async_context(Transport(credentials, clock=WallClock()))
        yield await stack.enter_async_context(ClusterSandbox(transport, credentials, KUBECONFIG, master))
