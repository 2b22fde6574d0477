"""Which events make a pod schedulable after PodTopologySpread has rejected it (semantics 6.10)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from core_tests.plugins.affinities import ZONE
from core_tests.plugins.hints import requeues_after, requeues_after_change
from kubestow.api.core import Node, Pod
from kubestow.cluster.changes.events import Action, EventResource
from kubestow.testing import PluginHarness, node, pod

PLUGIN = "PodTopologySpread"
ANY_APP = {"matchExpressions": [{"key": "app", "operator": "Exists"}]}


def spread_pod(*, honors_taints: bool = False, tolerations: Any = (), selector: Any = None) -> Pod:
    constraint = {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": selector or {"matchLabels": {"app": "web"}},
        "nodeTaintsPolicy": "Honor" if honors_taints else "Ignore",
    }
    return pod("rejected", labels={"app": "web"}, spread=[constraint], tolerations=tolerations)


def web(label: str = "web", *, on: str = "n", namespace: str = "default", **more: Any) -> Pod:
    return pod("other", labels={"app": label}, node=on, namespace=namespace, **more)


def test_a_matching_pod_that_is_added_or_deleted_requeues() -> None:
    assert requeues_after_change(PLUGIN, spread_pod(), new=web())
    assert requeues_after_change(PLUGIN, spread_pod(), old=web())
    assert not requeues_after_change(PLUGIN, spread_pod(), new=web("db"))


@pytest.mark.parametrize("other", [web(namespace="other"), web(on="")])
def test_pods_of_other_namespaces_and_unassigned_pods_do_not_requeue(other: Pod) -> None:
    assert not requeues_after_change(PLUGIN, spread_pod(), new=other)


def test_a_pod_that_starts_or_stops_matching_requeues() -> None:
    assert requeues_after_change(PLUGIN, spread_pod(), old=web("db"), new=web())
    assert requeues_after_change(PLUGIN, spread_pod(), old=web(), new=web("db"))
    assert not requeues_after_change(PLUGIN, spread_pod(), old=web("db"), new=web("cache"))
    constraints = [
        *spread_pod().spec.topology_spread_constraints,
        *spread_pod(selector=ANY_APP).spec.topology_spread_constraints,
    ]
    both = replace(spread_pod(), spec=replace(spread_pod().spec, topology_spread_constraints=constraints))
    assert requeues_after_change(PLUGIN, both, old=web("db"), new=web()), "the second constraint counts both"


def test_new_tolerations_requeue_if_a_constraint_honors_taints() -> None:
    event = EventResource.POD, Action.UPDATE_POD_TOLERATION
    for honors_taints in (True, False):
        old = spread_pod(honors_taints=honors_taints)
        new = spread_pod(honors_taints=honors_taints, tolerations=[{"operator": "Exists"}])
        assert requeues_after(PLUGIN, new, *event, old=old, new=new) is honors_taints


@pytest.mark.parametrize(
    ("old", "new", "requeues"),
    [
        (None, node(zone="a"), True),
        (None, node(), False),
        (node(zone="a"), None, True),
        (node(), None, False),
        (node(), node(zone="a"), True),
        (node(zone="a"), node(), True),
        (node(zone="a"), node(zone="b"), True),
        (node(zone="a"), node(zone="a", labels={"disk": "ssd"}), False),
        (node(zone="a"), node(zone="a", taints=["team=x:NoSchedule"]), True),
        (node(), node(taints=["team=x:NoSchedule"]), False),
    ],
)
def test_node_events_requeue_if_the_node_has_all_topology_keys(
    old: Node | None, new: Node | None, requeues: bool
) -> None:
    assert requeues_after_change(PLUGIN, spread_pod(), old=old, new=new) is requeues


def test_no_pod_event_requeues_a_pod_with_an_invalid_constraint() -> None:
    invalid = spread_pod(selector={"matchExpressions": [{"key": "app", "operator": "Near"}]})
    assert not requeues_after_change(PLUGIN, invalid, new=web())


def test_pods_without_constraints_of_their_own_are_looked_at_after_every_event() -> None:
    harness = PluginHarness()
    plugin = next(p for p in harness.profiles["default-scheduler"].plugins if p.name == PLUGIN)
    assert plugin.hint_keys(harness.info(pod("p", labels={"app": "web"}))) is None
    assert plugin.hint_keys(harness.info(spread_pod())) is not None
