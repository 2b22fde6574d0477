"""Jobs, nodes and profiles for tests of queues."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from kubestow.api.core import Pod
from kubestow.testing import SchedulerHarness, in_virtual_time, pod
from kubestow_contrib.queues.job_queues import JobQueues

JOB = "batch/v1"


def job(
    name: str,
    queue: str,
    pods: int = 1,
    *,
    run: str = "1h",
    annotations: Mapping[str, str] | None = None,
    **fields: Any,
) -> list[Pod]:
    """The pods of a job that runs for so long."""
    controller = {"apiVersion": JOB, "kind": "Job", "name": name, "uid": f"uid-{name}", "controller": True}
    given = {"kubestow.dev/queue": queue, "kubestow.dev/run-time": run, **(annotations or {})}
    fields.setdefault("cpu", "1")
    return [
        pod(f"{name}-{index}", metadata={"annotations": given, "ownerReferences": [controller]}, **fields)
        for index in range(pods)
    ]


def profile(queues: Sequence[str | Mapping[str, Any]] = ("q",), **args: Any) -> list[dict[str, Any]]:
    """The profiles of a scheduler with these queues."""
    given = [{"name": queue} if isinstance(queue, str) else dict(queue) for queue in queues]
    plugins = {
        "multiPoint": {"enabled": [{"name": "JobQueues"}], "disabled": [{"name": "DefaultPreemption"}]},
    }
    return [
        {
            "schedulerName": "default-scheduler",
            "plugins": plugins,
            "pluginConfig": [{"name": "JobQueues", "args": {"queues": given, **args}}],
        }
    ]


def run(
    scenario: Callable[[SchedulerHarness], Awaitable[None]],
    *objects: Any,
    queues: Sequence[str | Mapping[str, Any]] = ("q",),
    **args: Any,
) -> None:
    """Run a scenario with a scheduler in virtual time."""
    in_virtual_time(scenario, *objects, plugins=[JobQueues], profiles=profile(queues, **args))


def put(harness: SchedulerHarness, *jobs: Sequence[Pod]) -> None:
    """Create the pods of jobs."""
    for pods in jobs:
        for each in pods:
            harness.cluster.put(each)


def finish(harness: SchedulerHarness, name: str) -> None:
    """End all pods of a job."""
    for each in list(harness.cluster.pods()):
        if each.metadata.name.startswith(f"{name}-"):
            harness.cluster.remove(each)


def running(harness: SchedulerHarness) -> dict[str, int]:
    """How many pods of each job are on nodes."""
    found: dict[str, int] = {}
    for each in harness.cluster.pods():
        if each.spec.node_name:
            name = each.metadata.name.rpartition("-")[0]
            found[name] = found.get(name, 0) + 1
    return found
