"""Two minor versions on one workload: what differs, and the rules that are the causes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from core_tests.engine.input.manifests import arrivals, cluster, node, pod
from kubestow.config import FeatureGates
from kubestow.engine.pipeline.offline_scheduler import SchedulerOptions
from kubestow.rules.minors import Behaviour, Minor
from kubestow_lab.ci_reports import comparison_markdown
from kubestow_lab.comparison.comparison import SimulationComparison, compare
from kubestow_lab.comparison.minor_changes import minor_changes
from kubestow_lab.comparison.pod_differences import PodChange
from kubestow_lab.simulation.simulation import SimulationOptions

BY_NAME = SimulationOptions(ties="name")


BY_BALANCE = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "profiles": [{"plugins": {"score": {"disabled": [{"name": "NodeResourcesFit"}]}}}],
}


def emulating(version: str) -> SchedulerOptions:
    return SchedulerOptions(BY_BALANCE, gates=FeatureGates(minor=Minor.parse(version, subject="test")))


def using_memory(name: str, node_name: str, memory: str) -> dict[str, Any]:
    requests = {"requests": {"memory": memory}}
    return pod(name, nodeName=node_name, containers=[{"name": "main", "image": "x", "resources": requests}])


def compared(tmp_path: Path, older: str, newer: str) -> SimulationComparison:
    """A pod of half the CPU of a node: "even" is more even with it, "uneven" becomes more even by it."""
    within = cluster(
        tmp_path, node("even"), node("uneven"), using_memory("a", "even", "3Gi"), using_memory("b", "uneven", "15Gi")
    )
    return compare(
        within,
        arrivals(tmp_path, pod("new", cpu="2"), within=within),
        baseline=emulating(older),
        candidate=emulating(newer),
        options=BY_NAME,
    )


def test_the_rule_that_moves_a_pod_is_named(tmp_path: Path) -> None:
    found = compared(tmp_path, "1.35", "1.36")
    assert [(difference.outcome.name, difference.change) for difference in found.pods] == [("new", PodChange.MOVED)]
    assert found.causes is not None
    [cause] = found.causes
    assert cause.change is not None
    assert cause.change.behaviour is Behaviour.SCORES_CHANGE_OF_BALANCE
    assert cause.pods == found.pods


def test_a_downgrade_has_the_same_causes(tmp_path: Path) -> None:
    up, down = compared(tmp_path, "1.35", "1.36"), compared(tmp_path, "1.36", "1.35")
    assert up.causes and down.causes
    assert [cause.change for cause in up.causes] == [cause.change for cause in down.causes]


def test_every_form_shows_the_causes(tmp_path: Path) -> None:
    found = compared(tmp_path, "1.35", "1.36")
    assert "`SCORES_CHANGE_OF_BALANCE`" in comparison_markdown(found)
    [cause] = json.loads(json.dumps(found.as_json()))["causes"]
    assert (cause["change"]["name"], cause["pods"]) == ("SCORES_CHANGE_OF_BALANCE", ["default/new"])


def test_within_one_minor_there_are_no_causes(tmp_path: Path) -> None:
    found = compared(tmp_path, "1.35", "1.35")
    assert (found.pods, found.causes) == ((), None)
    assert "causes" not in found.as_json()


def test_changes_are_behaviours_and_defaults_of_gates() -> None:
    older, newer = emulating("1.33").gates, emulating("1.34").gates
    changes = {change.name: change for change in minor_changes(older, newer)}
    devices = changes["DynamicResourceAllocation"]
    assert (devices.before, devices.after) == ("off", "on")
    assert changes["DRASchedulerFilterTimeout"].before == "no such gate"
    assert all(not newer.minor.has(b) or older.minor.has(b) or b.name in changes for b in Behaviour)
    assert not devices.undone(newer).enabled("DynamicResourceAllocation")
