"""Invariants of bindings: no retry without backoff, no overcommitted node, no host port used twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from kubestow.api.core import Node, Pod
from kubestow_lab.fault_simulation.apiserver.server import SimulatedServer
from kubestow_lab.fault_simulation.invariants.second_opinion import plain
from kubestow_lab.fault_simulation.scheduler.process import Process
from kubestow_lab.oracle.node_with_pods import NodeWithPods, pod_requests

#: Allowed bind attempts of a pod per second: by an extender and by a plugin, with retries.
_MAX_ATTEMPTS = 6


def repeated_bindings(process: Process, uid: str) -> Iterator[str]:
    """Bind attempts of a pod that are repeated without a backoff."""
    times = process.bind_attempts[uid]
    if len(times) > _MAX_ATTEMPTS and times[-1] - times[-1 - _MAX_ATTEMPTS] < 1.0:
        yield f"{process.name} has sent {len(times)} bindings of {uid}, {_MAX_ATTEMPTS} of them in the last second"


def binding_violations(server: SimulatedServer, process: Process, uid: str, node_name: str) -> Iterator[str]:
    """Why a binding is wrong, given the state that the scheduler knew when it decided."""
    snapshot = process.snapshots.get(uid)
    if snapshot is None:
        yield f"{process.name} bound {uid} to {node_name} without a decision"
        return
    if snapshot.node_name != node_name:
        yield f"{process.name} bound {uid} to {node_name}, but decided for {snapshot.node_name}"
    if node_name not in server.node_names:
        yield f"{uid} was bound to {node_name}, which never existed"
        return
    known_pods = [
        pod
        for pod in server.pods_on(node_name)
        if server.bound_by.get(pod.metadata.uid) == process.name or pod.metadata.uid in snapshot.uids
    ]
    states = process.view.node_states[node_name][snapshot.state :]
    yield from _overcommitted(node_name, known_pods, states, uid)
    yield from _port_conflicts(node_name, known_pods, uid)


def _overcommitted(node_name: str, pods: Sequence[Pod], states: Sequence[Node], uid: str) -> Iterator[str]:
    """Check the pod's resources against the largest allocatable since the decision, because nodes can shrink."""
    allocatable: Counter[str] = Counter()
    for state in states:
        allocatable |= Counter(NodeWithPods(plain(state)).allocatable)
    used = Counter({"pods": len(pods)})
    for pod in pods:
        used.update(pod_requests(plain(pod)))
    requested = pod_requests(plain(next(pod for pod in pods if pod.metadata.uid == uid))) + Counter({"pods": 1})
    for name in requested:
        if used[name] > allocatable[name]:
            yield f"{node_name} has {allocatable[name]} {name}, and {used[name]} are requested with {uid}"


def _port_conflicts(node_name: str, pods: Sequence[Pod], uid: str) -> Iterator[str]:
    ports = {pod.metadata.uid: _host_ports(pod) for pod in pods}
    for other, taken in ports.items():
        if other != uid and (both := taken & ports[uid]):
            yield f"host ports {sorted(both)} of {node_name} are used by {other} and {uid}"


def _host_ports(pod: Pod) -> set[int]:
    return {port.host_port for container in pod.spec.containers for port in container.ports if port.host_port}
