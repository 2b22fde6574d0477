"""Several schedulers on one cluster, each with the partitions that it holds."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from kubestow import config
from kubestow.api.core import Pod
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import APIError, ConfigurationError, Unreachable
from kubestow.framework.interface import PreEnqueuePlugin
from kubestow.framework.profile import implements
from kubestow.framework.status import Status
from kubestow.observability.observability import Observability
from kubestow.observability.pod_states import PodStates
from kubestow.observability.recent_attempts import RecentAttempts
from kubestow.plugins import in_tree_registry
from kubestow.scheduling.environment import Environment
from kubestow.scheduling.interfaces import ObjectReference
from kubestow.scheduling.observer import Observer, Offer
from kubestow.scheduling.partitions.held_partitions import OFFER_ANNOTATION, HeldPartitions
from kubestow.scheduling.partitions.membership import PARTITION_LABEL
from kubestow.scheduling.partitions.scheduler import PartitionedScheduler
from kubestow.scheduling.queued_pod import QueuedPod
from kubestow.testing import MemoryCluster, node, pod
from kubestow.testing.devices import claim, device_class, exactly, slice_of
from kubestow.testing.virtual_time import VirtualClock, run


class BoundBy(MemoryCluster):
    """Notes which scheduler binds a pod."""

    def __init__(self) -> None:
        super().__init__()
        self.bound_by: dict[str, int] = {}
        self.observer: Observer = Offers()

    def client(self, number: int) -> Client:
        return Client(self, number)


def offers_of(cluster: BoundBy) -> Counter[Offer]:
    assert isinstance(cluster.observer, Offers)
    return cluster.observer.counts


class Client:
    """The API as the scheduler of a number uses it."""

    def __init__(self, cluster: BoundBy, number: int) -> None:
        self._cluster, self._number = cluster, number

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    async def bind(self, reference: ObjectReference, node_name: str) -> None:
        await self._cluster.bind(reference, node_name)
        self._cluster.bound_by[reference.name] = self._number


class Offers(Observer):
    """Counts how offers end."""

    def __init__(self) -> None:
        self.counts: Counter[Offer] = Counter()

    def offer_ended(self, offer: Offer) -> None:
        self.counts[offer] += 1


def scheduler(
    cluster: MemoryCluster | Client,
    held: HeldPartitions,
    *,
    number: int = 0,
    observer: Observer | None = None,
    **settings: Any,
) -> PartitionedScheduler:
    """A scheduler that holds nothing yet."""
    gates, extenders = settings.pop("gates", config.FeatureGates()), settings.pop("extenders", ())
    registry = {**in_tree_registry(), **{plugin.name: plugin for plugin in settings.pop("plugins", ())}}
    document = {"apiVersion": config.API_VERSION, "kind": config.KIND, **settings}
    return PartitionedScheduler(
        config.load(document, gates=gates, implements=implements(registry)),
        partitions=held,
        registry=registry,
        environment=Environment(
            cluster, VirtualClock(asyncio.get_running_loop()), Random(number), observer or Observer()
        ),
        gates=gates,
        extenders=extenders,
    )


@asynccontextmanager
async def schedulers(cluster: BoundBy, *held: Sequence[int], **settings: Any) -> AsyncIterator[list[HeldPartitions]]:
    """Schedulers that run and hold these partitions, of as many as are held."""
    count = len({partition for partitions in held for partition in partitions})
    states = [HeldPartitions(count) for _ in held]
    async with running_schedulers(cluster, *states, **settings):
        for state, partitions in zip(states, held, strict=True):
            for partition in partitions:
                await state.take(partition, {})
        yield states


@asynccontextmanager
async def running_schedulers(
    cluster: BoundBy, *states: HeldPartitions, **settings: Any
) -> AsyncIterator[list[PartitionedScheduler]]:
    """Schedulers that run and hold nothing yet."""
    created = [
        scheduler(cluster.client(number), state, number=number, observer=cluster.observer, **settings)
        for number, state in enumerate(states)
    ]
    running = [asyncio.create_task(each.run()) for each in created]
    try:
        await asyncio.sleep(0)
        yield created
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def in_partition(number: int, name: str, **settings: Any) -> Any:
    """A node with the label of a partition."""
    labels = {PARTITION_LABEL: str(number), **settings.pop("labels", {})}
    return node(name, labels=labels, **settings)


def pods_of(partition: int, count: int, **settings: Any) -> list[Pod]:
    """So many pods of a partition of two."""
    held = HeldPartitions(2)
    found = []
    for number in range(100):
        each = pod(f"pod-{partition}-{number}", **settings)
        if held.membership.of_node(each.metadata.uid, {}) == partition:  # the same hash, of the uid
            found.append(each)
    return found[:count]


def test_each_scheduler_binds_the_pods_of_its_partitions_to_its_nodes() -> None:
    async def scenario() -> BoundBy:
        cluster = BoundBy()
        for number in range(2):
            cluster.put(in_partition(number, f"node-{number}", cpu="4", max_pods=20))
        async with schedulers(cluster, [0], [1]):
            for each in (*pods_of(0, 5, cpu="100m"), *pods_of(1, 5, cpu="100m")):
                cluster.put(each)
            await asyncio.sleep(1.0)
        return cluster

    cluster = run(scenario())
    for each in cluster.pods():
        partition = int(each.metadata.name.split("-")[1])
        assert (each.spec.node_name, cluster.bound_by[each.metadata.name]) == (f"node-{partition}", partition)


def test_a_pod_that_fits_on_no_node_of_its_partition_is_bound_by_the_scheduler_of_another_node() -> None:
    async def scenario() -> BoundBy:
        cluster = BoundBy()
        cluster.put(in_partition(0, "small", cpu="1"))
        cluster.put(in_partition(1, "large", cpu="4"))
        async with schedulers(cluster, [0], [1]):
            cluster.put(*pods_of(0, 1, cpu="2"))
            await asyncio.sleep(1.0)
        return cluster

    cluster = run(scenario())
    (bound,) = cluster.pods()
    assert (bound.spec.node_name, cluster.bound_by[bound.metadata.name]) == ("large", 1)
    assert offers_of(cluster) == {Offer.ACCEPTED: 1}


def test_an_offer_that_no_longer_fits_is_declined_and_the_pod_tried_again() -> None:
    """The second scheduler knows of a pod on its node that the first one does not."""

    async def scenario() -> BoundBy:
        cluster = BoundBy()
        cluster.put(in_partition(0, "small", cpu="1"))
        cluster.put(in_partition(1, "large", cpu="4"))
        async with schedulers(cluster, [0], [1]):
            late, early = pods_of(0, 1, cpu="2")[0], pods_of(1, 1, cpu="3")[0]
            cluster.put(early)
            cluster.put(late)  # decided about before the binding of the other one is known
            await asyncio.sleep(1.0)
            assert offers_of(cluster) == {Offer.DECLINED: 1}
            assert OFFER_ANNOTATION not in cluster.pod(late.metadata.name).metadata.annotations
            cluster.remove(cluster.pod(early.metadata.name))
            await asyncio.sleep(10.0)
        return cluster

    cluster = run(scenario())
    assert cluster.pods()[0].spec.node_name == "large"
    assert offers_of(cluster) == {Offer.DECLINED: 1, Offer.ACCEPTED: 1}


@pytest.mark.parametrize("failure", [Unreachable("server", "lost"), APIError(409, "Conflict", "")])
def test_an_offer_whose_write_fails_is_made_again(failure: Exception) -> None:
    async def scenario() -> str:
        cluster = BoundBy()
        cluster.put(in_partition(1, "large", cpu="4"))
        cluster.patch_failures = [failure]
        async with schedulers(cluster, [0], [1]):
            (offered,) = pods_of(0, 1)
            cluster.put(offered)
            await asyncio.sleep(0.5)
            cluster.put(cluster.pod(offered.metadata.name))  # what has caused the conflict is shown
            await asyncio.sleep(15.0)
        return cluster.pod(offered.metadata.name).spec.node_name

    assert run(scenario()) == "large"


@pytest.mark.parametrize(
    ("failures", "is_certain"),
    [
        ([APIError(409, "Conflict", "")], True),
        ([APIError(403, "Forbidden", "")], True),
        ([Unreachable("server", "lost")], False),
        ([Unreachable("server", "lost"), APIError(409, "Conflict", "")], False),
    ],
    ids=["conflict", "rejected", "lost", "conflict after a lost answer"],
)
def test_an_offer_that_has_certainly_not_been_made_is_withdrawn(failures: list[Exception], is_certain: bool) -> None:
    """Any other one is written again, as long as the pod has not changed."""

    async def scenario() -> None:
        cluster = BoundBy()
        cluster.put(in_partition(1, "large", cpu="4"))
        cluster.patch_failures = list(failures)
        async with schedulers(cluster, [0], [1]):
            (offered,) = pods_of(0, 1)
            cluster.put(offered)
            await asyncio.sleep(0.5)
            if is_certain:
                cluster.put(cluster.pod(offered.metadata.name))
            await asyncio.sleep(30.0)
            assert cluster.pod(offered.metadata.name).spec.node_name == "large"
        assert offers_of(cluster) == {Offer.ACCEPTED: 1} | ({Offer.WITHDRAWN: 1} if is_certain else {})

    run(scenario())


@pytest.mark.parametrize("outcome", [Offer.ACCEPTED, Offer.WITHDRAWN], ids=str)
def test_an_offer_is_open_until_it_is_answered_or_its_pod_is_deleted(outcome: Offer) -> None:
    async def scenario() -> None:
        cluster = BoundBy()
        cluster.put(in_partition(1, "other"))
        held, other = HeldPartitions(2), HeldPartitions(2)
        async with running_schedulers(cluster, held, other):
            await held.take(0, {})
            (offered,) = pods_of(0, 1)
            cluster.put(offered)
            await asyncio.sleep(1.0)
            assert held.open_offers == 1
            if outcome is Offer.ACCEPTED:
                await other.take(1, {})
            else:
                cluster.remove(cluster.pod(offered.metadata.name))
            await asyncio.sleep(5.0)
            assert held.open_offers == 0
        assert offers_of(cluster) == {outcome: 1}

    run(scenario())


def test_the_pods_of_a_partition_wait_until_the_offers_of_its_former_holder_are_answered() -> None:
    """The successor does not know what else the former holder has decided since about pods like these."""

    async def scenario() -> None:
        cluster = BoundBy()
        cluster.put(in_partition(0, "own", cpu="4"))
        cluster.put(in_partition(1, "other", cpu="4"))
        offered, waiting = pods_of(0, 2)
        cluster.put(replace(offered, metadata=replace(offered.metadata, annotations={OFFER_ANNOTATION: "other"})))
        cluster.put(waiting)
        successor, other = HeldPartitions(2), HeldPartitions(2)
        async with running_schedulers(cluster, successor, other):
            taking = asyncio.create_task(successor.take(0, {}))
            await asyncio.sleep(5.0)
            assert [bound for bound in cluster.pods() if bound.spec.node_name] == []
            await other.take(1, {})
            await asyncio.sleep(1.0)
            assert taking.done()
            nodes = {bound.metadata.name: bound.spec.node_name for bound in cluster.pods()}
            assert nodes == {offered.metadata.name: "other", waiting.metadata.name: "own"}

    run(scenario())


def test_a_drained_partition_has_nothing_in_progress_and_its_pods_are_left_to_others() -> None:
    async def scenario() -> None:
        cluster = BoundBy()
        cluster.put(in_partition(0, "node-0", cpu="4"))
        cluster.put(in_partition(1, "node-1", cpu="4"))
        first, second = HeldPartitions(2), HeldPartitions(2)
        async with running_schedulers(cluster, first, second) as (one, _):
            for partition in range(2):
                await first.take(partition, {})
            for each in pods_of(1, 3):
                cluster.put(each)
            await asyncio.sleep(0)  # they are queued
            await first.drain(1)
            assert not list(one.cluster.assumed())
            bound = {each.metadata.name for each in cluster.pods() if each.spec.node_name}
            later = pods_of(1, 6)[3:]
            for each in later:
                cluster.put(each)
            await asyncio.sleep(5.0)
            assert {each.metadata.name for each in cluster.pods() if each.spec.node_name} == bound
            await second.take(1, {})
            await asyncio.sleep(1.0)
            assert all(each.spec.node_name for each in cluster.pods())
            assert {cluster.bound_by[each.metadata.name] for each in later} == {1}

    run(scenario())


def test_the_pods_of_one_workload_are_spread_by_one_scheduler() -> None:
    """All watches are late, so two schedulers that placed pods of one workload would not know of each other's."""
    constraint = {
        "maxSkew": 1,
        "topologyKey": "topology.kubernetes.io/zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }

    async def scenario() -> Counter[str]:
        cluster = BoundBy()
        for number in range(6):
            cluster.put(in_partition(number % 2, f"node-{number}", cpu="2", zone=f"zone-{number % 3}"))
        async with schedulers(cluster, [0], [1]):
            for number in range(18):
                cluster.put(pod(f"web-{number}", cpu="500m", labels={"app": "web"}, spread=[constraint]))
            await asyncio.sleep(60.0)
        assert {2} == {len(set(cluster.bound_by.values()))}  # it needs the nodes of both
        return Counter(f"zone-{int(each.spec.node_name[5:]) % 3}" for each in cluster.pods())

    assert run(scenario()) == {"zone-0": 6, "zone-1": 6, "zone-2": 6}


def test_a_pod_preempts_only_if_no_node_of_the_cluster_has_room_and_then_on_any() -> None:
    async def scenario() -> None:
        cluster = BoundBy()
        cluster.put(in_partition(0, "own", cpu="1"))
        cluster.put(in_partition(1, "other", cpu="2"))
        cluster.put(pod("low", cpu="1", node="own"))
        async with schedulers(cluster, [0], [1]):
            first, second = pods_of(0, 2, cpu="2", priority=10)
            cluster.put(first)
            await asyncio.sleep(1.0)
            assert cluster.pod(first.metadata.name).spec.node_name == "other"
            assert cluster.pod("low")
            cluster.put(replace(second, spec=replace(second.spec, priority=20)))
            await asyncio.sleep(10.0)
            assert cluster.pod(second.metadata.name).spec.node_name == "other"
            assert cluster.pod("low")
            assert first.metadata.name not in {each.metadata.name for each in cluster.pods()}

    run(scenario())


@pytest.mark.parametrize(
    "spec",
    [{"schedulingGroup": {"podGroupName": "g"}}, {"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]}],
)
def test_a_pod_of_a_gang_or_with_devices_keeps_to_its_partition(spec: dict[str, Any]) -> None:
    async def scenario() -> str:
        cluster = BoundBy()
        cluster.put(in_partition(1, "other", cpu="4"))
        for obj in (claim("gpu", exactly()), device_class(), slice_of("gpu-0", node="other")):
            cluster.put(obj)
        async with schedulers(cluster, [0], [1]):
            cluster.put(pod("confined", spec=spec))
            await asyncio.sleep(1.0)
        condition = cluster.condition("confined")
        assert condition is not None
        return condition.message

    assert "1 node(s) belong to other partitions" in run(scenario())


def test_an_extender_that_binds_pods_is_refused() -> None:
    async def scenario() -> None:
        binding = SimpleNamespace(settings=config.Extender(bind_verb="bind"))
        with pytest.raises(ConfigurationError, match=r"bindVerb.*does not respect the partitions"):
            scheduler(MemoryCluster(), HeldPartitions(2), extenders=[binding])

    run(scenario())


def test_a_pod_of_another_partition_is_not_queued_and_it_is_said_who_holds_that() -> None:
    async def scenario() -> None:
        cluster = BoundBy()
        held = HeldPartitions(2, holder_of=lambda partition: f"scheduler-{partition}")
        async with running_schedulers(cluster, held) as (only,):
            (other,) = pods_of(1, 1)
            cluster.put(other)
            await asyncio.sleep(1.0)
            assert not only.queue.pods
            info = only.pods.get(other.metadata.uid)
            assert info is not None
            whereabouts = "the pod belongs to partition 1 of 2, held by scheduler-1"
            clock = only.environment.clock
            states = PodStates(only, RecentAttempts(clock), clock)
            assert held.whereabouts(info) == states.summary(info) == whereabouts
            await held.take(1, {})
            assert held.whereabouts(info) == ""
            assert list(only.queue.pods) == [info.uid]

    run(scenario())


def test_a_pod_is_tried_when_one_of_another_partition_is_nominated_no_more() -> None:
    async def scenario() -> None:
        cluster = BoundBy()
        cluster.put(in_partition(0, "own", cpu="1"))
        held = HeldPartitions(2)
        async with running_schedulers(cluster, held):
            await held.take(0, {})
            own, other = pods_of(0, 1, cpu="1")[0], pods_of(1, 1, cpu="1")[0]
            cluster.put(replace(other, status=replace(other.status, nominated_node_name="own")))
            cluster.put(own)
            await asyncio.sleep(1.0)
            assert not cluster.pod(own.metadata.name).spec.node_name
            cluster.put(other)
            await asyncio.sleep(1.0)
            assert cluster.pod(own.metadata.name).spec.node_name == "own"

    run(scenario())


class Attempts(Offers):
    """The pods that were tried."""

    def __init__(self) -> None:
        super().__init__()
        self.started: list[str] = []

    def attempt_started(self, queued: QueuedPod) -> None:
        self.started.append(queued.info.name)


def test_only_the_pods_of_held_partitions_are_tried_also_after_a_change() -> None:
    async def scenario() -> None:
        cluster = BoundBy()
        cluster.observer = attempts = Attempts()
        held = HeldPartitions(2)
        async with running_schedulers(cluster, held):
            await held.take(0, {})
            own, other = pods_of(0, 1)[0], pods_of(1, 1)[0]
            for each in (own, other):
                cluster.put(each)
            await asyncio.sleep(1.0)
            cluster.put(replace(other, metadata=replace(other.metadata, labels={"app": "web"})))
            await asyncio.sleep(1.0)
            assert set(attempts.started) == {own.metadata.name}

    run(scenario())


def test_metrics_tell_which_partitions_are_held_and_what_became_of_offers() -> None:
    async def scenario() -> str:
        cluster = BoundBy()
        cluster.put(in_partition(1, "other"))
        first, second = HeldPartitions(2), HeldPartitions(2)
        observability = Observability(VirtualClock(asyncio.get_running_loop()), config.FeatureGates())
        cluster.observer = observability.observer
        async with running_schedulers(cluster, first, second) as (observed, _):
            observability.attach(observed)
            await first.take(0, {})
            await second.take(1, {})
            cluster.put(*pods_of(0, 1))
            await asyncio.sleep(1.0)
            await second.drain(1)
            return observability.scrape()[0].decode()

    exposition = run(scenario())
    for sample in (
        'kubestow_partition_held{partition="0"} 1.0',
        'kubestow_partition_held{partition="1"} 0.0',
        'kubestow_partition_offers_total{result="accepted"} 1.0',
        "kubestow_partition_hand_overs_total 1.0",
    ):
        assert sample in exposition


@pytest.mark.parametrize("settings", [{"gates": ["quota"]}, {"deleting": True}])
def test_the_pods_of_a_partition_do_not_wait_for_offers_that_cannot_be_accepted(settings: dict[str, Any]) -> None:
    """Users can write the annotation."""

    async def scenario() -> None:
        cluster = BoundBy()
        cluster.put(in_partition(0, "own"))
        (waiting,) = pods_of(0, 1)
        for each in pods_of(0, 3, **settings)[1:]:
            cluster.put(replace(each, metadata=replace(each.metadata, annotations={OFFER_ANNOTATION: "nowhere"})))
        cluster.put(waiting)
        held = HeldPartitions(2)
        async with running_schedulers(cluster, held):
            await held.take(0, {})
            await asyncio.sleep(1.0)
            assert cluster.pod(waiting.metadata.name).spec.node_name == "own"

    run(scenario())


def test_an_offer_of_a_pod_that_a_plugin_gates_here_is_declined() -> None:
    class Quota(PreEnqueuePlugin):
        name = "Quota"
        events_to_register = ()

        def pre_enqueue(self, pod: PodInfo) -> Status:
            return Status.unresolvable("over quota")

    async def scenario() -> None:
        cluster = BoundBy()
        cluster.put(in_partition(0, "own"))
        (offered,) = pods_of(1, 1)
        cluster.put(replace(offered, metadata=replace(offered.metadata, annotations={OFFER_ANNOTATION: "own"})))
        held = HeldPartitions(2)
        profiles = [{"plugins": {"multiPoint": {"enabled": [{"name": "Quota"}]}}}]
        async with running_schedulers(cluster, held, profiles=profiles, plugins=[Quota]):
            await held.take(0, {})
            await asyncio.sleep(1.0)
            assert OFFER_ANNOTATION not in cluster.pod(offered.metadata.name).metadata.annotations

    run(scenario())


def test_a_pod_that_is_tied_to_a_node_follows_its_node_into_another_partition() -> None:
    """Its node is known after it, too, because pods and nodes have a watch each."""
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}

    async def scenario() -> None:
        for partition in range(2):
            cluster = BoundBy()
            async with schedulers(cluster, [0], [1]):
                cluster.put(pod("daemon", affinity={"nodeAffinity": required}))
                await asyncio.sleep(1.0)
                cluster.put(in_partition(partition, "node-1"))
                await asyncio.sleep(15.0)
            assert cluster.bound_by == {"daemon": partition}

    run(scenario())


def test_pods_follow_the_nodes_that_they_are_tied_to_again_and_again() -> None:
    def tied_to(name: str) -> dict[str, Any]:
        term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}
        return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}

    async def scenario() -> None:
        by_name = HeldPartitions(2).membership.of_node
        cluster = BoundBy()
        async with schedulers(cluster, [0], [1]):
            for name in ("node-1", "node-2", "node-3"):
                cluster.put(pod(f"of-{name}", affinity=tied_to(name)))
                await asyncio.sleep(1.0)
                cluster.put(in_partition(1 - by_name(name, {}), name))  # not that of its name
                await asyncio.sleep(15.0)
                assert cluster.pod(f"of-{name}").spec.node_name == name

    run(scenario())


