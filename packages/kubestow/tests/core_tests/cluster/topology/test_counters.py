"""Counters, their sums per domain, and the terms that pods carry equal a recount after any sequence of events."""

from __future__ import annotations

import gc
from collections import Counter
from functools import partial

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kubestow.api.core import Node, Pod
from kubestow.api.selectors import EVERYTHING, NOTHING, Requirement, Selector
from kubestow.cluster.cache import Cluster
from kubestow.cluster.placed_pods import TERMS_CARRIED
from kubestow.cluster.pods.affinity_terms import index_keys_of, selected_index_keys
from kubestow.cluster.pods.shapes import Shape
from kubestow.cluster.topology.counters import PodCounter
from kubestow.cluster.topology.domains import DomainSums, EligibleRows, SharedSums, domain_sums
from kubestow.testing import node, pod

pytestmark = pytest.mark.usefixtures("only_own_garbage")

ZONE = "topology.kubernetes.io/zone"
NODES = st.sampled_from(("n0", "n1"))
APPS = st.sampled_from(("a", "b"))
SSD = {"disk": "ssd"}


def selecting(key: str, *values: str) -> Selector:
    return Selector((Requirement(key, "In", frozenset(values)),))


def count(cluster: Cluster, app: str, *, terminating: bool = False) -> PodCounter:
    index_keys = selected_index_keys(frozenset({"default"}), selecting("app", app))
    return cluster.counter(
        (app, terminating),
        lambda shape: int(shape.labels["app"] == app),
        index_keys=index_keys,
        terminating=terminating,
    )


def on_ssd(cluster: Cluster, counter: PodCounter) -> DomainSums:
    """The counts of nodes with an SSD, by zone."""
    on_disk = EligibleRows(cluster.nodes, lambda nodes: nodes.label("disk") != 0)
    return domain_sums(cluster.nodes, counter, ZONE, eligible=on_disk, eligibility="ssd")


class CountingMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.cluster = Cluster()
        self.placed: dict[str, Pod] = {}
        self.held: set[object] = set()

    @rule(name=NODES, zone=st.sampled_from((None, "x", "y")), ssd=st.sampled_from((True, True, False)))
    def node_is_added_or_changed(self, name: str, zone: str | None, ssd: bool) -> None:
        observed = node(name, zone=zone, labels=SSD if ssd else {})
        known = name in self.cluster.nodes.rows
        self.cluster.update_node(observed) if known else self.cluster.add_node(observed)

    @rule(name=NODES)
    def node_is_removed(self, name: str) -> None:
        if name in self.cluster.nodes.rows:
            self.cluster.remove_node(name)

    @rule(number=st.integers(0, 3), app=APPS, where=NODES, deleting=st.booleans(), repels=st.booleans())
    def pod_is_placed(self, number: int, app: str, where: str, deleting: bool, repels: bool) -> None:
        term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": ZONE}
        affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}} if repels else None
        observed = pod(f"p{number}", labels={"app": app}, node=where, deleting=deleting, affinity=affinity)
        self.cluster.put_pod(self.cluster.shapes.info(observed))
        self.placed[observed.metadata.uid] = observed

    @rule(number=st.integers(0, 3))
    def pod_is_removed(self, number: int) -> None:
        self.cluster.remove_pod(f"uid-default-p{number}")
        self.placed.pop(f"uid-default-p{number}", None)

    @rule()
    def counters_are_dropped(self) -> None:
        self.held.clear()
        gc.collect()

    @invariant()
    def counts_are_correct(self) -> None:
        nodes = self.cluster.nodes.objects
        for app, terminating in (("a", False), ("b", True)):
            counted = Counter(
                p.spec.node_name
                for p in self.placed.values()
                if p.metadata.labels["app"] == app and (terminating or p.metadata.deletion_timestamp is None)
            )
            counter = count(self.cluster, app, terminating=terminating)
            assert counter.by_row.tolist() == [counted[n.metadata.name] for n in nodes]
            sums = on_ssd(self.cluster, counter)
            self.check_domains(sums, nodes, counted)
            self.held |= {counter, sums}

    def check_domains(self, sums: DomainSums, nodes: list[Node], counted: Counter[str]) -> None:
        expected: Counter[str | None] = Counter()
        for n in nodes:
            if "disk" in n.metadata.labels:
                expected[n.metadata.labels.get(ZONE)] += counted[n.metadata.name]
        zones = self.cluster.nodes.label(ZONE).values
        assert dict(zip(zones, sums.by_domain.tolist(), strict=True)) == {zone: expected[zone] for zone in zones}
        assert {zones[domain] for domain in sums.present} == expected.keys() - {None}
        assert sums.total == sum(expected.values()) - expected[None]

    @invariant()
    def carried_terms_are_correct(self) -> None:
        shapes = {self.cluster.shapes.info(pod).shape for pod in self.placed.values()}
        for shape in shapes:
            about = list(self.cluster.carried_terms.terms_for(shape.index_keys))
            assert Counter(about) == Counter({other.affinity_terms for other in shapes if self.selects(other, shape)})

    @staticmethod
    def selects(carrier: Shape, other: Shape) -> bool:
        return any(term.matches(other.namespace, other.labels) for term in carrier.affinity_terms)


