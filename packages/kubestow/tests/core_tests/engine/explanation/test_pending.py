"""Pending pods by cause: which pods wait for the same, how many a change helps, and which cause comes first."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from kubestow.api.core import Node, Pod
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.engine.explanation.explain import explain
from kubestow.engine.explanation.pending import PendingPods, pending_by_cause
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.engine.pipeline.offline_scheduler import SchedulerOptions
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.interface import FilterPlugin
from kubestow.framework.status import Verdict
from kubestow.reports.model import Table
from kubestow.testing import builders

NODES = [builders.node("a", cpu="4"), builders.node("b", cpu="4"), builders.node("c", cpu="4", unschedulable=True)]


def pods(prefix: str, count: int, **fields: object) -> list[Pod]:
    return [builders.pod(f"{prefix}-{number}", **fields) for number in range(count)]  # type: ignore[arg-type]


def found(pending: Sequence[Pod], nodes: Sequence[Node] = NODES) -> PendingPods:
    return pending_by_cause(ClusterObjects.of(nodes, pending), pending)


def names(pending: PendingPods) -> list[tuple[str, ...]]:
    return [tuple(name.removeprefix("default/") for name in cause.pods) for cause in pending.causes]


def test_pods_that_wait_for_the_same_are_one_cause_and_the_most_helpful_remedy_is_first() -> None:
    result = found([*pods("big", 1, cpu="9"), *pods("ssd", 3, cpu="1", node_selector={"disk": "ssd"})])
    assert names(result) == [("ssd-0", "ssd-1", "ssd-2"), ("big-0",)]
    ssd, big = result.causes
    assert (ssd.remedies[0].text, ssd.helped) == ("drop disk=ssd from the node selector", 3)
    assert "the pod's nodeSelector or nodeAffinity does not match" in ssd.reason
    assert (big.remedies[0].text, big.helped) == ("request 4 cpu instead of 9", 1)
    assert result.count == 4


def test_a_cause_with_few_pods_comes_first_if_its_remedy_helps_more() -> None:
    """Each node has one core too little for one pod of six; the selector is in the way of two pods."""
    result = found([*pods("large", 6, cpu="5"), *pods("ssd", 3, cpu="1", node_selector={"disk": "ssd"})])
    assert [len(cause.pods) for cause in result.causes] == [3, 6]
    assert [cause.helped for cause in result.causes] == [3, 2]


def test_pods_about_which_the_scheduler_does_not_decide_are_listed_with_the_reason() -> None:
    pending = [
        builders.pod("other", scheduler="volcano"),
        builders.pod("going", deleting=True),
        builders.pod("nominated", nominated="a"),
        builders.pod("gated", gates=["example.com/quota"]),
    ]
    reasons = {cause.pods: cause.reason for cause in found(pending).causes}
    assert reasons["default/other",] == "spec.schedulerName is volcano, which no profile of the configuration has"
    assert reasons["default/going",] == "it is being deleted"
    assert "nominated node" in reasons["default/nominated",]
    assert reasons["default/gated",] == "waiting for scheduling gates: [example.com/quota]"


def test_a_nominated_pod_waits_for_victims_only_where_there_are_some() -> None:
    """A pod that waits on Permit is nominated to its node as well."""
    held = builders.pod("held", nominated="b")
    preemptor = builders.pod("preemptor", nominated="a")
    victim = builders.pod("victim", node="a", deleting=True)

    result = pending_by_cause(ClusterObjects.of(NODES, [held, preemptor, victim]), [held, preemptor])

    reasons = {cause.pods: cause.reason for cause in result.causes}
    assert "evicted for it have ended" in reasons["default/preemptor",]
    assert "waits on Permit" in reasons["default/held",]


def test_a_pod_that_would_preempt_or_fits_needs_no_change() -> None:
    low = [builders.pod(f"low-{node}", node=node, cpu="4", priority=0) for node in "ab"]
    result = pending_by_cause(
        ClusterObjects.of(NODES, [*low, builders.pod("high", cpu="2", priority=10)]),
        [builders.pod("high", cpu="2", priority=10)],
    )
    assert "pods of lower priority are evicted" in result.causes[0].reason
    fits = found([builders.pod("fits", cpu="1")]).causes[0]
    assert (fits.reason, fits.remedies, fits.searched) == ("2 nodes: the pod fits", (), False)


def test_bound_pods_are_left_out_and_no_pending_pod_is_said() -> None:
    result = found([builders.pod("bound", node="a")])
    assert (result.count, result.causes) == (0, ())
    assert "no pod is pending" in shown(result)


def test_copies_are_explained_as_the_pod_itself_is() -> None:
    """The explanation of a copy is used again; what it says is what :func:`explain` says of each."""
    pending = [
        *pods("copy", 3, cpu="9"),
        builders.pod("other", cpu="1", node_selector={"kubernetes.io/hostname": "c"}),
        builders.pod("fits", cpu="1"),
    ]
    cluster = ClusterObjects.of(NODES, pending)
    by_pod = {pod: cause for cause in pending_by_cause(cluster, pending).causes for pod in cause.pods}
    for pod in pending:
        alone = explain(cluster, pod.key)
        assert by_pod[pod.key].message == alone.message
        assert all(reason in by_pod[pod.key].reason for reason in alone.waits_for())


def test_a_table_and_a_document_show_the_causes() -> None:
    result = found(pods("ssd", 5, cpu="1", node_selector={"disk": "ssd"}))
    table = shown(result)
    assert "5 pods are pending for 1 cause, the most common remedy first" in table
    assert "default/ssd-0, default/ssd-1, default/ssd-2, …" in table
    document = result.document()
    assert (document["pending"], document["nodes"], len(document["causes"])) == (5, 3, 1)
    cause = document["causes"][0]
    assert (cause["count"], len(cause["pods"]), cause["remedies"][0]["helped"]) == (5, 5, 5)


def shown(result: PendingPods) -> str:
    console = Console(width=300)
    with console.capture() as capture:
        console.print(result)
    return capture.get()


def test_pods_that_lack_different_resources_wait_for_different_causes() -> None:
    gpus = [builders.pod(f"gpus-{amount}", requests={"nvidia.com/gpu": str(amount)}) for amount in (1, 2)]
    cores = builders.pod("cores", cpu="9")
    result = found([*gpus, cores])
    reasons = {cause.pods[0]: cause.reason for cause in result.causes}
    assert reasons["default/gpus-1"].startswith("no node has any nvidia.com/gpu; 2 nodes: the node is too small")
    assert reasons["default/cores"].startswith("more cpu is requested than the largest node has (4); 2 nodes:")
    assert len(result.causes) == 2


def test_a_missing_claim_is_what_would_help() -> None:
    result = found(
        [builders.pod("p", spec={"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]})]
    )
    (cause,) = result.causes
    assert cause.reason == "3 nodes: a PersistentVolumeClaim of the pod does not exist"
    assert "the PersistentVolumeClaim default/data would have to exist" in shown(result)


class FailsByName(FilterPlugin):
    name = "FailsByName"

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict:
        raise ValueError(pod.name)


def test_pods_for_which_a_plugin_fails_alike_have_one_cause() -> None:
    configuration = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"plugins": {"filter": {"enabled": [{"name": "FailsByName"}]}}}],
    }
    options = SchedulerOptions(configuration, [FailsByName])
    pending = [builders.pod("a", cpu="1"), builders.pod("b", cpu="2")]
    (cause,) = pending_by_cause(ClusterObjects.of(NODES, pending), pending, options).causes
    assert cause.pods == ("default/a", "default/b")
    assert cause.reason == "plugin 'FailsByName' failed at Filter: ValueError: a"


def test_each_cause_is_a_row_with_what_helps_how_many() -> None:
    broken = builders.node("broken", taints=["node.kubernetes.io/not-ready=:NoSchedule"])
    result = found(
        [*pods("ssd", 2, cpu="1", node_selector={"disk": "ssd"}), builders.pod("other", scheduler="volcano")]
    )
    [table] = [block for block in result.blocks() if isinstance(block, Table)]
    [ssd, other] = table.rows
    assert [table.is_right(column) for column in range(5)] == [True, False, False, True, False]
    assert (ssd[0], ssd[2].splitlines()[0], ssd[3]) == ("2", "drop disk=ssd from the node selector", "2")
    assert other[2:4] == ("-", "-")
    [table] = [block for block in found([builders.pod("p")], [broken]).blocks() if isinstance(block, Table)]
    assert table.rows[0][2:4] == ("no small change was found", "-")


def test_other_reasons_in_the_last_message_of_the_scheduler_are_remarked_on() -> None:
    def reported(*messages: str) -> tuple[str, ...]:
        pending = [
            builders.pod(f"p{at}", cpu="9", status={"conditions": [condition(message)]})
            for at, message in enumerate(messages)
        ]
        return found(pending).remarks

    def condition(message: str) -> object:
        return {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}

    same = "0/9 nodes are available: 9 Insufficient cpu."
    other = "0/3 nodes are available: 1 Insufficient cpu, 2 Insufficient memory."
    assert reported() == reported(same) == ()
    assert reported(same, other, other) == (
        "the scheduler's last message about 2 pods has other reasons, because the cluster has changed since, or it has "
        f"another configuration than is given here: {other}",
    )
