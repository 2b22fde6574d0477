"""The engine accepts or refuses pods on nodes, and which pods a model of placements can describe."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from core_tests.engine.gangs.clusters import pod_group, worker
from kubestow import config
from kubestow.api.core import Node, Pod
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.engine.pipeline.offline_scheduler import OfflineScheduler, SchedulerOptions
from kubestow.engine.placement.engine_placement import EnginePlacement
from kubestow.engine.placement.modelled_pods import why_not_modelled
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.interface import Plugin, ReservePlugin
from kubestow.framework.status import Status
from kubestow.testing import node, pod

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


class Reserves(ReservePlugin):
    """Notes what is reserved, and rejects pods with a label."""

    name = "Reserves"
    notes: ClassVar[list[tuple[str, str]]] = []

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        self.notes.append(("reserve", pod.name))
        return Status.unschedulable("not this one") if pod.labels.get("reserve") == "no" else None

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        self.notes.append(("unreserve", pod.name))


class Engine:
    """The engine on a cluster."""

    def __init__(
        self, nodes: Sequence[Node], plugins: Sequence[type[Plugin]] = (), *objects: Any, **profile: Any
    ) -> None:
        enabled = {"multiPoint": {"enabled": [{"name": plugin.name} for plugin in plugins]}} | profile
        document = {"apiVersion": config.API_VERSION, "kind": config.KIND, "profiles": [{"plugins": enabled}]}
        gates = config.FeatureGates({"GenericWorkload": True, "GangScheduling": True})
        cluster = ClusterObjects.of(nodes, [], objects)
        scheduler = OfflineScheduler(cluster, SchedulerOptions(document, plugins, gates))
        self.cache, self.profile = scheduler.cache, scheduler.profiles["default-scheduler"]
        self.engine = EnginePlacement(self.cache, scheduler.profiles)

    def info(self, each: Pod) -> PodInfo:
        return self.cache.shapes.info(each)

    def placed(self) -> dict[str, str]:
        return {each.info.name: each.node_name for each in self.cache.assumed()}

    def refused(self, *assignments: tuple[Pod, str]) -> list[str]:
        found = self.engine.place_all([(self.info(each), name) for each, name in assignments])
        return [info.name for info, _ in found]


def test_pods_are_refused_beyond_the_room_of_their_nodes() -> None:
    engine = Engine([node("a", cpu="2"), node("b", cpu="1")])

    refused = engine.refused(*((pod(f"p{n}", cpu="1"), "ab"[n % 2]) for n in range(6)))

    assert refused == ["p3", "p5"] or sorted(refused) == ["p3", "p4", "p5"]
    assert sorted(engine.placed().values()) == ["a", "a", "b"]


def test_pods_of_higher_priority_come_first() -> None:
    engine = Engine([node("a", cpu="1")])

    assert engine.refused((pod("low", cpu="1", priority=1), "a"), (pod("high", cpu="1", priority=2), "a")) == ["low"]
    assert engine.placed() == {"high": "a"}


def test_a_pod_that_needs_a_later_one_is_tried_again() -> None:
    near = {"podAffinity": {_REQUIRED: [{"labelSelector": {"matchLabels": {"app": "b"}}, "topologyKey": "zone"}]}}
    engine = Engine([node("a", labels={"zone": "z"})])

    assert engine.refused((pod("a", affinity=near), "a"), (pod("b", labels={"app": "b"}), "a")) == []
    assert engine.placed() == {"a": "a", "b": "a"}


def test_what_reserve_rejects_is_refused_and_given_back() -> None:
    Reserves.notes.clear()
    engine = Engine([node("a"), node("b")], [Reserves])

    assert engine.refused((pod("yes"), "a"), (pod("no", labels={"reserve": "no"}), "a")) == ["no"]
    assert engine.placed() == {"yes": "a"}
    assert [note for note in Reserves.notes if note[1] == "no"] == [("reserve", "no"), ("unreserve", "no")] * 2
    Reserves.notes.clear()
    assert engine.engine.place_anywhere(engine.info(pod("no", labels={"reserve": "no"}))) == ""
    engine.engine.give_back_reservations([(engine.info(pod("yes")), "a"), (engine.info(pod("no")), "a")])
    assert Reserves.notes == [("reserve", "no"), ("unreserve", "no"), ("unreserve", "yes")]


def test_the_best_node_is_the_first_by_name_of_equal_ones_as_nodes_come_and_go() -> None:
    engine = Engine([node("c", cpu="2"), node("b", cpu="2"), node("d", cpu="1")])

    def best(name: str, within: list[bool] | None = None) -> str:
        mask = None if within is None else np.array(within)
        return engine.engine.place_anywhere(engine.info(pod(name, cpu="500m")), mask)

    assert best("first") == "b"
    assert best("second") == "c"
    engine.cache.add_node(node("a", cpu="2"))
    assert best("third") == "a"
    assert best("fourth", [False, False, True, False]) == "d"
    assert engine.engine.place_anywhere(engine.info(pod("large", cpu="9"))) == ""
    assert engine.placed() == {"first": "b", "second": "c", "third": "a", "fourth": "d"}


def test_which_pods_a_model_describes() -> None:
    def why(each: Pod, engine: Engine | None = None, **what: bool) -> str:
        engine = engine or Engine([node("a")], (), pod_group("train", 1))
        return why_not_modelled(engine.profile, engine.info(each), **what)

    volumes = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]}
    claims = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]}
    without_fit = Engine([node("a")], (), filter={"disabled": [{"name": "NodeResourcesFit"}]})

    assert why(pod("plain", cpu="1")) == ""
    assert why(pod("v", spec=volumes)) == why(pod("v", spec=volumes), with_gang=True) == "has volumes"
    assert (why(worker("w")), why(worker("w"), with_gang=True)) == ("is in a gang", "")
    assert why(pod("c", spec=claims)) == "has resource claims"
    assert why(pod("c", spec=claims), with_claims=True) == why(pod("c", spec=claims), with_gang=True) == ""
    assert why(pod("plain"), without_fit) == "is of profile default-scheduler, which does not filter by resources"