CountingMachine.TestCase.settings = settings(max_examples=30, stateful_step_count=30)
TestCountingMachine = CountingMachine.TestCase


def test_a_counter_is_shared_and_dropped_with_the_last_reference() -> None:
    cluster = Cluster()
    counter = count(cluster, "a")
    assert count(cluster, "a") is counter
    other = count(cluster, "b")
    del counter
    gc.collect()
    cluster.add_node(node("n"))
    cluster.put_pod(cluster.shapes.info(pod("p", labels={"app": "a"}, node="n")))
    assert count(cluster, "a").by_row.tolist() == [1]
    assert other.by_row.tolist() == [0]


def test_terms_are_removed_with_the_last_pod_that_carries_them() -> None:
    cluster = Cluster()
    term = {"labelSelector": {"matchLabels": {"app": "a"}}, "topologyKey": ZONE}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term, term]}}
    carriers = [cluster.shapes.info(pod(name, labels={"app": "a"}, node="n", affinity=affinity)) for name in ("p", "q")]
    for info in carriers:
        cluster.put_pod(info)
    (carried,) = cluster.carried_terms.terms_for(carriers[0].shape.index_keys)
    assert carried == carriers[0].shape.affinity_terms
    assert carried.required_anti_by_topology[ZONE].of("default", {"app": "a"}) == 2
    before = cluster.carried_terms.version_for(carriers[0].shape.index_keys)
    cluster.remove_pod(carriers[0].uid)
    assert cluster.carried_terms.version_for(carriers[0].shape.index_keys) == before
    cluster.remove_pod(carriers[1].uid)
    assert list(cluster.carried_terms.terms_for(carriers[0].shape.index_keys)) == []
    assert cluster.carried_terms.version_for(carriers[0].shape.index_keys) > before


def test_terms_that_may_select_any_pod_are_those_for_every_pod() -> None:
    cluster = Cluster()
    anywhere = {"labelSelector": {}, "namespaceSelector": {}, "topologyKey": ZONE}
    of_app = {"labelSelector": {"matchLabels": {"app": "a"}}, "topologyKey": ZONE}
    terms = cluster.carried_terms
    keys = {app: cluster.shapes.info(pod("p", labels={"app": app})).shape.index_keys for app in "ab"}
    before = {app: terms.version_for(keys[app]) for app in "ab"}
    found = [{app: (len(terms.terms_for(keys[app])), terms.has_terms_for(keys[app])) for app in "ab"}]
    for number, term in enumerate((anywhere, of_app)):
        affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        cluster.put_pod(cluster.shapes.info(pod(f"carrier-{number}", node="n", affinity=affinity)))
        found.append({app: (len(terms.terms_for(keys[app])), terms.has_terms_for(keys[app])) for app in "ab"})
        assert all(terms.version_for(keys[app]) > before[app] for app in ("ab" if term is anywhere else "a"))
    for number in (0, 1, 0):
        cluster.remove_pod(f"uid-default-carrier-{number}")
        found.append({app: (len(terms.terms_for(keys[app])), terms.has_terms_for(keys[app])) for app in "ab"})
    none, one, two = (0, False), (1, True), (2, True)
    assert found == [
        {"a": none, "b": none},
        {"a": one, "b": one},
        {"a": two, "b": one},
        {"a": one, "b": none},
        {"a": none, "b": none},
        {"a": none, "b": none},
    ]


