"""Objects and profiles for tests of Volcano's rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubestow.api.core import Pod
from kubestow.api.meta import convert
from kubestow.testing import pod
from kubestow_contrib.volcano.pod_groups import PodGroup
from kubestow_contrib.volcano.queues import Queue

GROUP, QUEUE = "scheduling.k8s.io/group-name", "scheduling.volcano.sh/queue-name"


def queue(name: str, weight: int = 1, *, state: str = "", **spec: Any) -> Queue:
    """A Queue object."""
    metadata = {"name": name, "uid": f"queue-{name}"}
    return convert(Queue, {"metadata": metadata, "spec": {"weight": weight, **spec}, "status": {"state": state}})


def pod_group(name: str, queue_name: str = "", **spec: Any) -> PodGroup:
    """A PodGroup of Volcano."""
    metadata = {"name": name, "namespace": "default", "uid": f"group-{name}"}
    return convert(PodGroup, {"metadata": metadata, "spec": {"queue": queue_name, "minMember": 1, **spec}})


def member(name: str, group: str, **fields: Any) -> Pod:
    """A pod of a PodGroup."""
    return pod(name, metadata={"annotations": {GROUP: group}}, **fields)


def single(name: str, queue_name: str, **fields: Any) -> Pod:
    """A pod that is a job by itself."""
    return pod(name, metadata={"annotations": {QUEUE: queue_name}}, **fields)


def profile(
    actions: str = "enqueue, allocate, backfill",
    options: Mapping[str, Mapping[str, bool]] | None = None,
    *,
    gangs: bool = True,
) -> list[dict[str, Any]]:
    """The profiles of a scheduler with Volcano; ``options`` are fields of plugins by name."""
    tiers = [("priority", "gang", "conformance"), ("overcommit", "drf", "predicates", "proportion", "nodeorder")]
    args = {
        "actions": actions,
        "tiers": [{"plugins": [{"name": name, **(options or {}).get(name, {})} for name in tier]} for tier in tiers],
    }
    only = {"enabled": [{"name": "Volcano"}], "disabled": [{"name": "*"}]}
    plugins = {
        "queueSort": only,
        "preEnqueue": {"enabled": [{"name": "Volcano"}]},
        "preFilter": {"enabled": [{"name": "Volcano"}]},
        "postFilter": only,
        "multiPoint": {"enabled": [{"name": "GangScheduling"}] if gangs else []},
    }
    return [
        {
            "schedulerName": "default-scheduler",
            "plugins": plugins,
            "pluginConfig": [{"name": "Volcano", "args": args}],
        }
    ]
