"""QOSSort, with the test tables of scheduler-plugins."""

from __future__ import annotations

from typing import Any

from kubestow.testing import check_plugin, in_virtual_time, node, pod
from kubestow_contrib.qos_sort import QOSSort

SMALL, LARGE = {"cpu": "100m", "memory": "100Mi"}, {"cpu": "200m", "memory": "200Mi"}
NOTHING: dict[str, str] = {}


def with_resources(name: str, requests: dict[str, str], limits: dict[str, str], **fields: Any) -> Any:
    return pod(
        name, spec={"containers": [{"name": "c", "resources": {"requests": requests, "limits": limits}}]}, **fields
    )


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
