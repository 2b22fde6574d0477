"""After a simulation the cluster equals one in which nothing was simulated, and inside it one in which it was done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core_tests.decisions import preemption_of
from kubestow.api.core import Node, Pod
from kubestow.api.storage import CSINode, PersistentVolume, PersistentVolumeClaim
from kubestow.cluster.cache import Cluster
from kubestow.cluster.changes.events import Action, ClusterEvent, EventResource
from kubestow.cluster.changes.journal import EVERY_ROW, ROLLED_BACK
from kubestow.cluster.pods.table import PodTable
from kubestow.cluster.simulation import Simulation
from kubestow.cluster.topology.counters import PodCounter
from kubestow.cluster.topology.domains import DomainSums, domain_sums
from kubestow.errors import KubestowError
from kubestow.testing import PluginHarness, node, pod
from kubestow.testing.storage import DRIVER, claim, csi_node, mounting, volume

ZONE = "topology.kubernetes.io/zone"
NODES = ("n0", "n1", "n2", "not-added")

WEB = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": ZONE}
WEB_ON_NODE = WEB | {"topologyKey": "kubernetes.io/hostname"}
AFFINITY = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [WEB]}}
ANTI_AFFINITY = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [WEB]}}
ANTI_AFFINITY_ON_NODE = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [WEB_ON_NODE]}}
SPREAD = {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", **WEB}

#: What pods of a number are like.
KINDS: Sequence[dict[str, Any]] = (
    {"cpu": "1", "labels": {"app": "web"}},
    {"cpu": "2", "labels": {"app": "web"}, "priority": -1, "status": {"startTime": "2026-01-01T00:00:00Z"}},
    {"cpu": "1", "labels": {"app": "web"}, "affinity": ANTI_AFFINITY},
    {"cpu": "1", "labels": {"app": "db"}, "affinity": ANTI_AFFINITY_ON_NODE},
    {"cpu": "1", "host_ports": [80], "priority": -1},
    {"cpu": "2", "host_ports": [80, 443], "priority": -1},
    {"cpu": "1", "host_ports": [80], "priority": -2},
    {"spec": mounting("shared")},
    {"spec": mounting("shared", "unreadable")},
    {"requests": {"example.com/gpu": "1"}, "priority": -1},
)
PODS = [f"p{number}" for number in range(2 * len(KINDS))]


def kind(name: str) -> dict[str, Any]:
    return KINDS[int(name[1:]) % len(KINDS)]


def info_of(cluster: Cluster, name: str, node_name: str = "") -> Any:
    return cluster.shapes.info(pod(name, node=node_name, **kind(name)))


PENDING = (
    pod("pending", cpu="3", labels={"app": "web"}, spread=[SPREAD]),
    pod("pending", cpu="4"),
    pod("pending", affinity=AFFINITY, labels={"app": "web"}),
    pod("pending", host_ports=[80]),
    pod("pending", spec=mounting("shared", "other")),
    pod("pending", requests={"example.com/gpu": "1"}),
)


class Subject:
    """A harness, and counters that are held all the time."""

    def __init__(self) -> None:
        self.harness = PluginHarness([a_node(name) for name in NODES[:3]])
        self.cluster = self.harness.cluster
        self.held: list[tuple[PodCounter, DomainSums]] = []
        for name in ("shared", "other"):
            self.cluster.catalog(PersistentVolumeClaim).put(claim(name, volume=f"pv-{name}"))
            self.cluster.catalog(PersistentVolume).put(volume(f"pv-{name}"))
        unreadable = {"csi": None, "gcePersistentDisk": {"pdName": ""}}
        self.cluster.catalog(PersistentVolumeClaim).put(claim("unreadable", volume="pv-unreadable"))
        self.cluster.catalog(PersistentVolume).put(volume("pv-unreadable", source=unreadable))
        for name in NODES:
            self.cluster.catalog(CSINode).put(csi_node(name, csi_example_com=1))
        self.hold_counters("web")

    def hold_counters(self, app: str) -> None:
        counter = self.cluster.counter(app, lambda shape: int(shape.labels.get("app") == app))
        self.held.append((counter, domain_sums(self.cluster.nodes, counter, ZONE)))

    def decisions(self) -> list[object]:
        return [self.decision(pending) for pending in PENDING]

    def decision(self, pending: Pod) -> object:
        decision = self.harness.decide(pending)
        nomination = preemption_of(decision)
        preempts = nomination and (nomination.nominated_node_name, [victim.uid for victim in nomination.victims])
        return decision.node_name, decision.message, preempts, self.harness.rejections(pending)


def a_node(name: str) -> Node:
    return node(name, cpu="6", zone="x" if name == "n0" else "y", allocatable={"example.com/gpu": "1"})


# -- reading --------------------------------------------------------------------------------------------------------


def reading(subject: Subject) -> dict[str, object]:
    """What the cluster's public accessors return, with the order of pods wherever there is one."""
    cluster, table = subject.cluster, subject.cluster.nodes
    nodes = cluster.all_nodes()
    placed = {name: cluster.placed_pod(uid(name)) for name in PODS}
    return {
        "placed": {name: p and (id(p), id(p.info), p.node_name, p.assumed) for name, p in placed.items()},
        "pod count": (cluster.pod_count, nodes.pod_count.tolist()),
        "assumed": {p.info.uid for p in cluster.assumed()},
        "shapes": [cluster.has_placed(info_of(cluster, name).shape) for name in PODS],
        "nominations": [cluster.nomination(uid(name)) for name in PODS],
        "nominated": [[info.uid for info in cluster.nominated_pods(name)] for name in NODES],
        "any nominated": (cluster.has_nominations, table.nominated_count.values.tolist()),
        "nominated by row": by_row(table.nominated, len(table)),
        "pods on nodes": order_of_pods(subject),
        "pods by row": by_row(table.pod_table, len(table)),
        "slots": [table.pod_table.slot(uid(name)) for name in PODS],
        "requested": [nodes.requested(name).tolist() for name in ("cpu", "memory", "example.com/gpu")],
        "scored": [nodes.nonzero_cpu.tolist(), nodes.nonzero_memory.tolist()],
        "ports": {port: column.values.tolist() for port, column in table.ports()},
        "counters": [(c.by_row.tolist(), s.by_domain.tolist(), s.total) for c, s in subject.held[:1]],
        "terms": [Counter(cluster.carried_terms.terms_for(info_of(cluster, name).shape.index_keys)) for name in PODS],
        "version of terms": cluster.carried_terms.version,
        "term versions": [cluster.carried_terms.version_for(info_of(cluster, name).shape.index_keys) for name in PODS],
        "attached": cluster.volumes.attached.count(nodes, DRIVER).tolist(),
        "volume problems": dict(cluster.volumes.attached.problems(nodes)),
        "claims": [cluster.volumes.in_use.is_claim_used("default", name) for name in ("shared", "unreadable")],
    }


