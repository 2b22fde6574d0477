"""The scheduler that runs in a live cluster, if it is kubestow: its configuration, and what it reports about a pod.

It is asked through the API server's proxy, or in a development cluster through the API server itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

import click

from kubestow.cli.input.cluster import ClusterInput, read_live
from kubestow.cli.input.scheduler import SchedulerInput
from kubestow.errors import APIError, Unreachable

if TYPE_CHECKING:
    from kubestow.client.rest.transport import Transport

_SCHEDULER_LABEL = "app.kubernetes.io/name=kubestow"
_SECURE_PORT = 10259
#: How many replicas of the scheduler are tried: only the leader knows the queue.
_MOST_REPLICAS = 3


@dataclass(frozen=True, slots=True)
class RunningScheduler(SchedulerInput):
    """Options of a command without a configuration, and that of the scheduler that runs."""

    running: Mapping[str, Any] = field(kw_only=True)

    @property
    def configuration(self) -> Mapping[str, Any]:
        """The configuration of the scheduler that runs, as plain data."""
        return self.running


def configured_as_running(scheduler: SchedulerInput, source: ClusterInput) -> SchedulerInput:
    """The options of a command, of a live cluster with the configuration of the scheduler that runs there.

    It is read unless files of a cluster, a configuration or plugins are given. The options stay as they are where no
    scheduler answers. Raises InputError, APIError and Unreachable.
    """
    if source.clusters or scheduler.config is not None or scheduler.plugins:
        return scheduler
    found = read_live(source, _configuration)
    if found is None:
        return scheduler
    click.echo("remark: decided with the configuration of the scheduler that runs there", err=True)
    return RunningScheduler(None, (), scheduler.feature_gates, scheduler.emulated_version, running=found)


async def _configuration(transport: Transport) -> Mapping[str, Any] | None:
    for root in await _roots(transport):
        configuration = (await _read(transport, f"{root}/configz")).get("componentconfig")
        # kube-scheduler's is not in a version of the API that can be read.
        if isinstance(configuration, Mapping) and "apiVersion" in configuration:
            return configuration
    return None


async def read_report(transport: Transport, namespace: str, name: str) -> dict[str, Any] | None:
    """What the scheduler's /debug endpoint says about a pod, and the dashboard's search for changes as ``explanation``.

    None if it does not answer.
    """
    path = f"pods/{quote(namespace)}/{quote(name)}"
    for root in await _roots(transport):
        report = await _read(transport, f"{root}/debug/{path}")
        if isinstance(report.get("summary"), str):
            explanation = await _read(transport, f"{root}/dashboard/{path}/counterfactuals")
            return report | ({"explanation": explanation} if "counterfactuals" in explanation else {})
    return None


async def _roots(transport: Transport) -> list[str]:
    """The paths below which a scheduler may answer."""
    query = urlencode({"labelSelector": _SCHEDULER_LABEL, "fieldSelector": "status.phase=Running"})
    listed = await _read(transport, f"/api/v1/pods?{query}")
    proxies = [
        f"/api/v1/namespaces/{metadata['namespace']}/pods/https:{metadata['name']}:{_SECURE_PORT}/proxy"
        for metadata in (pod["metadata"] for pod in listed.get("items", ())[:_MOST_REPLICAS])
    ]
    return [*proxies, ""]


async def _read(transport: Transport, path: str) -> dict[str, Any]:
    """The object at a path; empty if it may not be read, if it does not exist, or if another program answers."""
    from kubestow.api.json_text import UNDECODABLE, parse_json

    try:
        found = parse_json(await transport.request("GET", path))
    except (APIError, Unreachable, *UNDECODABLE):
        return {}
    return found if isinstance(found, dict) else {}
