"""QOSSort and QoS classes, with the test tables of scheduler-plugins."""

from __future__ import annotations

from typing import Any

import pytest

from kubestow.testing import check_plugin, in_virtual_time, node, pod
from kubestow_contrib.qos_class import qos_class
from kubestow_contrib.qos_sort import QOSSort

SMALL, LARGE = {"cpu": "100m", "memory": "100Mi"}, {"cpu": "200m", "memory": "200Mi"}
NOTHING: dict[str, str] = {}


def with_resources(name: str, requests: dict[str, str], limits: dict[str, str], **fields: Any) -> Any:
    return pod(
        name, spec={"containers": [{"name": "c", "resources": {"requests": requests, "limits": limits}}]}, **fields
    )


@pytest.mark.parametrize(
    ("containers", "expected"),
    [
        ([(NOTHING, NOTHING)], "BestEffort"),
        ([({"cpu": "0"}, NOTHING)], "BestEffort"),
        ([({"example.com/gpu": "1"}, NOTHING)], "BestEffort"),
        ([(SMALL, LARGE)], "Burstable"),
        ([(SMALL, NOTHING)], "Burstable"),
        ([({"cpu": "1"}, {"cpu": "1"})], "Burstable"),
        ([(SMALL, SMALL), (NOTHING, NOTHING)], "Burstable"),
        ([(SMALL, SMALL)], "Guaranteed"),
        ([(NOTHING, SMALL)], "Guaranteed"),
        ([({"cpu": "0.1", "memory": "104857600"}, SMALL), (LARGE, LARGE)], "Guaranteed"),
    ],
)
def test_qos_class(containers: list[tuple[dict[str, str], dict[str, str]]], expected: str) -> None:
    resources = [{"name": "c", "resources": {"requests": r, "limits": lim}} for r, lim in containers]
    assert qos_class(pod(spec={"containers": resources}).spec) == expected
    first, *others = resources
    assert qos_class(pod(spec={"containers": others, "initContainers": [first]}).spec) == expected


def test_the_resources_of_the_pod_decide() -> None:
    spec = {"containers": [{"name": "c"}], "resources": {"requests": SMALL, "limits": SMALL}}
    assert qos_class(pod(spec=spec).spec) == "Guaranteed"


def test_pods_are_scheduled_by_priority_class_and_time() -> None:
    plugins = {"queueSort": {"enabled": [{"name": "QOSSort"}], "disabled": [{"name": "*"}]}}

    async def scenario(harness: Any) -> None:
        for subject in (
            with_resources("blocker", NOTHING, NOTHING),
            with_resources("best-effort", NOTHING, NOTHING),
            with_resources("first-burstable", SMALL, LARGE),
            with_resources("second-burstable", SMALL, LARGE),
            with_resources("guaranteed", SMALL, SMALL),
            with_resources("important", NOTHING, NOTHING, priority=5),
        ):
            harness.cluster.put(subject)
        await harness.settle()
        bound = [name.removeprefix("default/") for name, _ in harness.cluster.bindings]
        assert [name for name in bound if name != "blocker"] == [
            "important",
            "guaranteed",
            "first-burstable",
            "second-burstable",
            "best-effort",
        ]

    profiles = [{"schedulerName": "default-scheduler", "plugins": plugins}]
    in_virtual_time(scenario, node("n", cpu="100"), plugins=[QOSSort], profiles=profiles)


def test_the_contract_is_kept() -> None:
    check_plugin(QOSSort)