def by_row(pods: PodTable, rows: int) -> list[tuple[str, int, int, int]]:
    slots, _ = pods.slots_on(range(rows))
    return [
        (pods.info(slot).uid, slot, int(pods.priority[slot]), int(pods.requested("cpu")[slot]))
        for slot in slots.tolist()
    ]


def order_of_pods(subject: Subject) -> list[list[str]]:
    nodes = subject.cluster.all_nodes()
    return [[info.uid for info in nodes.pods(position)] for position in range(len(nodes))]


def uid(name: str) -> str:
    return f"uid-default-{name}"


# -- operations -----------------------------------------------------------------------------------------------------

Operation = tuple[str, str, str]


class Abandoned(Exception):
    """Ends a simulation early."""


def operations() -> st.SearchStrategy[list[Operation]]:
    kinds = st.sampled_from(("place", "place", "remove", "update", "forget", "nominate", "drop", "decide"))
    return st.lists(st.tuples(kinds, st.sampled_from(PODS), st.sampled_from(NODES)), max_size=12)


class Nested(list["Operation | Nested"]):
    """Operations of a simulation, some of which are simulations themselves. The last may be an exception."""

    fails = False


@st.composite
def simulations(draw: st.DrawFn, depth: int = 2) -> Nested:
    steps = Nested(draw(operations()))
    for _ in range(draw(st.integers(0, 2)) if depth else 0):
        steps.insert(draw(st.integers(0, len(steps))), draw(simulations(depth=depth - 1)))
    steps.fails = draw(st.booleans())
    return steps


