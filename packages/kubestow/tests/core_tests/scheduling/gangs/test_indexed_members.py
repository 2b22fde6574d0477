"""Members of a gang with a label each, as an indexed Job has: those that no plugin can tell apart fail alike."""

from __future__ import annotations

from collections.abc import Sequence
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core_tests.scheduling.gangs.groups import gang_scheduling, group, member
from kubestow.api.core import Node, Pod
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.evaluation.evaluation_cache import EvaluationCache
from kubestow.scheduling.decision.node_selection import Scope
from kubestow.scheduling.decision.pipeline import DecisionPipeline
from kubestow.scheduling.decision.result import Decision
from kubestow.testing import node, pod
from kubestow.testing.scheduler_harness import SchedulerHarness, in_virtual_time

INDEX = "batch.kubernetes.io/job-completion-index"
ZONE = "topology.kubernetes.io/zone"


def indexed(count: int, cpu: str) -> list[Pod]:
    return [member(f"train-{number}", "train", cpu=cpu, labels={INDEX: str(number)}) for number in range(count)]


def repelling(name: str, on: str, index: int) -> Pod:
    """A pod in whose zone no member with an index may run."""
    term = {"labelSelector": {"matchLabels": {INDEX: str(index)}}, "topologyKey": ZONE}
    return pod(name, node=on, affinity={"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}})


def outcome(nodes: Sequence[Node], existing: Sequence[Pod], gang: Sequence[Pod], minimum: int) -> dict[str, str]:
    """The node of each member, or why it has none."""
    results: dict[str, str] = {}

    async def scenario(harness: SchedulerHarness) -> None:
        for each in gang:
            harness.cluster.put(each)
        await harness.advance(5)
        for each in gang:
            latest = harness.cluster.pod(each.metadata.name)
            messages = [condition.message for condition in latest.status.conditions]
            results[each.metadata.name] = latest.spec.node_name or str(messages)

    in_virtual_time(scenario, *nodes, *existing, group("train", minimum), **gang_scheduling())
    return results


def test_one_decision_is_made_for_all_members_that_no_plugin_can_tell_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    decided: list[str] = []
    decide = DecisionPipeline.decide

    async def recording(self: DecisionPipeline, pod: PodInfo, scope: Scope) -> Decision:
        decided.append(pod.name)
        return await decide(self, pod, scope)

    monkeypatch.setattr(DecisionPipeline, "decide", recording)
    outcome([node("n", cpu="1")], [], indexed(20, "2"), 20)
    assert len(decided) == 1


@settings(max_examples=60, deadline=None)
@given(
    cpus=st.lists(st.integers(1, 3), min_size=1, max_size=4),
    repelled=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), max_size=3),
    count=st.integers(1, 6),
    data=st.data(),
)
def test_members_that_share_a_failure_would_fail_alike(
    cpus: list[int], repelled: list[tuple[int, int]], count: int, data: st.DataObject
) -> None:
    nodes = [node(f"n{number}", cpu=str(cpu), zone=f"z{number % 2}") for number, cpu in enumerate(cpus)]
    existing = [
        repelling(f"repelling-{number}", f"n{on % len(nodes)}", index) for number, (on, index) in enumerate(repelled)
    ]
    gang = indexed(count, data.draw(st.sampled_from(("500m", "1", "2"))))
    minimum = data.draw(st.integers(1, count))
    shared = outcome(nodes, existing, gang, minimum)

    def alone(self: EvaluationCache, pod: PodInfo) -> str:
        return pod.uid

    with mock.patch.object(EvaluationCache, "group", alone):
        assert outcome(nodes, existing, gang, minimum) == shared
