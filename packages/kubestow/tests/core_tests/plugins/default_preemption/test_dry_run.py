"""A dry run of all nodes together selects the same victims as removing and adding pods node by node."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from core_tests.decisions import preemption_of
from kubestow.api.core import Pod
from kubestow.api.meta import convert
from kubestow.api.policy import PodDisruptionBudget
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.status import Code
from kubestow.plugins.default_preemption.dry_run import DisruptionBudgets, below, dry_run
from kubestow.testing import PluginHarness, node, pod

NODES = ["n0", "n1", "n2", "n3"]
ANTI_AFFINE = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "a"}}}
        ]
    }
}
PREEMPTORS = [
    pod("urgent", cpu="2", priority=100),
    pod("urgent", cpu="1", memory="1Gi", priority=7, host_ports=[80]),
    pod("urgent", cpu="500m", priority=100, host_ports=[80, 443]),
    pod("urgent", cpu="1", priority=100, requests={"example.com/gpu": "1"}, labels={"app": "a"}),
    pod("urgent", cpu="500m", priority=100, labels={"app": "a"}, affinity=ANTI_AFFINE),
]

existing: st.SearchStrategy[dict[str, Any]] = st.builds(
    dict,
    node=st.sampled_from(NODES),
    cpu=st.sampled_from(["0", "500m", "1", "2"]),
    priority=st.integers(0, 9),
    requests=st.sampled_from([{}, {"example.com/gpu": "1"}]),
    host_ports=st.sampled_from([[], [], [80], [80], [443], [80, 443]]),
    labels=st.sampled_from([{}, {"app": "a"}, {"app": "b"}]),
    has_left=st.sampled_from([False, False, False, True]),
)
nominated: st.SearchStrategy[dict[str, Any]] = st.builds(
    dict, nominated=st.sampled_from(NODES), cpu=st.just("1"), priority=st.sampled_from([5, 50, 100])
)
budgets: st.SearchStrategy[list[dict[str, Any]]] = st.lists(
    st.builds(dict, app=st.sampled_from(["a", "b"]), allowed=st.integers(-1, 3)), max_size=2
)


def harness_with(
    existing: list[dict[str, Any]], nominated: list[dict[str, Any]], budgets: list[dict[str, Any]]
) -> PluginHarness:
    """Four small nodes with pods that may share host ports with each other, and with pods that have left.

    No two pods have the same start time.
    """
    bound = [
        pod(f"p{number}", status={"startTime": f"2026-01-01T00:00:{59 - number:02}Z"}, **_spec(made))
        for number, made in enumerate(existing)
    ]
    gpus = {"example.com/gpu": "2"}
    harness = PluginHarness([node(name, cpu="3", max_pods=5, allocatable=gpus) for name in NODES], bound)
    for each, made in zip(bound, existing, strict=True):
        if made["has_left"]:
            harness.cluster.remove_pod(each.metadata.uid)
    for number, made in enumerate(nominated):
        harness.cluster.nominate(harness.info(pod(f"nominated-{number}", **made)), made["nominated"])
    for number, made in enumerate(budgets):
        harness.cluster.catalog(PodDisruptionBudget).put(_budget(f"b{number}", **made))
    return harness


def _spec(existing: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in existing.items() if key != "has_left"}


def _budget(name: str, *, app: str, allowed: int) -> PodDisruptionBudget:
    return convert(
        PodDisruptionBudget,
        {
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"selector": {"matchLabels": {"app": app}}},
            "status": {"disruptionsAllowed": allowed},
        },
    )


class Selected(NamedTuple):
    """The victims that were selected on one node, and how many of them violate a budget."""

    victims: list[str]
    violations: int


def dry_run_on_all(harness: PluginHarness, urgent: Pod) -> dict[str, Selected]:
    """The code under test, on all nodes that the pod does not fit now, whether or not it fits others."""
    decision = harness.decide(urgent)
    assert decision.feasibility is not None
    table = harness.cluster.nodes
    rows = np.flatnonzero(decision.feasibility.diagnose().with_code(Code.UNSCHEDULABLE))
    run = dry_run(
        decision.feasibility.filters,
        table,
        rows,
        may_evict=below(decision.pod.priority),
        budgets=DisruptionBudgets(harness.cluster.catalog(PodDisruptionBudget)),
    )
    return {
        table.names[row]: Selected([info.name for info in run.victims.at(i)], int(run.violations[i]))
        for i, row in enumerate(rows.tolist())
    }


def select_on_one(harness: PluginHarness, urgent: Pod, name: str, budgets: list[dict[str, Any]]) -> Selected:
    """One node, by removing its pods from the cluster and adding them back one after the other."""
    cluster = harness.cluster
    all_pods = list(cluster.nodes.pods[cluster.nodes.rows[name]].values())
    lower = sorted(
        (info for info in all_pods if info.priority < (urgent.spec.priority or 0)),
        key=lambda info: (-info.priority, info.status.start_time),
    )
    for info in lower:
        cluster.remove_pod(info.uid)
    violating = _violating(lower, budgets)
    victims: list[PodInfo] = []
    if lower and name in harness.feasible(urgent):
        for info in [i for i in lower if i in violating] + [i for i in lower if i not in violating]:
            cluster.put_pod(info)
            if name not in harness.feasible(urgent):
                cluster.remove_pod(info.uid)
                victims.append(info)
    for info in lower:
        cluster.put_pod(info)
    named = [info.name for info in lower if info in victims]
    return Selected(named, sum(info in violating for info in victims))


def _violating(pods: list[PodInfo], budgets: list[dict[str, Any]]) -> list[PodInfo]:
    left = [made["allowed"] for made in budgets]
    violating = []
    for info in pods:
        covering = [i for i, made in enumerate(budgets) if info.labels.get("app") == made["app"]]
        for i in covering:
            left[i] -= 1
        if any(left[i] < 0 for i in covering):
            violating.append(info)
    return violating


@settings(max_examples=150)
@given(
    existing=st.lists(existing, max_size=14),
    nominated=st.lists(nominated, max_size=2),
    budgets=budgets,
    urgent=st.sampled_from(PREEMPTORS),
)
def test_a_dry_run_of_all_nodes_selects_the_same_victims_as_one_node_at_a_time(
    existing: list[dict[str, Any]], nominated: list[dict[str, Any]], budgets: list[dict[str, Any]], urgent: Pod
) -> None:
    harness = harness_with(existing, nominated, budgets)
    found = dry_run_on_all(harness, urgent)
    assert found == {name: select_on_one(harness, urgent, name, budgets) for name in found}


change = st.one_of(
    st.tuples(st.just("bind"), existing),
    st.tuples(st.just("delete"), st.integers(0, 13)),
    st.tuples(st.just("nominate"), nominated),
    st.tuples(st.just("drop nomination"), st.integers(0, 1)),
    st.tuples(st.just("budget"), st.builds(dict, app=st.sampled_from(["a", "b"]), allowed=st.integers(0, 2))),
    st.tuples(st.just("cordon"), st.sampled_from(NODES)),
)


def apply(harness: PluginHarness, change: tuple[str, Any]) -> None:
    """Apply a change to the cluster."""
    kind, what = change
    cluster = harness.cluster
    if kind == "bind":
        cluster.put_pod(harness.info(pod("new", status={"startTime": "2026-01-02T00:00:00Z"}, **_spec(what))))
    elif kind == "delete":
        cluster.remove_pod(f"uid-default-p{what}")
    elif kind == "nominate":
        cluster.nominate(harness.info(pod("nominated-0", **what)), what["nominated"])
    elif kind == "drop nomination":
        cluster.drop_nomination(f"uid-default-nominated-{what}")
    elif kind == "budget":
        cluster.catalog(PodDisruptionBudget).put(_budget("b0", **what))
    else:
        cluster.update_node(node(what, cpu="3", max_pods=5, unschedulable=True))


def preempted(harness: PluginHarness, urgent: Pod) -> tuple[str, str | None, list[str]]:
    """The message, the nominated node and the victims."""
    decision = harness.decide(urgent)
    result = preemption_of(decision)
    if result is None:
        return decision.message, decision.node_name, []
    return decision.message, result.nominated_node_name, [info.name for info in result.victims]


@settings(max_examples=100)
@given(
    existing=st.lists(existing, min_size=4, max_size=14),
    nominated=st.lists(nominated, max_size=2),
    budgets=budgets,
    changes=st.lists(change, min_size=1, max_size=5),
    urgent=st.sampled_from(PREEMPTORS),
)
def test_cached_dry_runs_equal_fresh_ones(
    existing: list[dict[str, Any]],
    nominated: list[dict[str, Any]],
    budgets: list[dict[str, Any]],
    changes: list[tuple[str, Any]],
    urgent: Pod,
) -> None:
    old, fresh = harness_with(existing, nominated, budgets), harness_with(existing, nominated, budgets)
    for each in changes:
        preempted(old, urgent)
        apply(old, each)
        apply(fresh, each)
    assert preempted(old, urgent) == preempted(fresh, urgent)
