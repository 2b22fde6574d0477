"""The log, exec, attach and portforward subresources of pods.

Containers on simulated nodes do not run. The log of one says what happened to it, and contains the output of a known
command; the others validate the request as kube-apiserver does, and then fail with 501.
"""

from __future__ import annotations

from collections.abc import Iterator

from kubestow_devcluster.apiserver import statuses
from kubestow_devcluster.apiserver.endpoints.request_scope import RequestScope
from kubestow_devcluster.apiserver.endpoints.response import Response
from kubestow_devcluster.apiserver.schema import Object
from kubestow_devcluster.container_commands import command_of

__all__ = ["connect", "get_log"]

_CONTAINERS = ("containers", "initContainers", "ephemeralContainers")
_STATUSES = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
#: The reasons of containers that wait for something else than their image.
_STARTING = ("ContainerCreating", "PodInitializing")


def get_log(scope: RequestScope) -> Response:
    """The log of a container; empty for a pod without a node.

    Raises a StatusError for an unknown container, one that has not started, and a node without addresses.
    """
    request, pod = scope.request, scope.kind.decode(scope.get())
    name = request.query.get("container", "")
    _check_container(pod, name)
    if not pod["spec"].get("nodeName"):
        return Response(200, b"", "text/plain")
    _check_node_address(scope, pod)
    name = name or pod["spec"]["containers"][0]["name"]
    lines = list(_log_lines(pod, name, previous=request.flag("previous")))
    tail = request.number("tailLines")
    if tail is not None:
        lines = lines[max(len(lines) - tail, 0) :]
    text = "".join(f"{time} {line}\n" if request.flag("timestamps") else f"{line}\n" for time, line in lines)
    return Response(200, text.encode()[: request.number("limitBytes")], "text/plain")


def connect(scope: RequestScope) -> Response:
    """``exec``, ``attach`` and ``portforward``. Always raises a StatusError."""
    pod = scope.kind.decode(scope.get())
    if not pod["spec"].get("nodeName"):
        raise statuses.bad_request(f"pod {scope.info.name} does not have a host assigned")
    raise _not_implemented("there is nothing to connect to")


def _log_lines(pod: Object, name: str, *, previous: bool) -> Iterator[tuple[str, str]]:
    """The lines of a container's log, each with its time. Raises a 400 StatusError for one that has not started."""
    run = _run(pod, name, previous=previous)
    started, finished = run.get("startedAt") or "", run.get("finishedAt")
    container = _named(pod["spec"], _CONTAINERS, name)
    command = command_of(container, pod["metadata"])
    if command is not None:
        yield from ((started, line) for line in command.output.splitlines())
    else:
        image = container.get("image", "")
        yield started, f"kubestow: simulated container {name} of image {image} started at {started}; no process runs"
    if finished:
        yield finished, f"kubestow: container {name} exited with code {run['exitCode']} at {finished}"


def _run(pod: Object, name: str, *, previous: bool) -> Object:
    """The state of a container in its current or last run. Raises a 400 StatusError for one that has not run."""
    status = _named(pod["status"], _STATUSES, name)
    state, last = status.get("state") or {}, (status.get("lastState") or {}).get("terminated")
    subject = f'container "{name}" in pod "{pod["metadata"]["name"]}"'
    if previous and not last:
        raise statuses.bad_request(f"previous terminated {subject} not found")
    run: Object | None = last if previous else state.get("running") or state.get("terminated") or last
    if not run:
        reason = (state.get("waiting") or {}).get("reason", "ContainerCreating")
        reason = reason if reason in _STARTING else "trying and failing to pull image"
        raise statuses.bad_request(f"{subject} is waiting to start: {reason}")
    return run


def _named(obj: Object, fields: tuple[str, ...], name: str) -> Object:
    """The container or container status of this name; empty without one."""
    return next((one for field in fields for one in obj.get(field) or () if one["name"] == name), {})


def _check_container(pod: Object, container: str) -> None:
    name, spec = pod["metadata"]["name"], pod["spec"]
    containers = [one["name"] for one in spec["containers"]]
    others = [one["name"] for field in ("initContainers", "ephemeralContainers") for one in spec.get(field) or ()]
    if not container and len(containers) > 1:
        choices = " ".join(containers)
        raise statuses.bad_request(f"a container name must be specified for pod {name}, choose one of: [{choices}]")
    if container and container not in containers + others:
        raise statuses.bad_request(f"container {container} is not valid for pod {name}")


def _check_node_address(scope: RequestScope, pod: Object) -> None:
    """Raises a 404 StatusError for a missing node, a 500 one for a node without addresses."""
    nodes = scope.registry.scheme["nodes"]
    node = nodes.decode(scope.registry.get(nodes, "", pod["spec"]["nodeName"]))
    if not node.get("status", {}).get("addresses"):
        raise statuses.internal("no preferred addresses found; known addresses: []")


def _not_implemented(problem: str) -> statuses.StatusError:
    return statuses.StatusError(501, "NotImplemented", f"simulated nodes do not run containers: {problem}")
