"""The summary of a run, and explanations of pending pods."""

from __future__ import annotations

from typing import Any

from kubestow.api.core import Node, Pod
from kubestow.api.meta import convert
from kubestow_lab.workloads import report
from kubestow_lab.workloads.gpu import GPU, GPU_MILLI, GPU_MODEL
from kubestow_lab.workloads.report import PendingGroup
from lab_tests.oracle.manifests import Manifest, node, pod, requesting, requiring


def _summary(nodes: list[Manifest], *pods: Manifest) -> report.Summary:
    for each in pods:
        each["metadata"]["uid"] = each["metadata"]["name"]
        each["spec"]["schedulerName"] = "default-scheduler"
    return report.summarise([convert(Node, each) for each in nodes], [convert(Pod, each) for each in pods])


def _only_group(nodes: list[Manifest], *pods: Manifest) -> PendingGroup:
    (group,) = _summary(nodes, *pods).pending
    return group


def _explanation(pending: Manifest, nodes: list[Manifest], *bound: Manifest) -> str:
    return _only_group(nodes, pending, *bound).explanation


def _gpu_node(name: str, gpus: int, **labels: str) -> Manifest:
    manifest = node(name, cpu="96", **{GPU: str(gpus), GPU_MILLI: str(1000 * gpus)})
    manifest["metadata"]["labels"] |= labels
    return manifest


def _gpu_pod(name: str, gpus: int, **spec: Any) -> Manifest:
    return pod(name, containers=requesting(**{GPU: str(gpus), GPU_MILLI: str(1000 * gpus)}), **spec)


def _requests(**spec: Any) -> str:
    return _only_group([], pod(**spec)).requests


def test_bound_pods_and_used_nodes_are_counted() -> None:
    summary = _summary([node("a"), node("b")], pod("1", on="a"), pod("2", on="a"), pod("3"))
    assert (summary.pods, summary.placed, summary.nodes, summary.nodes_used) == (3, 2, 2, 1)


def test_utilisation_counts_running_pods_over_all_nodes() -> None:
    finished = pod("3", on="a")
    finished["status"]["phase"] = "Failed"
    pods = [pod("1", on="a"), pod("2"), finished]
    figures = {u.resource: u for u in _summary([node("a"), node("b")], *pods).utilisation}
    assert (figures["cpu"].requested, figures["cpu"].allocatable, figures["cpu"].share) == (1000, 8000, 0.125)
    assert (figures["pods"].requested, figures["pods"].allocatable) == (1, 20)
    assert (figures["memory"].requested, figures["memory"].allocatable) == (0, 16 * 2**30)


def test_utilisation_of_zero_capacity_is_zero() -> None:
    (cpu,) = report.utilisation([convert(Node, {"status": {"allocatable": {"cpu": "0"}}})], [])
    assert cpu.share == 0.0


def test_latency_percentiles_use_the_nearest_rank() -> None:
    latency = report.latency(n / 100 for n in range(100, 0, -1))
    assert latency == report.Latency(samples=100, p50=0.5, p90=0.9, p99=0.99, maximum=1.0)


def test_one_sample_is_every_percentile() -> None:
    assert report.latency([0.25]) == report.Latency(samples=1, p50=0.25, p90=0.25, p99=0.25, maximum=0.25)
    assert report.latency([]) is None


def test_a_pending_pod_with_a_feasible_node_is_reported() -> None:
    summary = _summary([node("a"), node("b")], pod("p"))
    assert summary.feasible_pending == ("default/p",)
    assert summary.pending[0].explanation == "2 nodes: the pod fits"


def test_a_failed_pod_without_a_node_is_not_pending() -> None:
    failed = pod()
    failed["status"]["phase"] = "Failed"
    assert _summary([node()], failed).pending == ()


def test_pods_are_grouped_by_requests_and_reason_with_large_groups_first() -> None:
    nodes = [_gpu_node("a", 2)]
    gated = pod("gated", schedulingGates=[{"name": "quota"}])
    groups = _summary(nodes, gated, _gpu_pod("x", 4), _gpu_pod("y", 4)).pending
    assert [(group.requests, group.pods) for group in groups] == [
        ("4 GPUs", ("default/x", "default/y")),
        ("CPU and memory", ("default/gated",)),
    ]


