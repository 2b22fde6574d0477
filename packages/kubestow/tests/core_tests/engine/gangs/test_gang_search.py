"""Gangs are placed if and only if they can be, and certificates say what is missing."""

from __future__ import annotations

from typing import Any

from core_tests.engine.gangs.clusters import GPU, gang_of, worker
from kubestow.api.core import Node, Pod
from kubestow.engine.gangs.gang_search import GangAnswer, GangSearch, SearchOptions
from kubestow.testing import node, pod

_TERM = "requiredDuringSchedulingIgnoredDuringExecution"
_HOST = "kubernetes.io/hostname"


def answer_for(nodes: list[Node], pods: list[Pod], minimum: int, *, topology: str = "") -> GangAnswer:
    scheduler, profile, gang = gang_of(nodes, pods, minimum, topology=topology)
    return GangSearch(scheduler.cache, profile).find(gang)


def gpu_nodes(count: int, gpus: int, **same: Any) -> list[Node]:
    return [node(f"n{number}", cpu="64", allocatable={GPU: str(gpus)}, **same) for number in range(count)]


def gpu_workers(count: int, gpus: int, *, prefix: str = "w", **same: Any) -> list[Pod]:
    return [worker(f"{prefix}{number}", requests={"cpu": "1", GPU: str(gpus)}, **same) for number in range(count)]


def constraints(answer: GangAnswer) -> list[str]:
    [certificate] = answer.certificates
    return [shortage.constraint for shortage in certificate.shortages]


# -- groups that kube-scheduler does not place although they fit -----------------------------------------------------


def test_small_pods_first_leave_no_room_for_the_large_ones() -> None:
    nodes = [node("large", cpu="4"), node("small", cpu="2")]
    pods = [worker("a-small", cpu="2"), worker("b-large", cpu="4")]

    answer = answer_for(nodes, pods, 2)

    assert answer.found_by == "search"
    assert {info.pod.metadata.name: name for info, name in answer.assignments} == {
        "a-small": "small",
        "b-large": "large",
    }


def test_a_pod_that_attracts_the_others_comes_first_whatever_its_name() -> None:
    near_driver = {
        "podAffinity": {_TERM: [{"labelSelector": {"matchLabels": {"role": "driver"}}, "topologyKey": "rack"}]}
    }
    nodes = [node(f"n{number}", cpu="2", labels={"rack": "x" if number else "y"}) for number in range(3)]
    workers = [worker(f"a-worker-{number}", cpu="1", affinity=near_driver) for number in range(3)]

    answer = answer_for(nodes, [*workers, worker("driver", cpu="1", labels={"role": "driver"})], 4)

    assert answer.found_by == "search"
    assert {name for _, name in answer.assignments} == {"n1", "n2"}


def test_pods_that_differ_only_by_what_others_of_the_gang_select_are_told_apart() -> None:
    near_b = {"podAffinity": {_TERM: [{"labelSelector": {"matchLabels": {"app": "b"}}, "topologyKey": _HOST}]}}
    attracted = worker("attracted", cpu="1", affinity=near_b)
    others = [worker(f"w{number}", cpu="1", labels={"app": "b" if number == 2 else "a"}) for number in range(3)]

    assert answer_for([node("n0", cpu="2"), node("n1", cpu="2")], [attracted, *others], 4).is_placed


def test_a_pod_comes_first_that_others_without_its_constraint_would_keep_out() -> None:
    """With fewer than two zones the least counts as 0, so that the pod with the constraint has to be the only one."""
    alone = {
        "maxSkew": 1,
        "minDomains": 2,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "a"}},
    }
    pods = [
        worker("first", cpu="1", labels={"app": "a"}),
        worker("second", cpu="1", labels={"app": "a"}, spread=[alone]),
    ]

    answer = answer_for([node(labels={"zone": "z"})], pods, 2)

    assert answer.found_by == "search"
    assert [info.pod.metadata.name for info, _ in answer.assignments] == ["second", "first"]


# -- certificates ----------------------------------------------------------------------------------------------------


def test_the_certificate_names_the_resource_and_how_much_is_missing() -> None:
    answer = answer_for(gpu_nodes(7, 8), gpu_workers(8, 8), 8)

    [certificate] = answer.certificates
    assert (certificate.needed, certificate.most) == (8, 7)
    [shortage] = certificate.shortages
    assert (shortage.constraint, shortage.needed, shortage.free, shortage.room) == (GPU, 64, 56, 7)


