"""TopologicalSort."""

from __future__ import annotations

from typing import Any

import pytest

from kubestow.api.meta import convert
from kubestow.testing import check_plugin, in_virtual_time, node, pod
from kubestow_contrib.network_aware import GROUP_LABEL, WORKLOAD_LABEL, AppGroup, TopologicalSort

ORDER = [{"workload": {"selector": selector}, "index": index} for index, selector in enumerate(["p1", "p3", "p2"], 1)]
GROUP = convert(AppGroup, {"metadata": {"name": "basic", "namespace": "default"}, "status": {"topologyOrder": ORDER}})
PLUGINS = {"queueSort": {"enabled": [{"name": "TopologicalSort"}], "disabled": [{"name": "*"}]}}


def member(name: str, workload: str, application: str = "basic", **fields: Any) -> Any:
    return pod(name, labels={GROUP_LABEL: application, WORKLOAD_LABEL: workload}, **fields)


def order_of(*pods: Any, args: dict[str, Any] | None = None) -> list[str]:
    found: list[str] = []

    async def scenario(harness: Any) -> None:
        for each in pods:
            harness.cluster.put(each)
        await harness.settle()
        found.extend(name.removeprefix("default/") for name, _ in harness.cluster.bindings)

    config = [{"name": "TopologicalSort", "args": args or {}}]
    profiles = [{"schedulerName": "default-scheduler", "plugins": PLUGINS, "pluginConfig": config}]
    in_virtual_time(scenario, node("n", cpu="100"), GROUP, plugins=[TopologicalSort], profiles=profiles)
    return found


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        ([member("c", "p2"), member("b", "p3"), member("a", "p1")], ["a", "b", "c"]),
        ([member("c", "p2"), member("x", "unknown"), member("a", "p1")], ["x", "a", "c"]),
        ([member("second", "p1"), member("first", "p1", priority=5)], ["first", "second"]),
        ([member("low", "p1"), pod("high", priority=5)], ["high", "low"]),
        ([member("second", "p2", "missing"), member("third", "p1", "missing")], ["second", "third"]),
    ],
)
def test_the_order_of_the_queue(pods: list[Any], expected: list[str]) -> None:
    assert order_of(*pods) == expected


def test_groups_of_other_namespaces_do_not_count() -> None:
    pods = [member("c", "p2"), member("a", "p1")]
    assert order_of(*pods, args={"namespaces": ["elsewhere"]}) == ["c", "a"]


def test_the_contract_is_kept() -> None:
    check_plugin(TopologicalSort, pods=[member("a", "p1"), pod("b")], objects=[GROUP])


def test_equal_pods_are_first_in_first_out() -> None:
    names = [f"p{number}" for number in range(9)]
    assert order_of(*(pod(name) for name in names)) == names
    assert order_of(*(member(name, "p1") for name in names)) == names
