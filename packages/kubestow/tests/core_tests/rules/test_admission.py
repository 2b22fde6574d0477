"""What admission plugins set in new pods."""

from __future__ import annotations

from typing import Any

import pytest

from kubestow.errors import InvalidObject
from kubestow.rules.admission import (
    apply_runtime_class,
    default_priority_class,
    joined_violations,
    pod_violations,
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


def _pod(requests: Object, limits: Object) -> Object:
    return {"containers": [{"resources": {"requests": requests, "limits": limits}}], "overhead": {"cpu": "9"}}


@pytest.mark.parametrize(
    ("bounds", "requests", "limits", "expected"),
    [
        ({"min": {"cpu": "1"}}, {}, {}, ["minimum cpu usage per Container is 1.  No request is specified"]),
        (
            {"min": {"cpu": "1"}},
            {"cpu": "999m"},
            {},
            ["minimum cpu usage per Container is 1, but request is 999m"],
        ),
        (
            {"min": {"cpu": "1"}},
            {"cpu": "1"},
            {"cpu": "0.9"},
            ["minimum cpu usage per Container is 1, but limit is 0.9"],
        ),
        ({"min": {"cpu": "1"}}, {"cpu": "1"}, {"cpu": "1"}, []),
        ({"min": {"cpu": "1"}}, {"cpu": "1"}, {"memory": "1"}, []),
        ({"max": {"cpu": "2"}}, {}, {}, ["maximum cpu usage per Container is 2.  No limit is specified"]),
        ({"max": {"cpu": "2"}}, {}, {"cpu": "2001m"}, ["maximum cpu usage per Container is 2, but limit is 2001m"]),
        ({"max": {"cpu": "2"}}, {"cpu": "3"}, {"cpu": "2"}, ["maximum cpu usage per Container is 2, but request is 3"]),
        ({"max": {"cpu": "2"}}, {"cpu": "2"}, {"cpu": "2"}, []),
        (
            {"maxLimitRequestRatio": {"cpu": "2"}},
            {},
            {"cpu": "1"},
            ["cpu max limit to request ratio per Container is 2, but no request is specified or request is 0"],
        ),
        (
            {"maxLimitRequestRatio": {"cpu": "2"}},
            {"cpu": "1"},
            {"cpu": "0"},
            ["cpu max limit to request ratio per Container is 2, but no limit is specified or limit is 0"],
        ),
        (
            {"maxLimitRequestRatio": {"cpu": "1.5"}},
            {"cpu": "2"},
            {"cpu": "4"},
            ["cpu max limit to request ratio per Container is 1.5, but provided ratio is 2.000000"],
        ),
        ({"maxLimitRequestRatio": {"cpu": "2"}}, {"cpu": "2"}, {"cpu": "4"}, []),
        (
            {"min": {"memory": "1", "cpu": "1"}, "max": {"cpu": "2"}},
            {"cpu": "3"},
            {"cpu": "2"},
            [
                "minimum memory usage per Container is 1.  No request is specified",
                "maximum cpu usage per Container is 2, but request is 3",
            ],
        ),
    ],
)
def test_the_bounds_of_a_limit_range_hold_for_each_container(
    bounds: Object, requests: Object, limits: Object, expected: list[str]
) -> None:
    limit_range = {"spec": {"limits": [{"type": "Container", **bounds}]}}
    spec = _pod(requests, limits)
    assert list(pod_violations(spec, limit_range)) == expected
    assert list(pod_violations({"containers": [], "initContainers": spec["containers"]}, limit_range)) == expected
    assert list(pod_violations(spec, {})) == []
    assert list(pod_violations(spec, {"spec": {"limits": [{"type": "PersistentVolumeClaim", **bounds}]}})) == []


def test_the_bounds_of_a_limit_range_for_pods_hold_for_the_sum_of_their_containers_without_overhead() -> None:
    limit_range = {"spec": {"limits": [{"type": "Pod", "min": {"cpu": "2"}, "max": {"cpu": "3"}}]}}
    container = {"resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "1500m"}}}
    pod: Object = {"containers": [container, container], "overhead": {"cpu": "9"}}
    assert list(pod_violations(pod, limit_range)) == []
    small, large = ({**pod, "containers": [container] * count} for count in (1, 3))
    assert [text.partition(",")[0] for text in pod_violations(small, limit_range)] == ["minimum cpu usage per Pod is 2"]
    assert [text.partition(",")[0] for text in pod_violations(large, limit_range)] == ["maximum cpu usage per Pod is 3"]


def test_violations_are_one_message_in_which_each_occurs_once() -> None:
    assert joined_violations([]) == ""
    assert joined_violations(["a", "a"]) == "a"
    assert joined_violations(["b", "a", "b"]) == "[b, a]"


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
    assert len(spec["tolerations"]) == len(own) + added
    for each in spec["tolerations"][len(own) :]:
        assert each.pop("key") in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
        assert each == {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}


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
