"""What a plugin has nothing to say about it is not asked about, until something happens that changes that."""

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


def two_nodes() -> World:
    return World([node("a", zone="z0"), node("b", zone="z1")])


def test_pods_are_kept_from_one_that_came_later_and_shuns_them() -> None:
    world = two_nodes()
    assert world.feasible(WEB) == {"a", "b"}
    hermit = world.info(pod("hermit", node="a", affinity=required_anti_affinity(term("web", HOST))))
    world.cluster.put_pod(hermit)
    assert world.feasible(WEB) == {"b"}
    world.cluster.remove_pod(hermit.uid)
    assert world.feasible(WEB) == {"a", "b"}


def test_pods_are_drawn_to_one_that_came_later_and_likes_them() -> None:
    world = two_nodes()
    assert world.scores(WEB, "InterPodAffinity") == {}
    fan = world.info(pod("fan", node="a", affinity=preferred_affinity(term("web", HOST))))
    world.cluster.put_pod(fan)
    scores = world.scores(WEB, "InterPodAffinity")
    assert scores["a"] > scores["b"]
    world.cluster.remove_pod(fan.uid)
    assert world.scores(WEB, "InterPodAffinity") == {}


def test_pods_spread_as_soon_as_a_service_selects_them() -> None:
    world = two_nodes()
    world.cluster.put_pod(world.info(pod("other", node="a", labels={"app": "web"})))
    assert world.scores(WEB, "PodTopologySpread") == {}
    services = world.cluster.catalog(Service)
    services.put(SERVICE)
    scores = world.scores(WEB, "PodTopologySpread")
    assert scores["a"] < scores["b"]
    services.remove("default", "web")
    assert world.scores(WEB, "PodTopologySpread") == {}


class Served(FilterPlugin):
    """Refuses every node while there are services, and writes down what it was asked."""

    name = "Served"
    applicability_events = (ClusterEvent(EventResource.WORKLOAD, Action.ALL),)
    asked: list[str]

    def applies_to(self, pod: PodInfo) -> bool:
        self.asked.append("concerns")
        return len(self.handle.cluster.catalog(Service)) > 0

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict:
        self.asked.append("filter")
        return Verdict.rejecting(nodes.row_numbers >= 0, Status.unschedulable("served"))


def asked_by(world: World, happening: Callable[[], object], probe: Pod) -> list[str]:
    """What it is asked when a pod is decided about after something happened."""
    Served.asked = []
    happening()
    world.decide(probe)
    return Served.asked


def test_a_plugin_says_again_whom_it_concerns_only_after_the_events_it_names() -> None:
    profile = {"plugins": {"multiPoint": {"enabled": [{"name": "Served"}]}}}
    world = World([node("a"), node("b")], profile=profile, plugins=[Served])
    services = world.cluster.catalog(Service)
    assert asked_by(world, lambda: None, WEB) == ["concerns"]
    assert asked_by(world, lambda: None, WEB) == []
    assert asked_by(world, lambda: world.cluster.put_pod(world.info(pod("one", node="a"))), WEB) == []
    assert asked_by(world, lambda: services.put(SERVICE), WEB) == ["concerns", "filter"]
    assert asked_by(world, lambda: services.remove("default", "web"), WEB) == ["concerns"]
    assert asked_by(world, lambda: None, WEB) == []
