"""Gangs whose members are assigned at once get the placement, nodes and messages that trying each placement gives."""

from __future__ import annotations

from random import Random
from typing import Any
from unittest import mock

import pytest

from core_tests.scheduling.gangs.groups import GATES, member, together
from kubestow.api.core import Node, Pod
from kubestow.cluster.cache import Cluster
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.evaluation.row_totals import BestRows
from kubestow.rules.minors import Minor
from kubestow.scheduling.decision.copies import Copies
from kubestow.scheduling.decision.node_selection import RandomTie, Scope
from kubestow.scheduling.decision.pipeline import DecisionPipeline
from kubestow.scheduling.decision.result import Decision
from kubestow.testing import node, pod
from kubestow.testing.scheduler_harness import SchedulerHarness, in_virtual_time

VERSIONS: dict[str, dict[str, Any]] = {
    "1.36": {"gates": GATES | {"TopologyAwareWorkloadScheduling": True}},
    "1.37": {"minor": Minor(37), "gates": {"GenericWorkload": True, "TopologyAwareWorkloadScheduling": True}},
}
INDEX = "batch.kubernetes.io/job-completion-index"


def racks(random: Random) -> list[Node]:
    return [
        node(
            f"{rack}{number}",
            cpu=random.choice(("1", "2", "3")),
            memory=random.choice(("2Gi", "16Gi")),
            max_pods=random.choice((2, 110)),
            labels={"rack": rack},
            taints=("a=b:NoSchedule",) if random.random() < 0.1 else (),
        )
        for rack in "abcde"[: random.randint(1, 5)]
        for number in range(random.randint(1, 4))
    ]


def apart(app: str) -> dict[str, Any]:
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": "kubernetes.io/hostname"}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def gang(random: Random, name: str) -> tuple[Any, list[Pod]]:
    """A group with a topology constraint and its pods: copies, copies with an index, or pods of different requests."""
    count, cpu = random.randint(1, 6), random.choice(("100m", "500m", "1"))
    fields: dict[str, Any] = {"affinity": apart(name), "labels": {"app": name}} if random.random() < 0.2 else {}
    is_indexed, is_mixed = random.random() < 0.3, random.random() < 0.2
    pods = [
        member(
            f"{name}-{number}",
            name,
            cpu="250m" if is_mixed and number == 0 else cpu,
            **fields | {"labels": fields.get("labels", {}) | ({INDEX: str(number)} if is_indexed else {})},
        )
        for number in range(count)
    ]
    return together(name, random.choice((count, count, random.randint(0, count))), "rack"), pods


Outcome = tuple[dict[str, tuple[str, ...]], list[tuple[int, str]]]


def outcome(seed: int, version: str) -> Outcome:
    """For each pod its node or the messages of its conditions, and what was chosen among how many best nodes."""
    random, nodes_of, ties = Random(seed), {}, []
    machines = racks(random)
    there = [pod(f"p{n}", cpu="500m", node=random.choice(machines).metadata.name) for n in range(random.randint(0, 5))]
    gangs = [gang(random, name) for name in ("one", "two", "three")]
    choose = RandomTie.choose

    def recording(self: RandomTie, cluster: Cluster, rows: BestRows) -> int:
        row = choose(self, cluster, rows)
        ties.append((len(rows), cluster.nodes.names[row]))
        return row

    async def scenario(harness: SchedulerHarness) -> None:
        for _, pods in gangs:
            for each in pods:
                harness.cluster.put(each)
            await harness.advance(2)
        for _, pods in gangs:
            for each in pods:
                latest = harness.cluster.pod(each.metadata.name)
                messages = [condition.message for condition in latest.status.conditions]
                nodes_of[each.metadata.name] = (latest.spec.node_name, *messages)

    with mock.patch.object(RandomTie, "choose", recording):
        in_virtual_time(scenario, *machines, *there, *(each for each, _ in gangs), **VERSIONS[version])
    return nodes_of, ties


def unknown(self: Copies, nodes: Nodes) -> None:
    """The answer that has every placement tried pod by pod."""


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("seed", range(8))
def test_the_outcome_is_that_of_trying_every_placement(seed: int, version: str) -> None:
    at_once = outcome(seed, version)
    with mock.patch.object(Copies, "nodes_among", unknown), mock.patch.object(Copies, "capacity", lambda self: None):
        assert outcome(seed, version) == at_once


@pytest.mark.parametrize(("labels", "decisions"), [([{}, {}], 2), ([{INDEX: "0"}, {INDEX: "1"}], 2)])
def test_copies_are_decided_about_only_where_they_are_placed(
    labels: list[dict[str, str]], decisions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    decided: list[str] = []
    decide = DecisionPipeline.decide

    async def recording(self: DecisionPipeline, pod: PodInfo, scope: Scope) -> Decision:
        decided.append(pod.name)
        return await decide(self, pod, scope)

    monkeypatch.setattr(DecisionPipeline, "decide", recording)
    pods = [member(f"train-{number}", "train", cpu="1", labels=each) for number, each in enumerate(labels)]

    async def scenario(harness: SchedulerHarness) -> None:
        for each in pods:
            harness.cluster.put(each)
        await harness.advance(2)
        assert all(harness.node_of(each.metadata.name) for each in pods)

    machines = [node(f"{rack}{number}", labels={"rack": rack}) for rack in "abc" for number in range(2)]
    in_virtual_time(scenario, *machines, together("train", 2, "rack"), **VERSIONS["1.36"])
    assert len(decided) == decisions