def do(subject: Subject, operation: Operation, simulation: Simulation | None) -> None:
    """Carry out an operation, for real when there is no simulation."""
    what, name, node_name = operation
    cluster = subject.cluster
    placed = cluster.placed_pod(uid(name))
    match what:
        case "place" if placed is None and int(name[1:]) % 2:
            cluster.assume(info_of(cluster, name), node_name)
        case "place" if placed is None and simulation is None:
            cluster.put_pod(info_of(cluster, name, node_name))
        case "place" if placed is None and simulation is not None:
            simulation.add_pod(info_of(cluster, name, node_name), node_name)
        case "remove" if simulation is None:
            cluster.remove_pod(uid(name))
        case "remove" if simulation is not None:
            simulation.remove_pod(uid(name))
        case "update" if placed is not None and not placed.assumed and simulation is None:
            cluster.put_pod(info_of(cluster, name, placed.node_name))
        case "update" if placed is not None and not placed.assumed and simulation is not None:
            simulation.take_host_ports(uid(name))
        case "forget":
            cluster.forget(uid(name))
        case "nominate":
            cluster.nominate(info_of(cluster, name), node_name)
        case "drop":
            cluster.drop_nomination(uid(name))
        case "decide":
            subject.decision(PENDING[int(name[1:]) % len(PENDING)])
            subject.hold_counters(name)


def simulate(subject: Subject, steps: Nested) -> None:
    try:
        with subject.cluster.simulate() as simulation:
            for step in steps:
                if isinstance(step, Nested):
                    before = reading(subject)
                    simulate(subject, step)
                    assert reading(subject) == before
                else:
                    do(subject, step, simulation)
            if steps.fails:
                raise Abandoned
    except Abandoned:
        assert steps.fails


def built(history: Sequence[Operation]) -> Subject:
    subject = Subject()
    for operation in history:
        do(subject, operation, None)
    return subject


@given(operations(), simulations(), operations())
@settings(max_examples=60)
def test_a_cluster_is_the_same_after_a_simulation(
    history: list[Operation], steps: Nested, later: list[Operation]
) -> None:
    subject, other = built(history), built(history)
    assert subject.decisions() == other.decisions()
    before = reading(subject)
    simulate(subject, steps)
    assert reading(subject) == before
    for operation in later:
        do(subject, operation, None)
        do(other, operation, None)
        assert subject.decisions() == other.decisions()
    for each in (subject, other):
        each.cluster.add_node(a_node("not-added"))
    assert order_of_pods(subject) == order_of_pods(other)
    assert subject.decisions() == other.decisions()


@given(operations(), operations())
@settings(max_examples=60)
def test_decisions_inside_a_simulation_are_those_after_the_same_changes(
    history: list[Operation], steps: list[Operation]
) -> None:
    subject, other = built(history), built(history)
    subject.decisions()
    with subject.cluster.simulate() as simulation:
        for operation in steps:
            do(subject, operation, simulation)
            do(other, operation, None)
            assert subject.decisions() == other.decisions()


def test_nothing_that_was_cached_before_a_simulation_is_computed_again() -> None:
    subject = Subject()
    subject.decisions()
    position = subject.cluster.journal.position
    with subject.cluster.simulate():
        subject.cluster.assume(info_of(subject.cluster, "p0"), "n0")
    assert _changes_since(subject, position) == [(EVERY_ROW, ROLLED_BACK)]


def test_a_result_cached_inside_a_simulation_is_computed_again_after_it() -> None:
    subject = Subject()
    with subject.cluster.simulate():
        subject.cluster.assume(info_of(subject.cluster, "p0"), "n1")
        position = subject.cluster.journal.position
        subject.cluster.assume(info_of(subject.cluster, "p1"), "n2")
    assert [row for row, _ in _changes_since(subject, position)] == [1, EVERY_ROW]


def _changes_since(subject: Subject, position: int) -> list[tuple[int, int]]:
    changes = subject.cluster.journal.since(position)
    assert changes is not None
    return list(zip(changes.rows, changes.bits, strict=True))


def test_a_version_of_terms_that_was_undone_is_not_used_again() -> None:
    subject = Subject()
    cluster, terms = subject.cluster, subject.cluster.carried_terms
    index_keys = info_of(cluster, "p0").shape.index_keys
    with cluster.simulate():
        cluster.assume(info_of(cluster, "p2"), "n0")
        simulated = terms.version, terms.version_for(index_keys)
    assert (terms.version, terms.version_for(index_keys)) == (0, 0)
    cluster.assume(info_of(cluster, "p3"), "n0")
    assert terms.version != simulated[0] and terms.version_for(index_keys) != simulated[1]


