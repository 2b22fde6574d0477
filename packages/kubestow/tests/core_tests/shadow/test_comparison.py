"""The verdict on a node equals that of the tables of scores that explanations print."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from core_tests.shadow.delayed_cluster import configuration
from kubestow.api.core import Pod
from kubestow.cluster.nodes.views import Nodes, Rows
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.config import FeatureGates
from kubestow.plugins import in_tree_registry
from kubestow.scheduling.decision.result import Scheduled
from kubestow.shadow.comparison import DecisionComparer, ObservedDecision, Verdict
from kubestow.testing import PluginHarness, node, pod

ZONE = "topology.kubernetes.io/zone"
_SCORED = 100
"""What is scored of 120 nodes where the percentage is not set."""


def _totals(harness: PluginHarness, info: PodInfo, decision: Scheduled, rows: Rows) -> dict[str, int]:
    """The sum of the scores of each plugin, by node."""
    scores = [result.weighted for result in decision.evaluation.score_by_plugin(info, rows)]
    names = Nodes(harness.cluster.nodes, rows).names
    return dict(zip(names, np.sum([np.zeros(len(names), np.int64), *scores], axis=0).tolist(), strict=True))


def _expected(harness: PluginHarness, info: PodInfo, name: str) -> Verdict:
    decision = harness.pipeline.decide_by_plugins(info)
    if not isinstance(decision, Scheduled):
        return Verdict.REJECTED
    totals = _totals(harness, info, decision, decision.candidates)
    best = [each for each, total in totals.items() if total == max(totals.values())]
    if name in best:
        return Verdict.SAME_NODE if len(best) == 1 else Verdict.EQUAL_NODE
    if name not in totals or len(totals) <= _SCORED:
        return Verdict.OTHER_NODE
    worst = sorted(totals, key=totals.__getitem__)[:_SCORED]
    sample = {*[each for each in worst if each != name][: _SCORED - 1], name}
    rows = np.array(sorted(harness.cluster.nodes.rows[each] for each in sample), np.intp)
    totals = _totals(harness, info, decision, rows)
    return Verdict.SAMPLED_NODE if totals[name] == max(totals.values()) else Verdict.OTHER_NODE


def _random_pod(random: Random, name: str, node_name: str = "") -> Pod:
    app = random.choice("ab")
    selecting = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": random.choice("ab")}}}
    preferred = {"weight": 10, "podAffinityTerm": selecting}
    kinds: list[dict[str, Any]] = [
        {},
        {
            "spread": [
                {**selecting, "maxSkew": 1, "whenUnsatisfiable": random.choice(["DoNotSchedule", "ScheduleAnyway"])}
            ]
        },
        {"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [preferred]}}},
        {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [selecting]}}},
        {"tolerations": [{"key": "old", "operator": "Exists"}]},
        {"node_selector": {ZONE: "zone-0"}},
        {"nominated": f"node-{random.randrange(120)}"},
    ]
    cpu = random.choice(["100m", "1", "3"])
    return pod(name, cpu=cpu, labels={"app": app}, node=node_name, **random.choice(kinds[:1] if node_name else kinds))


@pytest.mark.parametrize("seed", range(3))
def test_the_verdict_on_a_node_is_that_of_the_scores_of_all_plugins(seed: int) -> None:
    random = Random(seed)
    harness = PluginHarness(
        node(
            f"node-{n}",
            cpu=random.choice(["2", "4", "8"]),
            zone=f"zone-{n % 3}",
            taints=["old=true:PreferNoSchedule"] if n % 10 == seed else [],
        )
        for n in range(120)
    )
    cluster = harness.cluster
    comparer = DecisionComparer(cluster, configuration(), in_tree_registry(), FeatureGates())
    seen = set()
    for number in range(40):
        cluster.put_pod(cluster.shapes.info(_random_pod(random, f"placed-{number}", f"node-{random.randrange(120)}")))
        info = cluster.shapes.info(_random_pod(random, f"pod-{number}"))
        decision = harness.pipeline.decide_by_plugins(info)
        names = ["absent", f"node-{random.randrange(120)}"]
        if isinstance(decision, Scheduled):
            totals = _totals(harness, info, decision, decision.candidates)
            names += [
                decision.node_name,
                *random.sample(sorted(totals, key=totals.__getitem__)[-25:], k=min(2, len(totals))),
            ]
        for name in names:
            expected = _expected(harness, info, name)
            found = comparer.compare(info, ObservedDecision(node=name))
            assert found.verdict is expected
            if isinstance(decision, Scheduled):
                agrees = expected in (Verdict.SAME_NODE, Verdict.EQUAL_NODE)
                assert found.here == (name if agrees else decision.node_name)
            seen.add(expected)
    assert {Verdict.SAME_NODE, Verdict.EQUAL_NODE, Verdict.SAMPLED_NODE, Verdict.OTHER_NODE} <= seen
