"""The requests of pods (semantics 7.5)."""

from __future__ import annotations

from typing import Any

import pytest

from kubestow.api.core import ResourceRequirements
from kubestow.config import FeatureGates
from kubestow.errors import InvalidQuantity
from kubestow.rules.minors import Behaviour, Minor
from kubestow.rules.requests import (
    RequestRules,
    allocatable_amounts,
    limits_by_spec,
    placed_requests,
    requests_by_spec,
    scored_requests,
    without_invalid_quantities,
)
from kubestow.testing import pod

MIB = 2**20


def container(name: str = "c", *, policy: str = "", **requests: str) -> dict[str, Any]:
    return {"name": name, "resources": {"requests": requests}, "restartPolicy": policy}


def test_requests_of_containers_are_summed() -> None:
    two = pod(spec={"containers": [container(cpu="100m"), container(cpu="0.2", memory="1Mi")]})
    assert requests_by_spec(two) == {"cpu": 300, "memory": MIB}


def test_the_largest_init_container_counts() -> None:
    several = pod(
        spec={
            "containers": [container(cpu="100m")],
            "initContainers": [container(cpu="2"), container(memory="5Mi")],
        }
    )
    assert requests_by_spec(several) == {"cpu": 2000, "memory": 5 * MIB}


def test_a_sidecar_counts_with_the_containers_after_it() -> None:
    with_sidecar = pod(
        spec={
            "containers": [container(cpu="1")],
            "initContainers": [container(cpu="3"), container(policy="Always", cpu="1"), container(cpu="2500m")],
        }
    )
    # alone 3, then 1 + 2.5 with the sidecar, then 1 + 1 for good
    assert requests_by_spec(with_sidecar) == {"cpu": 3500}


def test_pod_level_requests_replace_the_sum_and_overhead_is_added() -> None:
    both = pod(cpu="1", memory="1Gi", spec={"resources": {"requests": {"cpu": "3"}}, "overhead": {"cpu": "250m"}})
    assert requests_by_spec(both)["cpu"] == 3250
    assert scored_requests(both)["cpu"] == 1250, "scoring leaves pod-level requests out"


def test_missing_requests_are_scored_at_a_default_per_container() -> None:
    containers = [container(), container(cpu="1")]
    assert scored_requests(pod(spec={"containers": containers})) == {"cpu": 1100, "memory": 400 * MIB}


def test_a_resize_in_progress_counts_for_the_larger_of_old_and_new() -> None:
    status = {"containerStatuses": [{"name": "main", "resources": {"requests": {"cpu": "3"}}}]}
    assert placed_requests(pod(cpu="1", status=status))[0] == {"cpu": 3000}


def test_an_infeasible_resize_counts_for_what_the_kubelet_has_allocated() -> None:
    status = {
        "containerStatuses": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}],
        "conditions": [{"type": "PodResizePending", "reason": "Infeasible"}],
    }
    assert placed_requests(pod(cpu="8", status=status))[0] == {"cpu": 1000}


def test_resources_that_are_not_counted_are_left_out() -> None:
    assert requests_by_spec(pod(requests={"storage": "1", "example.com/gpu": "2", "requests.x/y": "3"})) == {
        "example.com/gpu": 2
    }


def test_an_invalid_request_is_reported_with_its_container() -> None:
    with pytest.raises(InvalidQuantity, match=r'spec\.containers\[0\].*"1\.5\.2" is not a resource quantity'):
        requests_by_spec(pod(cpu="1.5.2"))


def test_requests_beyond_int64_count_as_the_largest_and_the_least() -> None:
    huge = pod(spec={"containers": [container(cpu="9E", memory="9E"), container("d", memory="9E")]})
    assert requests_by_spec(huge) == {"cpu": 2**63 - 1, "memory": 2**63 - 1}
    negative = pod(spec={"containers": [container(cpu="-9E"), container("d", memory="-9E")]})
    assert requests_by_spec(negative) == {"cpu": 1 - 2**63, "memory": -9 * 10**18}


def test_the_requests_of_the_whole_pod_are_for_cpu_memory_and_huge_pages_only() -> None:
    whole = {"resources": {"requests": {"cpu": "2", "hugepages-2Mi": "4Mi", "example.com/gpu": "3"}}}
    assert requests_by_spec(pod(requests={"example.com/gpu": "1"}, spec=whole)) == {
        "cpu": 2000,
        "hugepages-2Mi": 4 * MIB,
        "example.com/gpu": 1,
    }


