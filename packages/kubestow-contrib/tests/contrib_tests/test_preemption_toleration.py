"""PreemptionToleration, with the test tables of scheduler-plugins."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from contrib_tests.watched_nodes import profile_of
from kubestow.api.core import Pod
from kubestow.api.meta import ObjectMeta
from kubestow.cluster.pods.table import PodChanges
from kubestow.errors import ConfigurationError
from kubestow.testing import PluginHarness, check_plugin, in_virtual_time, node, pod
from kubestow_contrib.preemption_toleration import PreemptionToleration, PriorityClass

NOW = datetime(2026, 1, 1, tzinfo=UTC)
MINIMUM = "preemption-toleration.scheduling.x-k8s.io/minimum-preemptable-priority"
SECONDS = "preemption-toleration.scheduling.x-k8s.io/toleration-seconds"
PROFILE = {
    "plugins": {
        "multiPoint": {"enabled": [{"name": "PreemptionToleration"}]},
        "postFilter": {"disabled": [{"name": "DefaultPreemption"}]},
        "preEnqueue": {"disabled": [{"name": "DefaultPreemption"}]},
    }
}


def tolerant(value: int, **annotations: str) -> PriorityClass:
    named = {{"minimum": MINIMUM, "seconds": SECONDS}[key]: text for key, text in annotations.items()}
    return PriorityClass(metadata=ObjectMeta(name="tolerant", annotations=named), value=value)


def running(priority: int, *, seconds_ago: float | None = 0, name: str = "running", **fields: Any) -> Pod:
    conditions = []
    if seconds_ago is not None:
        since = f"{NOW - timedelta(seconds=seconds_ago):%Y-%m-%dT%H:%M:%SZ}"
        conditions.append({"type": "PodScheduled", "status": "True", "lastTransitionTime": since})
    return pod(name, node="n", priority=priority, status={"phase": "Running", "conditions": conditions}, **fields)


def of_class(subject: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"spec": {"priorityClassName": "tolerant", **(subject or {})}}


def pods_of_all_nodes(harness: PluginHarness) -> PodChanges:
    table = harness.cluster.nodes.pod_table
    return PodChanges(table, *table.slots_on(range(len(harness.cluster.nodes))), -1)


@pytest.mark.parametrize(
    ("priority_class", "victim", "preemptor", "evictable"),
    [
        (tolerant(1), running(1, **of_class()), 2, True),
        (tolerant(3), running(3, **of_class()), 2, False),
        (tolerant(1, minimum="a"), running(1, **of_class()), 2, True),
        (tolerant(1, minimum="10", seconds="a"), running(1, **of_class()), 2, True),
        (tolerant(100, minimum="200"), running(100, **of_class()), 201, True),
        (tolerant(100, minimum="200"), running(100, **of_class()), 200, True),
        (tolerant(100, minimum="200", seconds="0"), running(100, **of_class()), 199, True),
        (tolerant(100, minimum="200", seconds="-1"), running(100, seconds_ago=10**8, **of_class()), 199, False),
        (tolerant(100, minimum="200", seconds="100"), running(100, seconds_ago=101, **of_class()), 199, True),
        (tolerant(100, minimum="200", seconds="100"), running(100, seconds_ago=10, **of_class()), 199, False),
        (tolerant(100, minimum="200", seconds="100"), running(100, seconds_ago=None, **of_class()), 199, False),
        (tolerant(100, seconds="-1"), running(100, **of_class()), 101, True),
        (tolerant(100, minimum="200", seconds="-1"), running(100), 199, True),
        (None, running(100, **of_class()), 199, True),
    ],
)
def test_pods_are_spared_by_their_class(
    priority_class: PriorityClass | None, victim: Pod, preemptor: int, evictable: bool
) -> None:
    harness = PluginHarness([node("n")], [victim], profile=PROFILE, plugins=[PreemptionToleration])
    if priority_class is not None:
        harness.cluster.catalog(PriorityClass).put(priority_class)
    plugins = harness.profiles["default-scheduler"].plugins
    (plugin,) = (plugin for plugin in plugins if isinstance(plugin, PreemptionToleration))
    found = plugin.may_evict(harness.info(pod("p", priority=preemptor)), pods_of_all_nodes(harness))
    assert found.tolist() == [evictable]


def test_a_spared_pod_is_evicted_when_its_time_is_over() -> None:
    async def scenario(harness: Any) -> None:
        harness.cluster.put(pod("preemptor", cpu="3", priority=150))
        await harness.advance(40)
        assert harness.node_of("preemptor") == ""
        # The end of the toleration is no event; unschedulable pods are retried every five minutes.
        await harness.advance(400)
        assert harness.node_of("preemptor") == "n"

    profiles = [{"schedulerName": "default-scheduler", **PROFILE}]
    victim = running(100, **of_class({"containers": [{"name": "c", "resources": {"requests": {"cpu": "3"}}}]}))
    objects = [node("n", cpu="4"), victim, tolerant(100, minimum="200", seconds="100")]
    in_virtual_time(scenario, *objects, plugins=[PreemptionToleration], profiles=profiles)


def test_a_class_that_changes_counts_from_then_on() -> None:
    harness = PluginHarness([node("n")], [running(100, **of_class())], profile=PROFILE, plugins=[PreemptionToleration])
    (plugin,) = (p for p in harness.profiles["default-scheduler"].plugins if isinstance(p, PreemptionToleration))
    catalog = harness.cluster.catalog(PriorityClass)

    def evictable() -> bool:
        return bool(plugin.may_evict(harness.info(pod("p", priority=150)), pods_of_all_nodes(harness))[0])

    catalog.put(tolerant(100, minimum="200", seconds="-1"))
    assert not evictable()
    changed = tolerant(100, seconds="60")
    catalog.put(PriorityClass(metadata=ObjectMeta(name="tolerant", resource_version="2"), value=changed.value))
    assert evictable()
    catalog.put(tolerant(100, minimum="200", seconds="-1"))
    catalog.remove("", "tolerant")
    assert evictable()


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        ({"minCandidateNodesPercentage": 101}, "minCandidateNodesPercentage is 101, expected 0 to 100"),
        ({"minCandidateNodesAbsolute": -1}, "minCandidateNodesAbsolute is -1"),
        ({"minCandidateNodesPercentage": 0, "minCandidateNodesAbsolute": 0}, "cannot both be 0"),
    ],
)
def test_bad_args_are_rejected(args: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        PluginHarness(profile=profile_of("PreemptionToleration", args), plugins=[PreemptionToleration])


def test_the_contract_is_kept() -> None:
    check_plugin(PreemptionToleration, pods=[running(1, **of_class()), pod("urgent", priority=150)])
