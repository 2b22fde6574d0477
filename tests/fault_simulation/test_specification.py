"""Every rule of the specification finds a violation that is planted, and nothing where there is none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from kubestow.api.core import Pod
from kubestow.api.meta import convert
from kubestow.api.scheduling import PodGroup
from kubestow.cluster.cache import Cluster
from kubestow.config import FeatureGates
from kubestow.rules.minors import DEFAULT_MINOR
from kubestow.testing import node, pod
from kubestow.testing.devices import allocation, claim, reserved_for
from kubestow.testing.storage import claim as volume_claim
from kubestow.testing.storage import mounting
from kubestow_lab.fault_simulation.apiserver.server import SimulatedServer
from kubestow_lab.fault_simulation.invariants.fairness import FirstAttempts, Overtaken
from kubestow_lab.fault_simulation.invariants.feasible_nodes import PlainObjects
from kubestow_lab.fault_simulation.scheduler.faulty_plugin import ReservationLedger
from kubestow_lab.fault_simulation.specification import (
    MAX_AT_ONCE,
    RULES,
    Attempted,
    Begun,
    Bound,
    Cancelled,
    Decided,
    Evicted,
    Fact,
    Preempting,
    Released,
    Rested,
    Sent,
    Settled,
    Watched,
    Written,
    violations,
)
from kubestow_lab.fault_simulation.trace import Trace


def _pod(name: str, cpu: str = "1", **fields: Any) -> Pod:
    metadata = {"uid": f"uid-{name}"} | fields.pop("metadata", {})
    return pod(name, cpu=cpu, metadata=metadata, status={"phase": "Pending"}, **fields)


def attempted(**fields: Any) -> Attempted:
    """A fact without a violation, with some fields changed; likewise the next functions."""
    valid = Attempted(
        by="one",
        pod=_pod("a"),
        may_schedule=True,
        holder="one",
        overtaken=(),
        at_once=1,
        held_by_gone={},
        without_nomination=(),
    )
    return replace(valid, **fields)


def decided(**fields: Any) -> Decided:
    nothing: list[Any] = []
    valid = Decided(
        by="one",
        pod=_pod("a"),
        node_name="n",
        nodes=[node("n", cpu="2")],
        placed=nothing,
        nominated=nothing,
        claims=nothing,
        volumes=nothing,
        plain=PlainObjects(),
    )
    return replace(valid, **fields)


def preempting(**fields: Any) -> Preempting:
    preemptor, victim = fields.pop("preemptor", _pod("high", priority=10)), fields.pop("victim", _pod("low"))
    valid = Preempting(
        by="one",
        preemptors=[preemptor],
        victims=[victim],
        units=[[victim]],
        priorities={each.metadata.uid: [each.spec.priority or 0] for each in (preemptor, victim)},
        node=node("n", cpu="2"),
        beside=[_pod("stays")],
        awaited=[],
        is_checkable=True,
        plain=PlainObjects(),
    )
    return replace(valid, **fields)


def evicted(**fields: Any) -> Evicted:
    return replace(Evicted(by="one", preemptor=_pod("high"), succeeded=False, remaining=[_pod("low")]), **fields)


def watched(**fields: Any) -> Watched:
    return replace(Watched(by="one", what="pods", since=2, seen=2), **fields)


def begun(**fields: Any) -> Begun:
    return replace(Begun(by="one", pod=_pod("a"), settled_for=None), **fields)


def sent(**fields: Any) -> Sent:
    valid = Sent(by="one", uid="a", times=[0.0], may_schedule=True, holder="one", gang=None, is_stopped=False)
    return replace(valid, **fields)


def written(**fields: Any) -> Written:
    return replace(Written(by="one", what="patch pod a", may_schedule=True, holder="one"), **fields)


def released(**fields: Any) -> Released:
    return replace(Released(by="one", bindings=0), **fields)


def cancelled(**fields: Any) -> Cancelled:
    return replace(Cancelled(by="one", what="bind a n", seconds=10.0, may_wait=True), **fields)


def bound(of: Pod | None = None, **fields: Any) -> Bound:
    of = of or _pod("a")
    valid = Bound(
        by="one",
        pod=of,
        node_name="n",
        decided="n",
        earlier=[],
        node_names={"n"},
        beside=[of],
        states=[node("n", cpu="2")],
        may_schedule=True,
        holder="one",
        claims={},
        device_holders={},
        plain=PlainObjects(),
    )
    return replace(valid, **fields)


def _with_device(**status: Any) -> Bound:
    of = _pod("a", spec={"resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}]})
    return bound(of, claims={"c": claim("c", status=status)})


class _StoppedClock:
    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC)

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        raise NotImplementedError


class _Cluster:
    """A server with a node and a pending pod that fits, and a scheduler whose state is what each test makes of it."""

    def __init__(self) -> None:
        clock = _StoppedClock()
        self.server = SimulatedServer(clock, Trace(clock))
        self.cache = Cluster(gates=FeatureGates(minor=DEFAULT_MINOR))
        self.process: Any = SimpleNamespace(
            name="one",
            scheduler_names=("one",),
            minor=DEFAULT_MINOR,
            alive=True,
            is_leader=False,
            requests=[],
            running=SimpleNamespace(cancelled=lambda: True),
            features=SimpleNamespace(gang_search=False, partitions=0),
            scheduler=SimpleNamespace(cluster=self.cache),
            ledger=ReservationLedger(),
            bound=set(),
        )

    def settled(self, *processes: Any) -> Settled:
        return Settled(self.server, ("one",), processes)

    def rested(self) -> Rested:
        return Rested(self.server, self.process)

    def with_pod_that_fits(self) -> _Cluster:
        self.server.put(node("n", cpu="2"))
        self.server.put(_pod("a", scheduler="one"))
        return self

    def with_gang_that_fits(self) -> _Cluster:
        self.server.put(node("n", cpu="2"))
        labels = {"job": "job-1", "needs": "2", "size": "2"}
        for number in range(2):
            member = _pod(f"job-1-{number}", scheduler="one", labels=labels)
            self.server.put(member)
        self.server.put(_group("job-1"))
        return self

    def with_nomination_of_deleted_pod(self) -> _Cluster:
        self.cache.nominate(self.cache.shapes.info(_pod("gone")), "n")
        return self

    def with_unknown_node(self) -> _Cluster:
        self.server.put(node("n"))
        return self

    def with_pod_that_may_preempt(self) -> _Cluster:
        self.server.put(node("n", cpu="1"))
        self.server.put(_pod("low", node="n", scheduler="one"))
        self.server.put(_pod("high", priority=10, scheduler="one"))
        return self

    def with_reservation_taken_back(self) -> _Cluster:
        self.server.put(_pod("a", node="n"))
        self.cache.put_pod(self.cache.shapes.info(self.server.pods()[0]))
        self.process.bound = {"uid-a"}
        self.process.ledger.released = {"uid-a": "n"}
        return self

    def ended(self) -> _Cluster:
        self.process.alive = False
        return self

    def with_partitions(self, *held: list[int]) -> Settled:
        """Settled, with processes that hold these partitions."""
        self.server.add_partitions(sum(map(len, held)))
        features = SimpleNamespace(gang_search=False, partitions=len(self.server.partition_leases))
        return self.settled(
            *(
                SimpleNamespace(is_leader=True, features=features, partitions=SimpleNamespace(held=partitions))
                for partitions in held
            )
        )

    def with_storm(self) -> _Cluster:
        self.process.requests = [(0.01 * number, "WATCH /api/v1/pods") for number in range(100)]
        return self


def _group(name: str) -> Any:
    spec = {"schedulingPolicy": {"gang": {"minCount": 2}}}
    return convert(PodGroup, {"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": spec})


#: A fact that violates each rule, by the name of its function.
PLANTED: dict[str, Callable[[], Fact]] = {
    "only the leader decides": lambda: attempted(may_schedule=False),
    "only the leader sends bindings": lambda: sent(may_schedule=False),
    "only the leader writes": lambda: written(may_schedule=False),
    "a graceful stop waits for requests": lambda: cancelled(seconds=0.5),
    "only the leader binds": lambda: bound(may_schedule=False),
    "pods that constrain each other have one scheduler": lambda: attempted(unknown_of_workload=["uid-b"]),
    "a lease is released when nothing is in progress": lambda: released(bindings=1),
    "no pod is overtaken twice": lambda: attempted(overtaken=[Overtaken("b", 2)]),
    "a pod in flight is not queued": lambda: attempted(queued_in_flight=["uid-b"]),
    "a pod is queued as it is": lambda: attempted(outdated=["uid-b"]),
    "a preemptor is tried after its evictions": lambda: attempted(preemptors_left=["high"]),
    "attempts back off": lambda: attempted(at_once=MAX_AT_ONCE),
    "an error is not retried at once": lambda: attempted(since_error=0.5),
    "a ready pod is tried": lambda: attempted(idle=6.0),
    "bindings back off": lambda: sent(times=[0.1 * number for number in range(7)]),
    "a pod is placed where it fits": lambda: decided(placed=[(_pod("b", cpu="2"), "n")]),
    "a volume is mounted where it can be": lambda: decided(
        pod=_pod("a", spec=mounting("data")), claims=[volume_claim("data", volume="pv-elsewhere")]
    ),
    "room is kept for nominated pods": lambda: decided(nominated=[_pod("high", cpu="2", priority=10)]),
    "no gated pod is placed": lambda: decided(pod=_pod("a", gates=("quota",))),
    "nothing is held for a pod that is gone": lambda: attempted(held_by_gone={"b": 2.0}),
    "a pod preempts once at a time": lambda: preempting(awaited=[_pod("earlier")]),
    "a wait on permit times out": lambda: attempted(waiting={"b": 2.0}),
    "a preemptor is nominated": lambda: attempted(without_nomination=["high"]),
    "no binding begins of a pod that needs none": lambda: begun(settled_for=0.1),
    "a pod counts where it is": lambda: begun(miscounted=["counts b on n"]),
    "no binding is sent of a pod that was stopped": lambda: sent(is_stopped=True),
    "victims have lower priority": lambda: preempting(victim=_pod("low", priority=10)),
    "a pod that must not preempt does not": lambda: preempting(
        preemptor=_pod("high", priority=10, spec={"preemptionPolicy": "Never"})
    ),
    "preemption makes the preemptor fit": lambda: preempting(beside=[_pod("stays", cpu="2")]),
    "no victim is needless": lambda: preempting(beside=[]),
    "an eviction that was refused is no success": lambda: evicted(succeeded=True),
    "a watch goes on where it ended": lambda: watched(since=1),
    "a pod is bound where it was placed": lambda: bound(decided="other"),
    "a pod is bound once": lambda: bound(earlier=["other"]),
    "no pod is bound after its deletion": lambda: bound(
        _pod("a", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    ),
    "a pod is bound to a node that existed": lambda: bound(node_names=set()),
    "no node is bound above its allocatable": lambda: bound(_pod("a", cpu="3")),
    "no host port is used twice": lambda: bound(
        of := _pod("a", host_ports=(80,)), beside=[of, _pod("b", cpu="100m", host_ports=(80,))]
    ),
    "claims of a bound pod are reserved for it": lambda: _with_device(
        allocation=allocation("d0", at="n"), reservedFor=reserved_for("uid-other")
    ),
    "no device is allocated twice": lambda: bound(device_holders={("n", "d0"): 2}),
    "a gang is bound whole or not at all": lambda: sent(gang=(1, 2)),
    "every schedulable pod is bound": lambda: _Cluster().with_pod_that_fits().settled(),
    "every schedulable gang is bound": lambda: _Cluster().with_gang_that_fits().settled(),
    "every pod that may preempt does": lambda: _Cluster().with_pod_that_may_preempt().settled(),
    "some scheduler leads": lambda: (cluster := _Cluster()).settled(cluster.process),
    "partitions are shared evenly": lambda: _Cluster().with_partitions([0, 1], []),
    "a scheduler survives": lambda: _Cluster().ended().rested(),
    "the cache is what the server has": lambda: _Cluster().with_unknown_node().rested(),
    "nominations end": lambda: _Cluster().with_nomination_of_deleted_pod().rested(),
    "a bound pod keeps what was reserved": lambda: _Cluster().with_reservation_taken_back().rested(),
    "a server in trouble is spared": lambda: _Cluster().with_storm().rested(),
}
#: Need a whole scheduler: the planted faults have one.
ELSEWHERE = {"nothing is lost or left", "pods say what has happened to them"}


@pytest.mark.parametrize("name", PLANTED)
def test_a_rule_finds_a_planted_violation(name: str) -> None:
    broken = {found.partition(":")[0] for found in violations(PLANTED[name]())}
    assert broken == {name}


def test_every_rule_has_a_planted_violation_and_a_reason() -> None:
    assert {rule.name for rule in RULES} == PLANTED.keys() | ELSEWHERE
    assert all(rule.reason.endswith(".") for rule in RULES)


@pytest.mark.parametrize(
    "fact",
    [
        attempted(),
        decided(),
        attempted(since_error=1.0, idle=1.0, waiting={"b": 0.5}),
        attempted(at_once=MAX_AT_ONCE - 1, held_by_gone={"b": 0.5}),
        preempting(),
        preempting(beside=[], units=[[_pod("member"), _pod("other-member")]]),
        evicted(),
        evicted(succeeded=True, remaining=[]),
        watched(),
        begun(),
        begun(settled_for=0.0),
        written(),
        cancelled(),
        released(),
        cancelled(seconds=0.5, may_wait=False),
        sent(gang=(2, 2)),
        bound(),
        _with_device(allocation=allocation("d0", at="n"), reservedFor=reserved_for("uid-a")),
    ],
    ids=lambda fact: type(fact).__name__,
)
def test_a_fact_without_a_violation_breaks_no_rule(fact: Fact) -> None:
    assert list(violations(fact)) == []


def test_a_cluster_that_has_settled_breaks_no_rule() -> None:
    cluster = _Cluster()
    cluster.process.is_leader = False
    assert list(violations(cluster.rested())) == []
    assert list(violations(cluster.settled())) == []


def test_partitions_that_are_shared_evenly_break_no_rule_and_one_without_a_holder_does() -> None:
    assert list(violations(_Cluster().with_partitions([0, 2], [1]))) == []
    lost = _Cluster()
    lost.server.add_partitions(1)
    (violation,) = violations(replace(lost.with_partitions([0], [2]), server=lost.server))
    assert "hold partitions [[0], [2]]" in violation


def test_a_pod_is_overtaken_by_the_second_attempt_of_one_that_comes_after_it() -> None:
    first, low, high = FirstAttempts(), _pod("low"), _pod("high", priority=5)
    assert list(first.attempted(low, [low, high])) == []
    assert list(first.attempted(low, [low, high])) == [Overtaken("high", 2)]


def test_a_pod_of_higher_priority_overtakes_nothing() -> None:
    first, low, high = FirstAttempts(), _pod("low"), _pod("high", priority=5)
    assert [list(first.attempted(high, [low, high])) for _ in range(3)] == [[], [], []]


def test_a_pod_that_changes_waits_anew() -> None:
    first, other, waiting = FirstAttempts(), _pod("a"), _pod("b")
    changed = _pod("b", metadata={"resourceVersion": "2"})
    assert list(first.attempted(other, [waiting])) == []
    assert list(first.attempted(other, [changed])) == []
    assert list(first.attempted(other, [changed])) == [Overtaken("b", 2)]