def test_requests_by_the_spec_leave_the_status_out() -> None:
    status = {"resources": {"requests": {"cpu": "3"}}}
    running = pod(spec={"resources": {"requests": {"cpu": "1"}}}, status=status)
    assert requests_by_spec(running) == {"cpu": 1000}
    assert placed_requests(running)[0] == {"cpu": 3000}


def test_limits_are_summed_like_requests_and_the_overhead_is_added_to_them() -> None:
    def limited(policy: str = "", **limits: str) -> dict[str, Any]:
        return {"name": "c", "resources": {"limits": limits, "requests": {"cpu": "9"}}, "restartPolicy": policy}

    spec = {
        "containers": [limited(cpu="1"), limited(cpu="1", memory="1Mi")],
        "initContainers": [limited("Always", cpu="1")],
        "overhead": {"cpu": "250m", "example.com/gpu": "1"},
    }
    assert limits_by_spec(pod(spec=spec)) == {"cpu": 3250, "memory": MIB}
    assert limits_by_spec(pod(spec={"containers": [limited(cpu="0", memory="1Mi")]})) == {"memory": MIB}
    assert limits_by_spec(pod(spec=spec | {"resources": {"limits": {"cpu": "5"}}})) == {"cpu": 5250, "memory": MIB}
    with pytest.raises(InvalidQuantity, match=r"spec\.containers\[0\]\.resources\.limits"):
        limits_by_spec(pod(spec={"containers": [limited(cpu="1.5.2")]}))


def test_quantities_that_do_not_parse_can_be_left_out() -> None:
    bad = {"cpu": "many", "memory": "1Mi"}
    spec = {
        "containers": [container(**bad)],
        "initContainers": [container(**bad)],
        "overhead": bad,
        "resources": {"requests": bad, "limits": bad},
    }
    reported = {"name": "c", "resources": {"requests": bad}, "allocatedResources": bad}
    status = {
        "containerStatuses": [reported],
        "initContainerStatuses": [reported],
        "resources": {"requests": bad},
        "allocatedResources": bad,
    }
    valid = without_invalid_quantities(pod(spec=spec, status=status))
    only: dict[str, Any] = {"memory": "1Mi"}
    assert [one.resources.requests for one in (*valid.spec.containers, *valid.spec.init_containers)] == [only, only]
    assert valid.spec.overhead == only
    assert valid.spec.resources == ResourceRequirements(requests=only, limits=only)
    for one in (*valid.status.container_statuses, *valid.status.init_container_statuses):
        assert (one.resources, one.allocated_resources) == (ResourceRequirements(requests=only), only)
    assert (valid.status.resources, valid.status.allocated_resources) == (ResourceRequirements(requests=only), only)
    assert placed_requests(valid)[0] == {"memory": 2 * MIB}
    plain = pod(cpu="1")
    assert without_invalid_quantities(plain) == plain


def test_a_node_offers_pods_and_what_is_counted() -> None:
    offered = {"cpu": "1500m", "memory": "1Mi", "pods": "110", "example.com/gpu": "2", "storage": "1", "x": "1"}
    expected = {"cpu": 1500, "memory": MIB, "pods": 110, "example.com/gpu": 2}
    assert allocatable_amounts(offered) == expected
    with pytest.raises(InvalidQuantity, match=r"status\.allocatable\[cpu\]"):
        allocatable_amounts({"cpu": "many"})


def test_an_invalid_request_of_the_whole_pod_is_reported_with_its_field() -> None:
    with pytest.raises(InvalidQuantity, match=r"spec\.resources\.requests"):
        requests_by_spec(pod(spec={"resources": {"requests": {"cpu": "?"}}}))
    spec, status = {"resources": {"requests": {"cpu": "1"}}}, {"resources": {"requests": {"cpu": "?"}}}
    with pytest.raises(InvalidQuantity, match=r"status\.resources\.requests"):
        placed_requests(pod(spec=spec, status=status))


@pytest.mark.parametrize("number", [36, 37])
def test_an_invalid_overhead_is_reported_with_its_field(number: int) -> None:
    running = pod(cpu="1", spec={"overhead": {"cpu": "?"}}, status={"resources": {"requests": {"cpu": "1"}}})
    with pytest.raises(InvalidQuantity, match=r"spec\.overhead"):
        placed_requests(running, former(number))


@pytest.mark.parametrize("number", [31, 32, 33, 36, 37])
def test_a_container_without_reported_resources_counts_for_its_spec_in_all_minor_versions(number: int) -> None:
    running = pod(cpu="1", status={"containerStatuses": [{"name": "main"}]})
    assert placed_requests(running, former(number, InPlacePodVerticalScaling=True))[0] == {"cpu": 1000}
    statuses = [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]
    resizing = pod(cpu="3", status={"containerStatuses": statuses})
    assert placed_requests(resizing, former(number, InPlacePodVerticalScaling=True))[0] == {"cpu": 3000}


