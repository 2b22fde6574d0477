"""Hypothetical nodes with pods removed or added, as in preemption and with nominated pods (semantics 4.3, 9.3)."""

from __future__ import annotations

import numpy as np

from core_tests.plugins.affinities import HOST, ZONE, Object, required_affinity, required_anti_affinity, term
from core_tests.plugins.topology_plugins import find_plugin, rejections
from kubestow.api.core import Pod
from kubestow.cluster.nodes.views import HypotheticalNodes, NodeChange
from kubestow.testing import PluginHarness, node, nodes, pod


def app(label: str, name: str = "", *, on: str = "", affinity: Object | None = None, deleting: bool = False) -> Pod:
    return pod(name or label, labels={"app": label}, node=on, affinity=affinity, deleting=deleting)


def spread(**more: int) -> Pod:
    selector = {"matchLabels": {"app": "web"}}
    constraint = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}
    return pod(labels={"app": "web"}, spread=[constraint | more])


def simulated(
    harness: PluginHarness, name: str, incoming: Pod, *, removed: tuple[Pod, ...] = (), added: tuple[Pod, ...] = ()
) -> list[str]:
    """The rejection of each node with some pods removed from it and others added to it."""
    change = NodeChange(tuple(map(harness.info, removed)), tuple(map(harness.info, added)))
    rows = np.arange(len(harness.cluster.nodes))
    view = HypotheticalNodes(harness.cluster.nodes, rows, [change] * len(rows))
    return rejections(find_plugin(harness, name), harness, harness.info(incoming), view)


def test_a_removed_pod_can_lower_the_minimum_count() -> None:
    placed = [app("web", f"a{i}", on="node-0") for i in range(2)] + [app("web", "b", on="node-1")]
    harness = PluginHarness(nodes(2, zones=2), placed)
    # Without its only pod node-1 has count 0; node-0 keeps the higher count even without one of its pods.
    assert simulated(harness, "PodTopologySpread", spread(), removed=(placed[-1],)) == ["", ""]
    assert simulated(harness, "PodTopologySpread", spread()) == ["skew", ""]


def test_an_added_pod_can_raise_the_minimum_count() -> None:
    harness = PluginHarness(nodes(3, zones=3), [app("web", "a", on="node-0"), app("web", "b", on="node-1")])
    added = (app("web", "c"), app("web", "d"))
    # node-2 would have 2 pods and the others 1 each: with the incoming pod it has 3, and the minimum is 1.
    assert simulated(harness, "PodTopologySpread", spread(), added=added)[2] == "skew"
    assert simulated(harness, "PodTopologySpread", spread(), added=added[:1])[2] == ""


def test_a_removed_terminating_pod_is_subtracted_although_it_did_not_count() -> None:
    leaving = app("web", "a", on="node-0", deleting=True)
    harness = PluginHarness(nodes(3, zones=2), [leaving, app("web", "b", on="node-2")])
    assert simulated(harness, "PodTopologySpread", spread())[0] == "skew"
    # QUIRK: the zone's other pod is offset by a pod that was not counted.
    assert simulated(harness, "PodTopologySpread", spread(), removed=(leaving,))[0] == ""


def test_with_fewer_domains_than_min_domains_the_minimum_stays_zero() -> None:
    harness = PluginHarness(nodes(1, zones=1), [app("web", "a", on="node-0")])
    few = spread(minDomains=2)
    assert simulated(harness, "PodTopologySpread", few) == ["skew"]
    assert simulated(harness, "PodTopologySpread", few, removed=(app("web", "a", on="node-0"),)) == [""]


def test_removing_a_pod_resolves_the_anti_affinity_of_the_incoming_pod() -> None:
    noisy = app("noisy", on="node-0")
    harness = PluginHarness(nodes(3, zones=2), [noisy])
    incoming = app("web", affinity=required_anti_affinity(term("noisy", HOST)))
    assert simulated(harness, "InterPodAffinity", incoming) == ["anti-affinity", "", ""]
    assert simulated(harness, "InterPodAffinity", incoming, removed=(noisy,))[0] == ""


def test_the_anti_affinity_of_removed_pods_no_longer_applies_and_that_of_added_pods_does() -> None:
    repelling = app("repelling", on="node-0", affinity=required_anti_affinity(term("web", HOST)))
    harness = PluginHarness([node("node-0", zone="z"), node("node-1")], [repelling])
    another = app("shyer", affinity=required_anti_affinity(term("web", ZONE)))
    assert simulated(harness, "InterPodAffinity", app("web"), removed=(repelling,))[0] == ""
    assert simulated(harness, "InterPodAffinity", app("web"), removed=(repelling,), added=(another,)) == [
        "existing",
        "",
    ]


def test_removing_the_last_matching_pod_violates_affinity() -> None:
    db = app("db", on="node-0")
    harness = PluginHarness(nodes(3, zones=2), [db])
    incoming = app("web", affinity=required_affinity(term("db")))
    assert simulated(harness, "InterPodAffinity", incoming) == ["", "affinity", ""]
    assert simulated(harness, "InterPodAffinity", incoming, removed=(db,))[0] == "affinity"


def test_removing_the_last_pod_of_a_group_makes_the_incoming_pod_its_first() -> None:
    web = app("web", "old", on="node-0")
    harness = PluginHarness(nodes(2, zones=2), [web])
    incoming = app("web", affinity=required_affinity(term("web")))
    assert simulated(harness, "InterPodAffinity", incoming) == ["", "affinity"]
    assert simulated(harness, "InterPodAffinity", incoming, removed=(web,))[0] == ""


def test_a_pod_is_not_the_first_of_its_group_on_a_node_with_a_nominated_pod_of_the_group() -> None:
    harness = PluginHarness([node("node-0", zone="z"), node("node-1", zone="y", labels={"rack": "r"})])
    incoming = app("web", affinity=required_affinity(term("web"), term("web", "rack")))
    assert simulated(harness, "InterPodAffinity", incoming, added=(app("web", "nominated"),)) == ["affinity", ""]
