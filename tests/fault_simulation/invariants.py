"""What must hold: of every binding when it is made, and of everybody once the world has come to rest.

The judgement is independent of the scheduler: amounts are read by :mod:`kubestow.workloads`, whether a pod could run by
:func:`kubestow.workloads.feasibility.check_feasibility`, and what a scheduler holds is compared with what it would hold
if it had just read the server.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from kubestow.api.core import Node, Pod
from kubestow.api.storage import PersistentVolume, PersistentVolumeClaim
from kubestow.cluster.cache import Cluster
from kubestow.scheduling.queued_pod import Place
from kubestow.workloads.feasibility import check_feasibility
from kubestow.workloads.node_info import NodeInfo, pod_requests
from tests.fault_simulation.gangs import is_torn_apart, waits_for_siblings
from tests.fault_simulation.process import Process
from tests.fault_simulation.second_opinion import plain
from tests.fault_simulation.server import Server, ended, with_spec
from tests.fault_simulation.storage import volume_objections

__all__ = ["haste", "leaks", "misplacements", "missed_pods", "untruths"]

#: How often within a second a pod may be tried to be bound: by an extender and by a plugin, and once more.
_OFTEN = 6


def haste(process: Process, uid: str) -> Iterator[str]:
    """A scheduler tries to bind a pod again and again without a pause."""
    times = process.asked[uid]
    if len(times) > _OFTEN and times[-1] - times[-1 - _OFTEN] < 1.0:
        yield f"{process.name} asks to bind {uid} for the {len(times)}. time, {_OFTEN} times in the last second"


def misplacements(server: Server, process: Process, uid: str, node_name: str) -> Iterator[str]:
    """What is wrong with a binding that a scheduler has just made, given what it knew when it decided."""
    glimpse = process.glimpses.get(uid)
    if glimpse is None:
        yield f"{process.name} bound {uid} to {node_name} without a decision"
        return
    if glimpse.node_name != node_name:
        yield f"{process.name} bound {uid} to {node_name}, having decided for {glimpse.node_name}"
    if node_name not in server.node_names:
        yield f"{uid} was bound to {node_name}, which never existed"
        return
    there = list(server.pods_on(node_name))
    answered_for = [
        pod
        for pod in there
        if server.bound_by.get(pod.metadata.uid) == process.name or pod.metadata.uid in glimpse.uids
    ]
    sizes = process.sight.sizes[node_name][glimpse.size :]
    yield from _overcommitted(node_name, answered_for, sizes, uid)
    yield from _ports_taken_twice(node_name, answered_for, uid)


def _overcommitted(node_name: str, pods: Sequence[Pod], sizes: Sequence[Node], uid: str) -> Iterator[str]:
    """Only what the pod itself asks for matters. Nodes may shrink, so the largest size that was believed in counts."""
    room: Counter[str] = Counter()
    for size in sizes:
        room |= Counter(NodeInfo(plain(size)).allocatable)
    used = Counter({"pods": len(pods)})
    for pod in pods:
        used.update(pod_requests(plain(pod)))
    asked = pod_requests(plain(next(pod for pod in pods if pod.metadata.uid == uid))) + Counter({"pods": 1})
    for name in asked:
        if used[name] > room[name]:
            yield f"{node_name} has {room[name]} {name} and with {uid} {used[name]} are used"


def _ports_taken_twice(node_name: str, pods: Sequence[Pod], uid: str) -> Iterator[str]:
    ports = {pod.metadata.uid: _host_ports(pod) for pod in pods}
    for other, taken in ports.items():
        if other != uid and (both := taken & ports[uid]):
            yield f"host ports {sorted(both)} of {node_name} are taken by {other} and {uid}"


def _host_ports(pod: Pod) -> set[int]:
    return {port.host_port for container in pod.spec.containers for port in container.ports if port.host_port}


def missed_pods(server: Server, scheduler_names: Sequence[str]) -> Iterator[str]:
    """Pods that wait although some node could take them."""
    pods = [pod for pod in server.pods() if not ended(pod)]
    waiting = [
        pod
        for pod in pods
        if not pod.spec.node_name
        and pod.metadata.deletion_timestamp is None
        and pod.spec.scheduler_name in scheduler_names
    ]
    pending = [pod for pod in waiting if not waits_for_siblings(server, pod)]
    verdicts = check_feasibility(
        [plain(with_spec(pod, volumes=[])) for pod in pending],
        [plain(node) for node in server.nodes().values()],
        [plain(pod) for pod in pods if pod.spec.node_name],
    )
    for pod, verdict in zip(pending, verdicts, strict=True):
        promised = {
            other.status.nominated_node_name
            for other in waiting
            if other is not pod and (other.spec.priority or 0) >= (pod.spec.priority or 0)
        }
        free = [name for name in verdict.nodes if name not in promised and _volumes_admit(server, pod, name)]
        if verdict.is_feasible and free:
            yield f"{pod.metadata.name} ({pod.metadata.uid}) waits, {', '.join(free)} could take it"


def _volumes_admit(server: Server, pod: Pod, node_name: str) -> bool:
    nodes = server.nodes()
    placed = [
        (other, other.spec.node_name) for other in server.pods() if not ended(other) and other.spec.node_name in nodes
    ]
    claims, volumes = server.objects(PersistentVolumeClaim), server.objects(PersistentVolume)
    return not list(volume_objections(pod, node_name, placed=placed, claims=claims, volumes=volumes))


def untruths(server: Server, process: Process) -> Iterator[str]:
    """Where a scheduler's picture of the cluster differs from the server's."""
    true = Cluster()
    for node in server.nodes().values():
        true.add_node(node)
    pods = {pod.metadata.uid: pod for pod in server.pods() if not ended(pod)}
    for pod in pods.values():
        if pod.spec.node_name:
            true.put_pod(true.shapes.info(pod))
    held = process.scheduler.cluster
    yield from _differences(process.name, _picture(true, pods), _picture(held, pods))
    for uid in held._placed_pods.by_uid.keys() - true._placed_pods.by_uid.keys():
        yield f"{process.name} holds pod {uid} on a node, the server does not"
    for uid in held._nominations._node_names:
        if uid not in pods or pods[uid].spec.node_name:
            yield f"{process.name} still promises {held.nomination(uid)} to {uid}"


def _picture(cluster: Cluster, pods: Any) -> dict[str, Any]:
    """What a cluster's state says, in plain terms."""
    table = cluster.nodes
    picture: dict[str, Any] = {"the nodes": sorted(table.rows)}
    for name, row in table.rows.items():
        amounts = {resource: int(table.requested[resource].values[row]) for resource in table.requested.names()}
        ports = {port: int(column.values[row]) for port, column in table._ports.items()}
        states = {uid: info.metadata.resource_version for uid, info in table.pods[row].items()}
        picture |= {
            f"{name}": table.objects[row],
            f"the pods of {name}": states,
            f"requested of {name}": {resource: amount for resource, amount in amounts.items() if amount},
            f"occupied of {name}": (int(table.nonzero_cpu.values[row]), int(table.nonzero_memory.values[row])),
            f"the number of pods on {name}": int(table.pod_count.values[row]),
            f"the number of pods allowed on {name}": int(table.allowed_pods.values[row]),
            f"the ports of {name}": {port: count for port, count in ports.items() if count},
        }
    for uid in sorted(pods):
        placed_pod = cluster.placed_pod(uid)
        picture[f"the place of {uid}"] = None if placed_pod is None else (placed_pod.node_name, placed_pod.assumed)
    return picture


