"""The summary of a run: figures, and why pods are pending, in plain words."""

from __future__ import annotations

from typing import Any

from kubestow.workloads import report
from kubestow.workloads.gpu import GPU, GPU_MILLI, GPU_MODEL
from kubestow.workloads.report import PendingGroup
from tests.workloads.manifests import Manifest, asking, needing, node, pod


def _only_group(nodes: list[Manifest], *pods: Manifest) -> PendingGroup:
    (group,) = report.summarise(nodes, pods).pending
    return group


def _why(pending: Manifest, nodes: list[Manifest], *bound: Manifest) -> str:
    return _only_group(nodes, pending, *bound).why


def _gpu_node(name: str, gpus: int, **labels: str) -> Manifest:
    manifest = node(name, cpu="96", **{GPU: str(gpus), GPU_MILLI: str(1000 * gpus)})
    manifest["metadata"]["labels"] |= labels
    return manifest


def _gpu_pod(name: str, gpus: int, **spec: Any) -> Manifest:
    return pod(name, containers=asking(**{GPU: str(gpus), GPU_MILLI: str(1000 * gpus)}), **spec)


def _asks(**spec: Any) -> str:
    return _only_group([], pod(**spec)).asks


def test_placed_pods_and_used_nodes_are_counted() -> None:
    summary = report.summarise([node("a"), node("b")], [pod("1", on="a"), pod("2", on="a"), pod("3")])
    assert (summary.pods, summary.placed, summary.nodes, summary.nodes_used) == (3, 2, 2, 1)


def test_utilisation_is_what_bound_unfinished_pods_request_of_all_nodes() -> None:
    finished = pod("3", on="a")
    finished["status"]["phase"] = "Failed"
    pods = [pod("1", on="a"), pod("2"), finished]
    figures = {u.resource: u for u in report.summarise([node("a"), node("b")], pods).utilisation}
    assert (figures["cpu"].requested, figures["cpu"].allocatable, figures["cpu"].share) == (1000, 8000, 0.125)
    assert (figures["pods"].requested, figures["pods"].allocatable) == (1, 20)
    assert (figures["memory"].requested, figures["memory"].allocatable) == (0, 16 * 2**30)


def test_nothing_of_nothing_is_no_utilisation() -> None:
    (cpu,) = report.utilisation([{"status": {"allocatable": {"cpu": "0"}}}], [])
    assert cpu.share == 0.0


def test_latency_percentiles_are_latencies_that_occurred() -> None:
    latency = report.latency(n / 100 for n in range(100, 0, -1))
    assert latency == report.Latency(samples=100, p50=0.5, p90=0.9, p99=0.99, maximum=1.0)


def test_one_latency_is_every_percentile_and_none_is_no_latency() -> None:
    assert report.latency([0.25]) == report.Latency(samples=1, p50=0.25, p90=0.25, p99=0.25, maximum=0.25)
    assert report.latency([]) is None


def test_a_pod_that_some_node_could_take_is_missed() -> None:
    summary = report.summarise([node("a"), node("b")], [pod("p")])
    assert summary.missed == ("default/p",)
    assert summary.pending[0].why == "2 nodes could take it now, a among them"


def test_a_finished_pod_that_was_never_placed_is_not_pending() -> None:
    failed = pod()
    failed["status"]["phase"] = "Failed"
    assert report.summarise([node()], [failed]).pending == ()


def test_pods_that_ask_and_are_held_up_alike_are_one_group_and_large_groups_come_first() -> None:
    nodes = [_gpu_node("a", 2)]
    gated = pod("gated", schedulingGates=[{"name": "quota"}])
    groups = report.summarise(nodes, [gated, _gpu_pod("x", 4), _gpu_pod("y", 4)]).pending
    assert [(group.asks, group.pods) for group in groups] == [
        ("4 GPUs", ("default/x", "default/y")),
        ("CPU and memory", ("default/gated",)),
    ]


