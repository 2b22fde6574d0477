"""Steps and observations that scenarios with gangs share."""

from __future__ import annotations

from collections.abc import Sequence

from kubestow.api.core import Pod
from kubestow.testing.scheduler_harness import SchedulerHarness


def create_pods(harness: SchedulerHarness, pods: Sequence[Pod]) -> None:
    for each in pods:
        harness.cluster.put(each)


def bound_count(harness: SchedulerHarness, pods: Sequence[Pod]) -> int:
    """How many of the pods are bound."""
    return sum(bool(harness.node_of(pod.metadata.name)) for pod in pods)


def remaining(harness: SchedulerHarness, pods: Sequence[Pod]) -> list[str]:
    """The names of those pods that have not been deleted."""
    names = {each.metadata.name for each in harness.cluster.pods()}
    return [each.metadata.name for each in pods if each.metadata.name in names]


def pending_message(harness: SchedulerHarness, name: str) -> str:
    """The message of a pod's PodScheduled condition, empty without one."""
    condition = harness.cluster.condition(name)
    return "" if condition is None else condition.message