def _differences(name: str, true: dict[str, Any], held: dict[str, Any]) -> Iterator[str]:
    for key in sorted(true.keys() | held.keys()):
        if true.get(key) != held.get(key):
            yield f"{name} holds {key} as {held.get(key)}, the server as {true.get(key)}"


def leaks(server: Server, process: Process) -> Iterator[str]:
    """What a scheduler at rest should not hold any more, or has lost."""
    scheduler, name = process.scheduler, process.name
    pods = {pod.metadata.uid: pod for pod in server.pods() if not ended(pod)}
    wanted = {
        uid
        for uid, pod in pods.items()
        if not pod.spec.node_name and pod.spec.scheduler_name in process.scheduler_names
    }
    queued = {queued.info.uid: queued for queued in scheduler.queue.pending()}
    for uid in sorted(wanted - queued.keys()):
        yield f"{name} has lost pod {uid}"
    for uid in sorted(queued.keys() - wanted):
        yield f"{name} still queues pod {uid}"
    for uid in sorted(wanted & queued.keys()):
        if queued[uid].info.metadata.resource_version != pods[uid].metadata.resource_version:
            yield f"{name} queues an old state of pod {uid}"
        is_at_rest = queued[uid].place in (Place.UNSCHEDULABLE, Place.GATED)
        if server.nodes() and not is_at_rest and not is_torn_apart(server, pods[uid]):
            yield f"{name} keeps pod {uid} in {queued[uid].place.value}"
    queue = scheduler.queue
    for uids in queue._unschedulable._by_plugin.values():
        for uid in sorted(uids.keys() - queued.keys()):
            yield f"{name} remembers who refused {uid}, which is not queued"
    held = {
        "pods in flight and kept events": queue.in_flight_events(),
        "waiting pods": scheduler.waiting_pods.all(),
        "gangs about to be bound": scheduler._barriers._barriers,
        "binding cycles": list(scheduler._binding_cycles.tasks),
        "evictions": list(scheduler._evictions.tasks),
        "preemptors": scheduler._evictions._preempting,
        "writes": scheduler.dispatcher._lanes,
        "statuses of pods that are settled": scheduler.dispatcher._sent.keys() - wanted,
    }
    for what, there in held.items():
        if there:
            yield f"{name} still has {what}: {there}"
    for kind in (PersistentVolume, PersistentVolumeClaim):
        for assumed in scheduler.cluster.catalog(kind).assumed():
            yield f"{name} still takes {kind.__name__} {assumed.metadata.name} to be what it never became"
    for uid in scheduler.cluster.resource_claims._pending:
        yield f"{name} still promises claim {uid} devices"
    for uid, node_name in process.books.reserved.items():
        if uid in pods and pods[uid].spec.node_name != node_name:
            yield f"{name} never took back the reservation of {uid} on {node_name}"
