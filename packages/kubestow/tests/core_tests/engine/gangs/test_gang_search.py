"""Gangs are placed if and only if they can be, and certificates say what is missing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from core_tests.engine.gangs.clusters import GPU, gang_of, pod_group, worker
from kubestow import config
from kubestow.api.core import Node, Pod
from kubestow.engine.gangs.gang_problem import formulate_gang
from kubestow.engine.gangs.gang_search import GangAnswer, GangSearch, PreferenceSearch, SearchOptions
from kubestow.engine.gangs.verification import Verifier
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.engine.pipeline.offline_scheduler import OfflineScheduler, SchedulerOptions
from kubestow.engine.placement import solvers
from kubestow.errors import InputError
from kubestow.plugins.gang_scheduling.gang_scheduling import PREFERRED_TOPOLOGY
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


# -- without a solver ------------------------------------------------------------------------------------------------


@pytest.fixture
def _no_solver(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise InputError("optimal placement", "needs OR-Tools, install kubestow[solvers]")

    monkeypatch.setattr(solvers, "cp_model", missing)


@pytest.mark.usefixtures("_no_solver")
def test_packing_needs_no_solver() -> None:
    nodes = [node("large", cpu="4"), node("small", cpu="2")]

    answer = answer_for(nodes, [worker("a-small", cpu="2"), worker("b-large", cpu="4")], 2)

    assert answer.found_by == "search"


@pytest.mark.usefixtures("_no_solver")
def test_pods_that_packing_does_not_place_need_a_solver() -> None:
    pods = [*(worker(f"a{n}", cpu="3") for n in range(3)), worker("b", cpu="4")]

    with pytest.raises(InputError, match="needs OR-Tools"):
        answer_for([node("a", cpu="7"), node("b", cpu="6")], pods, 4)


# -- preferences -----------------------------------------------------------------------------------------------------


def test_placements_by_a_preference_are_proposed_before_others() -> None:
    nodes = [node(name, cpu="2", labels={"rack": name[0]}) for name in ("a0", "b0", "b1")]
    pods = [worker(f"w{n}", cpu="1") for n in range(3)]
    scheduler, profile, gang = gang_of(nodes, pods, 3, annotations={PREFERRED_TOPOLOGY: "rack"})
    infos = [scheduler.cache.shapes.info(each) for each in pods]

    search = PreferenceSearch.of(scheduler.cache, profile, gang, infos, SearchOptions())

    assert isinstance(search, PreferenceSearch)
    domains = []
    while (proposal := search.propose()) is not None:
        domains.append(proposal.domain)
        search.refuse(is_proven=True)
    assert domains[0] == "b"
    assert set(domains) == {"b", ""}
    assert domains == sorted(domains, reverse=True)
    assert [each.constraint for each in search.certificates[0].shortages] == ["other filters of the profile"]


# -- domains and devices that a kind cannot use ----------------------------------------------------------------------


def _near(*keys: str) -> dict[str, Any]:
    terms = [{"labelSelector": {"matchLabels": {"app": "near"}}, "topologyKey": key} for key in keys]
    return {"podAffinity": {_TERM: terms}}


def test_no_node_passes_for_affinity_by_a_label_that_none_has() -> None:
    pods = [worker(f"w{n}", cpu="1", labels={"app": "near"}, affinity=_near("absent", "rack")) for n in range(2)]
    existing = pod("old", node="a", labels={"app": "near"})

    [certificate] = answer_for([node("a", labels={"rack": "r"})], [existing, *pods], 2).certificates

    assert (certificate.most, certificate.passing) == (0, {"default/w0 and 1 more": 0})


def test_nodes_without_the_label_of_an_affinity_do_not_pass() -> None:
    nodes = [node("a", cpu="1", labels={"rack": "r"}), node("b", cpu="9")]
    pods = [worker(f"w{n}", cpu="1", labels={"app": "near"}, affinity=_near("rack")) for n in range(2)]

    answer = answer_for(nodes, pods, 2)

    assert answer.certificates[0].passing == {"default/w0 and 1 more": 1}
    assert constraints(answer) == ["cpu"]


def test_spreading_over_several_labels_is_formulated_for_each() -> None:
    common = {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    spread = [
        {"topologyKey": key, "labelSelector": {"matchLabels": own}, **common}
        for key, own in (("absent", {"app": "other"}), ("rack", {"app": "near"}))
    ]
    nodes = [node(name, cpu="9", labels={"rack": name}) for name in "ab"]

    answer = answer_for(nodes, [worker("w", labels={"app": "near"}, spread=spread)], 1)

    assert answer.certificates[0].passing == {"default/w": 0}


def test_a_profile_without_the_plugin_for_devices_ignores_claims() -> None:
    without = {"profiles": [{"plugins": {"multiPoint": {"disabled": [{"name": "DynamicResources"}]}}}]}
    configuration = {"apiVersion": config.API_VERSION, "kind": config.KIND, **without}
    group, pods = pod_group("train", 2), [worker(f"w{n}", cpu="2") for n in range(2)]
    gates = config.FeatureGates({"GenericWorkload": True, "GangScheduling": True})
    cluster = ClusterObjects(nodes=[node("a", cpu="3")], pods=pods, objects=[group])
    scheduler = OfflineScheduler(cluster, SchedulerOptions(configuration, gates=gates))
    profile = scheduler.profiles["default-scheduler"]
    gang = profile.gangs.gang_of(scheduler.cache.shapes.info(pods[0]))
    assert gang is not None

    assert GangSearch(scheduler.cache, profile).find(gang).certificates[0].most == 1


# -- verification ----------------------------------------------------------------------------------------------------


def test_a_placement_is_refused_for_certain_only_if_all_orders_were_tried() -> None:
    apart = {"podAntiAffinity": {_TERM: [{"labelSelector": {}, "topologyKey": "kubernetes.io/hostname"}]}}
    nodes = [node("a", cpu="4", labels={"kubernetes.io/hostname": "a"})]
    pods = [worker(f"w{n}", cpu="1", affinity=apart) for n in range(2)]
    scheduler, profile, gang = gang_of(nodes, pods, 2)
    problem = formulate_gang(scheduler.cache, profile, gang, map(scheduler.cache.shapes.info, pods))

    def verified(count: int, most_states: int) -> tuple[int | None, bool]:
        placed = np.full((len(problem.kinds), 1), count, np.int64)
        found = Verifier(scheduler.cache, profile, most_states).verify(problem, placed)
        return None if found.assignments is None else len(found.assignments), found.is_proven

    assert verified(1, most_states=0) == (1, True)
    assert verified(2, most_states=5_000) == (None, True)
    assert verified(2, most_states=1) == (None, False)
    assert not list(scheduler.cache.assumed())
