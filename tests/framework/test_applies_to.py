"""Plugins are not called for pods that they do not apply to, until an event makes them apply."""

from __future__ import annotations

from collections.abc import Callable

from kubestow.api.core import Pod, Service
from kubestow.api.meta import convert
from kubestow.cluster.events import Action, ClusterEvent, EventResource
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.interface import FilterPlugin
from kubestow.framework.status import Status, Verdict
from kubestow.testing import World, node, pod
from tests.plugins.affinities import HOST, preferred_affinity, required_anti_affinity, term

WEB = pod("web", labels={"app": "web"})
SERVICE = convert(Service, {"metadata": {"name": "web", "namespace": "default"}, "spec": {"selector": {"app": "web"}}})


def world_with_two_zones() -> World:
    return World([node("a", zone="z0"), node("b", zone="z1")])


def test_anti_affinity_of_a_pod_placed_later_applies() -> None:
    world = world_with_two_zones()
    assert world.feasible(WEB) == {"a", "b"}
    apart = world.info(pod("apart", node="a", affinity=required_anti_affinity(term("web", HOST))))
    world.cluster.put_pod(apart)
    assert world.feasible(WEB) == {"b"}
    world.cluster.remove_pod(apart.uid)
    assert world.feasible(WEB) == {"a", "b"}


def test_preferred_affinity_of_a_pod_placed_later_applies() -> None:
    world = world_with_two_zones()
    assert world.scores(WEB, "InterPodAffinity") == {}
    near = world.info(pod("near", node="a", affinity=preferred_affinity(term("web", HOST))))
    world.cluster.put_pod(near)
    scores = world.scores(WEB, "InterPodAffinity")
    assert scores["a"] > scores["b"]
    world.cluster.remove_pod(near.uid)
    assert world.scores(WEB, "InterPodAffinity") == {}


def test_default_spreading_applies_once_a_service_selects_the_pods() -> None:
    world = world_with_two_zones()
    world.cluster.put_pod(world.info(pod("other", node="a", labels={"app": "web"})))
    assert world.scores(WEB, "PodTopologySpread") == {}
    services = world.cluster.catalog(Service)
    services.put(SERVICE)
    scores = world.scores(WEB, "PodTopologySpread")
    assert scores["a"] < scores["b"]
    services.remove("default", "web")
    assert world.scores(WEB, "PodTopologySpread") == {}


class Served(FilterPlugin):
    """Applies while there are services, and then rejects every node; records its calls."""

    name = "Served"
    applicability_events = (ClusterEvent(EventResource.WORKLOAD, Action.ALL),)
    calls: list[str]

    def applies_to(self, pod: PodInfo) -> bool:
        self.calls.append("applies_to")
        return len(self.handle.cluster.catalog(Service)) > 0

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict:
        self.calls.append("filter")
        return Verdict.rejecting(nodes.row_numbers >= 0, Status.unschedulable("served"))


def calls_after(world: World, change: Callable[[], object], probe: Pod) -> list[str]:
    """The calls of a decision about a pod after a change."""
    Served.calls = []
    change()
    world.decide(probe)
    return Served.calls


def test_applies_to_is_called_again_only_after_the_applicability_events() -> None:
    profile = {"plugins": {"multiPoint": {"enabled": [{"name": "Served"}]}}}
    world = World([node("a"), node("b")], profile=profile, plugins=[Served])
    services = world.cluster.catalog(Service)
    assert calls_after(world, lambda: None, WEB) == ["applies_to"]
    assert calls_after(world, lambda: None, WEB) == []
    assert calls_after(world, lambda: world.cluster.put_pod(world.info(pod("one", node="a"))), WEB) == []
    assert calls_after(world, lambda: services.put(SERVICE), WEB) == ["applies_to", "filter"]
    assert calls_after(world, lambda: services.remove("default", "web"), WEB) == ["applies_to"]
    assert calls_after(world, lambda: None, WEB) == []