def test_a_container_of_which_the_kubelet_reports_no_resources_counts_for_its_spec() -> None:
    assert placed_requests(pod(cpu="1", status={"containerStatuses": [{"name": "main"}]}))[0] == {"cpu": 1000}


def test_an_init_container_that_ends_counts_for_its_spec_whatever_is_reported() -> None:
    status = {"initContainerStatuses": [{"name": "init", "resources": {"requests": {"cpu": "3"}}}]}
    init = {"initContainers": [container("init", cpu="2")]}
    assert placed_requests(pod(cpu="1", spec=init, status=status))[0] == {"cpu": 2000}


def test_a_resize_that_is_only_deferred_counts_for_what_is_requested() -> None:
    statuses = [{"name": "main", "resources": {"requests": {"cpu": "3"}}, "allocatedResources": {"cpu": "4"}}]
    conditions = [
        {"type": "PodResizePending", "reason": "Deferred"},
        {"type": "PodResizeInProgress", "reason": "Infeasible"},
    ]
    deferred = pod(cpu="8", status={"containerStatuses": statuses, "conditions": conditions})
    for number in (BY_TOTALS - 1, BY_TOTALS):
        assert placed_requests(deferred, former(number))[0] == {"cpu": 8000}


@pytest.mark.parametrize(("field", "path"), [("resources", "resources.requests"), ("allocated", "allocatedResources")])
def test_an_invalid_amount_in_the_status_is_reported_with_its_field(field: str, path: str) -> None:
    reported: dict[str, Any] = {"name": "main", "resources": {"requests": {"cpu": "1"}}}
    invalid = (
        {"allocatedResources": {"cpu": "?"}} if field == "allocated" else {"resources": {"requests": {"cpu": "?"}}}
    )
    with pytest.raises(InvalidQuantity, match=rf"spec\.containers\[0\]\.status\.{path}"):
        placed_requests(pod(status={"containerStatuses": [reported | invalid]}))


# -- rules that are not the same in all minor versions ---------------------------------------------------------------


HUGE_PAGES = Behaviour.HUGE_PAGES_COUNT_FOR_THE_WHOLE_POD.value.since
AS_ALLOCATED = Behaviour.RESIZED_CONTAINERS_COUNT_AS_ALLOCATED.value.since
AS_REPORTED = Behaviour.RESIZED_CONTAINERS_COUNT_AS_REPORTED.value.since
BY_TOTALS = Behaviour.RESIZED_PODS_COUNT_BY_TOTALS.value.since
SIDECARS = Behaviour.DEFAULT_REQUESTS_OF_SIDECARS_ADD_UP.value.since


def former(number: int, **gates: bool) -> RequestRules:
    return RequestRules.of(FeatureGates(gates, minor=Minor(number)))


def test_pod_level_requests_need_their_gate() -> None:
    whole = pod(cpu="1", spec={"resources": {"requests": {"cpu": "2"}}})
    assert requests_by_spec(whole, former(33)) == {"cpu": 1000}
    assert requests_by_spec(whole, former(34)) == {"cpu": 2000}
    assert placed_requests(whole, former(34, PodLevelResources=False))[0] == {"cpu": 1000}


@pytest.mark.parametrize(
    ("number", "expected"),
    [(HUGE_PAGES - 1, {"cpu": 1000, "hugepages-2Mi": 1}), (HUGE_PAGES, {"cpu": 1000, "hugepages-2Mi": 2})],
)
def test_huge_pages_of_the_whole_pod(number: int, expected: dict[str, int]) -> None:
    whole = {"resources": {"requests": {"cpu": "1", "hugepages-2Mi": "2"}}}
    found = requests_by_spec(pod(requests={"hugepages-2Mi": "1"}, spec=whole), former(number, PodLevelResources=True))
    assert found == expected


def test_pod_level_requests_in_effect_need_their_gate() -> None:
    spec, status = {"resources": {"requests": {"cpu": "1"}}}, {"resources": {"requests": {"cpu": "3"}}}
    resized = pod(spec=spec, status=status)
    assert placed_requests(resized, former(36))[0] == {"cpu": 3000}
    assert placed_requests(resized, former(35))[0] == {"cpu": 1000}


