"""The log, exec, attach and portforward subresources of pods.

They validate the request as kube-apiserver does, and then fail with 501: containers on simulated nodes do not run.
"""

from __future__ import annotations

from kubestow.devcluster.apiserver import statuses
from kubestow.devcluster.apiserver.endpoints.request_scope import RequestScope
from kubestow.devcluster.apiserver.endpoints.response import Response
from kubestow.devcluster.apiserver.schema import Object

__all__ = ["connect", "get_log"]


def get_log(scope: RequestScope) -> Response:
    """The empty log of a pod without a node. Raises a StatusError for any other pod or an unknown container."""
    pod = scope.kind.decode(scope.get())
    _check_container(pod, scope.request.query.get("container", ""))
    if not pod["spec"].get("nodeName"):
        return Response(200, b"", "text/plain")
    _check_node_address(scope, pod)
    raise _not_implemented("there is no log")


def connect(scope: RequestScope) -> Response:
    """``exec``, ``attach`` and ``portforward``. Always raises a StatusError."""
    pod = scope.kind.decode(scope.get())
    if not pod["spec"].get("nodeName"):
        raise statuses.bad_request(f"pod {scope.info.name} does not have a host assigned")
    raise _not_implemented("there is nothing to connect to")


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