def test_another_shape_with_terms_that_are_carried_already_is_no_event_of_terms() -> None:
    cluster = Cluster()
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": ZONE}]}}
    one, other = (
        cluster.shapes.info(pod(name, cpu=cpu, node="n", affinity=affinity)) for name, cpu in (("p", "1"), ("q", "2"))
    )
    window, bits = cluster.change_window, []
    changes = [partial(cluster.put_pod, one), partial(cluster.put_pod, other)]
    changes += [partial(cluster.remove_pod, one.uid), partial(cluster.remove_pod, other.uid)]
    for change in changes:
        window.begin()
        generation = window.generation
        change()
        window.begin()
        bits.append(bool(window.bits(generation) & TERMS_CARRIED))
    assert one.shape is not other.shape
    assert bits == [True, False, False, True]


def test_critical_paths_are_domains_with_eligible_nodes() -> None:
    cluster = Cluster()
    for name, zone in (("a", "x"), ("b", "y"), ("c", "z")):
        cluster.add_node(node(name, zone=zone, labels=SSD))
    cluster.put_pod(cluster.shapes.info(pod("p", labels={"app": "a"}, node="a")))
    sums = on_ssd(cluster, count(cluster, "a"))
    assert sums.critical_paths() == (2, 0, 0)
    cluster.update_node(node("b", zone="y"))
    assert sums.critical_paths() == (3, 0, 1)
    assert sums.minimum() == 0


def test_without_eligible_nodes_there_are_no_critical_paths() -> None:
    cluster = Cluster()
    cluster.add_node(node("a", zone="x"))
    domain, smallest, others = on_ssd(cluster, count(cluster, "a")).critical_paths()
    assert domain == 0 and smallest == others == 2**63 - 1


def test_the_keys_of_many_namespaces_and_values_are_those_of_the_fewer() -> None:
    few, many = (frozenset(map(str, range(count))) for count in (100, 101))
    assert selected_index_keys(few, selecting("app", *many)) == few
    assert selected_index_keys(many, selecting("app", *few)) == frozenset({("app", value) for value in few})
    assert selected_index_keys(frozenset("x"), selecting("app", *few)) == frozenset(
        {("x", "app", value) for value in few}
    )
    assert selected_index_keys(None, selecting("app", "a", "b")) == frozenset({("app", "a"), ("app", "b")})
    assert selected_index_keys(few, EVERYTHING) == few
    assert selected_index_keys(few, NOTHING) == frozenset()
    fewest = Selector((*selecting("app", "a", "b").requirements, *selecting("tier", "c").requirements))
    assert selected_index_keys(None, fewest) == frozenset({("tier", "c")})


def test_a_pod_has_a_selected_index_key_exactly_if_it_may_be_selected() -> None:
    index_keys = index_keys_of("ns", {"app": "web", "tier": "1"}, ())
    assert (
        len(index_keys & (selected_index_keys(frozenset({"ns", "other"}), selecting("app", "web", "db")) or set())) == 1
    )
    assert len(index_keys & (selected_index_keys(None, selecting("app", "web")) or set())) == 1
    assert selected_index_keys(frozenset({"ns"}), EVERYTHING) == frozenset({"ns"})
    assert selected_index_keys(None, EVERYTHING) is None
    assert selected_index_keys(None, NOTHING) == frozenset()
    assert not index_keys & (selected_index_keys(frozenset({"other"}), selecting("app", "web")) or set())


def place(cluster: Cluster, name: str, where: str, app: str = "a", *, cpu: str | None = None) -> str:
    info = cluster.shapes.info(pod(name, labels={"app": app}, node=where, cpu=cpu))
    cluster.put_pod(info)
    return info.uid


def cluster_with(*names: str) -> Cluster:
    cluster = Cluster()
    for name in names:
        cluster.add_node(node(name, zone="z"))
    return cluster


def test_a_shape_that_is_placed_again_is_counted_by_the_counters_that_were_made_meanwhile() -> None:
    cluster = cluster_with("n")
    first = count(cluster, "a")
    cluster.remove_pod(place(cluster, "p", "n"))
    second = count(cluster, "a", terminating=True)
    place(cluster, "q", "n")
    assert (first.by_row.tolist(), second.by_row.tolist()) == ([1], [1])


def test_a_counter_is_filled_with_the_pods_that_are_placed_still() -> None:
    cluster = cluster_with("n", "m")
    gone, kept = place(cluster, "p", "n", cpu="1"), place(cluster, "q", "m", cpu="2")
    cluster.remove_pod(gone)
    assert count(cluster, "a").by_row.tolist() == [0, 1]
    cluster.remove_pod(kept)
    assert count(cluster, "a", terminating=True).by_row.tolist() == [0, 0]
    assert cluster.counter("any", lambda shape: 1).by_row.tolist() == [0, 0]


