"""Invariants of gangs: at least minCount members are bound or none, and a gang that fits is not left pending."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from kubestow.api.core import Pod
from kubestow_lab.fault_simulation.actors.jobs import pod_groups
from kubestow_lab.fault_simulation.apiserver.server import SimulatedServer, ended, with_spec
from kubestow_lab.fault_simulation.scheduler.process import Process
from kubestow_lab.oracle.feasibility import check_feasibility


def _jobs(server: SimulatedServer) -> dict[str, list[Pod]]:
    """The pods of each job whose group exists, without completed and terminating ones."""
    grouped = {group.metadata.name for group in pod_groups(server)}
    jobs: dict[str, list[Pod]] = {}
    for pod in server.pods():
        is_ending = ended(pod) or pod.metadata.deletion_timestamp is not None
        job = pod.metadata.labels.get("job", "")
        if job in grouped and not is_ending:
            jobs.setdefault(job, []).append(pod)
    return jobs


def _min_count(pod: Pod) -> int:
    """The minCount of the job of a pod."""
    return int(pod.metadata.labels["needs"])


def gang_counts(server: SimulatedServer, process: Process, uid: str) -> tuple[int, int] | None:
    """How many members of a pod's gang are bound, placed or nominated, and its minCount; None for a pod of no gang.

    Members that were bound count even if they were deleted since, because a binding cannot be undone.
    """
    pod = next((pod for pod in server.pods() if pod.metadata.uid == uid), None)
    if pod is None or "job" not in pod.metadata.labels:
        return None
    cluster, labels = process.scheduler.cluster, pod.metadata.labels
    uids = [f"uid-{labels['job']}-{number}" for number in range(int(labels["size"]))]
    placed = [each for each in uids if each in server.bound_by or cluster.placed_pod(each)]
    nominated = [each for each in uids if each not in placed and cluster.nomination(each) in cluster.nodes.rows]
    return len(placed) + len(nominated), _min_count(pod)


def spans_zones(server: SimulatedServer, pod: Pod) -> bool:
    """Whether the members of a gang with a zone constraint are in several zones, an error that is retried."""
    if "together" not in pod.metadata.labels:
        return False
    members, nodes = _jobs(server).get(pod.metadata.labels["job"], []), server.nodes()
    return len({nodes[m.spec.node_name].metadata.labels["zone"] for m in members if m.spec.node_name in nodes}) > 1


def waits_for_gang(server: SimulatedServer, pod: Pod) -> bool:
    """Whether a pod cannot be scheduled by itself: its gang has fewer than minCount bound members, or a constraint."""
    if "job" not in pod.metadata.labels:
        return False
    if not {"together", "tree"}.isdisjoint(pod.metadata.labels):
        return True
    members = _jobs(server).get(pod.metadata.labels["job"], [])
    if any(member.spec.scheduling_gates for member in members):  # since 1.37 they gate the others
        return True
    return sum(bool(member.spec.node_name) for member in members) < _min_count(pod)


def unscheduled_gangs(
    server: SimulatedServer, scheduler_names: Sequence[str], *, search: bool = False
) -> Iterator[str]:
    """Gangs that are pending although minCount members fit, one after the other, beside the bound pods.

    With ``search`` it counts also if they fit only on other nodes than the first that each of them fits on, as far as
    that shows within some steps. Gangs with volumes, devices or a topology constraint are not checked.
    """
    for job, members in _jobs(server).items():
        pending = [pod for pod in members if not pod.spec.node_name and pod.spec.scheduler_name in scheduler_names]
        needed = _min_count(members[0]) - (len(members) - len(pending))
        if any(pod.spec.volumes or pod.spec.resource_claims or "together" in pod.metadata.labels for pod in members):
            continue
        # Since 1.37 gated pods gate the others, and a tree may need another group.
        if any(pod.spec.scheduling_gates or "tree" in pod.metadata.labels for pod in members):
            continue
        if pending and needed > 0 and _can_be_placed(server, pending, needed, search=search):
            yield f"{job} is pending, and {needed} of its pods fit"


#: How many pods are tried on nodes for one gang before the search for a placement ends.
_MOST_TRIED = 300


def _can_be_placed(server: SimulatedServer, pending: Sequence[Pod], needed: int, *, search: bool) -> bool:
    """Whether so many pods fit on nodes without a nomination of another pod."""
    nodes = [msgspec.to_builtins(node) for node in server.nodes().values()]
    others = [pod for pod in server.pods() if not ended(pod)]
    bound = [msgspec.to_builtins(pod) for pod in others if pod.spec.node_name]
    nominated = {pod.status.nominated_node_name for pod in others if pod not in pending}
    tried = 0

    def place(waiting: Sequence[Pod], missing: int) -> bool:
        """Place the first of the pods, or leave it out."""
        nonlocal tried
        if missing <= 0 or len(waiting) < missing:
            return missing <= 0
        tried += 1
        if tried > _MOST_TRIED:
            return False
        first, *rest = waiting
        verdict = check_feasibility([msgspec.to_builtins(first)], nodes, bound)[0]
        free = [name for name in verdict.nodes if name not in nominated] if verdict.is_feasible else []
        for name in free if search else free[:1]:
            bound.append(msgspec.to_builtins(with_spec(first, node_name=name)))
            if place(rest, missing - 1):
                return True
            bound.pop()
        return (search or not free) and place(rest, missing)

    return place(pending, needed)
