"""VolumeBinding's score, behind the gate StorageCapacityScoring: nodes by how much of their storage a pod would use."""

from __future__ import annotations

from typing import Any

from kubestow.testing import World, node, pod
from kubestow.testing.storage import DRIVER, capacity, claim, csi_driver, mounting, storage_class, volume
from tests.plugins.volumes import world

NAME = "VolumeBinding"
GATE = {"StorageCapacityScoring": True}
PROBE = pod("p", spec=mounting("data"))


def zones(*objects: Any, profile: dict[str, Any] | None = None, gates: dict[str, bool] | None = None) -> World:
    nodes = (node("a", zone="a"), node("b", zone="b"))
    return world(*nodes, *objects, gates=GATE if gates is None else gates, profile=profile)


def test_without_the_gate_there_is_no_score() -> None:
    assert zones(storage_class(), claim(), volume("pv"), gates={}).scores(PROBE, NAME) == {}


def test_a_pod_without_claims_scores_nothing_anywhere() -> None:
    assert zones().scores(pod("p"), NAME) == {"a": 0, "b": 0}


def test_the_volume_that_is_used_least_is_preferred() -> None:
    free = [volume("tight", size="1Gi", zone="a"), volume("wide", size="4Gi", zone="b")]
    assert zones(storage_class(), claim(), *free).scores(PROBE, NAME) == {"a": 0, "b": 75}


def test_claims_of_several_classes_count_alike() -> None:
    there = zones(
        storage_class(),
        storage_class("fast"),
        claim(),
        claim("more", storage_class="fast"),
        volume("wide", size="4Gi"),
        volume("fast-a", storage_class="fast", size="2Gi", zone="a"),
        volume("fast-b", storage_class="fast", size="1Gi", zone="b"),
    )
    assert there.scores(pod("p", spec=mounting("data", "more")), NAME) == {"a": 63, "b": 38}


def test_the_node_with_most_room_left_is_preferred() -> None:
    rooms = [capacity("in-a", room="2Gi", zone="a"), capacity("in-b", room="10Gi", zone="b")]
    there = zones(storage_class(provisioner=DRIVER), claim(), csi_driver(tracks_capacity=True), *rooms)
    assert there.scores(PROBE, NAME) == {"a": 50, "b": 90}


def test_claims_of_one_class_are_provided_from_the_same_room() -> None:
    rooms = [capacity("in-a", room="2Gi", zone="a"), capacity("in-b", room="10Gi", zone="b")]
    there = zones(storage_class(provisioner=DRIVER), claim(), claim("more"), csi_driver(tracks_capacity=True), *rooms)
    assert there.scores(pod("p", spec=mounting("data", "more")), NAME) == {"a": 0, "b": 80}


def test_untracked_room_scores_nothing() -> None:
    assert zones(storage_class(provisioner=DRIVER), claim()).scores(PROBE, NAME) == {"a": 0, "b": 0}


def test_a_shape_may_prefer_full_storage() -> None:
    shape = [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]
    profile = {"pluginConfig": [{"name": NAME, "args": {"shape": shape}}]}
    free = [volume("tight", size="1Gi", zone="a"), volume("wide", size="4Gi", zone="b")]
    assert zones(storage_class(), claim(), *free, profile=profile).scores(PROBE, NAME) == {"a": 100, "b": 25}