@pytest.mark.parametrize(
    ("number", "running", "infeasible"),
    [(AS_REPORTED - 1, 4000, 4000), (AS_REPORTED, 3000, 3000), (AS_ALLOCATED, 4000, 4000)],
)
def test_requests_during_a_resize(number: int, running: int, infeasible: int) -> None:
    reported = {"name": "main", "resources": {"requests": {"cpu": "3"}}, "allocatedResources": {"cpu": "4"}}
    status = {"containerStatuses": [reported]}
    rules = former(number, InPlacePodVerticalScaling=True)
    assert placed_requests(pod(cpu="2", status=status), rules)[0] == {"cpu": running}
    assert rules.reads(pod(status=status).status)
    refused = status | {"resize": "Infeasible", "conditions": [{"type": "PodResizePending", "reason": "Infeasible"}]}
    assert placed_requests(pod(cpu="8", status=refused), rules)[0] == {"cpu": infeasible}
    assert placed_requests(pod(cpu="8", status=status), rules)[0] == {"cpu": 8000}


@pytest.mark.parametrize(("number", "expected"), [(AS_ALLOCATED - 1, 1000), (AS_ALLOCATED, 2000)])
def test_a_resized_sidecar_counts_as_reported_since_1_33(number: int, expected: int) -> None:
    sidecar = {"name": "proxy", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}
    status = {"initContainerStatuses": [{"name": "proxy", "resources": {"requests": {"cpu": "2"}}}]}
    resized = pod(spec={"initContainers": [sidecar]}, status=status)
    assert placed_requests(resized, former(number, InPlacePodVerticalScaling=True))[0] == {"cpu": expected}


@pytest.mark.parametrize(("number", "expected", "scored"), [(BY_TOTALS - 1, 5000, 5100), (BY_TOTALS, 4000, 4100)])
def test_a_resized_pod_counts_by_the_largest_total_since_1_37(number: int, expected: int, scored: int) -> None:
    containers = [container("a", cpu="1"), container("b", cpu="2"), {"name": "c"}]
    statuses = [
        {"name": "a", "resources": {"requests": {"cpu": "3"}}, "allocatedResources": {"cpu": "1"}},
        {"name": "b", "resources": {"requests": {"cpu": "1"}}, "allocatedResources": {"cpu": "1"}},
    ]
    resized = pod(spec={"containers": containers}, status={"containerStatuses": statuses})
    total, (cpu, _) = placed_requests(resized, former(number))
    assert (total, cpu) == ({"cpu": expected}, scored)


@pytest.mark.parametrize(("number", "expected"), [(BY_TOTALS - 1, 1000), (BY_TOTALS, 7000)])
def test_the_status_of_the_pod_itself_counts_without_pod_level_requests_since_1_37(number: int, expected: int) -> None:
    status = {"resources": {"requests": {"cpu": "6"}}, "allocatedResources": {"cpu": "7"}}
    assert placed_requests(pod(cpu="1", status=status), former(number))[0] == {"cpu": expected}
    without_gate = former(number, InPlacePodLevelResourcesVerticalScaling=False)
    assert placed_requests(pod(cpu="1", status=status), without_gate)[0] == {"cpu": 1000}


@pytest.mark.parametrize(("field", "path"), [("resources", "resources.requests"), ("allocatedResources", "allocated")])
def test_an_invalid_amount_of_the_pod_itself_is_reported_with_its_field_since_1_37(field: str, path: str) -> None:
    status: dict[str, Any] = {"resources": {"requests": {"cpu": "6"}}, "allocatedResources": {"cpu": "7"}}
    status[field] = {"cpu": "?"} if field == "allocatedResources" else {"requests": {"cpu": "?"}}
    with pytest.raises(InvalidQuantity, match=rf"status\.{path}"):
        placed_requests(pod(cpu="1", status=status), former(BY_TOTALS))


@pytest.mark.parametrize(("number", "expected"), [(BY_TOTALS - 1, 1000), (BY_TOTALS, 3000)])
def test_an_init_container_counts_for_what_is_allocated_to_it_since_1_37(number: int, expected: int) -> None:
    init = {"initContainers": [container("init", cpu="1")]}
    status = {"initContainerStatuses": [{"name": "init", "allocatedResources": {"cpu": "3"}}]}
    running = pod(spec=init, status=status)
    assert former(number).reads(running.status) is (number == BY_TOTALS)
    assert placed_requests(running, former(number))[0] == {"cpu": expected}


