"""What admission plugins set in new pods."""

from __future__ import annotations

from typing import Any

import pytest

from kubestow.errors import InvalidObject
from kubestow.rules.admission import (
    apply_runtime_class,
    default_priority_class,
    set_container_defaults,
    tolerate_unreachable_nodes,
)

Object = dict[str, Any]
DEDICATED = {"key": "dedicated", "operator": "Exists"}


def test_containers_get_what_they_lack_of_the_defaults() -> None:
    own = {"name": "a", "resources": {"requests": {"cpu": "2"}}}
    spec: Object = {"containers": [own], "initContainers": [{"name": "b"}]}
    item = {"type": "Container", "defaultRequest": {"cpu": "1", "memory": "1Gi"}, "default": {"memory": "2Gi"}}
    notes = set_container_defaults(spec, {"spec": {"limits": [item, {"type": "Pod", "default": {"cpu": "9"}}]}})
    assert spec["containers"][0]["resources"] == {
        "requests": {"cpu": "2", "memory": "1Gi"},
        "limits": {"memory": "2Gi"},
    }
    assert spec["initContainers"][0]["resources"]["requests"] == {"cpu": "1", "memory": "1Gi"}
    assert notes == [
        "memory request for container a",
        "memory limit for container a",
        "cpu, memory request for init container b",
        "memory limit for init container b",
    ]
    assert item["defaultRequest"] == {"cpu": "1", "memory": "1Gi"}, "the LimitRange stays"


def test_of_several_global_defaults_the_lowest_counts() -> None:
    classes = [
        {"metadata": {"name": "high"}, "value": 9, "globalDefault": True},
        {"metadata": {"name": "low"}, "value": 3, "globalDefault": True},
        {"metadata": {"name": "other"}, "value": 1},
    ]
    found = default_priority_class(classes)
    assert found is not None
    assert found["metadata"]["name"] == "low"
    assert default_priority_class(classes[2:]) is None


@pytest.mark.parametrize(
    ("own", "added"),
    [
        ([], 2),
        ([{"operator": "Exists"}], 0),
        ([{"operator": "Exists", "effect": "NoSchedule"}], 2),
        ([{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}], 1),
    ],
)
def test_nodes_that_are_not_ready_are_tolerated_for_five_minutes(own: list[Object], added: int) -> None:
    spec: Object = {"tolerations": own}
    tolerate_unreachable_nodes(spec)
    assert spec["tolerations"][: len(own)] == own
    assert [each["tolerationSeconds"] for each in spec["tolerations"][len(own) :]] == [300] * added


def test_a_pod_gets_overhead_selector_and_tolerations_of_its_runtime_class() -> None:
    scheduling = {"nodeSelector": {"kata": "yes"}, "tolerations": [DEDICATED, {"key": "kata"}]}
    runtime_class = {"overhead": {"podFixed": {"cpu": "250m"}}, "scheduling": scheduling}
    spec: Object = {"nodeSelector": {"zone": "a"}, "tolerations": [DEDICATED]}
    apply_runtime_class(spec, runtime_class)
    assert spec == {
        "overhead": {"cpu": "250m"},
        "nodeSelector": {"zone": "a", "kata": "yes"},
        "tolerations": [DEDICATED, {"key": "kata"}],
    }
    apply_runtime_class(spec, runtime_class)  # a pod may repeat what its class says
    assert spec["tolerations"] == [DEDICATED, {"key": "kata"}]


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"overhead": {"cpu": "1"}}, "Pod's Overhead doesn't match"),
        ({"nodeSelector": {"kata": "no"}}, r"conflict: runtimeClass.scheduling.nodeSelector\[kata\] = yes"),
    ],
)
def test_a_pod_that_contradicts_its_runtime_class_is_rejected(spec: Object, problem: str) -> None:
    runtime_class = {"overhead": {"podFixed": {"cpu": "250m"}}, "scheduling": {"nodeSelector": {"kata": "yes"}}}
    with pytest.raises(InvalidObject, match=problem):
        apply_runtime_class(spec, runtime_class)
    with pytest.raises(InvalidObject, match="without corresponding RuntimeClass"):
        apply_runtime_class({"overhead": {"cpu": "1"}}, {})
