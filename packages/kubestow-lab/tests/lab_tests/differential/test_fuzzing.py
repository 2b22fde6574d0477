"""Fuzzing finds a scheduler that decides otherwise, and shrinks what shows it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from kubestow.api.core import Pod
from kubestow.api.meta import convert
from kubestow.plugins import in_tree_registry
from kubestow.rules.minors import DEFAULT_MINOR
from kubestow_lab.conformance.observed_decisions import compare_observed
from kubestow_lab.conformance.recorded_cases import Case, read_cases
from kubestow_lab.conformance.replay import replay_file
from kubestow_lab.conformance.scheduling_replay import cluster_of, gates_of
from kubestow_lab.differential.fuzzing import Fuzzer, append_case
from kubestow_lab.differential.scenarios import Scenario

REGISTRY = in_tree_registry(DEFAULT_MINOR)


def node(name: str, **taint: str) -> dict[str, Any]:
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "10"}
    return {
        "metadata": {"name": name, "uid": name},
        "spec": {"taints": [taint]} if taint else {},
        "status": {"capacity": amounts, "allocatable": amounts},
    }


def pod(name: str, **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}
    metadata = {"name": name, "namespace": "default", "uid": name}
    return {"metadata": metadata, "spec": {"containers": [container], "schedulerName": "default-scheduler", **spec}}


def case_of(scenario: Scenario, observed: dict[str, Any]) -> Case:
    expect = [{"observed": observed}]
    return Case("fuzzed/test", "observed", None, {}, DEFAULT_MINOR, scenario.cluster, [scenario.pod], expect, None)


async def decide(scenario: Scenario, settle_seconds: float) -> Case:
    """A scheduler that decides as the one here."""
    case = case_of(scenario, {"message": "unknown"})
    here = compare_observed(case, REGISTRY)
    return case_of(scenario, {"node": here.node} if here.node else {"message": here.here})


async def ignore_taints(scenario: Scenario, settle_seconds: float) -> Case:
    """A scheduler that places pods on the first node, whatever its taints."""
    right = await decide(scenario, settle_seconds)
    if any(each["spec"].get("taints") for each in scenario.cluster["nodes"]):
        return case_of(scenario, {"node": scenario.cluster["nodes"][0]["metadata"]["name"]})
    return right


TAINTED = Scenario(
    "test",
    {
        "nodes": [node("tainted", key="k", effect="NoSchedule"), node("other"), node("another")],
        "pods": [pod("placed", nodeName="other"), pod("placed-too", nodeName="another")],
    },
    pod("pending", tolerations=[{"key": "unrelated", "operator": "Exists"}]),
)


async def test_a_scheduler_that_decides_alike_agrees() -> None:
    fuzzer = Fuzzer(decide, REGISTRY)
    assert await fuzzer.try_scenario(TAINTED) is None
    assert fuzzer.counts == {"agrees: placed": 1}


async def test_a_difference_is_shrunk_to_what_shows_it_and_kept_as_a_recorded_case(tmp_path: Path) -> None:
    fuzzer = Fuzzer(ignore_taints, REGISTRY)
    difference = await fuzzer.try_scenario(TAINTED)
    assert difference is not None and difference.verdict == "other node"
    names = [each["metadata"]["name"] for each in difference.case.cluster["nodes"]]
    assert names[0] == "tainted" and len(names) == 2
    assert difference.case.cluster["pods"] == [] and "tolerations" not in difference.case.pods[0]["spec"]
    file = tmp_path / "differences.jsonl.gz"
    append_case(file, difference.case)
    ((_, mismatches),) = replay_file(file, in_tree_registry)
    assert [(one.field, one.expected) for one in mismatches] == [("other node", "tainted")]


async def test_a_difference_that_is_gone_when_it_is_played_again_is_none() -> None:
    plays = [ignore_taints, decide]

    async def play(scenario: Scenario, settle_seconds: float) -> Case:
        return await plays.pop(0)(scenario, settle_seconds)

    fuzzer = Fuzzer(play, REGISTRY)
    assert await fuzzer.try_scenario(TAINTED) is None
    assert fuzzer.counts == {"agrees: placed": 1}


async def test_a_scenario_without_a_decision_is_counted() -> None:
    async def play(scenario: Scenario, settle_seconds: float) -> None:
        return None

    fuzzer = Fuzzer(play, REGISTRY)
    assert await fuzzer.try_scenario(TAINTED) is None
    assert fuzzer.counts == {"no decision": 1}


async def test_an_observed_case_that_agrees_is_verified(tmp_path: Path) -> None:
    case = await decide(TAINTED, 0)
    append_case(tmp_path / "cases.jsonl.gz", case)
    (read,) = read_cases(tmp_path / "cases.jsonl.gz")
    assert isinstance(read, Case) and read.expect == case.expect
    ((_, mismatches),) = replay_file(tmp_path / "cases.jsonl.gz", in_tree_registry)
    assert mismatches == []


def test_victims_are_compared_by_name() -> None:
    low = pod("low", nodeName="n", priority=0)
    low["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "4"
    scenario = Scenario("test", {"nodes": [node("n")], "pods": [low]}, pod("high", priority=100))
    right = case_of(scenario, {"nominatedNodeName": "n", "victims": ["default/low"]})
    assert compare_observed(right, REGISTRY).verdict == "same victims"
    wrong = replace(right, expect=[{"observed": {"nominatedNodeName": "n", "victims": ["default/other"]}}])
    assert compare_observed(wrong, REGISTRY).verdict == "other victims"


def test_the_cluster_of_a_case_has_its_pods_on_their_nodes() -> None:
    case = case_of(TAINTED, {"node": "other"})
    cluster = cluster_of(case, gates_of(case))
    placed = cluster.placed_pod("placed")
    assert placed is not None and placed.info.name == convert(Pod, TAINTED.cluster["pods"][0]).metadata.name
