"""Pods are placed one after another; what is undone or refused leaves the cluster as it was."""

from __future__ import annotations

from typing import Any

import pytest

from kubestow import config
from kubestow.api.core import Node, Pod
from kubestow.api.storage import PersistentVolume, PersistentVolumeClaim
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.engine.pipeline.pod_placer import PlacementResult, Placer
from kubestow.engine.pipeline.static_handle import StaticHandle
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.interface import FilterRunner, Plugin, PostFilterPlugin, PostFilterResult, ReservePlugin
from kubestow.framework.profile import implements
from kubestow.framework.status import SUCCESS, Status
from kubestow.plugins import in_tree_registry
from kubestow.scheduling.decision.node_selection import FirstByName
from kubestow.scheduling.decision.pipeline import run_synchronously
from kubestow.testing import builders, node, pod
from kubestow.testing.storage import claim, mounting, storage_class, volume


def placer(
    nodes: list[Node], pods: list[Pod], objects: list[Any] | None = None, plugins: tuple[type[Plugin], ...] = ()
) -> Placer:
    gates, registry = config.FeatureGates(), in_tree_registry() | {plugin.name: plugin for plugin in plugins}
    enabled = {"multiPoint": {"enabled": [{"name": plugin.name} for plugin in plugins]}}
    document = {
        "apiVersion": config.API_VERSION,
        "kind": config.KIND,
        "profiles": [{"schedulerName": "first", "plugins": enabled}, {"schedulerName": "second"}],
    }
    configuration = config.load(document, subject="test", gates=gates, implements=implements(registry))
    return Placer(ClusterObjects.of(nodes, pods, objects or []), configuration, registry, gates, ties=FirstByName())


def placed(found: Placer) -> dict[str, str]:
    """The pods on nodes, with the names of these."""
    nodes = found.cache.all_nodes()
    return {info.name: nodes.name(row) for row in range(len(nodes)) for info in nodes.pods(row)}


def test_pending_pods_are_those_of_the_schedulers_that_are_attempted_in_order_of_priority() -> None:
    pods = [
        pod("placed", node="a"),
        *(builders.pod(f"of-{name}", scheduler=name) for name in ("default-scheduler", "second", "other")),
        builders.pod("high", scheduler="first", priority=10),
        builders.pod("gated", gates=["wait"]),
        builders.pod("deleted", deleting=True),
    ]

    found = placer([node("a")], pods)

    assert [info.name for info in found.pending] == ["high", "of-default-scheduler", "of-second"]
    assert {info.spec.scheduler_name for info in found.pending} == {"default-scheduler"}
    assert placed(found) == {"placed": "a"}


def test_a_pod_is_placed_and_taken_off_again() -> None:
    found = placer([node("a", cpu="1"), node("b", cpu="2")], [pod("one", cpu="1"), pod("two", cpu="2")])
    one, two = found.pending

    result = found.place(one)

    assert isinstance(result, PlacementResult)
    assert (result.node_name, placed(found)) == ("b", {"one": "b"})
    assert found.place(two) == Status.unschedulable(
        "0/2 nodes are available: 2 Insufficient cpu. no new claims to deallocate, preemption: "
        "0/2 nodes are available: 1 No preemption victims found for incoming pod, "
        "1 Preemption is not helpful for scheduling."
    )
    found.undo(result)
    assert placed(found) == {}
    assert isinstance(found.place(two), PlacementResult)


def test_pods_of_lower_priority_are_evicted_only_if_that_is_asked_for() -> None:
    high = builders.pod("high", cpu="2", priority=10)
    found = placer([node("a", cpu="2")], [pod("low", cpu="2", node="a", priority=0), high])
    [info] = found.pending

    assert isinstance(found.place(info), Status)
    result = found.place(info, preempt=True)

    assert isinstance(result, PlacementResult)
    assert [(each.pod.name, each.node_name, each.preemptor) for each in result.evictions] == [("low", "a", info)]
    assert placed(found) == {"high": "a"}
    found.undo(result)
    assert placed(found) == {"low": "a"}


class EvictsInVain(PostFilterPlugin):
    """Evicts the only pod, which does not help."""

    name = "EvictsInVain"

    def post_filter(self, state: CycleState, pod: PodInfo, diagnosis: Any, filters: FilterRunner) -> PostFilterResult:
        nodes = self.handle.cluster.all_nodes()
        return PostFilterResult(SUCCESS, nodes.name(0), tuple(nodes.pods(0)))


def test_what_was_evicted_in_vain_is_put_back() -> None:
    large = builders.pod("large", cpu="9", priority=10)
    found = placer([node("a", cpu="2")], [pod("low", cpu="2", node="a", priority=0), large], [], (EvictsInVain,))

    assert isinstance(found.place(found.pending[0], preempt=True), Status)
    assert placed(found) == {"low": "a"}


class DeclinesReservation(ReservePlugin):
    """Reserves nothing."""

    name = "DeclinesReservation"

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        return Status.unschedulable("nothing left")

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None: ...


def test_a_pod_that_reserve_rejects_is_taken_off_and_what_was_evicted_is_put_back() -> None:
    high = builders.pod("high", cpu="2", priority=10)
    found = placer([node("a", cpu="2")], [pod("low", cpu="2", node="a", priority=0), high], [], (DeclinesReservation,))

    assert isinstance(found.place(found.pending[0], preempt=True), Status)
    assert placed(found) == {"low": "a"}


def test_volumes_of_a_placed_pod_are_bound() -> None:
    objects = [storage_class(), claim(), volume("pv")]
    found = placer([node("a")], [pod("p", spec=mounting("data"))], objects)

    assert isinstance(found.place(found.pending[0]), PlacementResult)
    assert [each.spec.volume_name for each in found.cache.catalog(PersistentVolumeClaim)] == ["pv"]
    assert [each.status.phase for each in found.cache.catalog(PersistentVolume)] == ["Bound"]


def test_a_static_handle_has_no_api_server() -> None:
    found = placer([node("a")], [pod("p")])
    handle = StaticHandle(found.cache, config.FeatureGates())
    with pytest.raises(NotImplementedError, match="there is no API server"):
        run_synchronously(handle.request("GET", "/version"))
    with pytest.raises(NotImplementedError, match="pods are placed without an API server"):
        run_synchronously(handle.bind(found.pending[0], "a"))
