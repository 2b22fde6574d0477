"""What pods count for in a ResourceQuota, and which scopes they have."""

from __future__ import annotations

from typing import Any

import pytest

from kubestow.rules.resource_quotas import (
    charged,
    has_scope,
    limited,
    missing_requirements,
    pod_usage,
    scope_requirements,
)

Object = dict[str, Any]


def _container(name: str, requests: Object | None = None, limits: Object | None = None) -> Object:
    return {"name": name, "resources": {"requests": requests or {}, "limits": limits or {}}}


def test_a_pod_counts_for_its_requests_and_limits_under_the_names_of_quotas() -> None:
    requests = {"cpu": "1", "ephemeral-storage": "1Gi", "example.com/gpu": "2"}
    limits = {"cpu": "2", "memory": "1Gi", "ephemeral-storage": "3Gi", "example.com/gpu": "2"}
    pod: Object = {"spec": {"containers": [_container("a", requests, limits)]}}
    assert {name: str(amount) for name, amount in pod_usage(pod).items()} == {
        "pods": "1",
        "requests.cpu": "1",
        "cpu": "1",
        "requests.ephemeral-storage": "1Gi",
        "ephemeral-storage": "1Gi",
        "requests.example.com/gpu": "2",
        "limits.cpu": "2",
        "limits.memory": "1Gi",
        "limits.ephemeral-storage": "3Gi",
    }
    assert pod_usage({**pod, "status": {"phase": "Running"}}) == pod_usage(pod)
    assert pod_usage({**pod, "status": {"phase": "Failed"}}) == {}


def test_a_quota_limits_the_resources_that_it_names_and_of_which_something_is_requested() -> None:
    usage = {"pods": "1", "cpu": "0", "memory": "1Gi", "limits.cpu": "1"}
    assert limited(usage, {"pods": "5", "cpu": "4", "limits.cpu": "4"}) == {"pods": "1", "limits.cpu": "1"}


def test_a_quota_refuses_what_exceeds_it_and_names_that_alone() -> None:
    hard, used = {"cpu": "4", "pods": "2", "memory": "1"}, {"cpu": "3", "pods": "1", "memory": "5"}
    after, problem = charged("small", hard, used, {"cpu": "1", "pods": "1"})
    assert ({name: str(amount) for name, amount in after.items()}, problem) == (
        {"cpu": "4", "pods": "2", "memory": "5"},
        "",
    )
    _, problem = charged("small", hard, used, {"cpu": "1001m", "pods": "1"})
    assert problem == "exceeded quota: small, requested: cpu=1001m, used: cpu=3, limited: cpu=4"


def test_the_scopes_of_a_quota_are_those_of_its_selector_and_its_list() -> None:
    selected = {"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}
    quota = {"spec": {"scopeSelector": {"matchExpressions": [selected]}, "scopes": ["BestEffort"]}}
    assert scope_requirements(quota) == [selected, {"scopeName": "BestEffort", "operator": "Exists"}]
    assert scope_requirements({}) == []


def test_containers_have_to_specify_what_a_quota_counts() -> None:
    spec = {
        "containers": [_container("b"), _container("a", {"cpu": "1"}, {"memory": "1"})],
        "initContainers": [_container("i", {"cpu": "1", "memory": "1"})],
    }
    assert missing_requirements(spec, ["pods", "cpu", "limits.memory", "ephemeral-storage", "requests.memory"]) == (
        "cpu for: b; limits.memory for: b,i; requests.memory for: a,b"
    )
    assert missing_requirements(spec, ["pods"]) == ""


_OTHER_NAMESPACE: Object = {"topologyKey": "zone", "namespaces": ["other"]}
_OWN_NAMESPACE: Object = {"topologyKey": "zone"}


@pytest.mark.parametrize(
    ("scope", "spec", "expected"),
    [
        ("Terminating", {"activeDeadlineSeconds": 0}, True),
        ("Terminating", {}, False),
        ("NotTerminating", {"activeDeadlineSeconds": 0}, False),
        ("NotTerminating", {}, True),
        ("BestEffort", {"containers": [_container("a")]}, True),
        ("BestEffort", {"containers": [_container("a", {"cpu": "1"})]}, False),
        ("NotBestEffort", {"containers": [_container("a")]}, False),
        ("NotBestEffort", {"containers": [_container("a", {"cpu": "1"})]}, True),
        ("CrossNamespacePodAffinity", {}, False),
        (
            "CrossNamespacePodAffinity",
            {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [_OWN_NAMESPACE]}}},
            False,
        ),
        (
            "CrossNamespacePodAffinity",
            {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [_OTHER_NAMESPACE]}}},
            True,
        ),
        (
            "CrossNamespacePodAffinity",
            {
                "affinity": {
                    "podAffinity": {
                        "preferredDuringSchedulingIgnoredDuringExecution": [
                            {"weight": 1, "podAffinityTerm": {**_OWN_NAMESPACE, "namespaceSelector": {}}}
                        ]
                    }
                }
            },
            True,
        ),
        ("Unknown", {}, False),
    ],
)
def test_a_pod_has_a_scope(scope: str, spec: Object, expected: bool) -> None:
    assert has_scope({"scopeName": scope, "operator": "Exists"}, {"containers": [], **spec}) is expected


@pytest.mark.parametrize(
    ("operator", "values", "of_high", "of_none"),
    [
        ("In", ["high"], True, False),
        ("In", ["low", ""], False, False),
        ("In", None, False, False),
        ("NotIn", ["high"], False, True),
        ("NotIn", None, True, True),
        ("Exists", None, True, False),
        ("DoesNotExist", None, False, True),
        ("Unknown", None, False, False),
    ],
)
def test_a_scope_selects_priority_classes(
    operator: str, values: list[str] | None, of_high: bool, of_none: bool
) -> None:
    requirement = {"scopeName": "PriorityClass", "operator": operator, **({"values": values} if values else {})}
    assert has_scope(requirement, {"priorityClassName": "high"}) is of_high
    assert has_scope(requirement, {}) is of_none