def test_a_group_carries_the_schedulers_most_frequent_message() -> None:
    pods = [_gpu_pod(name, 4) for name in "abc"]
    for each, message in zip(pods, ("0/1", "0/2", "0/2"), strict=True):
        each["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "message": message}]
    assert _only_group([_gpu_node("a", 2)], *pods).message == "0/2"


def test_what_pods_ask_is_said_in_a_few_words() -> None:
    assert _asks() == "CPU and memory"
    assert _asks(containers=asking(**{GPU: "1", GPU_MILLI: "1000"})) == "1 GPU"
    assert _asks(containers=asking(**{GPU_MILLI: "470"})) == "a GPU share"
    assert _asks(containers=asking(**{"example.com/fpga": "2"})) == "2 example.com/fpga"
    assert _asks(nodeSelector={"disk": "ssd"}) == "CPU and memory on disk=ssd"


def test_where_pods_insist_to_be_is_said_too() -> None:
    model = {"key": GPU_MODEL, "operator": "In", "values": ["T4", "P100"]}
    assert _asks(affinity=needing(model)) == "CPU and memory on T4 or P100"
    disk = {"key": "disk", "operator": "Exists"}
    assert _asks(affinity=needing(model, disk)) == "CPU and memory on T4 or P100 and disk Exists"


def test_why_names_the_gates() -> None:
    gates = [{"name": "quota"}, {"name": "approval"}]
    assert _why(pod(schedulingGates=gates), [node()]) == "waits for scheduling gate quota, approval to be lifted"


def test_why_counts_the_nodes_that_do_not_qualify() -> None:
    tainted = node("b")
    tainted["metadata"]["labels"]["disk"] = "ssd"
    tainted["spec"]["taints"] = [{"key": "team", "value": "a", "effect": "NoSchedule"}]
    why = _why(pod(nodeSelector={"disk": "ssd"}), [node("a"), tainted, node("c")])
    assert why == "no node qualifies: 2 outside its node selector or affinity, 1 tainted team=a:NoSchedule"


def test_why_says_what_is_asked_beyond_the_largest_node() -> None:
    assert _why(_gpu_pod("p", 16), [_gpu_node("a", 8), _gpu_node("b", 2)]) == (
        "no node it may use is large enough: it asks for 16 GPUs, the largest has 8 GPUs"
    )
    assert _why(pod(containers=asking(memory="2Ti")), [node(memory="512Gi")]) == (
        "no node it may use is large enough: it asks for 2 TiB memory, the largest has 512 GiB memory"
    )


def test_why_says_when_only_the_combination_is_too_large() -> None:
    nodes = [node("a", cpu="8", memory="1Gi"), node("b", cpu="1", memory="8Gi")]
    assert _why(pod(containers=asking(cpu="4", memory="4Gi")), nodes) == (
        "no node it may use is large enough: none has enough CPU, memory together"
    )


def test_why_counts_what_full_nodes_lack() -> None:
    nodes = [_gpu_node("a", 2), _gpu_node("b", 2), _gpu_node("c", 1)]
    bound = [_gpu_pod("1", 1, nodeName="a"), _gpu_pod("2", 1, nodeName="b")]
    assert _why(_gpu_pod("p", 2), nodes, *bound) == "no room left: of 2 nodes large enough, 2 short of GPU capacity"


def test_why_takes_the_largest_figures_of_a_group_whose_pods_differ() -> None:
    nodes = [_gpu_node("a", 1), _gpu_node("b", 1)]
    bound = [_gpu_pod("1", 1, nodeName="a"), _gpu_pod("2", 1, nodeName="b")]
    nodes[1]["status"]["allocatable"]["cpu"] = "200"
    hungry = _gpu_pod("hungry", 1)
    hungry["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "150"
    group = _only_group(nodes, hungry, _gpu_pod("modest", 1), *bound)
    assert group.why == "no room left: of up to 2 nodes large enough, 2 short of GPU capacity"


def test_why_names_conflicts_with_other_pods() -> None:
    assert _why(pod("p"), [node("a", pods="1")], pod("b", on="a")) == (
        "no room left: of 1 node large enough, 1 without a free pod slot"
    )


def test_why_says_when_there_are_no_nodes() -> None:
    assert _why(pod(), []) == "the cluster has no nodes"


def test_why_admits_what_it_cannot_judge() -> None:
    claiming = pod(volumes=[{"persistentVolumeClaim": {"claimName": "c"}}])
    assert _why(claiming, [node()]) == "can't be judged here: it depends on volume claims"
