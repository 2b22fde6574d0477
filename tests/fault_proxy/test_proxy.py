"""Each fault of the proxy does what its name says."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from random import Random

import pytest

from kubestow.client.rest.credentials import Credentials
from kubestow.client.rest.transport import Transport
from kubestow.errors import APIError, Unreachable
from kubestow.process import WallClock
from kubestow_devcluster.cluster import DevCluster
from tests.fault_proxy.faults import Fault, Faults
from tests.fault_proxy.observation import Observations
from tests.fault_proxy.proxy import FaultProxy

PODS = "/api/v1/namespaces/default/pods"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
POD = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "x"}]}}


class PlannedFaults(Faults):
    """The named fault for the next request or part of a watch, once."""

    def __init__(self) -> None:
        super().__init__(Random(1), scale=0.0)
        self.next: Fault | None = None

    def for_request(self, client: str) -> Fault | None:
        planned, self.next = self.next, None
        return super().for_request(client) or planned

    for_watch_part = for_request


class ProxiedCluster:
    """An embedded server, and clients that reach it directly and through the proxy."""

    def __init__(
        self,
        server: DevCluster,
        faults: PlannedFaults,
        observations: Observations,
        direct: Transport,
        proxied: Transport,
    ) -> None:
        self.server, self.faults, self.observations = server, faults, observations
        self.direct, self.proxied = direct, proxied

    async def create_pod(self) -> None:
        await self.proxied.request("POST", PODS, json.dumps(POD).encode(), retries=0)

    @property
    def has_pod(self) -> bool:
        return self.server.store.collection("pods").get("default/p") is not None


@pytest.fixture
async def cluster() -> AsyncIterator[ProxiedCluster]:
    faults, observations = PlannedFaults(), Observations(lambda: 0.0)
    async with DevCluster(nodes=1, kubelets=False) as server:
        credentials = Credentials(server.url)
        proxy = FaultProxy(credentials, faults, observations, lambda: 0.0)
        async with (
            proxy.serving("client") as url,
            Transport(credentials, clock=WallClock()) as direct,
            Transport(Credentials(url), clock=WallClock()) as proxied,
        ):
            yield ProxiedCluster(server, faults, observations, direct, proxied)
        await proxy.close()


async def test_without_faults_requests_and_answers_pass_as_they_are(cluster: ProxiedCluster) -> None:
    await cluster.create_pod()
    assert json.loads(await cluster.proxied.request("GET", PODS)) == json.loads(
        await cluster.direct.request("GET", PODS)
    )
    with pytest.raises(APIError) as error:
        await cluster.create_pod()
    assert error.value.code == 409


@pytest.mark.parametrize(
    ("fault", "takes_effect"),
    [(Fault.LOST_REQUEST, False), (Fault.LOST_ANSWER, True), (Fault.TORN_ANSWER, True)],
)
async def test_a_lost_write_has_no_answer(cluster: ProxiedCluster, fault: Fault, takes_effect: bool) -> None:
    cluster.faults.next = fault
    with pytest.raises(Unreachable):
        await cluster.create_pod()
    assert cluster.has_pod is takes_effect


@pytest.mark.parametrize(("fault", "code"), [(Fault.ERROR_500, 500), (Fault.ERROR_503, 503), (Fault.ERROR_429, 429)])
async def test_an_error_has_no_effect(cluster: ProxiedCluster, fault: Fault, code: int) -> None:
    cluster.faults.next = fault
    with pytest.raises(APIError) as error:
        await cluster.create_pod()
    assert (error.value.code, cluster.has_pod) == (code, False)


@pytest.mark.parametrize("fault", [Fault.WATCH_TRUNCATED, Fault.WATCH_RESET])
async def test_a_watch_ends_in_or_before_an_event(cluster: ProxiedCluster, fault: Fault) -> None:
    path = "/api/v1/nodes?watch=1"
    received = b""
    with pytest.raises(Unreachable):
        async with cluster.proxied.stream(path, idle_timeout=60) as chunks:
            received += await anext(chunks)
            cluster.faults.next = fault
            await cluster.direct.request("POST", "/api/v1/nodes", b'{"metadata":{"name":"second"}}')
            async for chunk in chunks:
                received += chunk
    assert received.count(b'"ADDED"') == 1 + (fault is Fault.WATCH_TRUNCATED)
    assert received.endswith(b"\n") is (fault is Fault.WATCH_RESET)


async def test_a_client_in_a_partition_reaches_nothing(cluster: ProxiedCluster) -> None:
    partition = Faults(Random(1))
    partition.set_partitioned("client", True)
    assert partition.for_request("client") is Fault.PARTITION is partition.for_watch_part("client")
    assert partition.counts == {Fault.PARTITION: 2}
    partition.stop()
    assert partition.for_request("client") is None
    partition.set_partitioned("client", True)
    assert not partition.is_partitioned("client")


async def test_bindings_and_leases_are_observed_also_if_the_answer_is_lost(cluster: ProxiedCluster) -> None:
    await cluster.create_pod()
    lease = {"metadata": {"name": "kube-scheduler"}, "spec": {"holderIdentity": "me"}}
    await cluster.proxied.request("POST", LEASES, json.dumps(lease).encode())
    binding = {"metadata": {"name": "p", "uid": "u"}, "target": {"kind": "Node", "name": "node-0"}}
    stored = json.loads(await cluster.direct.request("GET", f"{PODS}/p"))
    binding["metadata"]["uid"] = stored["metadata"]["uid"]
    cluster.faults.next = Fault.LOST_ANSWER
    with pytest.raises(Unreachable):
        await cluster.proxied.request("POST", f"{PODS}/p/binding", json.dumps(binding).encode(), retries=0)
    (observed,) = cluster.observations.bindings
    assert (observed.client, observed.pod, observed.node, observed.status) == ("client", "p", "node-0", 201)
    assert [(write.client, write.holder) for write in cluster.observations.lease_writes] == [("client", "me")]
