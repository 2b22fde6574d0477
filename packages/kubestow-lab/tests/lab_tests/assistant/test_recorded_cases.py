"""A hundred questions whose answers were recorded from kube-scheduler and cluster-capacity, asked by an MCP client."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from core_tests.engine.explanation.test_recorded_cases import FINISHED, cluster_of, options_of
from kubestow.api.meta import convert
from kubestow.config import FeatureGates
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.engine.pipeline.offline_scheduler import SchedulerOptions
from kubestow.scheduling.events.resources import NODES, PODS, WATCHED
from kubestow_lab.assistant.cluster_source import ClusterSource
from kubestow_lab.assistant.questions import ClusterQuestions
from kubestow_lab.assistant.server import mcp_server
from kubestow_lab.conformance.recorded_cases import CapacityCase, Case, read_cases

mcp = pytest.importorskip("mcp", reason="the MCP SDK is not installed")

CORPUS = Path(__file__).parents[5] / "tests" / "conformance" / "corpus"
#: The files with decisions, and how many cases of each are asked about: with two questions each, a hundred.
DECISIONS = (
    *("interpodaffinity", "mixed", "nodeaffinity", "nodeports", "noderesourcesfit", "podtopologyspread"),
    *("preemption", "schedulinggates", "tainttoleration", "volumebinding"),
)
CASES_PER_FILE, CAPACITY_CASES = 4, 20
#: Every so many-th case, since those after each other are alike.
STRIDE = 5
#: Messages and lists of larger cases are cut, which other tests are about.
MOST_NODES, MOST_CHARACTERS = 40, 500


class Asked(NamedTuple):
    """A question, the parts of the evidence that were recorded, and the command that answers it too."""

    question: str
    arguments: dict[str, Any]
    expected: dict[str, Any]


def source_of(cluster: ClusterObjects, options: SchedulerOptions) -> ClusterSource:
    return ClusterSource(lambda: (cluster, options), ["--cluster", "case.json"], lambda: 0.0)


def decisions() -> Iterator[tuple[str, ClusterSource, list[Asked]]]:
    """Why is it pending, and where would it go."""
    for name in DECISIONS:
        cases = (case for case in read_cases(CORPUS / f"{name}.jsonl.gz") if isinstance(case, Case) and suits(case))
        for case in islice(cases, 0, STRIDE * CASES_PER_FILE, STRIDE):
            recorded, metadata = case.expect[0], case.pods[0]["metadata"]
            arguments = {"pod": metadata["name"], "namespace": metadata["namespace"]}
            feasible = len(recorded.get("feasible", ()))
            why = {"message": recorded.get("message", ""), "feasible": feasible}
            if recorded.get("preemption"):
                preemption = recorded["preemption"]
                why |= {"preemption": (preemption["nominatedNodeName"], sorted(preemption["victims"]))}
            where: dict[str, Any] = {"feasible": feasible, "best": sorted(recorded.get("best", ()))}
            if "total" in recorded and recorded["best"]:
                where["total"] = recorded["total"][recorded["best"][0]]
            questions = [
                Asked("why_is_pod_pending", arguments, {"gated": True} if recorded["result"] == "gated" else why),
                Asked("where_would_pod_go", arguments, {"gated": True} if recorded["result"] == "gated" else where),
            ]
            yield case.name, source_of(cluster_of(case), options_of(case)), questions


def suits(case: Case) -> bool:
    """Whether the first pod was decided about, in a cluster whose answer is not cut."""
    if case.config_error is not None or not case.pods or not case.expect or not case.cluster.get("nodes"):
        return False
    recorded = case.expect[0]
    small = len(case.cluster["nodes"]) <= MOST_NODES and len(recorded.get("message", "")) < MOST_CHARACTERS
    return small and recorded["result"] in ("scheduled", "unschedulable", "gated")


def capacities() -> Iterator[tuple[str, ClusterSource, list[Asked]]]:
    """How many more fit: of cases in which all runs of cluster-capacity reported the same number."""
    resources = {resource.plural: resource for resource in WATCHED}
    found = (
        case
        for case in read_cases(CORPUS / "capacity.jsonl.gz")
        if isinstance(case, CapacityCase) and not case.excluded_nodes
        if "error" not in case.expect and case.expect["stable"]["total"] and case.expect["stable"]["failReason"]
        if "replicas" in case.expect["status"] and not any(container_limits(case))
    )
    for case in islice(found, CAPACITY_CASES):
        objects = {
            plural: [convert(resources[plural].type, obj) for obj in each]
            for plural, each in case.cluster.items()
            if plural in resources
        }
        pods = [pod for pod in objects.pop(PODS.plural, []) if pod.status.phase not in FINISHED]
        nodes = objects.pop(NODES.plural, [])
        cluster = ClusterObjects.of(nodes, pods, [obj for each in objects.values() for obj in each])
        options = SchedulerOptions(case.config, gates=FeatureGates(minor=case.minor))
        arguments = {"manifest": json.dumps({"apiVersion": "v1", "kind": "Pod"} | case.pod), "limit": case.max_limit}
        expected = {
            "replicas": case.expect["status"]["replicas"],
            "end": case.expect["status"]["failReason"]["failType"],
        }
        yield case.name, source_of(cluster, options), [Asked("how_many_more_fit", arguments, expected)]


def container_limits(case: CapacityCase) -> Iterator[bool]:
    """Whether a container has limits: they become requests by defaults that cluster-capacity does not set."""
    for container in case.pod["spec"]["containers"]:
        yield bool((container.get("resources") or {}).get("limits"))


async def test_a_hundred_questions_are_answered_as_recorded() -> None:
    asked: Counter[str] = Counter()
    for name, source, questions in (*decisions(), *capacities()):
        async with mcp.Client(mcp_server(ClusterQuestions(source))) as client:
            for question, arguments, expected in questions:
                result = await client.call_tool(question, arguments)
                assert not result.is_error, (name, result.content[0].text)
                answer = result.structured_content
                assert observed(answer["evidence"], expected) == expected, (name, question, answer)
                assert answer["command"].startswith("kubestow ") and answer["answer"].endswith(".")
                asked[question] += 1
    assert asked.total() >= 100, asked
    assert min(asked.values()) >= CAPACITY_CASES


def observed(evidence: dict[str, Any], expected: dict[str, Any]) -> dict[str, Any]:
    """What the evidence says about the fields that were recorded."""
    found: dict[str, Any] = {}
    for field in expected:
        match field:
            case "gated":
                found[field] = bool(evidence.get("gate"))
            case "preemption":
                preemption = evidence.get("preemption") or {"node": "", "victims": []}
                found[field] = preemption["node"], sorted(preemption["victims"])
            case "best":
                tied, best = evidence["tied"], [each["node"] for each in evidence["best"]]
                # At most five nodes are shown.
                is_cut = len(best) < tied == len(expected["best"]) and set(best) <= set(expected["best"])
                found[field] = expected["best"] if is_cut else sorted(best[:tied])
            case "total":
                found[field] = evidence["best"][0]["total"]
            case "end":
                found[field] = evidence["end"]["type"]
            case _:
                found[field] = evidence.get(field)
    return found
