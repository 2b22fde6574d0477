"""Plugins are not called for pods that they do not apply to, until an event makes them apply."""

from __future__ import annotations

from collections.abc import Callable

from core_tests.plugins.affinities import HOST, preferred_affinity, required_anti_affinity, term
from kubestow.api.core import Pod, Service
from kubestow.api.meta import convert
from kubestow.cluster.changes.events import Action, ClusterEvent, EventResource
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.interface import FilterPlugin
from kubestow.framework.status import Status, Verdict
from kubestow.testing import PluginHarness, node, pod

WEB = pod("web", labels={"app": "web"})
SERVICE = convert(Service, {"metadata": {"name": "web", "namespace": "default"}, "spec": {"selector": {"app": "web"}}})


def world_with_two_zones() -> PluginHarness:
    return PluginHarness([node("a", zone="z0"), node("b", zone="z1")])


def test_anti_affinity_of_a_pod_placed_later_applies() -> None:
    harness = world_with_two_zones()
    assert harness.feasible(WEB) == {"a", "b"}
    apart = harness.info(pod("apart", node="a", affinity=required_anti_affinity(term("web", HOST))))
    harness.cluster.put_pod(apart)
    assert harness.feasible(WEB) == {"b"}
    harness.cluster.remove_pod(apart.uid)
    assert harness.feasible(WEB) == {"a", "b"}


def test_preferred_affinity_of_a_pod_placed_later_applies() -> None:
    harness = world_with_two_zones()
    assert harness.scores(WEB, "InterPodAffinity") == {}
    near = harness.info(pod("near", node="a", affinity=preferred_affinity(term("web", HOST))))
    harness.cluster.put_pod(near)
    scores = harness.scores(WEB, "InterPodAffinity")
    assert scores["a"] > scores["b"]
    harness.cluster.remove_pod(near.uid)
    assert harness.scores(WEB, "InterPodAffinity") == {}


def test_default_spreading_applies_once_a_service_selects_the_pods() -> None:
    harness = world_with_two_zones()
    harness.cluster.put_pod(harness.info(pod("other", node="a", labels={"app": "web"})))
    assert harness.scores(WEB, "PodTopologySpread") == {}
    services = harness.cluster.catalog(Service)
    services.put(SERVICE)
    scores = harness.scores(WEB, "PodTopologySpread")
    assert scores["a"] < scores["b"]
    services.remove("default", "web")
    assert harness.scores(WEB, "PodTopologySpread") == {}


class Served(FilterPlugin):
    """Applies while there are services, and then rejects every node; records its calls."""

    name = "Served"
    applicability_events = (ClusterEvent(EventResource.WORKLOAD, Action.ALL),)
    calls: list[str]

    def applies_to(self, pod: PodInfo) -> bool:
        self.calls.append("applies_to")
        return len(self.handle.cluster.catalog(Service)) > 0

    def signature(self, pod: PodInfo) -> tuple[()]:
        self.calls.append("signature")
        return ()

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict:
        self.calls.append("filter")
        return Verdict.rejecting(nodes.row_numbers >= 0, Status.unschedulable("served"))


def calls_after(harness: PluginHarness, change: Callable[[], object], probe: Pod) -> list[str]:
    """The calls of a decision about a pod after a change."""
    Served.calls = []
    change()
    harness.decide(probe)
    return Served.calls


def test_applies_to_is_called_again_only_after_the_applicability_events() -> None:
    profile = {"plugins": {"multiPoint": {"enabled": [{"name": "Served"}]}}}
    harness = PluginHarness([node("a"), node("b")], profile=profile, plugins=[Served])
    services = harness.cluster.catalog(Service)
    assert calls_after(harness, lambda: None, WEB) == ["applies_to"]
    assert calls_after(harness, lambda: None, WEB) == []
    assert calls_after(harness, lambda: harness.cluster.put_pod(harness.info(pod("one", node="a"))), WEB) == []
    assert calls_after(harness, lambda: services.put(SERVICE), WEB) == ["applies_to", "signature", "filter"]
    assert calls_after(harness, lambda: services.remove("default", "web"), WEB) == ["applies_to"]
    assert calls_after(harness, lambda: None, WEB) == []
