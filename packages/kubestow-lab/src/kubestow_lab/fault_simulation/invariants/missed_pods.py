"""Invariants of pending pods at the end of a run: no node is feasible for them, not even after preemption."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kubestow.api.core import Pod
from kubestow.api.resource import ResourceClaim, ResourceSlice
from kubestow.api.storage import PersistentVolume, PersistentVolumeClaim
from kubestow_lab.fault_simulation.actors import devices
from kubestow_lab.fault_simulation.apiserver.server import SimulatedServer, ended, with_spec
from kubestow_lab.fault_simulation.invariants.feasible_nodes import plain
from kubestow_lab.fault_simulation.invariants.gangs import waits_for_gang
from kubestow_lab.fault_simulation.invariants.volumes import volume_violations
from kubestow_lab.oracle.feasibility import check_feasibility


def unscheduled_pods(server: SimulatedServer, scheduler_names: Sequence[str]) -> Iterator[str]:
    """Pods that are pending although a node is feasible for them."""
    pods = [pod for pod in server.pods() if not ended(pod)]
    waiting = _waiting(pods, scheduler_names)
    pending = [pod for pod in waiting if not waits_for_gang(server, pod)]
    verdicts = check_feasibility(
        [plain(with_spec(pod, volumes=[], resource_claims=[])) for pod in pending],
        [plain(node) for node in server.nodes().values()],
        [plain(pod) for pod in pods if pod.spec.node_name],
    )
    for pod, verdict in zip(pending, verdicts, strict=True):
        kept = _kept_from(pod, waiting)
        free = [
            name
            for name in verdict.nodes
            if name not in kept and _volumes_fit(server, pod, name) and _devices_fit(server, pod, name)
        ]
        if verdict.is_feasible and free:
            yield f"{pod.metadata.name} ({pod.metadata.uid}) is pending, {', '.join(free)} are feasible"


def idle_preemptors(server: SimulatedServer, scheduler_names: Sequence[str]) -> Iterator[str]:
    """Pods that are pending although they fit on a node without its pods of lower priority.

    Pods of gangs are neither preemptors nor victims here, and pods with volumes, devices or constraints on other pods
    are no preemptors.
    """
    pods = [pod for pod in server.pods() if not ended(pod)]
    waiting = _waiting(pods, scheduler_names)
    nodes = [plain(node) for node in server.nodes().values()]
    for pod in waiting:
        if not _may_preempt(pod):
            continue
        kept = _kept_from(pod, waiting)
        for name in server.nodes().keys() - kept:
            stay = [other for other in pods if other.spec.node_name and not _yields(other, pod, name)]
            if len(stay) == sum(bool(other.spec.node_name) for other in pods):
                continue
            (verdict,) = check_feasibility([plain(pod)], nodes, [plain(other) for other in stay])
            if verdict.is_feasible and name in verdict.nodes:
                yield f"{pod.metadata.name} ({pod.metadata.uid}) is pending, and would fit {name} after preemption"


def _may_preempt(pod: Pod) -> bool:
    spec, affinity = pod.spec, pod.spec.affinity
    is_constrained = affinity is not None and (affinity.pod_affinity or affinity.pod_anti_affinity)
    return not (
        spec.preemption_policy == "Never"
        or pod.status.nominated_node_name
        or "job" in pod.metadata.labels
        or is_constrained
        or spec.topology_spread_constraints
        or spec.volumes
        or spec.resource_claims
    )


def _yields(victim: Pod, preemptor: Pod, node_name: str) -> bool:
    """Whether a pod can be evicted from a node for another one."""
    is_lower = (victim.spec.priority or 0) < (preemptor.spec.priority or 0)
    return victim.spec.node_name == node_name and is_lower and "job" not in victim.metadata.labels


def _waiting(pods: Sequence[Pod], scheduler_names: Sequence[str]) -> list[Pod]:
    """The pods that schedulers of these names have to place."""
    return [
        pod
        for pod in pods
        if not pod.spec.node_name
        and pod.metadata.deletion_timestamp is None
        and pod.spec.scheduler_name in scheduler_names
    ]


def _kept_from(pod: Pod, waiting: Sequence[Pod]) -> set[str]:
    """The nodes that other pods are nominated for which this one yields to."""
    return {
        other.status.nominated_node_name
        for other in waiting
        if other is not pod and (other.spec.priority or 0) >= (pod.spec.priority or 0)
    }


def _devices_fit(server: SimulatedServer, pod: Pod, node_name: str) -> bool:
    """Whether the claims of a pod have devices of a node, or can have them."""
    claims = {claim.metadata.name: claim for claim in server.objects(ResourceClaim)}
    if not claims.keys() >= set(devices.claims_of(pod)):
        return False
    allocated = {name: devices.devices_of(claim) for name, claim in claims.items()}
    published = [
        (node_name, device.name)
        for each in server.objects(ResourceSlice)
        if each.spec.node_name == node_name
        for device in each.spec.devices
    ]
    taken = {device for held in allocated.values() for device in held}
    needed = [name for name in devices.claims_of(pod) if not allocated[name]]
    is_here = all(pool == node_name for name in devices.claims_of(pod) for pool, _ in allocated[name])
    return is_here and len(set(published) - taken) >= len(needed)


def _volumes_fit(server: SimulatedServer, pod: Pod, node_name: str) -> bool:
    nodes = server.nodes()
    placed = [
        (other, other.spec.node_name) for other in server.pods() if not ended(other) and other.spec.node_name in nodes
    ]
    claims, volumes = server.objects(PersistentVolumeClaim), server.objects(PersistentVolume)
    return not list(volume_violations(pod, node_name, placed=placed, claims=claims, volumes=volumes))
