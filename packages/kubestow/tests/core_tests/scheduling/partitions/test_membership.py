"""Which partition nodes and pods belong to."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from kubestow.api.core import Pod
from kubestow.cluster.pods.shapes import Shapes
from kubestow.scheduling.partitions.membership import DESIGNATED, PARTITION_LABEL, Membership, is_confined
from kubestow.testing import pod, pods

#: So many that two pods are in one partition by chance in one of a thousand cases.
MANY = 1000


def partition_of(obj: Pod, count: int = MANY) -> int | str:
    return Membership(count).of_pod(Shapes().info(obj))


def spread(app: str, **selector: Any) -> dict[str, Any]:
    return {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": selector or {"matchLabels": {"app": app}},
    }


def affinity(kind: str, app: str, **term: Any) -> dict[str, Any]:
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": app}}, **term}
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def preferred(kind: str, app: str) -> dict[str, Any]:
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": app}}}
    return {kind: {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term}]}}


def test_a_node_belongs_to_the_partition_of_its_label_or_of_a_hash_of_its_name() -> None:
    membership = Membership(4)
    hashed = membership.of_node("node-1", {})
    assert membership.of_node("node-1", {PARTITION_LABEL: "3"}) == 3
    for invalid in ("4", "-1", "", "a", "1.0"):
        assert membership.of_node("node-1", {PARTITION_LABEL: invalid}) == hashed
    found = Counter(membership.of_node(f"node-{number}", {}) for number in range(400))
    assert set(found) == {0, 1, 2, 3}
    assert min(found.values()) > 60


def test_pods_without_constraints_are_divided_even_if_they_are_of_one_workload() -> None:
    found = Counter(partition_of(each, 4) for each in pods(400, labels={"app": "a"}))
    assert set(found) == {0, 1, 2, 3}
    assert min(found.values()) > 60


@pytest.mark.parametrize(
    "settings",
    [
        {"spread": [spread("a")]},
        {"affinity": affinity("podAntiAffinity", "a")},
        {"affinity": affinity("podAffinity", "a", namespaces=["default"])},
        {"affinity": preferred("podAntiAffinity", "a")},
        {"spec": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]}},
    ],
)
def test_pods_that_constrain_each_other_belong_to_one_partition(settings: dict[str, Any]) -> None:
    same = {
        partition_of(pod(f"a-{number}", labels={"app": "a", "pod-template-hash": str(number)}, **settings))
        for number in range(5)
    }
    assert len(same) == 1
    other = partition_of(pod("a-0", namespace="other", labels={"app": "a"}, **settings))
    assert other not in same


@pytest.mark.parametrize(
    "settings",
    [
        {"spread": [spread("b")]},
        {"affinity": affinity("podAntiAffinity", "b")},
        {"affinity": affinity("podAffinity", "a", namespaces=["other"])},
        {"affinity": affinity("podAffinity", "a", namespaceSelector={})},
        {"spread": [spread("a"), spread("b")]},
        {"spread": [spread("a", matchExpressions=[{"key": "app", "operator": "Unknown"}])]},
        {"spec": {"schedulingGroup": {"podGroupName": "g"}}},
        {"spec": {"resourceClaims": [{"name": "gpu"}]}},
    ],
)
def test_pods_that_constrain_others_or_cannot_leave_belong_to_the_designated_partition(
    settings: dict[str, Any],
) -> None:
    assert {partition_of(pod(f"a-{n}", labels={"app": "a"}, **settings)) for n in range(3)} == {DESIGNATED}


def test_preferences_for_pods_of_other_workloads_do_not_count() -> None:
    found = {partition_of(pod(f"a-{n}", labels={"app": "a"}, affinity=preferred("podAffinity", "b"))) for n in range(5)}
    assert len(found) > 1


def test_a_pod_for_one_node_belongs_to_the_partition_of_the_node() -> None:
    def tied(*names: str) -> Pod:
        terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]} for name in names]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        return pod("daemon", affinity={"nodeAffinity": required})

    assert partition_of(tied("node-1")) == "node-1"
    assert isinstance(partition_of(tied("node-1", "node-2")), int)


def test_only_gangs_and_devices_are_confined() -> None:
    shapes = Shapes()
    assert is_confined(shapes.info(pod(spec={"schedulingGroup": {"podGroupName": "g"}})))
    assert is_confined(shapes.info(pod(spec={"resourceClaims": [{"name": "gpu"}]})))
    assert not is_confined(shapes.info(pod(labels={"app": "a"}, spread=[spread("b")])))