def test_a_claim_assumed_inside_a_simulation_stays_assumed_and_in_the_journal() -> None:
    subject = Subject()
    claims, position = subject.cluster.catalog(PersistentVolumeClaim), subject.cluster.journal.position
    changed = claim("shared", volume="pv-other")
    with subject.cluster.simulate():
        subject.cluster.assume(info_of(subject.cluster, "p0"), "n0")
        claims.assume(changed)
    assert claims.get("default", "shared") is changed
    bits = ClusterEvent(EventResource.PERSISTENT_VOLUME_CLAIM, Action.UPDATE).bits
    assert _changes_since(subject, position) == [(EVERY_ROW, ROLLED_BACK), (EVERY_ROW, bits)]


def test_an_observed_change_is_an_error_during_a_simulation() -> None:
    cluster = Subject().cluster
    with cluster.simulate():
        for apply in (
            lambda: cluster.put_pod(info_of(cluster, "p0", "n0")),
            lambda: cluster.remove_pod(uid("p0")),
            lambda: cluster.add_node(a_node("not-added")),
            lambda: cluster.update_node(a_node("n0")),
            lambda: cluster.remove_node("n0"),
            lambda: cluster.put_namespace("default", {}),
            lambda: cluster.remove_namespace("default"),
        ):
            with pytest.raises(KubestowError, match="during a simulation"):
                apply()
    cluster.put_pod(info_of(cluster, "p0", "n0"))


def test_a_pod_that_is_added_in_a_simulation_is_not_assumed() -> None:
    cluster = Subject().cluster
    with cluster.simulate() as simulation:
        simulation.add_pod(info_of(cluster, "p0"), "n0")
        cluster.assume(info_of(cluster, "p1"), "n0")
        assert [one.info.name for one in cluster.assumed()] == ["p1"]


def test_the_pods_of_a_node_are_in_the_same_order_after_a_simulation() -> None:
    cluster = Subject().cluster
    for name in ("p0", "p1", "p2"):
        cluster.put_pod(info_of(cluster, name, "n0"))
    before = _names_in_order(cluster)
    with cluster.simulate() as simulation:
        simulation.remove_pod(uid("p0"))
        assert _names_in_order(cluster) == [before[2], before[1]]  # the last takes the place of a removed one
    assert _names_in_order(cluster) == before


def _names_in_order(cluster: Cluster) -> list[str]:
    pods = cluster.nodes.pod_table
    slots, _ = pods.slots_on([cluster.nodes.rows["n0"]])
    return [pods.info(slot).name for slot in slots.tolist()]


def test_pods_on_unknown_nodes_are_in_the_same_order_after_a_simulation() -> None:
    cluster = Subject().cluster
    for name in ("p0", "p1", "p2"):
        cluster.put_pod(info_of(cluster, name, "late"))
    with cluster.simulate() as simulation:
        simulation.remove_pod(uid("p0"))
    cluster.add_node(node("late"))
    slots, _ = cluster.nodes.pod_table.slots_on([cluster.nodes.rows["late"]])
    assert [cluster.nodes.pod_table.info(slot).name for slot in slots.tolist()] == ["p0", "p1", "p2"]


def test_simulations_that_overlap_are_an_error_and_undone() -> None:
    cluster = Subject().cluster
    one, other = cluster.simulate(), cluster.simulate()
    one.__enter__()
    other.__enter__()
    cluster.assume(info_of(cluster, "p0"), "n0")
    for simulation in (one, other):
        with pytest.raises(KubestowError, match="overlap"):
            simulation.__exit__(None, None, None)
    assert cluster.pod_count == 0
    with cluster.simulate():
        cluster.assume(info_of(cluster, "p0"), "n0")
    assert cluster.pod_count == 0


def test_host_ports_of_a_pod_that_is_not_placed_are_not_taken() -> None:
    cluster = Subject().cluster
    with cluster.simulate() as simulation:
        simulation.take_host_ports(uid("p0"))
    assert not any(cluster.nodes.taken_ports(row) for row in range(len(cluster.nodes)))


def test_a_simulation_that_has_ended_changes_nothing() -> None:
    cluster = Subject().cluster
    cluster.put_pod(info_of(cluster, "p0", "n0"))
    with cluster.simulate() as simulation:
        pass
    with pytest.raises(KubestowError, match="not active"):
        simulation.remove_pod(uid("p0"))
    with pytest.raises(KubestowError, match="not active"):
        simulation.add_pod(info_of(cluster, "p1"), "n0")
    assert cluster.pod_count == 1
