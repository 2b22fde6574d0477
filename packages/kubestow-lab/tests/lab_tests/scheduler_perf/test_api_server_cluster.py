"""The cluster behind an API server: what its requests do about failures."""

from __future__ import annotations

import asyncio
from random import Random
from typing import cast

import pytest

from kubestow.client.rest.transport import Transport
from kubestow.errors import APIError
from kubestow.testing.virtual_time import VirtualClock, run
from kubestow_lab.scheduler_perf.clusters import APIServerCluster

POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}
NO_ACCOUNT = 'error looking up service account a/default: serviceaccount "default" not found'


class Server:
    """Answers discovery, and creations with these failures in order before the first success."""

    server = "http://test"

    def __init__(self, *failures: APIError) -> None:
        self.failures = list(failures)

    async def request(self, method: str, path: str, body: bytes | None = None) -> bytes:
        if method == "GET":
            return b'{"resources": [{"name": "pods", "kind": "Pod", "namespaced": true}]}'
        if self.failures:
            raise self.failures.pop(0)
        return body or b""


def create(server: Server) -> dict[str, object]:
    async def main() -> dict[str, object]:
        clock = VirtualClock(asyncio.get_running_loop())
        cluster = APIServerCluster(cast(Transport, server), clock=clock, random=Random(1))
        return await (await cluster.prepare(POD, "a"))()

    return run(main())


def test_a_pod_waits_for_the_service_account_of_its_namespace() -> None:
    assert create(Server(*[APIError(403, "Forbidden", NO_ACCOUNT)] * 3)) == POD


def test_the_wait_for_a_service_account_ends() -> None:
    with pytest.raises(APIError, match="service account"):
        create(Server(*[APIError(403, "Forbidden", NO_ACCOUNT)] * 1000))


def test_another_refusal_is_raised_at_once() -> None:
    server = Server(APIError(403, "Forbidden", "exceeded quota"))
    with pytest.raises(APIError, match="exceeded quota"):
        create(server)
