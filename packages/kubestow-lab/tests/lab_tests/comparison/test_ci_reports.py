"""Reports for CI: bounded in size, and safe whatever the cluster names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from core_tests.engine.input.manifests import arrivals, cluster, node, pod, workload
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow_lab import ci_reports
from kubestow_lab.comparison.comparison import Side, SimulationComparison
from kubestow_lab.comparison.recorded_runs import RecordedRun
from kubestow_lab.simulation.outcomes import OutcomeState, PodOutcome
from kubestow_lab.simulation.simulation import Simulation
from kubestow_lab.simulation.simulation_result import SimulationResult

#: The most characters of a comment on GitHub.
COMMENT = 65_536
LONG = "x" * 253


def run_of(state: OutcomeState, *, owners: int, node: str = "", name: str = LONG) -> RecordedRun:
    """A run with two pods of each owner, whose names are as long as Kubernetes allows."""
    outcomes = []
    for number in range(owners):
        message = f"0/5000 nodes are available: {number} {'reason ' * 200}" if state is OutcomeState.PENDING else ""
        for of in range(2):
            names = (f"{'n' * 60}{number % 7}", f"{name}-{number}-{of}", f"ReplicaSet/{LONG}{number}")
            outcomes.append(PodOutcome(*names, 0, 0.0, state, node, message=message))
    return RecordedRun(tuple(outcomes), {"emulatedVersion": "1.36"}, ("remark " * 100,))


def lost(owners: int, *, name: str = LONG) -> SimulationComparison:
    """A comparison in which all pods are lost."""
    sides = (
        Side("a" * 4096, run_of(OutcomeState.RUNNING, owners=owners, node="a", name=name)),
        Side("b.yaml", run_of(OutcomeState.PENDING, owners=owners, name=name)),
    )
    return SimulationComparison.of(*sides)


def test_a_comment_is_never_too_long_and_counts_everything() -> None:
    comparison = lost(5000)
    text = ci_reports.comparison_markdown(comparison, comparison.check(["lost > 0", "pending > baseline"]))
    assert len(text) < COMMENT
    assert "10,000 pods pending in the candidate only." in text
    assert "<details><summary>5,000 groups of pods that differ" in text
    assert "4,950 more groups" in text
    assert text.count("<details>") == text.count("</details>") == 1


def test_a_few_groups_are_shown_at_once() -> None:
    text = ci_reports.comparison_markdown(lost(3))
    assert "<details>" not in text
    assert text.count("| lost |") == 3


def test_what_does_not_fit_is_never_too_long(tmp_path: Path) -> None:
    within = cluster(tmp_path, *(node(f"{'n' * 240}-{number}", cpu="2") for number in range(4)))
    web = workload("Deployment", "web", replicas=9, cpu="500m")
    large = [pod(f"{'p' * 240}-{number}", cpu="3") for number in range(300)]
    result = Simulation(within, arrivals(tmp_path, web, *large, within=within)).run()
    text = ci_reports.fit_markdown(result)
    assert len(text) < COMMENT
    assert ":x: 9 of 309 pods placed." in text
    assert "<details><summary>301 owners</summary>" in text and "… 251 more" in text
    [row] = [line for line in text.splitlines() if "ReplicaSet/web" in line]
    assert row.split(" | ")[1:3] == ["9", "9"] and "| `4 nodes: nnn" in row
    cases = list(ET.fromstring(ci_reports.fit_junit(result)).iter("testcase"))
    failed = [case for case in cases if case.find("failure") is not None]
    assert (len(cases), len(failed)) == (301, 300)


def fit(tmp_path: Path, within: ClusterObjects, *manifests: Any) -> SimulationResult:
    return Simulation(within, arrivals(tmp_path, *manifests, within=within)).run()


def test_a_workload_that_fits_says_where(tmp_path: Path) -> None:
    within = cluster(tmp_path, node("a", cpu="2"), node("b", cpu="2"))
    result = fit(tmp_path, within, workload("Deployment", "web", replicas=3, cpu="500m"))
    text = ci_reports.fit_markdown(result)
    assert ":white_check_mark: 3 of 3 pods placed." in text
    assert "| 3 | 3 | `a ×2, b` |" in text or "| 3 | 3 | `b ×2, a` |" in text
    assert 'failures="0"' in ci_reports.fit_junit(result)


def test_sarif_has_a_rule_and_a_place_for_each_result(tmp_path: Path) -> None:
    comparison = lost(60)
    checked = comparison.check(["lost > 0", "moved > 0"])
    document = json.loads(ci_reports.comparison_sarif(comparison, checked, file="scheduler/my config.yaml"))
    (run,) = document["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert (document["version"], len({rule["id"] for rule in rules})) == ("2.1.0", len(rules))
    assert [result["ruleId"] for result in run["results"]] == ["threshold-crossed", *["pod-lost"] * 50]
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["level"] in ("error", "warning", "note")
        (location,) = result["locations"]
        assert location["physicalLocation"] == {
            "artifactLocation": {"uri": "scheduler/my%20config.yaml"},
            "region": {"startLine": 1, "startColumn": 1},
        }
        assert len(result["message"]["text"]) < 1000
    fingerprints = [result["partialFingerprints"]["kubestow/v1"] for result in run["results"]]
    assert len(set(fingerprints)) == len(fingerprints)
    other_names = ci_reports.comparison_sarif(lost(60, name="y"), checked)
    again = [result["partialFingerprints"]["kubestow/v1"] for result in json.loads(other_names)["runs"][0]["results"]]
    assert again == fingerprints
    absolute = json.loads(ci_reports.comparison_sarif(comparison, checked, file=str(tmp_path / "c.yaml")))
    first = absolute["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]
    assert first["uri"] == (tmp_path / "c.yaml").as_uri()
    assert "locations" not in json.loads(ci_reports.comparison_sarif(comparison, checked))["runs"][0]["results"][0]


@pytest.mark.parametrize("name", ["[click](https://evil.example)", "a\\[b](c)", "x\x00\x1b", "<img src=x>"])
def test_names_are_no_links_in_sarif(name: str) -> None:
    comparison = lost(1, name=name)
    document = json.loads(ci_reports.comparison_sarif(comparison))
    (result,) = document["runs"][0]["results"]
    text = result["message"]["text"]
    for position, character in enumerate(text):
        if character in "[]":
            before = text[:position]
            assert (len(before) - len(before.rstrip("\\"))) % 2 == 1, text
    assert "\x00" not in text and "\x1b" not in text
