"""What only a container could answer: its log, a shell in it, a port of it. Simulated ones run nothing, and say so."""

from __future__ import annotations

from kubestow.devcluster.apiserver import statuses
from kubestow.devcluster.apiserver.requests import Answer
from kubestow.devcluster.apiserver.resources import Object
from kubestow.devcluster.apiserver.verbs.call import Call

__all__ = ["get_log", "reach_container"]

_NOTHING_RUNS = "containers of simulated nodes run nothing: {}"


def get_log(call: Call) -> Answer:
    """Empty before the pod is on a node. Raises a Failure for a container that is not there, and for all that are."""
    pod = _pod(call)
    _check_container(pod, call.request.query.get("container", ""))
    if not pod["spec"].get("nodeName"):
        return Answer(200, b"", "text/plain")
    _check_address(call, pod)
    raise _not_there("there is no log")


def reach_container(call: Call) -> Answer:
    """``exec``, ``attach`` and ``portforward``: refused."""
    pod = _pod(call)
    if not pod["spec"].get("nodeName"):
        raise statuses.bad_request(f"pod {call.target.name} does not have a host assigned")
    raise _not_there("there is nothing to connect to")


def _pod(call: Call) -> Object:
    return call.kind.decode(call.registry.get(call.kind, call.target.namespace, call.target.name))


def _check_container(pod: Object, asked: str) -> None:
    name, spec = pod["metadata"]["name"], pod["spec"]
    running = [one["name"] for one in spec["containers"]]
    known = running + [
        one["name"] for field in ("initContainers", "ephemeralContainers") for one in spec.get(field) or ()
    ]
    if not asked and len(running) > 1:
        choices = f"a container name must be specified for pod {name}, choose one of: [{' '.join(running)}]"
        raise statuses.bad_request(choices)
    if asked and asked not in known:
        raise statuses.bad_request(f"container {asked} is not valid for pod {name}")


def _check_address(call: Call, pod: Object) -> None:
    """What the real server says of a node that cannot be reached. Raises a 404 or 500 Failure."""
    nodes = call.registry.scheme["nodes"]
    node = nodes.decode(call.registry.get(nodes, "", pod["spec"]["nodeName"]))
    if not node.get("status", {}).get("addresses"):
        raise statuses.internal("no preferred addresses found; known addresses: []")


def _not_there(problem: str) -> statuses.StatusError:
    return statuses.StatusError(501, "NotImplemented", _NOTHING_RUNS.format(problem))
