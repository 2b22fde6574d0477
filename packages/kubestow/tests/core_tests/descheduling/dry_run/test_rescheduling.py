"""Where evicted pods come back, and what is refused for it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from core_tests.descheduling.objects import NOW, OWNER, node, pod, policy
from kubestow.api import core
from kubestow.api.meta import convert
from kubestow.descheduling.descheduler_policy import load_policy, with_priority_thresholds
from kubestow.descheduling.dry_run.loop_report import LoopReport, document, run_loop
from kubestow.descheduling.dry_run.rescheduling import Mode, PredictedState, Rescheduler
from kubestow.descheduling.eviction import RefusedBy
from kubestow.descheduling.loop import Descheduler
from kubestow.descheduling.snapshot import Node, Pod, PodDisruptionBudget, Snapshot
from kubestow.descheduling.strategies.plugin_registry import find_plugins
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.engine.pipeline.offline_scheduler import SchedulerOptions
from kubestow.rules.minors import DEFAULT_MINOR
from kubestow.scheduling.decision.node_selection import FirstByName

ALL = policy("PodLifeTime", {"states": ["Running", "Failed"]}, evictor={"evictFailedBarePods": True})
Object = dict[str, Any]
HERE: Object = {"nodeSelector": {"kubernetes.io/hostname": "n1"}}


def rescheduler(nodes: Iterable[Object], pods: Iterable[Object]) -> Rescheduler:
    live = (p for p in pods if p["status"]["phase"] not in ("Succeeded", "Failed"))
    cluster = ClusterObjects.of([convert(core.Node, n) for n in nodes], [convert(core.Pod, p) for p in live])
    return Rescheduler(cluster, SchedulerOptions(), now=NOW, ties=FirstByName())


def run(
    nodes: list[Object], pods: list[Object], *budgets: Object, mode: Mode = Mode.REFUSE, document: Object = ALL
) -> LoopReport:
    registry = find_plugins()
    snapshot = Snapshot.of(
        [
            *(convert(Node, n) for n in nodes),
            *(convert(Pod, p) for p in pods),
            *(convert(PodDisruptionBudget, b) for b in budgets),
        ]
    )
    descheduler = Descheduler(with_priority_thresholds(load_policy(document, registry=registry), ()), registry)
    return run_loop(descheduler, snapshot, now=NOW, rescheduler=rescheduler(nodes, pods), mode=mode)


def states(report: LoopReport) -> dict[str, PredictedState]:
    evictions = (*report.result.evicted, *report.result.refused)
    found = {eviction.pod.name: report.prediction(eviction) for eviction in evictions}
    return {name: prediction.state for name, prediction in found.items() if prediction is not None}


def refused(report: LoopReport) -> dict[str, str]:
    refusals = {eviction.pod.name: eviction.refusal for eviction in report.result.refused}
    assert all(refusal and refusal.by is RefusedBy.RESCHEDULING for refusal in refusals.values())
    return {name: refusal.message for name, refusal in refusals.items() if refusal}


def test_a_pod_moves_to_where_the_scheduler_puts_it() -> None:
    crowd = [pod(f"other-{i}", "n1", cpu="500m", metadata={"ownerReferences": []}) for i in range(4)]
    report = run([node("n1"), node("n2")], [pod("a", "n1"), *crowd])
    (prediction,) = (report.prediction(eviction) for eviction in report.result.evicted)
    assert prediction is not None
    assert (prediction.state, prediction.node) == (PredictedState.MOVED, "n2")
    assert prediction.pod.startswith("default/web-")
    assert report.nodes() == {"n1": (1, 0), "n2": (0, 1)}


def test_the_pod_of_a_stateful_set_keeps_its_name() -> None:
    owner = OWNER | {"kind": "StatefulSet", "name": "db"}
    report = run([node("n1"), node("n2")], [pod("db-0", "n2", metadata={"ownerReferences": [owner]})])
    (prediction,) = report.predictions.values()
    assert prediction.pod == "default/db-0"


@pytest.mark.parametrize("mode", Mode)
def test_a_pod_that_comes_back_to_its_node_is_refused(mode: Mode) -> None:
    report = run([node("n1"), node("n2")], [pod("a", "n1", **HERE)], mode=mode)
    assert states(report) == {"a": PredictedState.SAME_NODE}
    assert refused(report) == ({"a": "the pod would come back to n1"} if mode is Mode.REFUSE else {})


@pytest.mark.parametrize("mode", Mode)
def test_a_pod_that_would_stay_pending_is_refused(mode: Mode) -> None:
    report = run([node("n1", unschedulable=True), node("n2")], [pod("a", "n1", **HERE)], mode=mode)
    assert states(report) == {"a": PredictedState.PENDING}
    if mode is Mode.REPORT:
        assert refused(report) == {}
    else:
        assert refused(report)["a"].startswith("the pod would stay pending: 0/2 nodes are available")


def test_what_the_scheduler_knows_and_node_fit_does_not_counts() -> None:
    """LowNodeUtilization would evict, but every other node is in a zone that the pod must avoid."""
    term = {"labelSelector": {"matchLabels": {"app": "lonely"}}, "topologyKey": "zone"}
    lonely: Object = {
        "metadata": {"labels": {"app": "lonely"}},
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}},
    }
    nodes = [node("n1", labels={"zone": "a"}), node("n2", labels={"zone": "b"}), node("n3", labels={"zone": "b"})]
    pods = [pod("x", "n1", cpu="3", **lonely), pod("y", "n2", cpu="100m", **lonely)]
    args = {"thresholds": {"cpu": 10}, "targetThresholds": {"cpu": 50}}
    rules = policy("LowNodeUtilization", args, evictor={"nodeFit": True}, point="balance")
    report = run(nodes, pods, document=rules)
    assert refused(report) == {"x": "the pod would come back to n1"}
    assert [e.pod.name for e in run(nodes, pods, document=rules, mode=Mode.REPORT).result.evicted] == ["x"]


def test_pods_without_a_controller_do_not_come_back() -> None:
    bare: Object = {"ownerReferences": []}
    pods = [
        pod("failed", "n1", metadata=bare, status={"phase": "Failed"}),
        pod("annotated", "n1", metadata=bare | {"annotations": {"descheduler.alpha.kubernetes.io/evict": ""}}),
    ]
    report = run([node("n1"), node("n2")], pods)
    assert states(report) == {"failed": PredictedState.GONE, "annotated": PredictedState.GONE}
    assert len(report.result.evicted) == 2


def test_a_pod_of_another_scheduler_is_not_judged() -> None:
    report = run([node("n1"), node("n2")], [pod("a", "n1", schedulerName="other")])
    (prediction,) = report.predictions.values()
    assert prediction.state is PredictedState.UNKNOWN
    assert len(report.result.evicted) == 1


def test_pending_pods_of_no_lower_priority_take_the_room() -> None:
    nodes = [node("n1", cpu="1"), node("n2", cpu="1")]
    occupied = pod("occupied", "n2", cpu="1", metadata={"ownerReferences": []})
    waiting = pod("waiting", "", cpu="900m", status={"phase": "Pending"}, priority=5)
    running = pod("running", "n1", cpu="900m", priority=5)
    report = run(nodes, [occupied, running, waiting], mode=Mode.REPORT)
    assert states(report) == {"running": PredictedState.PENDING}
    assert report.admitted == [("default/waiting", "n1")]
    strict = run(nodes, [occupied, running, waiting])
    assert list(refused(strict)) == ["running"]
    assert strict.admitted == []
    humble = waiting | {"spec": waiting["spec"] | {"priority": 1}}
    assert states(run(nodes, [occupied, running, humble])) == {"running": PredictedState.SAME_NODE}
    ending = waiting | {"metadata": waiting["metadata"] | {"deletionTimestamp": "2026-01-01T00:00:00Z"}}
    assert states(run(nodes, [occupied, running, ending])) == {"running": PredictedState.SAME_NODE}


def test_an_eviction_that_a_budget_refuses_is_undone() -> None:
    budget = {
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}},
        "status": {"disruptionsAllowed": 0},
    }
    crowd = [pod(f"other-{i}", "n1", cpu="500m", metadata={"ownerReferences": []}) for i in range(4)]
    report = run([node("n1"), node("n2")], [pod("a", "n1"), *crowd], budget)
    assert report.result.evicted == []
    assert report.nodes() == {}


def test_undoing_a_trial_leaves_no_trace() -> None:
    nodes = [node("n1"), node("n2"), node("n3", cpu="1")]
    waiting = pod("waiting", "", cpu="4", status={"phase": "Pending"})
    pods = [pod("a", "n1", cpu="1"), pod("b", "n2", cpu="500m"), waiting]
    found = rescheduler(nodes, pods)
    cache = found._cache
    before = [cache.all_nodes().requested("cpu").copy(), cache.all_nodes().pod_count.copy()]
    trials = []
    for name in ("a", "b", "a"):
        trial = found.evict(f"uid-{name}")
        trials.append(trial.prediction.node)
        found.undo(trial)
        after = [cache.all_nodes().requested("cpu"), cache.all_nodes().pod_count]
        assert all(np.array_equal(x, y) for x, y in zip(before, after, strict=True))
    assert trials[0] == trials[2]
    assert found.admitted == []


def test_the_report_is_plain_data() -> None:
    report = run([node("n1"), node("n2")], [pod("a", "n1", **HERE)])
    assert document(report) == {
        "emulatedVersion": str(DEFAULT_MINOR),
        "evicted": [],
        "refused": [
            {
                "pod": "default/a",
                "node": "n1",
                "profile": "main",
                "plugin": "PodLifeTime",
                "why": "it is 86,400 s old",
                "refusedBy": "Rescheduling",
                "error": "the pod would come back to n1",
                "comesBack": {"state": "SameNode", "pod": next(iter(report.predictions.values())).pod, "node": "n1"},
            }
        ],
        "admitted": [],
        "nodes": [],
        "errors": [],
    }
