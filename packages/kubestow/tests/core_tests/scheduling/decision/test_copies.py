"""Pods decided about at once get the nodes that deciding about one after the other gives them."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np
import pytest

from kubestow.api.core import Node, Pod
from kubestow.cluster.changes.events import Action, EventResource
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.event_registration import Invalidation, on
from kubestow.framework.interface import ReservePlugin, ScorePlugin, Scores
from kubestow.scheduling.decision.copies import Copies
from kubestow.scheduling.decision.node_selection import RandomTie, Scope
from kubestow.scheduling.decision.pipeline import DecisionPipeline
from kubestow.testing import PluginHarness, node, pod

INDEX = "batch.kubernetes.io/job-completion-index"
DISK = "example.com/disk"


def resources(strategy: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"name": "NodeResourcesFit", "args": {"scoringStrategy": strategy}}]


PROFILES: list[dict[str, Any]] = [
    *({}, {}),
    {"pluginConfig": resources({"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 1}]})},
    {
        "pluginConfig": resources(
            {
                "type": "RequestedToCapacityRatio",
                "resources": [{"name": "cpu", "weight": 3}, {"name": "memory", "weight": 1}],
                "requestedToCapacityRatio": {
                    "shape": [{"utilization": 0, "score": 2}, {"utilization": 60, "score": 10}]
                },
            }
        )
    },
    {
        "plugins": {
            "score": {
                "disabled": [{"name": "NodeResourcesFit"}],
                "enabled": [{"name": "NodeResourcesFit", "weight": 7}],
            },
            "preScore": {"disabled": [{"name": "NodeResourcesBalancedAllocation"}]},
        }
    },
    {"plugins": {"score": {"disabled": [{"name": "*"}]}}},
    {"percentageOfNodesToScore": 50},
]


def nodes(random: Random) -> list[Node]:
    effect = random.choice(("NoSchedule", "PreferNoSchedule"))
    return [
        node(
            f"n{number}",
            cpu=random.choice(("1", "2", "3", "4", "8")),
            memory=random.choice(("1Gi", "4Gi", "16Gi")),
            max_pods=random.choice((1, 3, 110, 110)),
            labels={DISK: random.choice(("ssd", "hdd"))},
            taints=random.choice(((), (), (), (f"a=b:{effect}",))),
            unschedulable=random.random() < 0.1,
            images={"registry.example/a:1": 500_000_000} if random.random() < 0.5 else {},
        )
        for number in range(random.randint(2, 12))
    ]


def preferring(disk: str) -> dict[str, Any]:
    term = {"matchExpressions": [{"key": DISK, "operator": "In", "values": [disk]}]}
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 5, "preference": term}]}}


def apart() -> dict[str, Any]:
    term = {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "kubernetes.io/hostname"}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


SPREAD = {
    "maxSkew": 1,
    "topologyKey": "kubernetes.io/hostname",
    "whenUnsatisfiable": "ScheduleAnyway",
    "labelSelector": {"matchLabels": {"app": "x"}},
}
#: What pods of a gang may have besides requests.
FEATURES: list[dict[str, Any]] = [
    {"host_ports": (80,)},
    {"affinity": preferring("ssd")},
    {"node_selector": {DISK: "ssd"}},
    {"affinity": apart(), "labels": {"app": "x"}},
    {"spread": [SPREAD], "labels": {"app": "x"}},
    {"tolerations": [{"key": "a", "operator": "Exists"}]},
    {"nominated": "n0"},
    {"spec": {"containers": [{"name": "c", "image": "registry.example/a:1"}]}},
]


def gangs(random: Random) -> list[Pod]:
    requests = {"cpu": random.choice(("0", "100m", "500m", "1"))}
    if random.random() < 0.5:
        requests["memory"] = random.choice(("100Mi", "500Mi", "1Gi"))
    features = random.choice(FEATURES) if random.random() < 0.4 else {}
    is_indexed = random.random() < 0.5
    return [
        pod(
            f"g{number}",
            requests=requests,
            **features | {"labels": features.get("labels", {}) | ({INDEX: str(number)} if is_indexed else {})},
        )
        for number in range(random.randint(1, 10))
    ]


def one_by_one(pipeline: DecisionPipeline, pods: Sequence[PodInfo], scope: Scope) -> list[str | None]:
    """The nodes of pods decided about one after the other, each assumed before the next."""
    names: list[str | None] = []
    with pipeline.cluster.simulate():
        for info in pods:
            name = pipeline.decide_by_plugins(info, scope).node_name
            names.append(name)
            if name is None:
                break
            pipeline.cluster.assume(info, name)
    return names


@pytest.mark.parametrize("seed", range(60))
def test_pods_get_the_nodes_that_deciding_one_by_one_gives_them(seed: int) -> None:
    random = Random(seed)
    machines, gang, profile = nodes(random), gangs(random), random.choice(PROFILES)
    names = [each.metadata.name for each in machines]
    there = [pod(f"p{number}", cpu="500m", node=random.choice(names)) for number in range(random.randint(0, 6))]
    harness = PluginHarness(machines, there, profile=profile)
    if random.random() < 0.3:
        harness.cluster.nominate(harness.info(pod("nominated", cpu="1")), "n0")
    ties, same_ties = Random(seed), Random(seed)
    at_once = DecisionPipeline(harness.cluster, harness.profiles, RandomTie(ties))
    one_after_another = DecisionPipeline(harness.cluster, harness.profiles, RandomTie(same_ties))
    infos = [harness.info(each) for each in gang]
    copies = at_once.copies(infos)
    for change in range(3):
        for _ in range(3):
            rows = np.array(random.choices(range(len(names)), k=len(names)), np.intp)
            part = Nodes(harness.cluster.nodes, rows)
            found = copies.nodes_among(part)
            if found is not None:
                assert found == one_by_one(one_after_another, infos, Scope(part.names))
                assert ties.getstate() == same_ties.getstate()
        harness.cluster.put_pod(harness.info(pod(f"later-{change}", cpu="500m", node=random.choice(names))))


def among(harness: PluginHarness, pods: Sequence[Pod]) -> list[str] | None:
    copies: Copies = harness.pipeline.copies([harness.info(each) for each in pods])
    return copies.nodes_among(harness.cluster.all_nodes())


def copies_of(count: int, **fields: Any) -> list[Pod]:
    return [pod(f"g{number}", **({"cpu": "1"} | fields)) for number in range(count)]


def test_plain_pods_are_decided_about_at_once() -> None:
    assert among(PluginHarness([node("a", cpu="2"), node("b", cpu="1")]), copies_of(3)) == ["a", "a", "b"]


def test_normalized_scores_follow_the_nodes_that_are_left() -> None:
    machines = [node(name, cpu="4", labels={DISK: disk}) for name, disk in (("a", "hdd"), ("b", "ssd"), ("c", "hdd"))]
    gang = [pod(f"g{number}", cpu="2", affinity=preferring("ssd")) for number in range(5)]
    assert among(PluginHarness(machines), gang) == ["b", "b", "a", "c", "a"]


def test_a_score_that_copies_do_not_change_counts_for_each_of_them() -> None:
    image = "registry.example/a:1"
    machines = [node("a", cpu="8"), node("b", cpu="8", images={image: 1_000_000_000})]
    container = {"name": "c", "image": image, "resources": {"requests": {"cpu": "1"}}}
    assert among(PluginHarness(machines), copies_of(4, spec={"containers": [container]})) == ["b", "b", "b", "b"]


def test_the_pods_of_an_indexed_job_are_copies() -> None:
    gang = [pod(f"g{number}", cpu="1", labels={INDEX: str(number)}) for number in range(2)]
    assert among(PluginHarness([node("a"), node("b")]), gang) == ["a", "b"]


def test_nothing_is_known_of_pods_that_do_not_all_fit() -> None:
    assert among(PluginHarness([node("a", cpu="2")]), copies_of(3)) is None


@pytest.mark.parametrize(
    "gang",
    [
        [*copies_of(1), pod("other", cpu="2")],
        copies_of(2, affinity=apart(), labels={"app": "x"}),
        copies_of(2, spread=[SPREAD], labels={"app": "x"}),
        copies_of(2, nominated="a"),
    ],
    ids=["different requests", "apart from each other", "spread", "nominated"],
)
def test_other_pods_have_to_be_decided_about_one_by_one(gang: list[Pod]) -> None:
    assert among(PluginHarness([node("a"), node("b")]), gang) is None


def test_a_reserve_plugin_that_may_have_an_effect_rules_it_out() -> None:
    class Ledger(ReservePlugin):
        name = "Ledger"

        def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None: ...

        def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None: ...

    profile = {"plugins": {"reserve": {"enabled": [{"name": "Ledger"}]}}}
    assert among(PluginHarness([node("a")], plugins=[Ledger], profile=profile), copies_of(2)) is None


@pytest.mark.parametrize(
    ("reads_the_view", "invalidates", "expected"),
    [
        (True, Invalidation.ROW, ["a", "b", "a"]),
        (False, Invalidation.ROW, None),
        (True, Invalidation.ALL, None),
    ],
    ids=["and does", "or rules it out", "and no other pods"],
)
def test_a_score_has_to_read_the_pods_of_its_node_through_the_view(
    reads_the_view: bool, invalidates: Invalidation, expected: list[str] | None
) -> None:
    class FewestPods(ScorePlugin):
        name = "FewestPods"
        events_to_register = (
            on(EventResource.ASSIGNED_POD, Action.ADD | Action.DELETE, invalidates=invalidates, requeues=False),
            on(EventResource.NODE, Action.ADD),
        )
        label_keys = ()
        scores_hypothetical_nodes = reads_the_view

        def signature(self, pod: PodInfo) -> tuple[()]:
            return ()

        def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Scores:
            return 100 - nodes.pod_count

    profile = {"plugins": {"score": {"enabled": [{"name": "FewestPods", "weight": 9}]}}}
    harness = PluginHarness([node("a", cpu="8"), node("b", cpu="4")], plugins=[FewestPods], profile=profile)
    assert among(harness, copies_of(3)) == expected
