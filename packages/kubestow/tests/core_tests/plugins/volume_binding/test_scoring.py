"""Scoring by storage utilization, with the feature gate StorageCapacityScoring (semantics 8.12).

Minor versions before 1.33 have VolumeCapacityPriority instead.
"""

from __future__ import annotations

from typing import Any

from core_tests.plugins.volumes import plugin_harness
from kubestow.rules.minors import Behaviour, Minor
from kubestow.testing import PluginHarness, node, pod
from kubestow.testing.storage import DRIVER, capacity, claim, csi_driver, mounting, storage_class, volume

NAME = "VolumeBinding"
GATE = {"StorageCapacityScoring": True}
PROBE = pod("p", spec=mounting("data"))


def zones(*objects: Any, profile: dict[str, Any] | None = None, gates: dict[str, bool] | None = None) -> PluginHarness:
    nodes = (node("a", zone="a"), node("b", zone="b"))
    return plugin_harness(*nodes, *objects, gates=GATE if gates is None else gates, profile=profile)


def test_scoring_is_skipped_without_the_feature_gate() -> None:
    assert zones(storage_class(), claim(), volume("pv"), gates={}).scores(PROBE, NAME) == {}


def test_all_nodes_score_0_for_a_pod_without_claims() -> None:
    assert zones().scores(pod("p"), NAME) == {"a": 0, "b": 0}


def test_low_utilization_of_the_volume_scores_high() -> None:
    volumes = [volume("tight", size="1Gi", zone="a"), volume("wide", size="4Gi", zone="b")]
    assert zones(storage_class(), claim(), *volumes).scores(PROBE, NAME) == {"a": 0, "b": 75}


def test_the_score_is_the_mean_over_storage_classes() -> None:
    harness = zones(
        storage_class(),
        storage_class("fast"),
        claim(),
        claim("more", storage_class="fast"),
        volume("wide", size="4Gi"),
        volume("fast-a", storage_class="fast", size="2Gi", zone="a"),
        volume("fast-b", storage_class="fast", size="1Gi", zone="b"),
    )
    assert harness.scores(pod("p", spec=mounting("data", "more")), NAME) == {"a": 63, "b": 38}


def test_low_utilization_of_the_capacity_scores_high() -> None:
    capacities = [capacity("in-a", available="2Gi", zone="a"), capacity("in-b", available="10Gi", zone="b")]
    harness = zones(storage_class(provisioner=DRIVER), claim(), csi_driver(tracks_capacity=True), *capacities)
    assert harness.scores(PROBE, NAME) == {"a": 50, "b": 90}


def test_claims_of_one_class_share_a_capacity_object() -> None:
    capacities = [capacity("in-a", available="2Gi", zone="a"), capacity("in-b", available="10Gi", zone="b")]
    harness = zones(
        storage_class(provisioner=DRIVER), claim(), claim("more"), csi_driver(tracks_capacity=True), *capacities
    )
    assert harness.scores(pod("p", spec=mounting("data", "more")), NAME) == {"a": 0, "b": 80}


def test_untracked_capacity_scores_0() -> None:
    assert zones(storage_class(provisioner=DRIVER), claim()).scores(PROBE, NAME) == {"a": 0, "b": 0}


def test_the_utilization_shape_can_prefer_high_utilization() -> None:
    shape = [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]
    profile = {"pluginConfig": [{"name": NAME, "args": {"shape": shape}}]}
    volumes = [volume("tight", size="1Gi", zone="a"), volume("wide", size="4Gi", zone="b")]
    assert zones(storage_class(), claim(), *volumes, profile=profile).scores(PROBE, NAME) == {"a": 100, "b": 25}


VOLUMES = (volume("tight", size="1Gi", zone="a"), volume("wide", size="4Gi", zone="b"))
CAPACITIES = (capacity("in-a", available="2Gi", zone="a"), capacity("in-b", available="10Gi", zone="b"))


def former(*objects: Any) -> PluginHarness:
    """The two nodes in the last minor version with VolumeCapacityPriority, with that gate on."""
    minor = Minor(Behaviour.CAPACITY_TO_PROVISION_IS_SCORED.since.number - 1)
    nodes = (node("a", zone="a"), node("b", zone="b"))
    return plugin_harness(*nodes, *objects, gates={"VolumeCapacityPriority": True}, minor=minor)


def test_high_utilization_of_the_volume_scored_high() -> None:
    assert former(storage_class(), claim(), *VOLUMES).scores(PROBE, NAME) == {"a": 100, "b": 25}


def test_capacity_to_provision_from_was_not_scored() -> None:
    provisioning = (storage_class(provisioner=DRIVER), claim(), csi_driver(tracks_capacity=True), *CAPACITIES)
    assert former(*provisioning).scores(PROBE, NAME) == {}
    assert former().scores(pod("p"), NAME) == {}, "nor a pod without claims"


def test_nodes_without_a_volume_to_bind_scored_0() -> None:
    in_zone_a = volume("wide", size="4Gi", zone="a")
    harness = former(
        storage_class(provisioner=DRIVER), claim(), csi_driver(tracks_capacity=True), in_zone_a, *CAPACITIES
    )
    assert harness.scores(PROBE, NAME) == {"a": 25, "b": 0}
