"""Pods of drained and lost nodes come back where they fit, and it is known why others do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from core_tests.engine.input.manifests import Object, cluster, node, pod
from kubestow.errors import InputError
from kubestow_lab.what_if.node_removal import drain, lose, nodes_in_zone, nodes_named
from kubestow_lab.what_if.pod_fates import Fate, NodeRemoval

ZONE = "topology.kubernetes.io/zone"


def owned(name: str, on: str, *, kind: str = "ReplicaSet", cpu: str = "1", app: str = "web", **spec: Any) -> Object:
    """A pod of a controller, on a node."""
    manifest = pod(name, cpu=cpu, nodeName=on, **spec)
    owner = {"apiVersion": "apps/v1", "kind": kind, "name": app, "uid": f"uid-{app}", "controller": True}
    manifest["metadata"] |= {"uid": f"uid-{name}", "labels": {"app": app}, "ownerReferences": [owner]}
    return manifest


def budget(name: str, allowed: int, app: str = "web") -> Object:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": app}}},
        "status": {"disruptionsAllowed": allowed},
    }


def fates(removal: NodeRemoval) -> dict[str, tuple[Fate, str]]:
    return {found.name: (found.fate, found.new_node) for found in removal.pods}


def test_a_drain_moves_pods_and_says_which_stay(tmp_path: Path) -> None:
    within = cluster(
        tmp_path,
        node("a", cpu="8"),
        node("b", cpu="2"),
        owned("web-1", "a"),
        owned("web-2", "a"),
        owned("large", "a", cpu="4", app="large"),
        owned("agent", "a", kind="DaemonSet", app="agent"),
        {**pod("naked", nodeName="a"), "metadata": {"name": "naked", "uid": "uid-naked"}},
    )
    removal = drain(within, frozenset({"a"}))
    assert fates(removal) == {
        "web-1": (Fate.RESCHEDULED, "b"),
        "web-2": (Fate.RESCHEDULED, "b"),
        "large": (Fate.PENDING, ""),
        "agent": (Fate.ENDS_WITH_NODE, ""),
        "naked": (Fate.BLOCKED, ""),
    }
    reasons = {found.name: found.reason for found in removal.pods}
    assert "Insufficient cpu" in reasons["large"]
    assert "unschedulable" in reasons["large"]  # the drained node is there, but cordoned
    assert fates(drain(within, frozenset({"a"}), force=True))["naked"] == (Fate.LOST, "")
    document = removal.document()
    assert document["summary"] == {"Rescheduled": 2, "Pending": 1, "Lost": 0, "EndsWithNode": 1, "Blocked": 1}


def test_a_pod_that_is_being_deleted_is_not_replaced(tmp_path: Path) -> None:
    ending = owned("web-1", "a")
    ending["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    within = cluster(tmp_path, node("a"), node("b"), ending)
    assert fates(drain(within, frozenset({"a"}))) == {"web-1": (Fate.ENDS_WITH_NODE, "")}
    assert fates(lose(within, frozenset({"a"}))) == {"web-1": (Fate.ENDS_WITH_NODE, "")}


def test_a_drain_goes_in_rounds_as_budgets_allow(tmp_path: Path) -> None:
    pods = [owned(f"web-{number}", "a") for number in range(3)]
    within = cluster(tmp_path, node("a", cpu="8"), node("b", cpu="8"), *pods, budget("web", 1))
    removal = drain(within, frozenset({"a"}))
    assert (removal.count(Fate.RESCHEDULED), removal.rounds) == (3, 3)


def test_a_budget_blocks_a_drain_once_replacements_stay_pending(tmp_path: Path) -> None:
    pods = [owned(f"web-{number}", "a") for number in range(3)]
    within = cluster(tmp_path, node("a", cpu="8"), node("b", cpu="1"), *pods, budget("web", 1))
    removal = drain(within, frozenset({"a"}))
    assert [found.fate for found in removal.pods] == [Fate.RESCHEDULED, Fate.PENDING, Fate.BLOCKED]
    assert removal.pods[2].reason == "PodDisruptionBudget web allows no further disruption"


@pytest.mark.parametrize(
    ("status", "policy", "healthy", "fate"),
    [
        ({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}, "AlwaysAllow", 2, Fate.BLOCKED),
        (
            {"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]},
            "AlwaysAllow",
            1,
            Fate.RESCHEDULED,
        ),
        ({"phase": "Running"}, "IfHealthyBudget", 2, Fate.RESCHEDULED),
        ({"phase": "Running"}, "IfHealthyBudget", 1, Fate.BLOCKED),
        ({"phase": "Pending"}, "IfHealthyBudget", 1, Fate.RESCHEDULED),
    ],
)
def test_a_pod_that_does_not_work_needs_no_budget(
    tmp_path: Path, status: Object, policy: str, healthy: int, fate: Fate
) -> None:
    full = budget("web", 0)
    full["spec"]["unhealthyPodEvictionPolicy"] = policy
    full["status"] |= {"desiredHealthy": 2, "currentHealthy": healthy}
    within = cluster(tmp_path, node("a"), node("b"), {**owned("web-1", "a"), "status": status}, full)
    assert fates(drain(within, frozenset({"a"})))["web-1"][0] is fate


def test_the_api_evicts_no_pod_with_two_budgets(tmp_path: Path) -> None:
    within = cluster(tmp_path, node("a"), node("b"), owned("web-1", "a"), budget("one", 5), budget("two", 5))
    (blocked,) = drain(within, frozenset({"a"})).pods
    assert (blocked.fate, blocked.reason) == (Fate.BLOCKED, "more than one PodDisruptionBudget selects it: one, two")


def test_the_loss_of_a_zone_takes_all_pods_and_ignores_budgets(tmp_path: Path) -> None:
    within = cluster(
        tmp_path,
        node("a1", cpu="2", labels={ZONE: "a"}),
        node("a2", cpu="2", labels={ZONE: "a"}),
        node("b1", cpu="2", labels={ZONE: "b"}),
        owned("web-1", "a1"),
        owned("web-2", "a2"),
        owned("picky", "a2", app="picky", nodeSelector={ZONE: "a"}),
        {**pod("naked", nodeName="a1"), "metadata": {"name": "naked", "uid": "uid-naked"}},
        budget("web", 0),
    )
    removal = lose(within, nodes_in_zone(within, "a"))
    assert fates(removal) == {
        "web-1": (Fate.RESCHEDULED, "b1"),
        "web-2": (Fate.RESCHEDULED, "b1"),
        "picky": (Fate.PENDING, ""),
        "naked": (Fate.LOST, ""),
    }
    picky = next(found for found in removal.pods if found.name == "picky")
    assert picky.reason.startswith("0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector.")


def test_replacements_may_evict_pods_of_other_nodes(tmp_path: Path) -> None:
    within = cluster(
        tmp_path,
        node("a", cpu="1"),
        node("b", cpu="1"),
        owned("urgent", "a", app="urgent", priority=100),
        owned("low", "b", app="low", priority=1),
    )
    removal = lose(within, frozenset({"a"}))
    assert fates(removal) == {"urgent": (Fate.RESCHEDULED, "b")}
    assert [outcome.key for outcome in removal.preempted] == ["default/low"]


def test_a_claim_with_a_volume_of_the_lost_zone_keeps_its_pod_pending(tmp_path: Path) -> None:
    term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["a"]}]}
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "pv"},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "claimRef": {"namespace": "default", "name": "data", "uid": "uid-data"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
            "storageClassName": "",
        },
        "status": {"phase": "Bound"},
    }
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": "data",
            "namespace": "default",
            "uid": "uid-data",
            "annotations": {"pv.kubernetes.io/bind-completed": "yes"},
        },
        "spec": {"volumeName": "pv", "accessModes": ["ReadWriteOnce"], "storageClassName": ""},
        "status": {"phase": "Bound"},
    }
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    within = cluster(
        tmp_path,
        node("a", labels={ZONE: "a"}),
        node("b", labels={ZONE: "b"}),
        owned("db-0", "a", kind="StatefulSet", app="db", volumes=volumes),
        volume,
        claim,
    )
    (database,) = lose(within, frozenset({"a"})).pods
    assert database.fate is Fate.PENDING
    assert "volume node affinity" in database.reason or "PersistentVolume's node affinity" in database.reason


def test_unknown_nodes_and_zones_are_named(tmp_path: Path) -> None:
    within = cluster(tmp_path, node("node-1", labels={ZONE: "a"}), node("node-2"))
    with pytest.raises(InputError, match="node node-3: no such node in the cluster; similar: node-"):
        nodes_named(within, ["node-3"])
    with pytest.raises(InputError, match="zone b: no node is in it, the zones are: a"):
        nodes_in_zone(within, "b")
    with pytest.raises(InputError, match="all nodes of the cluster are lost"):
        lose(within, frozenset({"node-1", "node-2"}))
