"""What the API server fills in."""

from __future__ import annotations

from typing import Any

from kubestow.rules.defaults import (
    default_allocatable,
    default_limit_range_item,
    default_pod_level_requests,
    default_pod_spec,
    default_resource_claim_spec,
    merge_label_keys,
)

Object = dict[str, Any]


def test_the_ports_of_the_host_network_are_host_ports() -> None:
    ports: list[Object] = [{"containerPort": 80}, {"containerPort": 81, "hostPort": 8081, "protocol": "UDP"}]
    spec: Object = {"hostNetwork": True, "containers": [{"name": "c", "ports": ports}]}
    default_pod_spec(spec)
    assert spec["schedulerName"] == "default-scheduler"
    assert ports == [
        {"containerPort": 80, "hostPort": 80, "protocol": "TCP"},
        {"containerPort": 81, "hostPort": 8081, "protocol": "UDP"},
    ]


def test_requests_default_to_limits() -> None:
    container: Object = {"resources": {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1"}}}
    default_pod_spec({"initContainers": [container], "containers": [{"name": "c"}]})
    assert container["resources"]["requests"] == {"cpu": "1", "memory": "1Gi"}


def test_requests_of_a_pod_with_limits_are_those_of_its_containers_or_else_the_limits() -> None:
    container: Object = {"resources": {"requests": {"cpu": "1", "gpu": "1"}, "limits": {"memory": "9"}}}
    spec: Object = {"resources": {"limits": {"cpu": "4", "memory": "8"}}, "containers": [container, container]}
    default_pod_level_requests(spec)
    assert {name: str(amount) for name, amount in spec["resources"]["requests"].items()} == {"cpu": "2", "memory": "8"}
    own: Object = {**spec, "resources": {"limits": {"cpu": "4"}, "requests": {"cpu": "3"}}}
    default_pod_level_requests(own)
    assert own["resources"] == {"limits": {"cpu": "4"}, "requests": {"cpu": "3"}}
    of_init: Object = {"resources": {"limits": {"cpu": "4"}}, "initContainers": [container], "containers": [{}]}
    default_pod_level_requests(of_init)
    assert str(of_init["resources"]["requests"]["cpu"]) == "1"
    without: Object = {"containers": [container]}
    default_pod_level_requests(without)
    assert "resources" not in without


def test_label_keys_of_affinity_terms_become_expressions_of_their_selectors() -> None:
    exists = {"key": "tier", "operator": "Exists"}

    def term(**fields: Any) -> Object:
        return {"labelSelector": {"matchLabels": {"app": "a"}, "matchExpressions": [exists]}, **fields}

    required, preferred = term(matchLabelKeys=["version", "absent"]), term(mismatchLabelKeys=["tenant"])
    everything: Object = {"matchLabelKeys": ["version"]}
    spec: Object = {
        "affinity": {
            "podAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [required, everything],
                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": preferred}],
            },
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [untouched := term()]},
        }
    }
    merge_label_keys(spec, {"version": "2", "tenant": "t"})
    version = {"key": "version", "operator": "In", "values": ["2"]}
    tenant = {"key": "tenant", "operator": "NotIn", "values": ["t"]}
    assert required["labelSelector"] == {"matchLabels": {"app": "a"}, "matchExpressions": [exists, version]}
    assert preferred["labelSelector"] == {"matchLabels": {"app": "a"}, "matchExpressions": [exists, tenant]}
    assert everything == {"matchLabelKeys": ["version"]}
    assert untouched == term()
    alone: Object = {"containers": []}
    merge_label_keys(alone, {"version": "2"})
    assert alone == {"containers": []}


def test_only_a_node_without_allocatable_gets_its_capacity() -> None:
    without: Object = {"capacity": {"cpu": "4", "pods": "110"}}
    default_allocatable(without)
    assert without["allocatable"] == without["capacity"]
    partial: Object = {"capacity": {"cpu": "4", "pods": "110"}, "allocatable": {"cpu": "3"}}
    default_allocatable(partial)
    assert partial["allocatable"] == {"cpu": "3"}


def test_limits_of_a_limit_range_are_its_maxima_and_requests_its_limits_or_minima() -> None:
    item: Object = {"type": "Container", "min": {"cpu": "1", "disk": "1"}, "max": {"cpu": "4"}, "default": {"gpu": "1"}}
    default_limit_range_item(item)
    assert item["default"] == {"cpu": "4", "gpu": "1"}
    assert item["defaultRequest"] == {"cpu": "4", "disk": "1", "gpu": "1"}
    item = {"type": "Container", "default": {"cpu": "4", "gpu": "1"}, "defaultRequest": {"cpu": "2"}}
    default_limit_range_item(item)
    assert item["defaultRequest"] == {"cpu": "2", "gpu": "1"}
    of_pods: Object = {"type": "Pod", "max": {"cpu": "4"}}
    default_limit_range_item(of_pods)
    assert of_pods == {"type": "Pod", "max": {"cpu": "4"}}


def test_a_request_is_for_exactly_one_device() -> None:
    all_of_them: Object = {"allocationMode": "All"}
    spec: Object = {"devices": {"requests": [{"exactly": {}}, {"firstAvailable": [{"count": 2}, all_of_them]}]}}
    default_resource_claim_spec(spec)
    first, second = spec["devices"]["requests"]
    assert first["exactly"] == {"allocationMode": "ExactCount", "count": 1}
    assert second["firstAvailable"] == [{"allocationMode": "ExactCount", "count": 2}, {"allocationMode": "All"}]