def test_free_amounts_in_parts_are_told_from_a_lack() -> None:
    answer = answer_for(gpu_nodes(4, 4), gpu_workers(5, 3), 5)

    [shortage] = answer.certificates[0].shortages
    assert shortage.free > shortage.needed
    assert shortage.room == 4


def test_many_alike_nodes_are_packed_by_patterns() -> None:
    """By the amounts alone there is room: 3 * 151 + 2 * 100 of 4 * 200. A node with a large pod takes no other."""
    nodes = gpu_nodes(200, 4)
    large, small = gpu_workers(151, 3, prefix="l"), gpu_workers(100, 2, prefix="s")

    assert answer_for(nodes, [*large, *small], 251).is_impossible
    assert answer_for(nodes, [*large[:150], *small], 250).is_placed


def test_anti_affinity_and_the_number_of_nodes_exclude_a_gang_together() -> None:
    apart = {"podAntiAffinity": {_TERM: [{"labelSelector": {"matchLabels": {"app": "t"}}, "topologyKey": _HOST}]}}
    pods = gpu_workers(5, 1, labels={"app": "t"}, affinity=apart)

    assert constraints(answer_for(gpu_nodes(4, 8), pods, 5)) == ["pod anti-affinity"]
    assert answer_for(gpu_nodes(5, 8), pods, 5).is_placed


def test_existing_pods_keep_a_domain_from_a_gang() -> None:
    apart = {"podAntiAffinity": {_TERM: [{"labelSelector": {"matchLabels": {"app": "old"}}, "topologyKey": "rack"}]}}
    nodes = [node("a", labels={"rack": "r"}), node("b", labels={"rack": "r"})]

    answer = answer_for(nodes, [pod("old", node="a", labels={"app": "old"}), worker("w", affinity=apart)], 1)

    assert answer.is_impossible
    assert answer.certificates[0].passing == {"default/w": 0}


def test_a_gang_that_has_to_be_in_one_domain_has_a_certificate_for_each() -> None:
    nodes = [node(f"n{number}", cpu="2", labels={"rack": f"r{number % 2}"}) for number in range(5)]
    pods = [worker(f"w{number}", cpu="2") for number in range(4)]

    answer = answer_for(nodes, pods, 4, topology="rack")

    assert [(each.domain, each.most) for each in answer.certificates] == [("r0", 3), ("r1", 2)]
    assert answer_for(nodes, pods, 3, topology="rack").domain == "r0"


def test_pods_that_a_model_cannot_describe_leave_the_answer_open() -> None:
    spec = {
        "schedulingGroup": {"podGroupName": "train"},
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "missing"}}],
    }

    answer = answer_for([node()], [pod("w", spec=spec)], 1)

    assert answer.undecided == "not searched further: a pod has volumes"
    assert not answer.is_impossible


def test_a_search_that_ends_early_proves_nothing() -> None:
    nodes, pods = gpu_nodes(30, 7), [*gpu_workers(30, 4), *gpu_workers(31, 3, prefix="s")]
    scheduler, profile, gang = gang_of(nodes, pods, 61)

    answer = GangSearch(scheduler.cache, profile, SearchOptions(limit=1e-9, most_refused=0)).find(gang)

    assert answer.is_impossible or answer.undecided
    assert not answer.is_placed


def test_a_search_leaves_the_cluster_as_it_was() -> None:
    scheduler, profile, gang = gang_of(gpu_nodes(2, 4), gpu_workers(3, 3), 3)
    before = scheduler.cache.all_nodes().requested(GPU).tolist()

    GangSearch(scheduler.cache, profile).find(gang)

    assert scheduler.cache.all_nodes().requested(GPU).tolist() == before
    assert not list(scheduler.cache.assumed())


def test_members_with_a_node_count() -> None:
    pods = [pod("w9", node="n0", spec={"schedulingGroup": {"podGroupName": "train"}}), *gpu_workers(2, 4)]
    scheduler, profile, gang = gang_of(gpu_nodes(2, 4), pods, 3)

    assert gang.missing_pods == 2
    assert GangSearch(scheduler.cache, profile).find(gang).is_placed