def test_a_counter_counts_without_listeners_and_tells_those_that_it_has() -> None:
    cluster = cluster_with("n", "m")
    counter = count(cluster, "a")
    assert not counter.has_counted
    assert counter.by_row.tolist() == [0, 0]
    place(cluster, "p", "m")
    assert counter.has_counted
    assert counter.by_row.tolist() == [0, 1]
    by_zone = domain_sums(cluster.nodes, counter, ZONE)
    by_host = domain_sums(cluster.nodes, counter, "kubernetes.io/hostname")
    assert domain_sums(cluster.nodes, counter, ZONE) is by_zone
    assert (by_zone.by_domain.tolist(), by_host.by_domain.tolist()) == ([0, 1], [0, 0, 1])
    place(cluster, "q", "n")
    assert (by_zone.by_domain.tolist(), by_host.by_domain.tolist()) == ([0, 2], [0, 1, 1])


def test_a_counter_that_counts_no_pod_has_counted_none() -> None:
    cluster = cluster_with("n")
    counter = cluster.counter("no pod", lambda shape: 0)
    place(cluster, "p", "n")
    assert not counter.has_counted
    cluster.remove_pod("uid-default-p")
    assert not counter.has_counted
    assert counter.by_row.tolist() == [0]


@pytest.mark.parametrize("nodes_before", range(4))
def test_the_first_pod_that_is_counted_is_in_the_sums_that_have_been_read_before(nodes_before: int) -> None:
    cluster = cluster_with("n", *(f"other-{number}" for number in range(nodes_before)))
    counter = count(cluster, "a")
    sums = domain_sums(cluster.nodes, counter, ZONE)
    assert (sums.by_domain.tolist(), sums.total) == ([0, 0], 0)
    place(cluster, "p", "n")
    assert (sums.by_domain.tolist(), sums.total) == ([0, 1], 1)


def test_pods_are_summed_on_eligible_nodes_only() -> None:
    cluster = Cluster()
    for name, labels in (("n", SSD), ("m", {}), ("l", SSD)):
        cluster.add_node(node(name, zone=None if name == "l" else "z", labels=labels))
    counter = count(cluster, "a")
    place(cluster, "p0", "n")
    sums = on_ssd(cluster, counter)
    assert (sums.by_domain.tolist(), sums.total, sums.eligible.tolist()) == ([0, 1], 1, [True, False, True])
    place(cluster, "p1", "m")
    place(cluster, "p2", "n")
    place(cluster, "p3", "l")
    assert (sums.by_domain.tolist(), sums.total) == ([1, 2], 2)
    cluster.remove_pod("uid-default-p0")
    cluster.remove_pod("uid-default-p1")
    assert (sums.by_domain.tolist(), sums.total) == ([1, 1], 1)
    cluster.update_node(node("m", zone="z", labels=SSD))
    assert (sums.by_domain.tolist(), sums.eligible.tolist()) == ([1, 1], [True, True, True])


def test_the_sums_of_several_counters_are_added() -> None:
    cluster = Cluster()
    for name, zone in (("a", "x"), ("b", "y"), ("c", "z")):
        cluster.add_node(node(name, zone=zone, labels={} if name == "b" else SSD))
    for number, where in enumerate("aabc"):
        place(cluster, f"p{number}", where)
    place(cluster, "other", "c", "b")
    parts = [on_ssd(cluster, count(cluster, app)) for app in "ab"]
    shared = SharedSums(parts)
    assert shared.by_domain.tolist() == [0, 2, 0, 2]
    assert (shared.present.tolist(), shared.eligible.tolist()) == ([1, 3], [True, False, True])
    assert (shared.minimum(), shared.critical_paths()) == (2, (1, 2, 2))
    place(cluster, "more", "a")
    assert (shared.minimum(), shared.critical_paths()) == (2, (3, 2, 3))


def test_counters_of_a_shape_that_nothing_refers_to_any_more_do_not_disturb_the_others() -> None:
    cluster = cluster_with("n")
    kept = count(cluster, "a")
    dropped = [cluster.counter(("dropped", number), lambda shape: 1) for number in range(40)]
    place(cluster, "p", "n")
    assert [counter.by_row.tolist() for counter in dropped] == [[1]] * 40
    del dropped
    gc.collect()
    for number in range(40):
        made = cluster.counter(("made", number), lambda shape: 2)
        assert made.by_row.tolist() == [2 + 2 * number]
        place(cluster, f"q{number}", "n")
        assert made.by_row.tolist() == [4 + 2 * number]
    assert kept.by_row.tolist() == [41]
