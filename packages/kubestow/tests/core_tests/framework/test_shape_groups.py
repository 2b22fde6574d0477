"""Pods that differ in labels only share an evaluation exactly as long as no plugin can tell them apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core_tests.decisions import rejectors_of
from core_tests.framework.cached_plugins import SEASON, CachedPlugin, harness_of
from core_tests.plugins.affinities import (
    HOST,
    ZONE,
    preferred_affinity,
    required_affinity,
    required_anti_affinity,
    term,
)
from kubestow.api.apps import StatefulSet
from kubestow.api.core import Pod, Service
from kubestow.api.meta import convert
from kubestow.cluster.nodes.node_info import NodeInfo
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.interface import FilterPlugin, NodeScorePlugin, ScorePlugin, Scores
from kubestow.framework.status import Status, Verdict
from kubestow.testing import PluginHarness, node, pod

APP, TIER, INDEX = "app", "tier", "apps.kubernetes.io/pod-index"
LABELS = [
    {APP: app, TIER: tier, INDEX: index} for app in ("web", "db") for tier in ("a", "b") for index in ("0", "1")
] + [{APP: "web"}]
NODES = [node("n0", zone="z0", cpu="8"), node("n1", zone="z1", cpu="8"), node("n2", zone="z1", cpu="8")]
OWNER = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": "uid-web", "controller": True}


def selecting(key: str, value: str) -> dict[str, Any]:
    return {"matchLabels": {key: value}}


SPREAD = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}
#: What pods of a family are like, apart from their labels.
FAMILIES: Sequence[dict[str, Any]] = (
    {},
    {"metadata": {"ownerReferences": [OWNER]}},
    {"affinity": required_anti_affinity(term(selecting(INDEX, "0"), HOST))},
    {"affinity": required_affinity(term(selecting(TIER, "a"), ZONE))},
    {"spread": [SPREAD | {"labelSelector": selecting(TIER, "a"), "matchLabelKeys": [INDEX]}]},
    {"spec": {"volumes": [{"name": "d", "gcePersistentDisk": {"pdName": "disk-0"}}]}},
    {"spec": {"volumes": [{"name": "d", "gcePersistentDisk": {"pdName": "disk-1"}}]}},
)
#: What placed pods carry.
CARRIED: Sequence[dict[str, Any]] = (
    {},
    {"affinity": required_anti_affinity(term(selecting(TIER, "b"), HOST))},
    {"affinity": required_anti_affinity(term(selecting(INDEX, "1"), ZONE, namespaceSelector={}))},
    {"affinity": preferred_affinity(term("db", HOST))},
)


class Preferring(ScorePlugin):
    """A third-party plugin whose signature reads a label and says nothing about label keys."""

    name = "Preferring"

    def signature(self, pod: PodInfo) -> str:
        return pod.labels.get(TIER, "")

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Scores:
        return np.where(nodes.row_numbers == len(pod.labels.get(TIER, "")), 100, 0)


class Declaring(FilterPlugin):
    """A third-party plugin that names the label that it reads."""

    name = "Declaring"
    label_keys = (INDEX,)

    def signature(self, pod: PodInfo) -> str:
        return pod.labels.get(INDEX, "")

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict:
        rejected = nodes.row_numbers == int(pod.labels.get(INDEX, "9"))
        return Verdict.rejecting(rejected, Status.unschedulable("not this one"))


class ByName(NodeScorePlugin):
    """A third-party plugin without a signature, which reads the name of the pod."""

    name = "ByName"
    label_keys = ()

    def score_node(self, state: CycleState, pod: PodInfo, node_info: NodeInfo) -> int:
        return len(pod.name) % 100


class ByRequest(FilterPlugin):
    """A third-party plugin that applies by the requests of a pod, and says nothing about that."""

    name = "ByRequest"
    label_keys = ()

    def applies_to(self, pod: PodInfo) -> bool:
        return pod.requests["cpu"] > 1000

    def signature(self, pod: PodInfo) -> int:
        return pod.requests["cpu"]

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict:
        return Verdict.rejecting(nodes.row_numbers == 0, Status.unschedulable("not this one either"))


class ByDisk(FilterPlugin):
    """A third-party plugin that does not read requests, and applies by the volumes of a pod."""

    name = "ByDisk"
    label_keys = ()
    reads_requests = False

    def applies_to(self, pod: PodInfo) -> bool:
        return bool(pod.spec.volumes)

    def signature(self, pod: PodInfo) -> int:
        return sum("disk-1" in str(volume) for volume in pod.spec.volumes)

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict:
        return Verdict.rejecting(nodes.row_numbers == self.signature(pod), Status.unschedulable("not for this disk"))


class Indifferent(Declaring):
    """A third-party plugin that names the label that it reads, and reads neither requests nor volumes."""

    name = "Indifferent"
    reads_requests = reads_volumes = False
    calls: ClassVar[list[str]] = []

    def signature(self, pod: PodInfo) -> str:
        self.calls.append(pod.name)
        return super().signature(pod)


PLUGIN_SETS: Sequence[Sequence[type[Any]]] = (
    (),
    (Declaring,),
    (Declaring, ByName),
    (Preferring,),
    (ByRequest, Indifferent),
    (ByDisk, Indifferent),
)

EVENTS = st.one_of(
    st.tuples(st.just("service"), st.integers(0, 2), st.sampled_from([{APP: "web"}, {TIER: "a"}, {INDEX: "0"}, None])),
    st.tuples(st.just("controller"), st.just(0), st.sampled_from([{APP: "web"}, {INDEX: "1"}, None])),
    st.tuples(
        st.just("pod"),
        st.integers(0, 4),
        st.none() | st.tuples(st.sampled_from(NODES), st.sampled_from(LABELS), st.sampled_from(CARRIED)),
    ),
)


class ReplayedCluster:
    """A cluster, and the events that led to it."""

    def __init__(self, plugins: Sequence[type[Any]]) -> None:
        profile = {"plugins": {"multiPoint": {"enabled": [{"name": plugin.name} for plugin in plugins]}}}
        self.harness = PluginHarness(NODES, profile=profile, plugins=list(plugins))

    def apply(self, event: tuple[str, int, Any]) -> None:
        kind, number, value = event
        cluster = self.harness.cluster
        if kind == "pod":
            cluster.remove_pod(f"uid-default-placed-{number}")
            if value is not None:
                on, labels, carried = value
                placed = pod(f"placed-{number}", node=on.metadata.name, labels=labels, **carried)
                cluster.put_pod(self.harness.info(placed))
            return
        catalog, name = (
            (cluster.catalog(Service), f"s{number}")
            if kind == "service"
            else (
                cluster.catalog(StatefulSet),
                "web",
            )
        )
        if value is None:
            catalog.remove("default", name)
            return
        selector = value if kind == "service" else {"matchLabels": value}
        described = {"metadata": {"name": name, "namespace": "default"}, "spec": {"selector": selector}}
        catalog.put(convert(Service if kind == "service" else StatefulSet, described))  # type: ignore[arg-type]

    def decided(self, probe: Pod) -> object:
        decision = self.harness.decide(probe)
        if decision.node_name is None:
            return decision.message, sorted(rejectors_of(decision))
        nodes = Nodes(self.harness.cluster.nodes, decision.candidates)
        assert decision.evaluation is not None
        scores = decision.evaluation.score_by_plugin(decision.pod, decision.candidates)
        return decision.node_name, nodes.names, {found.plugin: found.weighted.tolist() for found in scores}


PROBES = [
    pod(f"probe-{family}-{number}-{cpu}", cpu=cpu, labels=labels, **fields)
    for family, fields in enumerate(FAMILIES)
    for number, labels in enumerate(LABELS)
    for cpu in ("1", "5")
]


@settings(deadline=None)
@given(st.lists(EVENTS, max_size=8), st.sampled_from(PLUGIN_SETS), st.randoms(use_true_random=False))
def test_pods_that_share_evaluations_get_the_decisions_that_they_would_get_alone(
    events: list[tuple[str, int, Any]], plugins: Sequence[type[Any]], random: Any
) -> None:
    world = ReplayedCluster(plugins)
    for event in events:
        world.apply(event)
        for probe in random.sample(PROBES, 6):
            world.decided(probe)
    for probe in random.sample(PROBES, 4):
        alone = ReplayedCluster(plugins)
        for event in events:
            alone.apply(event)
        assert world.decided(probe) == alone.decided(probe)


def indexed(number: int) -> Pod:
    labels = {APP: "web", INDEX: str(number), "statefulset.kubernetes.io/pod-name": f"web-{number}"}
    return pod(f"web-{number}", cpu="1", labels=labels, metadata={"ownerReferences": [OWNER]})


def evaluations(harness: PluginHarness, probes: Sequence[Pod]) -> int:
    """The number of distinct evaluations of some pods."""
    cached = harness.profiles["default-scheduler"].evaluations
    return len({id(cached.of(harness.info(probe))) for probe in probes})


def test_the_pods_of_a_stateful_set_share_an_evaluation_until_a_service_tells_them_apart() -> None:
    harness = PluginHarness(NODES)
    harness.cluster.catalog(Service).put(service("all", {APP: "web"}))
    pods = [indexed(number) for number in range(5)]
    assert evaluations(harness, pods) == 1
    harness.cluster.catalog(Service).put(service("first", {INDEX: "0"}))
    assert evaluations(harness, pods) == 5
    harness.cluster.catalog(Service).remove("default", "first")
    assert evaluations(harness, pods) == 1


def test_pods_share_an_evaluation_until_a_placed_pod_carries_a_term_that_tells_them_apart() -> None:
    harness = PluginHarness(NODES)
    pods = [indexed(number) for number in range(5)]
    assert evaluations(harness, pods) == 1
    apart = harness.info(pod("apart", node="n0", affinity=required_anti_affinity(term(selecting(INDEX, "0"), HOST))))
    harness.cluster.put_pod(apart)
    assert evaluations(harness, pods) == 5
    assert [harness.feasible(probe) for probe in pods[:2]] == [{"n1", "n2"}, {"n0", "n1", "n2"}]
    harness.cluster.remove_pod(apart.uid)
    assert evaluations(harness, pods) == 1


def test_a_plugin_that_does_not_read_requests_is_asked_once_for_pods_that_differ_in_these_only() -> None:
    harness = ReplayedCluster((ByRequest, Indifferent)).harness
    Indifferent.calls.clear()
    for cpu in ("1", "2", "3"):
        assert harness.feasible(pod(f"p-{cpu}", cpu=cpu)) == ({"n0", "n1", "n2"} if cpu == "1" else {"n1", "n2"})
    assert Indifferent.calls == ["p-1"]
    assert harness.feasible(pod("labelled", cpu="3", labels={INDEX: "1"})) == {"n2"}
    assert Indifferent.calls == ["p-1", "labelled"]


def test_a_plugin_that_does_not_read_volumes_is_asked_once_for_pods_that_differ_in_these_and_their_requests() -> None:
    harness = ReplayedCluster((ByDisk, Indifferent)).harness
    Indifferent.calls.clear()
    for number, cpu, feasible in ((0, "1", {"n1", "n2"}), (1, "1", {"n0", "n2"}), (2, "2", {"n1", "n2"})):
        volumes = [{"name": "d", "gcePersistentDisk": {"pdName": f"disk-{number}"}}]
        assert harness.feasible(pod(f"p-{number}", cpu=cpu, spec={"volumes": volumes})) == feasible
    assert harness.feasible(pod("without", cpu="1")) == {"n0", "n1", "n2"}
    assert Indifferent.calls == ["p-0"]


def test_a_term_for_another_namespace_tells_no_pods_apart() -> None:
    harness = PluginHarness(NODES)
    elsewhere = pod(
        "elsewhere", namespace="other", node="n0", affinity=required_anti_affinity(term(selecting(INDEX, "0"), HOST))
    )
    harness.cluster.put_pod(harness.info(elsewhere))
    assert evaluations(harness, [indexed(number) for number in range(5)]) == 1


@pytest.mark.parametrize(("plugin", "shared"), [(ByName, 1), (Declaring, 5), (Preferring, 5)])
def test_a_plugin_that_does_not_name_the_labels_that_it_reads_tells_all_pods_apart(
    plugin: type[Any], shared: int
) -> None:
    assert evaluations(ReplayedCluster([plugin]).harness, [indexed(number) for number in range(5)]) == shared


def service(name: str, selector: dict[str, str]) -> Service:
    """A service of the default namespace."""
    return convert(Service, {"metadata": {"name": name, "namespace": "default"}, "spec": {"selector": selector}})


class Fashionable(CachedPlugin, FilterPlugin):
    """Reads what an event says that the cluster has changed in, and rejects the node of that name."""

    name = "Fashionable"
    events_to_register = ()
    applicability_events = (SEASON.event,)
    rejected: ClassVar[str] = "n0"

    def signature(self, pod: PodInfo) -> str:
        return self.rejected

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict:
        return Verdict.rejecting(nodes.named(self.rejected), Status.unschedulable("out of fashion"))


def test_signatures_are_those_after_the_events_that_may_change_them(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = harness_of(NODES, {Fashionable: 1})
    found = [harness.feasible(pod())]
    for rejected in ("n1", "n2", "n2", "n0"):
        monkeypatch.setattr(Fashionable, "rejected", rejected)
        harness.cluster.record_change(SEASON.event, None)
        found.append(harness.feasible(pod()))
    assert found == [{"n0", "n1", "n2"} - {rejected} for rejected in ("n0", "n1", "n2", "n2", "n0")]