def test_an_offer_for_a_node_that_is_gone_is_declined_whatever_its_label_was() -> None:
    async def scenario() -> None:
        for partition in range(2):
            cluster = BoundBy()
            gone = in_partition(partition, "gone", cpu="1")
            cluster.put(gone)
            (offered,) = pods_of(1 - partition, 1, cpu="2")
            async with schedulers(cluster, [0], [1]):
                cluster.remove(gone)
                annotations = {OFFER_ANNOTATION: "gone"}
                cluster.put(replace(offered, metadata=replace(offered.metadata, annotations=annotations)))
                await asyncio.sleep(15.0)
            assert OFFER_ANNOTATION not in cluster.pod(offered.metadata.name).metadata.annotations

    run(scenario())


def test_a_partition_is_drained_although_a_pod_was_offered_to_it_before_it_was_taken_over() -> None:
    """The pod waits for an answer of the holder of the node, which has become its own scheduler."""

    async def scenario() -> None:
        cluster = BoundBy()
        cluster.put(in_partition(1, "other"))
        held = HeldPartitions(2)
        async with running_schedulers(cluster, held):
            await held.take(0, {})
            (offered,) = pods_of(0, 1)
            cluster.put(offered)
            await asyncio.sleep(1.0)
            assert OFFER_ANNOTATION in cluster.pod(offered.metadata.name).metadata.annotations
            await held.take(1, {})
            async with asyncio.timeout(60.0):
                await held.drain(1)

    run(scenario())


def test_a_host_port_stays_taken_when_one_of_two_pods_with_it_goes() -> None:
    """The pod of one scheduler was offered for the node on which the other one has bound a pod with the same port."""

    async def scenario() -> None:
        cluster = scheduler(BoundBy(), HeldPartitions(2)).cluster
        cluster.add_node(node("n"))
        bound, offered = (cluster.shapes.info(pod(name, host_ports=[80])) for name in ("bound", "offered"))
        cluster.assume(offered, "n")
        cluster.put_pod(cluster.shapes.info(pod("bound", host_ports=[80], node="n")))
        cluster.forget(offered.uid)
        assert {port.port for port in cluster.nodes.taken_ports(0)} == {80}
        cluster.remove_pod(bound.uid)
        assert cluster.nodes.taken_ports(0) == set()

    run(scenario())
