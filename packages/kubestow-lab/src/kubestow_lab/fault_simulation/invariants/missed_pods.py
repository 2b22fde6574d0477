"""Invariants of pending pods at the end of a run: no node is feasible for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kubestow.api.core import Pod
from kubestow.api.storage import PersistentVolume, PersistentVolumeClaim
from kubestow_lab.fault_simulation.apiserver.server import SimulatedServer, ended, with_spec
from kubestow_lab.fault_simulation.invariants.feasible_nodes import plain
from kubestow_lab.fault_simulation.invariants.gangs import waits_for_gang
from kubestow_lab.fault_simulation.invariants.volumes import volume_violations
from kubestow_lab.oracle.feasibility import check_feasibility


def unscheduled_pods(server: SimulatedServer, scheduler_names: Sequence[str]) -> Iterator[str]:
    """Pods that are pending although a node is feasible for them."""
    pods = [pod for pod in server.pods() if not ended(pod)]
    waiting = [
        pod
        for pod in pods
        if not pod.spec.node_name
        and pod.metadata.deletion_timestamp is None
        and pod.spec.scheduler_name in scheduler_names
    ]
    pending = [pod for pod in waiting if not waits_for_gang(server, pod)]
    verdicts = check_feasibility(
        [plain(with_spec(pod, volumes=[])) for pod in pending],
        [plain(node) for node in server.nodes().values()],
        [plain(pod) for pod in pods if pod.spec.node_name],
    )
    for pod, verdict in zip(pending, verdicts, strict=True):
        nominated = {
            other.status.nominated_node_name
            for other in waiting
            if other is not pod and (other.spec.priority or 0) >= (pod.spec.priority or 0)
        }
        free = [name for name in verdict.nodes if name not in nominated and _volumes_fit(server, pod, name)]
        if verdict.is_feasible and free:
            yield f"{pod.metadata.name} ({pod.metadata.uid}) is pending, {', '.join(free)} are feasible"


def _volumes_fit(server: SimulatedServer, pod: Pod, node_name: str) -> bool:
    nodes = server.nodes()
    placed = [
        (other, other.spec.node_name) for other in server.pods() if not ended(other) and other.spec.node_name in nodes
    ]
    claims, volumes = server.objects(PersistentVolumeClaim), server.objects(PersistentVolume)
    return not list(volume_violations(pod, node_name, placed=placed, claims=claims, volumes=volumes))
