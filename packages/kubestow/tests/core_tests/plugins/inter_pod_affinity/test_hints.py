"""Which events make a pod schedulable after InterPodAffinity has rejected it (semantics 6.10)."""

from __future__ import annotations

from typing import Any

import pytest

from core_tests.plugins.affinities import required_affinity, required_anti_affinity, term
from core_tests.plugins.hints import requeues_after_change
from kubestow.api.core import Node, Pod
from kubestow.testing import node, pod

PLUGIN = "InterPodAffinity"
WITH_AFFINITY = pod("rejected", labels={"app": "web"}, affinity=required_affinity(term("db")))
WITH_ANTI_AFFINITY = pod("rejected", labels={"app": "web"}, affinity=required_anti_affinity(term("noisy")))


def other(label: str, *, on: str = "n", **more: Any) -> Pod:
    return pod("other", labels={"app": label}, node=on, **more)


def test_a_new_pod_requeues_if_it_matches_the_required_affinity() -> None:
    assert requeues_after_change(PLUGIN, WITH_AFFINITY, new=other("db"))
    assert not requeues_after_change(PLUGIN, WITH_AFFINITY, new=other("cache"))
    assert not requeues_after_change(PLUGIN, WITH_AFFINITY, new=other("db", on=""))
    assert not requeues_after_change(PLUGIN, WITH_ANTI_AFFINITY, new=other("noisy"))


def test_a_deleted_pod_requeues_if_it_matched_the_required_anti_affinity() -> None:
    assert requeues_after_change(PLUGIN, WITH_ANTI_AFFINITY, old=other("noisy"))
    assert not requeues_after_change(PLUGIN, WITH_ANTI_AFFINITY, old=other("db"))


def test_a_deleted_pod_requeues_if_its_anti_affinity_matched_the_rejected_pod() -> None:
    assert requeues_after_change(PLUGIN, WITH_AFFINITY, old=other("x", affinity=required_anti_affinity(term("web"))))
    assert not requeues_after_change(
        PLUGIN, WITH_AFFINITY, old=other("x", affinity=required_anti_affinity(term("cache")))
    )


@pytest.mark.parametrize(
    ("rejected", "old", "new", "requeues"),
    [
        (WITH_AFFINITY, "cache", "db", True),
        (WITH_AFFINITY, "db", "cache", False),
        (WITH_ANTI_AFFINITY, "noisy", "cache", True),
        (WITH_ANTI_AFFINITY, "cache", "noisy", False),
    ],
)
def test_a_label_update_requeues_if_the_pod_starts_or_stops_matching(
    rejected: Pod, old: str, new: str, requeues: bool
) -> None:
    assert requeues_after_change(PLUGIN, rejected, old=other(old), new=other(new)) is requeues


def test_an_update_of_the_rejected_pod_requeues() -> None:
    assert requeues_after_change(PLUGIN, WITH_AFFINITY, old=WITH_AFFINITY, new=WITH_AFFINITY)


@pytest.mark.parametrize(
    ("rejected", "old", "new", "requeues"),
    [
        (WITH_AFFINITY, None, node(zone="a"), True),
        (WITH_AFFINITY, None, node(), False),
        (WITH_ANTI_AFFINITY, None, node(), True),
        (WITH_AFFINITY, node(), node(zone="a"), True),
        (WITH_AFFINITY, node(zone="a"), node(zone="b"), True),
        (WITH_AFFINITY, node(zone="a"), node(), False),
        (WITH_ANTI_AFFINITY, node(zone="a"), node(), True),
        (WITH_ANTI_AFFINITY, node(zone="a"), node(zone="b"), True),
        (WITH_ANTI_AFFINITY, node(), node(zone="a"), False),
        (WITH_ANTI_AFFINITY, node(labels={"disk": "ssd"}), node(), False),
        (WITH_ANTI_AFFINITY, node(zone="a"), node(zone="a", labels={"disk": "ssd"}), False),
    ],
)
def test_node_events_requeue_by_the_topology_keys_of_required_terms(
    rejected: Pod, old: Node | None, new: Node, requeues: bool
) -> None:
    assert requeues_after_change(PLUGIN, rejected, old=old, new=new) is requeues