def test_a_group_has_the_most_frequent_scheduler_message() -> None:
    pods = [_gpu_pod(name, 4) for name in "abc"]
    for each, message in zip(pods, ("0/1", "0/2", "0/2"), strict=True):
        each["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "message": message}]
    assert _only_group([_gpu_node("a", 2)], *pods).message == "0/2"


def test_requests_are_described() -> None:
    assert _requests() == "CPU and memory"
    assert _requests(containers=requesting(**{GPU: "1", GPU_MILLI: "1000"})) == "1 GPU"
    assert _requests(containers=requesting(**{GPU_MILLI: "470"})) == "a GPU share"
    assert _requests(containers=requesting(**{"example.com/fpga": "2"})) == "2 example.com/fpga"
    assert _requests(nodeSelector={"disk": "ssd"}) == "CPU and memory on disk=ssd"


def test_required_node_affinity_is_described() -> None:
    model = {"key": GPU_MODEL, "operator": "In", "values": ["T4", "P100"]}
    assert _requests(affinity=requiring(model)) == "CPU and memory on T4 or P100"
    disk = {"key": "disk", "operator": "Exists"}
    assert _requests(affinity=requiring(model, disk)) == "CPU and memory on T4 or P100 and disk Exists"


def test_the_explanation_names_scheduling_gates() -> None:
    group = _only_group([node()], pod(schedulingGates=[{"name": "quota"}, {"name": "approval"}]))
    assert group.explanation == "waiting for scheduling gates: [quota approval]"
    assert group.feasible == ()


def test_the_explanation_counts_nodes_by_reason() -> None:
    tainted = node("b")
    tainted["metadata"]["labels"]["disk"] = "ssd"
    tainted["spec"]["taints"] = [{"key": "team", "value": "a", "effect": "NoSchedule"}]
    explanation = _explanation(pod(nodeSelector={"disk": "ssd"}), [node("a"), tainted, node("c")])
    assert explanation == (
        "2 nodes: the pod's nodeSelector or nodeAffinity does not match;"
        " 1 node: there is a taint that the pod does not tolerate"
    )


def test_the_explanation_tells_small_nodes_from_full_ones() -> None:
    nodes = [_gpu_node("a", 2), _gpu_node("b", 2), _gpu_node("c", 1)]
    bound = [_gpu_pod("1", 1, nodeName="a"), _gpu_pod("2", 1, nodeName="b")]
    assert _explanation(_gpu_pod("p", 2), nodes, *bound) == (
        f"2 nodes: too little {GPU_MILLI} is free; 2 nodes: too little {GPU} is free;"
        " 1 node: the node is too small for the pod"
    )


def test_the_explanation_of_a_group_has_the_largest_numbers() -> None:
    nodes = [_gpu_node("a", 1), _gpu_node("b", 1)]
    bound = [_gpu_pod("1", 1, nodeName="a"), _gpu_pod("2", 1, nodeName="b")]
    nodes[1]["status"]["allocatable"]["cpu"] = "200"
    large = _gpu_pod("large", 1)
    large["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "150"
    group = _only_group(nodes, large, _gpu_pod("small", 1), *bound)
    assert group.explanation.startswith(f"up to 2 nodes: too little {GPU_MILLI} is free; ")


def test_the_explanation_names_conflicts_with_other_pods() -> None:
    assert _explanation(pod("p"), [node("a", pods="1")], pod("b", on="a")) == (
        "1 node: the maximum number of pods is reached"
    )


def test_the_explanation_reports_an_empty_cluster() -> None:
    assert _explanation(pod(), []) == "the cluster has no nodes"


def test_pods_that_the_scheduler_would_not_place_are_explained() -> None:
    nominated, foreign = pod("nominated"), pod("foreign")
    nominated["status"]["nominatedNodeName"] = "n"
    assert _only_group([node()], nominated).explanation == "nominated for n"
    foreign["spec"]["schedulerName"] = "another"
    [group] = report.summarise([convert(Node, node())], [convert(Pod, foreign)]).pending
    assert (group.explanation, group.feasible) == ("the scheduler has no profile for it", ())
