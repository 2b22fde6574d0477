"""Gangs with claims for devices: placements that pod after pod misses, and certificates that name the devices."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from hashlib import blake2b
from typing import Any

import numpy as np
import pytest

from core_tests.engine.gangs.clusters import gang_of
from core_tests.engine.gangs.device_cases import NET, DeviceCase
from kubestow.engine.gangs.gang_devices import DeviceGroup, GangDevices, LocalDevices, WideDevices
from kubestow.engine.gangs.gang_problem import formulate_gang
from kubestow.engine.gangs.gang_search import GangAnswer, GangSearch, Shortage
from kubestow.plugins.gang_scheduling.gang_scheduling import PREFERRED_TOPOLOGY
from kubestow.testing import node, pod
from kubestow.testing.devices import DRIVER, allocation, claim, device, device_class, exactly, slice_of

pytest.importorskip("ortools", reason="kubestow[solvers] is not installed")

MODEL_A = f"device.attributes['{DRIVER}'].model == 'a'"


def case_of(count: int, **same: Any) -> DeviceCase:
    """A case with nodes n0, n1, ... in racks of two."""
    return DeviceCase(
        [node(f"n{number}", cpu="64", labels={"rack": f"r{number // 2}"}, **same) for number in range(count)]
    )


def in_rack(rack: str) -> dict[str, Any]:
    expression = {"key": "rack", "operator": "In", "values": [rack]}
    return {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}


def answer_for(case: DeviceCase, needed: int) -> GangAnswer:
    scheduler, profile, gang = gang_of(case.nodes, case.pods, needed, objects=case.objects())
    return GangSearch(scheduler.cache, profile).find(gang)


def shortage(answer: GangAnswer) -> Shortage:
    [certificate] = answer.certificates
    [found] = certificate.shortages
    return found


# -- groups that kube-scheduler does not place although they fit -----------------------------------------------------


def test_a_pod_for_any_device_takes_the_one_that_another_pod_needs() -> None:
    case = case_of(1)
    models = [device("g0", attributes={"model": "a"}), device("g1", attributes={"model": "b"})]
    case.slices = [slice_of(*models, node="n0")]
    case.add_pod(exactly())
    case.add_pod(exactly(1, MODEL_A))

    answer = answer_for(case, 2)

    assert answer.found_by == "search"
    assert [info.pod.metadata.name for info, _ in answer.assignments] == ["w1", "w0"]


def test_two_pods_that_need_a_device_each_leave_no_pair_of_one_numa_node() -> None:
    case = case_of(2)
    attributes: list[dict[str, Any]] = [{"numa": 0}, {"numa": 1}, {"numa": 0}, {"numa": 1}]
    devices = [device(f"g{number}", attributes=each) for number, each in enumerate(attributes)]
    case.slices = [slice_of(*devices, node="n0"), slice_of("g0", "g1", node="n1")]
    for _ in range(2):
        case.add_pod(exactly())
    for _ in range(2):
        case.add_pod(exactly(2), constraints=[{"matchAttribute": f"{DRIVER}/numa"}])

    answer = answer_for(case, 4)

    assert answer.found_by == "search"
    assert [name for _, name in sorted((info.key, name) for info, name in answer.assignments)] == [
        "n1",
        "n1",
        "n0",
        "n0",
    ]


def test_pods_that_share_a_claim_go_where_its_devices_can_be_accessed_by_all() -> None:
    """The first pod alone would be better off on the emptier node of the rack that has no room for the others."""
    case = DeviceCase([node("x0", cpu="9", labels={"rack": "x"})])
    case.nodes += [node(f"y{number}", cpu="4", labels={"rack": "y"}) for number in range(3)]
    case.slices = [slice_of("c0", pool=each, driver=NET, nodeSelector=in_rack(each)) for each in "xy"]
    case.claims = [claim("domain", exactly(of="net"))]
    for _ in range(3):
        case.add_pod(shared=["domain"], cpu="4")

    answer = answer_for(case, 3)

    assert answer.found_by == "search"
    assert {name for _, name in answer.assignments} == {"y0", "y1", "y2"}


def test_a_shared_claim_for_all_devices_is_allocated_where_none_is_in_use_and_used_elsewhere() -> None:
    """On the nodes of the first rack not all are free, but what is allocated on one of the second can be used there."""
    case = case_of(3)
    case.slices = [slice_of("c0", pool="r0", driver=NET, nodeSelector=in_rack("r0"))]
    case.slices += [slice_of("e0", pool="all", driver=NET, allNodes=True)]
    in_use = allocation("c0", driver=NET, pool="r0")
    case.claims = [claim("old", status={"allocation": in_use}), claim("domain", exactly(0, of="net"))]
    for _ in range(4):
        case.add_pod(shared=["domain"], cpu="64")

    assert {name for _, name in answer_for(case, 3).assignments} == {"n0", "n1", "n2"}
    assert answer_for(case, 4).certificates[0].most == 3


# -- certificates ----------------------------------------------------------------------------------------------------


def test_the_certificate_names_the_class_the_driver_and_how_many_devices_are_missing() -> None:
    case = case_of(3)
    case.slices = [slice_of(*(f"g{number}" for number in range(8)), node=f"n{row}") for row in range(3)]
    for _ in range(4):
        case.add_pod(exactly(8))

    answer = answer_for(case, 4)

    assert answer.certificates[0].most == 3
    assert shortage(answer) == Shortage("devices of class gpu (driver gpu.example.com)", 32, 24, 3)
    assert shortage(answer).text.endswith("32 needed, 24 free on nodes that pass the filters, 8 short")


def test_devices_of_a_rack_are_counted_once_for_all_of_its_nodes() -> None:
    case = case_of(4)
    case.slices = [
        slice_of("c0", "c1", "c2", pool=rack, driver=NET, nodeSelector=in_rack(rack)) for rack in ("r0", "r1")
    ]
    for _ in range(4):
        case.add_pod(exactly(2, of="net"))

    answer = answer_for(case, 4)

    assert answer.certificates[0].most == 2
    assert (shortage(answer).needed, shortage(answer).free) == (8, 6)
    case.pods = case.pods[:2]
    assert Counter(name[:2] for _, name in answer_for(case, 2).assignments).total() == 2


def test_partitions_of_a_device_exclude_each_other() -> None:
    case = case_of(2)
    counters = [{"name": "units", "counters": {"n": {"value": "4"}}}]
    parts = [
        device(f"part-{number}", consumesCounters=[{"counterSet": "units", "counters": {"n": {"value": "3"}}}])
        for number in range(2)
    ]
    for row in range(2):
        where: dict[str, Any] = {"node": f"n{row}", "pool": f"p{row}", "of": 2}
        case.slices += [
            slice_of(name=f"c{row}", sharedCounters=counters, **where),
            slice_of(*parts, name=f"d{row}", **where),
        ]
    for _ in range(3):
        case.add_pod(exactly())

    answer = answer_for(case, 3)

    assert answer.certificates[0].most == 2
    assert shortage(answer).text.endswith(
        "3 needed, and 4 free on nodes that pass the filters, but in parts that do not suffice"
    )


def test_parts_of_a_device_are_counted_by_its_capacity() -> None:
    case = case_of(2)
    shared = device("nic", capacity={"bandwidth": {"value": "100G"}}, allowMultipleAllocations=True)
    case.slices = [slice_of(shared, pool="fabric", driver=NET)]
    for _ in range(4):
        case.add_pod(exactly(1, of="net", capacity={"requests": {"bandwidth": "30G"}}))

    assert answer_for(case, 4).certificates[0].most == 3
    assert answer_for(case, 3).is_placed


def test_devices_and_cpu_exclude_a_gang_together() -> None:
    case = DeviceCase([node("n0", cpu="1"), node("n1", cpu="9")])
    case.slices = [slice_of("g0", "g1", node="n0"), slice_of("g0", node="n1")]
    for _ in range(3):
        case.add_pod(exactly(), cpu="1")

    [certificate] = answer_for(case, 3).certificates

    assert [each.constraint for each in certificate.shortages] == [
        "cpu",
        "devices of class gpu (driver gpu.example.com)",
    ]
    assert certificate.most == 2


def test_a_resource_that_devices_are_behind_is_searched_like_a_claim() -> None:
    resource = "example.com/gpu"
    case = case_of(2)
    case.slices = [slice_of("g0", "g1", node="n0"), slice_of("g0", node="n1")]
    behind = device_class("backed", f"device.driver == '{DRIVER}'", extendedResourceName=resource)
    member = {"schedulingGroup": {"podGroupName": "train"}}
    pods = [pod(f"w{number}", requests={resource: "1"}, spec=member) for number in range(4)]
    scheduler, profile, gang = gang_of(case.nodes, pods, 4, objects=[*case.objects(), behind])

    answer = GangSearch(scheduler.cache, profile).find(gang)

    assert answer.certificates[0].most == 3


def test_a_node_that_devices_of_a_resource_may_be_on_has_as_much_of_it_as_is_requested() -> None:
    resource = "example.com/gpu"
    behind = device_class("backed", f"device.driver == '{DRIVER}'", extendedResourceName=resource)
    nodes = [node("has-none"), node("has-its-own", allocatable={resource: "5"})]
    member = {"schedulingGroup": {"podGroupName": "train"}}
    pods = [pod(f"w{number}", requests={resource: "2"}, spec=member) for number in range(2)]
    pods.append(pod("plain", cpu="1", spec=member))
    scheduler, profile, gang = gang_of(nodes, pods, 3, objects=[behind])

    problem = formulate_gang(scheduler.cache, profile, gang, map(scheduler.cache.shapes.info, pods))

    assert problem.free[resource].tolist() == [4, 5]


def test_claims_are_free_again_after_a_search() -> None:
    case = case_of(1)
    case.slices = [slice_of("g0", node="n0")]
    case.add_pod(exactly())
    scheduler, profile, gang = gang_of(case.nodes, case.pods, 1, objects=case.objects())

    assert GangSearch(scheduler.cache, profile).find(gang).is_placed
    assert GangSearch(scheduler.cache, profile).find(gang).is_placed
    assert not list(scheduler.cache.resource_claims.pending_allocations())


def test_a_preferred_rack_is_passed_over_for_want_of_devices() -> None:
    case = case_of(4)
    case.slices = [slice_of("g0", "g1", node=f"n{row}") for row in range(4)]
    for _ in range(3):
        case.add_pod(exactly(2))
    scheduler, profile, gang = gang_of(
        case.nodes, case.pods, 3, objects=case.objects(), annotations={PREFERRED_TOPOLOGY: "rack"}
    )

    answer = GangSearch(scheduler.cache, profile).find(gang)

    assert answer.is_placed
    assert not answer.preference
    [passed_over] = answer.passed_over
    assert "not in one domain of rack: no placement exists: at most 2 pods of the 3" in passed_over.text
    assert "devices of class gpu (driver gpu.example.com): 6 needed, 4 free" in passed_over.text


def test_devices_of_pods_that_need_none_are_not_counted_as_missing() -> None:
    case = case_of(1)
    case.slices = [slice_of("g0", node="n0")]
    for requests in ([], [exactly()], [exactly()], [exactly(2)]):
        case.add_pod(*requests, cpu="1")

    found = shortage(answer_for(case, 4))

    assert (found.needed, found.free) == (4, 1)


def test_pods_that_share_a_claim_for_a_device_of_one_node_are_confined_to_it() -> None:
    case = DeviceCase([node(f"n{number}", cpu="2") for number in range(2)])
    case.slices = [slice_of("g0", node=f"n{number}") for number in range(2)]
    case.claims = [claim("domain", exactly())]
    for _ in range(3):
        case.add_pod(shared=["domain"], cpu="1")

    [certificate] = answer_for(case, 3).certificates

    assert certificate.most == 2
    assert "devices of class gpu (driver gpu.example.com)" in {each.constraint for each in certificate.shortages}


# -- arrays ----------------------------------------------------------------------------------------------------------


def _devices(local: LocalDevices | None = None, wide: WideDevices | None = None) -> GangDevices:
    return GangDevices(["gpu"], {0: 1}, 0, np.array([1, 0], np.int64), local, wide)


def _local(*patterns: list[list[int]]) -> LocalDevices:
    return LocalDevices((0, 1), np.array([0, 1], np.intp), [np.array(each, np.int64) for each in patterns])


def test_kinds_compete_if_they_exclude_each_other_on_some_node() -> None:
    alone, together = [[1, 0], [0, 1]], [[1, 1]]

    assert _local(alone, together).competing == _local(together, alone).competing == {0, 1}
    assert _local(together, together).competing == frozenset()
    assert _devices(_local(alone, together)).tie_pods
    assert not _devices(_local(together, together)).tie_pods
    assert _local(alone, [[2, 0]]).capacity(0).tolist() == [1, 2]


def test_devices_that_differ_have_different_digests() -> None:
    groups = [DeviceGroup(1, frozenset({0}))]

    def wide(reach: int = 0, groups: list[DeviceGroup] = groups, left: int = 1) -> WideDevices:
        return WideDevices(np.array([0, reach], np.intp), groups, [], {"counter": left})

    one = _local([[1, 0]], [[1, 1]])
    every = [
        _devices(),
        _devices(one),
        _devices(_local([[1, 1]], [[1, 1]])),
        _devices(replace(one, kinds=(0, 2))),
        _devices(replace(one, class_of_node=np.array([1, 0], np.intp))),
        _devices(one, wide()),
        _devices(None, wide()),
        _devices(None, wide(reach=1)),
        _devices(None, wide(groups=[DeviceGroup(2, frozenset({0}))])),
        _devices(None, wide(left=2)),
        replace(_devices(), names=["net"]),
        replace(_devices(), per_pod={0: 2}),
        replace(_devices(), local_free=np.array([1, 1], np.int64)),
        replace(_devices(), on_one_node=[frozenset({0})]),
    ]

    def digest(devices: GangDevices) -> bytes:
        found = blake2b()
        devices.add_to(found)
        return found.digest()

    assert len({digest(each) for each in every}) == len(every)
    assert digest(_devices(_local([[1, 0]], [[1, 1]]), wide())) == digest(_devices(one, wide()))


# -- claims for devices of one node and of several ---------------------------------------------------------------------


def _of_both_sorts(about: list[str], of_node: list[int]) -> DeviceCase:
    """A pod that needs two devices of a node, one of a rack, and a constraint about some requests."""
    case = case_of(2)
    devices = [device(f"g{number}", attributes={"numa": numa}) for number, numa in enumerate(of_node)]
    case.slices = [
        slice_of(*devices, node="n0"),
        slice_of(device("c0", attributes={"numa": 0}), pool="r0", driver=NET, nodeSelector=in_rack("r0")),
    ]
    constraint = {"requests": about, "matchAttribute": f"{DRIVER}/numa"}
    case.add_pod(exactly(2, name="own"), exactly(of="net", name="wide"), constraints=[constraint])
    return case


def test_a_constraint_about_devices_of_one_node_limits_what_that_node_has() -> None:
    assert answer_for(_of_both_sorts(["own"], [0, 0]), 1).is_placed

    [certificate] = answer_for(_of_both_sorts(["own"], [0, 1]), 1).certificates

    assert certificate.most == 0
    assert [each.constraint[:7] for each in certificate.shortages] == ["devices"]
