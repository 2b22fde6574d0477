"""Invariants of a scheduler's state at the end of a run: its cache equals the server's state, and nothing is leaked.

The cache is compared with one that is built from the server's current objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from kubestow.api.resource import ResourceClaim
from kubestow.api.storage import PersistentVolume, PersistentVolumeClaim
from kubestow.cluster.cache import Cluster
from kubestow.config import FeatureGates
from kubestow.scheduling.queue.entities import EntityQueue
from kubestow.scheduling.queue.unschedulable import Cohort, UnschedulablePods
from kubestow.scheduling.queued_pod import Place
from kubestow_lab.fault_simulation.apiserver.server import SimulatedServer, ended
from kubestow_lab.fault_simulation.invariants.gangs import spans_zones
from kubestow_lab.fault_simulation.scheduler.process import Process


def cache_differences(server: SimulatedServer, process: Process) -> Iterator[str]:
    """Where a scheduler's cache differs from the server's state."""
    expected = Cluster(gates=FeatureGates(minor=process.minor))
    for node in server.nodes().values():
        expected.add_node(node)
    pods = {pod.metadata.uid: pod for pod in server.pods() if not ended(pod)}
    for pod in pods.values():
        if pod.spec.node_name:
            expected.put_pod(expected.shapes.info(pod))
    for claim in server.objects(ResourceClaim):
        expected.catalog(ResourceClaim).put(claim)
    cached = process.scheduler.cluster
    yield from _differences(process.name, _state(expected, pods), _state(cached, pods))
    for uid in cached._placed_pods.by_uid.keys() - expected._placed_pods.by_uid.keys():
        yield f"{process.name} has pod {uid} on a node, the server does not"


def miscounted(process: Process) -> Iterator[str]:
    """Pods that do not count on the node that the watches of a scheduler have shown them on, or count and are gone."""
    shown = {
        pod.metadata.uid: pod.spec.node_name
        for pod in process.view.pods.values()
        if pod.spec.node_name and not ended(pod)
    }
    placed = process.scheduler.cluster._placed_pods.by_uid
    counted = {uid: each.node_name for uid, each in placed.items() if not each.assumed}
    for uid in sorted(shown.keys() | counted.keys()):
        if shown.get(uid) != counted.get(uid):
            yield f"counts {uid} on {counted.get(uid)}, its watches have shown it on {shown.get(uid)}"


def nominations_left(server: SimulatedServer, process: Process) -> Iterator[str]:
    """Nominations that a scheduler keeps of pods that are bound, have ended or were deleted."""
    pods = {pod.metadata.uid: pod for pod in server.pods() if not ended(pod)}
    cluster = process.scheduler.cluster
    for uid in cluster._nominations.node_names:
        if uid not in pods or pods[uid].spec.node_name:
            yield f"{process.name} still has the nomination of {uid} for {cluster.nomination(uid)}"


def _state(cluster: Cluster, pods: Any) -> dict[str, Any]:
    """The state of a cluster as plain values."""
    table = cluster.nodes
    state: dict[str, Any] = {"the nodes": sorted(table.rows)}
    for name, row in table.rows.items():
        amounts = {resource: int(table.requested[resource].values[row]) for resource in table.requested}
        ports = {port: int(column.values[row]) for port, column in table.ports()}
        versions = {uid: info.metadata.resource_version for uid, info in table.pods[row].items()}
        state |= {
            f"{name}": table.objects[row],
            f"the pods of {name}": versions,
            f"requested of {name}": {resource: amount for resource, amount in amounts.items() if amount},
            f"nonzero requests of {name}": (int(table.nonzero_cpu.values[row]), int(table.nonzero_memory.values[row])),
            f"the number of pods on {name}": int(table.pod_count.values[row]),
            f"the number of pods allowed on {name}": int(table.allowed_pods.values[row]),
            f"the ports of {name}": {port: count for port, count in ports.items() if count},
        }
    state["the allocated devices"] = sorted(cluster.resource_claims.devices._dedicated)
    for uid in sorted(pods):
        placed_pod = cluster.placed_pod(uid)
        state[f"the place of {uid}"] = None if placed_pod is None else (placed_pod.node_name, placed_pod.assumed)
    return state


def _differences(name: str, expected: dict[str, Any], cached: dict[str, Any]) -> Iterator[str]:
    for key in sorted(expected.keys() | cached.keys()):
        if expected.get(key) != cached.get(key):
            yield f"{name} has {key} as {cached.get(key)}, the server as {expected.get(key)}"


def _indexed(pods: UnschedulablePods) -> set[Cohort]:
    index = pods._index
    indexed: list[Iterable[Cohort]] = [
        *index._by_plugin.values(),
        *index._without_keys.values(),
        *index._by_key.values(),
        *(table for tables in index._by_amounts.values() for table in tables.values()),
    ]
    return {cohort for cohorts in indexed for cohort in cohorts}


def leaks(server: SimulatedServer, process: Process) -> Iterator[str]:
    """Pods that an idle scheduler has lost, and state that it has leaked."""
    scheduler, name = process.scheduler, process.name
    pods = {pod.metadata.uid: pod for pod in server.pods() if not ended(pod)}
    pending = {
        uid
        for uid, pod in pods.items()
        if not pod.spec.node_name and pod.spec.scheduler_name in process.scheduler_names
    }
    expected = pending
    if process.features.partitions:
        info = scheduler.cluster.shapes.info
        expected = {uid for uid in pending if process.partitions.may_attempt(info(pods[uid]))}
    queued = {queued.info.uid: queued for queued in scheduler.queue.pods.values()}
    for uid in sorted(expected - queued.keys()):
        yield f"{name} has lost pod {uid}"
    for uid in sorted(queued.keys() - expected):
        yield f"{name} still queues pod {uid}"
    for uid in sorted(expected & queued.keys()):
        if queued[uid].info.metadata.resource_version != pods[uid].metadata.resource_version:
            yield f"{name} queues an old state of pod {uid}"
        is_waiting = queued[uid].place in (Place.UNSCHEDULABLE, Place.GATED)
        if queued[uid].place is Place.BACKOFF and isinstance(scheduler.queue, EntityQueue):
            is_waiting = scheduler.queue.places.group_of(uid) is not None  # a rejected group is tried again and again
        if server.nodes() and not is_waiting and not spans_zones(server, pods[uid]):
            yield f"{name} keeps pod {uid} in {queued[uid].place.value}"
    queue = scheduler.queue
    for uid in sorted(queue.places.unschedulable._cohort_of.keys() - queued.keys()):
        yield f"{name} keeps {uid} in a cohort, though it is not queued"
    cohorts = set(queue.places.unschedulable._cohort_of.values())
    for cohort in (set(queue.places.unschedulable._cohorts.values()) | _indexed(queue.places.unschedulable)) - cohorts:
        yield f"{name} keeps the empty cohort {cohort.key}"
    held = {
        "pods in flight and kept events": queue.in_flight.counts(),
        "waiting pods": scheduler.waiting_pods.all(),
        "gangs at the barrier": scheduler._barriers._barriers,
        "binding cycles": list(scheduler._bindings),
        "evictions": list(scheduler._evictions.tasks),
        "preemptors": scheduler._preemptions.newest,
        "awaited victims": scheduler._evictions._awaited,
        "preemptors in the queue": queue.gating._preempting,
        "groups without pods": [
            group.name for group in getattr(queue.places, "groups", {}).values() if not group.members
        ],
        "pods to be moved": [queued for queued in queue.moves._helped if queued[1].move is not None],
        "writes": scheduler.dispatcher._lanes,
        "sent statuses of bound or deleted pods": scheduler.dispatcher._sent.keys() - pending,
    }
    for what, leaked in held.items():
        if leaked:
            yield f"{name} still has {what}: {leaked}"
    for kind in (PersistentVolume, PersistentVolumeClaim):
        for assumed in scheduler.cluster.catalog(kind).assumed():
            yield f"{name} still assumes {kind.__name__} {assumed.metadata.name}"
    for uid in scheduler.cluster.resource_claims._pending:
        yield f"{name} still has devices reserved for claim {uid}"
    for uid, node_name in process.ledger.reserved.items():
        if uid in pods and pods[uid].spec.node_name != node_name:
            yield f"{name} never unreserved {uid} on {node_name}"


def reservations_taken_back(server: SimulatedServer, process: Process) -> Iterator[str]:
    """Pods that still run, that this start of a scheduler has bound, and whose reservations it has undone since."""
    for pod in server.pods():
        uid, node_name = pod.metadata.uid, pod.spec.node_name
        if uid in process.bound and not ended(pod) and process.ledger.released.get(uid) == node_name:
            yield f"{process.name} has bound {uid} to {node_name}, and has unreserved it there"


def unreported(server: SimulatedServer, process: Process) -> Iterator[str]:
    """Pods without the condition, or the event, that says what an attempt has come to."""
    name = process.name
    for pod in server.pods():
        uid = pod.metadata.uid
        queued = process.scheduler.queue.pods.get(uid)
        if pod.spec.node_name:
            if uid in process.bound and (uid, "Scheduled") not in process.reported:
                yield f"{name} has bound {uid} without an event"
            if uid in process.bound and process.features.faulty_plugin and uid not in process.ledger.bound:
                yield f"{name} has bound {uid} without PostBind"
        elif queued is not None and queued.place is Place.UNSCHEDULABLE and queued.attempts:
            if (uid, "FailedScheduling") not in process.reported:
                yield f"{name} has rejected {uid} without an event"
            if process.features.flushes and not any(each.type == "PodScheduled" for each in pod.status.conditions):
                yield f"{name} has rejected {uid} without a condition"