@pytest.mark.parametrize(
    ("number", "expected"), [(BY_TOTALS - 1, {"cpu": 2000}), (BY_TOTALS, {"cpu": 2000, "memory": 5})]
)
def test_pod_level_requests_in_effect_count_for_all_resources_since_1_37(number: int, expected: dict[str, int]) -> None:
    status = {"resources": {"requests": {"cpu": "2", "memory": "5", "example.com/gpu": "1"}}}
    running = pod(spec={"resources": {"requests": {"cpu": "1"}}}, status=status)
    assert placed_requests(running, former(number))[0] == expected


def test_a_container_without_an_allocation_counts_for_its_request_beside_others_since_1_37() -> None:
    statuses = [{"name": "a", "allocatedResources": {"cpu": "3"}}]
    resizing = pod(
        spec={"containers": [container("a", cpu="1"), container("b", cpu="2")]}, status={"containerStatuses": statuses}
    )
    assert placed_requests(resizing, former(BY_TOTALS))[0] == {"cpu": 5000}


def test_an_infeasible_resize_of_a_container_without_a_report_counts_for_its_spec() -> None:
    refused = pod(cpu="2", status={"containerStatuses": [{"name": "main"}], "resize": "Infeasible"})
    rules = former(AS_REPORTED, InPlacePodVerticalScaling=True)
    assert placed_requests(refused, rules)[0] == {"cpu": 2000}


def test_an_infeasible_resize_does_not_count_since_1_37() -> None:
    conditions = [{"type": "PodResizePending", "reason": "Infeasible"}]
    statuses = [{"name": "main", "resources": {"requests": {"cpu": "3"}}, "allocatedResources": {"cpu": "4"}}]
    refused = pod(cpu="8", status={"containerStatuses": statuses, "conditions": conditions})
    assert placed_requests(refused, former(BY_TOTALS))[0] == {"cpu": 4000}


@pytest.mark.parametrize(
    ("number", "statuses"),
    [
        (AS_REPORTED - 1, [{"name": "a", "allocatedResources": {"cpu": "1"}}, {"name": "b"}]),
        (AS_REPORTED, [{"name": "a", "resources": {}}, {"name": "b"}]),
        (BY_TOTALS, [{"name": "a", "allocatedResources": {"cpu": "1"}}, {"name": "b"}]),
    ],
)
def test_the_report_of_one_container_is_enough_to_read_the_status(number: int, statuses: list[dict[str, Any]]) -> None:
    rules = former(number, InPlacePodVerticalScaling=True)
    assert rules.reads(pod(status={"containerStatuses": statuses}).status)
    assert rules.reads(pod(status={"initContainerStatuses": statuses}).status)
    assert not rules.reads(pod(status={"containerStatuses": [{"name": "a"}, {"name": "b"}]}).status)


def test_a_pod_that_requests_nothing_on_purpose_counts_for_nothing_before_1_32() -> None:
    assert placed_requests(pod(cpu="0", memory="0"), former(SIDECARS - 1))[1] == (0, 0)


def test_without_in_place_resizes_the_status_does_not_count() -> None:
    status = {"containerStatuses": [{"name": "main", "resources": {"requests": {"cpu": "3"}}}]}
    assert placed_requests(pod(cpu="2", status=status), former(32))[0] == {"cpu": 2000}
    assert not former(32).reads(pod(status=status).status)


@pytest.mark.parametrize(
    ("number", "expected"),
    [(SIDECARS - 1, (1100, 200 * MIB + MIB)), (SIDECARS, (1150, 600 * MIB + MIB))],
)
def test_default_requests_of_sidecars(number: int, expected: tuple[int, int]) -> None:
    """Before 1.32 the sidecars are not added to the containers; together they lack nothing but memory."""
    init = [
        {"name": "one", "restartPolicy": "Always", "resources": {"requests": {"cpu": "0"}}},
        {"name": "two", "restartPolicy": "Always", "resources": {"requests": {"cpu": "50m"}}},
    ]
    overhead = {"memory": "1Mi"}
    placed = pod(cpu="1100m", spec={"initContainers": init, "overhead": overhead})
    assert placed_requests(placed, former(number))[1] == expected


def test_default_requests_of_init_containers_before_1_32_fill_what_they_lack_with_the_sidecars_before_them() -> None:
    init = [
        {"name": "one", "restartPolicy": "Always", "resources": {"requests": {"memory": "1Gi"}}},
        {"name": "two", "resources": {"requests": {"cpu": "2"}}},
    ]
    placed = pod(cpu="1", spec={"initContainers": init})
    assert placed_requests(placed, former(31))[1] == (2000, 1024 * MIB)
    assert placed_requests(placed, former(32))[1] == (2100, 1224 * MIB)
