"""The requests of pods (semantics 7.5)."""

from __future__ import annotations

from typing import Any

import pytest

from kubestow.errors import InvalidQuantity
from kubestow.rules.requests import placed_requests, requests_by_spec, scored_requests
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
