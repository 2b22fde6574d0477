"""``kubestow why``: the short explanation of one pod of a live cluster.

If kubestow runs in the cluster as pods with the label of its manifests, and the API server's proxy may reach its secure
port, the scheduler itself reports what it knows: attempts, place in the queue, events that requeue the pod. Otherwise
the explanation is computed from the objects of the API server.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

import click
import msgspec

from kubestow.cli.exit_status import bad_input_is_status_1
from kubestow.cli.inputs.connection import Connection, connection_options
from kubestow.cli.inputs.pod import PodName, pod_argument
from kubestow.cli.inputs.scheduler import SchedulerInput, scheduler_options
from kubestow.cli.output.documents import OUTPUTS, print_result
from kubestow.cli.output.formats import output_option
from kubestow.errors import APIError, Unreachable

if TYPE_CHECKING:
    from kubestow.cli.inputs.live_cluster import LiveObjects
    from kubestow.client.rest.transport import Transport

__all__ = ["why"]

_SCHEDULER_LABEL = "app.kubernetes.io/name=kubestow"
_SECURE_PORT = 10259
#: How many replicas of the scheduler are tried: only the leader knows the queue.
_MOST_REPLICAS = 3


@click.command()
@pod_argument
@connection_options
@scheduler_options
@output_option(*OUTPUTS)
@bad_input_is_status_1
def why(pod: PodName, connection: Connection, scheduler: SchedulerInput, output: str) -> int:
    """Say in a few lines why POD (namespace/name) of a live cluster is pending, or on its node.

    The scheduler's own report if it is reachable, otherwise computed from what the API server holds. `kubestow explain`
    is the long form.
    """
    from kubestow.engine.explanation.explain import explain

    options = scheduler.read()
    found = asyncio.run(_read(connection, *pod.key))
    if isinstance(found, dict):
        click.echo("remark: reported by the scheduler", err=True)
        print_result(lambda: found, _report_text(found), output)
        return 0
    explanation = explain(found.cluster(str(connection)), str(pod), options)
    for remark in (*explanation.remarks, "computed from the objects of the API server"):
        click.echo(f"remark: {remark}", err=True)
    print_result(lambda: _without_nodes(explanation.document()), "\n".join(explanation.summary()), output)
    return 0


def _without_nodes(document: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in document.items() if key != "byNode"}


async def _read(connection: Connection, namespace: str, name: str) -> dict[str, Any] | LiveObjects:
    """The scheduler's report about a pod, or else all objects. Raises InputError, APIError and Unreachable."""
    from kubestow.cli.inputs.live_cluster import list_objects
    from kubestow.client.rest.transport import Transport
    from kubestow.process import WallClock

    async with Transport(await connection.credentials(), clock=WallClock()) as transport:
        await transport.request("GET", f"/api/v1/namespaces/{quote(namespace)}/pods/{quote(name)}")  # 404 if unknown
        report = await _scheduler_report(transport, namespace, name)
        return await list_objects(transport) if report is None else report


async def _scheduler_report(transport: Transport, namespace: str, name: str) -> dict[str, Any] | None:
    """What the scheduler's /debug endpoint says about a pod, through the API server's proxy; None without one."""
    try:
        query = urlencode({"labelSelector": _SCHEDULER_LABEL, "fieldSelector": "status.phase=Running"})
        listed = msgspec.json.decode(await transport.request("GET", f"/api/v1/pods?{query}"))
    except (APIError, Unreachable, msgspec.DecodeError):
        return None
    for pod in listed.get("items", ())[:_MOST_REPLICAS]:
        metadata = pod["metadata"]
        proxy = f"/api/v1/namespaces/{metadata['namespace']}/pods/https:{metadata['name']}:{_SECURE_PORT}/proxy"
        try:
            body = await transport.request("GET", f"{proxy}/debug/pods/{quote(namespace)}/{quote(name)}")
            report = msgspec.json.decode(body)
        except (APIError, Unreachable, msgspec.DecodeError):
            continue  # not allowed, a standby, or another program
        if isinstance(report, dict) and isinstance(report.get("summary"), str):
            return report
    return None


def _report_text(report: dict[str, Any]) -> str:
    lines = [f"{report.get('pod', '')}: {report['summary']}"]
    queue = report.get("queue", {})
    lines += [f"{plugin} waits for {', '.join(events)}" for plugin, events in queue.get("requeueEvents", {}).items()]
    now = report.get("now", {})
    if "feasible" in now:
        lines.append(f"now it fits on {now['feasible']:,} of {now['nodes']:,} nodes")
    if now.get("message"):
        lines.append(f"now: {now['message']}")
    return "\n".join(lines)
