"""Two schedulers on one workload: pods, metrics, thresholds, and the forms of the result."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from rich.console import Console

from core_tests.engine.input.manifests import arrivals, cluster, node, pod, workload
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.engine.pipeline.offline_scheduler import SchedulerOptions
from kubestow.errors import InputError
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.interface import ScorePlugin
from kubestow_lab.ci_reports import comparison_junit, comparison_markdown
from kubestow_lab.comparison.comparison import SimulationComparison, compare
from kubestow_lab.comparison.pod_differences import PodChange
from kubestow_lab.metrics.run_metrics import METRICS, RESOURCE_METRICS
from kubestow_lab.simulation.arrivals import Arrivals
from kubestow_lab.simulation.simulation import SimulationOptions, SimulationProgress
from kubestow_lab.simulation.simulation_result import SimulationResult

SPREAD, PACK = "LeastAllocated", "MostAllocated"


def strategy(name: str) -> SchedulerOptions:
    """A scheduler that scores CPU only."""
    return SchedulerOptions(configuration=document(name))


def document(name: str) -> dict[str, Any]:
    args = {"scoringStrategy": {"type": name, "resources": [{"name": "cpu", "weight": 1}]}}
    others = ("NodeResourcesBalancedAllocation", "PodTopologySpread", "ImageLocality")
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [
            {
                "schedulerName": "default-scheduler",
                "pluginConfig": [{"name": "NodeResourcesFit", "args": args}],
                "plugins": {"score": {"disabled": [{"name": other} for other in others]}},
            }
        ],
    }


def zones() -> list[dict[str, Any]]:
    return [node(name, cpu="4", labels={"topology.kubernetes.io/zone": name[0]}) for name in ("x1", "y1", "y2")]


@pytest.fixture
def within(tmp_path: Path) -> ClusterObjects:
    return cluster(tmp_path, *zones())


@pytest.fixture
def found(tmp_path: Path, within: ClusterObjects) -> Arrivals:
    """Small pods, then one that fits only if they are packed."""
    small = workload("Deployment", "small", replicas=3, cpu="1")
    large = [workload("Deployment", name, replicas=1, cpu="4") for name in ("large", "larger")]
    return arrivals(tmp_path, small, *large, within=within)


@pytest.fixture
def comparison(within: ClusterObjects, found: Arrivals) -> SimulationComparison:
    """Packing, and spreading, which loses the large pods."""
    return compare(
        within, found, baseline=strategy(PACK), candidate=strategy(SPREAD), options=SimulationOptions(ties="name")
    )


def test_pods_that_lose_and_move_are_found(comparison: SimulationComparison) -> None:
    changes = {difference.outcome.owner.split("/")[1][:5]: difference.change for difference in comparison.pods}
    assert changes["large"] is PodChange.LOST
    assert comparison.count(PodChange.LOST) == 2
    assert comparison.count(PodChange.MOVED) == 2
    [lost] = [group for group in comparison.groups() if group.owner.startswith("ReplicaSet/large-")]
    assert "Insufficient cpu" in lost.reason


def test_metrics_are_those_of_the_results(comparison: SimulationComparison) -> None:
    metrics = comparison.metrics
    assert {name.partition(".")[0] for name in metrics} == METRICS.keys() | RESOURCE_METRICS.keys()
    values: dict[str, tuple[Any, Any, str]] = {
        name: (found.baseline, found.candidate, found.verdict) for name, found in metrics.items()
    }
    assert values["pending"] == (0, 2, "worse")
    assert values["placed"] == (5, 3, "worse")
    assert values["lost"] == (0, 2, "worse")
    assert values["moved"] == (0, 2, "")
    assert values["preempted"] == (0, 0, "")
    assert values["nodesUsed"] == (3, 3, "")
    assert values["utilisation.cpu"] == (pytest.approx(11 / 12), pytest.approx(3 / 12), "worse")
    assert values["imbalance.cpu"] == (pytest.approx(np.std([3 / 4, 1, 1])), 0.0, "")
    assert values["zoneSkew"] == (3, 1, "better")  # of the small pods: 3 and 0, then 1 and 2
    baseline = comparison.baseline.result
    assert isinstance(baseline, SimulationResult)
    assert values["fragmentation.cpu"][0] == baseline.fragmentation["cpu"]
    waits = [outcome.bound - outcome.arrived for outcome in baseline.outcomes if outcome.bound is not None]
    assert values["meanWait"][0] == pytest.approx(sum(waits) / 5)


def test_means_weight_samples_with_their_time(within: ClusterObjects, tmp_path: Path) -> None:
    late = pod("late", cpu="4")
    late["metadata"]["annotations"] = {"kubestow.dev/arrival": "100s", "kubestow.dev/duration": "300s"}
    found = arrivals(tmp_path, late, within=within)
    metrics = compare(within, found, baseline=SchedulerOptions(), candidate=SchedulerOptions()).metrics
    # A third of the CPU, for 300 of about 400 seconds.
    assert metrics["meanUtilisation.cpu"].baseline == pytest.approx(300 / 400 / 3, rel=0.01)
    assert metrics["utilisation.cpu"].baseline == 0
    assert metrics["maxNodesUsed"].baseline == 1


def test_equal_schedulers_do_not_differ(within: ClusterObjects, found: Arrivals) -> None:
    same = compare(within, found, baseline=strategy(PACK), candidate=strategy(PACK))
    assert same.pods == ()
    assert all(each.baseline == each.candidate for each in same.metrics.values())
    assert "no pod differs." in comparison_markdown(same)


def test_thresholds_are_checked_against_the_metrics(comparison: SimulationComparison) -> None:
    checked = comparison.check(["pending > baseline", "pending > baseline + 2", "utilisation.cpu < baseline * 0.5"])
    assert [found.crossed for found in checked] == [True, False, True]
    assert (checked[0].value, checked[0].baseline, checked[1].limit) == (2, 0, 2)
    with pytest.raises(InputError, match=r"no metric 'utilisation\.gpu'"):
        comparison.check(["utilisation.gpu > 1"])


def test_two_versions_of_a_plugin_are_compared(within: ClusterObjects, found: Arrivals) -> None:
    """Both have the same name, which is no clash because each is in one scheduler only."""

    def version(best: str) -> type[ScorePlugin]:
        class Favourite(ScorePlugin):
            name = "Favourite"

            def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Any:
                return np.array([100 if name == best else 0 for name in nodes.names], np.int64)

        return Favourite

    configuration = document(PACK)
    [profile] = configuration["profiles"]
    profile["plugins"]["score"] = {"disabled": [{"name": "*"}], "enabled": [{"name": "Favourite", "weight": 1}]}
    sides = [SchedulerOptions(configuration, [version(best)]) for best in ("x1", "y2")]
    different = compare(within, found, baseline=sides[0], candidate=sides[1])
    small = [each for each in different.pods if "small" in each.outcome.owner]
    assert {(each.baseline.node, each.candidate.node) for each in small if each.baseline and each.candidate} == {
        ("x1", "y2")
    }


def test_progress_covers_both_simulations(within: ClusterObjects, tmp_path: Path) -> None:
    found = arrivals(tmp_path, workload("Deployment", "web", replicas=300, cpu="1m"), within=within)
    seen: list[SimulationProgress] = []
    compare(within, found, baseline=SchedulerOptions(), candidate=SchedulerOptions(), progress=seen.append)
    assert [progress.pods for progress in seen] == sorted(progress.pods for progress in seen)
    assert {progress.total for progress in seen} == {600}
    assert seen[-1].pods > 300


# -- forms -----------------------------------------------------------------------------------------------------------


def test_json_has_everything_and_is_the_same_for_the_same_seed(
    comparison: SimulationComparison, within: ClusterObjects, found: Arrivals
) -> None:
    report = comparison.as_json(comparison.check(["pending > baseline"]))
    assert report["thresholds"] == [
        {
            "threshold": "pending > baseline",
            "metric": "pending",
            "candidate": 2,
            "baseline": 0,
            "limit": 0,
            "crossed": True,
        }
    ]
    assert report["changes"]["lost"] == 2
    assert len(report["pods"]) == 4
    assert report["metrics"]["pending"] == {
        "baseline": 0,
        "candidate": 2,
        "change": 2,
        "unit": "pods",
        "verdict": "worse",
    }
    again = compare(
        within, found, baseline=strategy(PACK), candidate=strategy(SPREAD), options=SimulationOptions(ties="name")
    )
    assert json.dumps(again.as_json()) == json.dumps(comparison.as_json())


def test_tables_name_what_moved(comparison: SimulationComparison) -> None:
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(comparison)
    text = console.export_text()
    assert "2 pods pending in the candidate only; 2 pods on another node" in text
    assert "maxNodesUsed" not in text  # equal in both
    assert repr(comparison).startswith("<Comparison: 2 lost")
    assert "pending" in comparison._repr_html_()


def test_markdown_cannot_be_broken_by_names(tmp_path: Path) -> None:
    within = cluster(tmp_path, node("a"))
    hostile = pod("p|`x`|@team <img src=x>\n# h")
    found = arrivals(tmp_path, hostile, within=within)
    unschedulable = document(PACK) | {"profiles": [{"schedulerName": "another"}]}
    lost = compare(within, found, baseline=strategy(PACK), candidate=SchedulerOptions(unschedulable))
    text = comparison_markdown(lost, lost.check(["lost > 0"]))
    [row] = [line for line in text.splitlines() if "| lost |" in line]
    assert r"`` p\|`x`\|@team <img src=x> # h ``" in row
    assert "**1 of 1 threshold crossed**" in text
    assert not [line for line in text.splitlines() if line.startswith("# ")]


def test_junit_has_a_test_case_for_each_threshold(comparison: SimulationComparison) -> None:
    checked = comparison.check(["pending > baseline", "preempted > baseline"])
    suites = ET.fromstring(comparison_junit(comparison, checked))
    [suite] = suites
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    crossed, kept = suite.iter("testcase")
    assert (crossed.get("name"), kept.get("name")) == ("pending > baseline", "preempted > baseline")
    failure = crossed.find("failure")
    assert failure is not None and failure.text is not None and kept.find("failure") is None
    assert "pending is 2, the limit 0" in str(failure.get("message"))
    assert "Insufficient cpu" in failure.text


def test_junit_has_no_character_that_xml_forbids(tmp_path: Path) -> None:
    within = cluster(tmp_path, node("a"))
    found = arrivals(tmp_path, pod("p\x00\x1b\ufffe]]>"), within=within)
    unschedulable = document(PACK) | {"profiles": [{"schedulerName": "another"}]}
    lost = compare(within, found, baseline=strategy(PACK), candidate=SchedulerOptions(unschedulable))
    failure = ET.fromstring(comparison_junit(lost, lost.check(["lost > 0"]))).find(".//failure")
    assert failure is not None and "p\ufffd\ufffd\ufffd]]>" in str(failure.text)
