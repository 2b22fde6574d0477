"""The witness: states what the schedulers of a simulation do as the facts that the specification judges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from kubestow.api.core import Pod
from kubestow.api.resource import ResourceClaim
from kubestow.cluster.pods.pod_groups import KUBERNETES
from kubestow.scheduling.events.resources import resource_of
from kubestow.scheduling.preemption.evictions import SEVERAL_NODES
from kubestow_lab.fault_simulation.apiserver.server import SimulatedServer
from kubestow_lab.fault_simulation.invariants.fairness import FirstAttempts, Overtaken
from kubestow_lab.fault_simulation.invariants.feasible_nodes import PlainObjects
from kubestow_lab.fault_simulation.invariants.gangs import gang_counts
from kubestow_lab.fault_simulation.scheduler.process import Process
from kubestow_lab.fault_simulation.specification import (
    Attempted,
    Bound,
    Decided,
    Fact,
    Preempting,
    Sent,
    devices_of,
    violations,
)

_POD_GROUPS = resource_of(KUBERNETES.kind)


class Witness:
    """Implements :class:`kubestow_lab.fault_simulation.scheduler.process.Checks`; ``report`` gets each violation."""

    def __init__(self, server: SimulatedServer, report: Callable[[str], None]) -> None:
        self._server, self._report = server, report
        self._plain = PlainObjects()
        #: The pods that the present start of each process has not tried.
        self._first_attempts: dict[str, FirstAttempts] = {}

    def state(self, fact: Fact) -> None:
        """Have the specification judge a fact."""
        for violation in violations(fact):
            self._report(violation)

    def pod_attempted(self, process: Process, pod: Pod) -> None:
        self.state(
            Attempted(
                by=process.identity,
                pod=pod,
                # An attempt that a stall interrupted ends after it; its decision is not written.
                may_schedule=process.may_schedule or process.ends_stall,
                holder=self._holder,
                overtaken=self._overtaken(process, pod),
            )
        )

    def _overtaken(self, process: Process, pod: Pod) -> list[Overtaken]:
        """Pods of gangs are tried together, and some wait for claims; after a stall other namespaces come first."""
        first_attempts = self._first_attempts.get(process.identity)
        if first_attempts is None:
            first_attempts = self._first_attempts[process.identity] = FirstAttempts()
        if process.features.stalls:
            return []
        names, cluster = process.scheduler_names, process.scheduler.cluster
        ready = [
            each
            for each in process.view.pods.values()
            if each.spec.scheduler_name in names
            and not (each.spec.node_name or each.spec.scheduling_gates or each.metadata.deletion_timestamp)
            and not ("job" in each.metadata.labels or each.spec.volumes or each.spec.resource_claims)
            and not cluster.is_assumed(each.metadata.uid)
        ]
        overtaken = list(first_attempts.attempted(pod, ready))
        return [] if "job" in pod.metadata.labels else overtaken

    def pod_decided(self, process: Process, pod: Pod, node_name: str) -> None:
        view = process.view
        placed = self._placed(process)
        nodes = {node.metadata.name for node in view.nodes.values()}
        self.state(
            Decided(
                by=process.name,
                pod=pod,
                node_name=node_name,
                nodes=list(view.nodes.values()),
                placed=[(other, where) for other, where in placed.values() if where in nodes],
                claims=list(view.claims.values()),
                volumes=list(view.volumes.values()),
                plain=self._plain,
            )
        )

    @staticmethod
    def _placed(process: Process) -> dict[str, tuple[Pod, str]]:
        """The pods on nodes, each with the name of its node, by uid, as a process knows them."""
        placed = {each.metadata.uid: (each, each.spec.node_name) for each in process.view.pods.values()}
        for assumed in process.scheduler.cluster.assumed():
            placed[assumed.info.uid] = assumed.info.pod, assumed.node_name
        return placed

    def preemption_started(
        self, process: Process, preemptors: Sequence[Pod], node_name: str, victims: Sequence[Pod]
    ) -> None:
        node = None
        beside: list[Pod] = []
        if node_name != SEVERAL_NODES:
            node = process.view.nodes.get(("", node_name))
            (preemptor,) = preemptors
            leaving = {preemptor.metadata.uid, *(victim.metadata.uid for victim in victims)}
            stay = [pod for pod, where in self._placed(process).values() if where == node_name]
            stay += [
                info.pod
                for info in process.scheduler.cluster.nominated_pods(node_name)
                if (info.spec.priority or 0) >= (preemptor.spec.priority or 0)
            ]
            beside = [pod for pod in stay if pod.metadata.uid not in leaving]
        self.state(
            Preempting(
                by=process.name,
                preemptors=preemptors,
                victims=victims,
                priorities={
                    pod.metadata.uid: [pod.spec.priority or 0, *self._group_priority(pod)]
                    for pod in (*preemptors, *victims)
                },
                node=node,
                beside=beside,
                is_checkable=not process.features.faulty_extender
                and not any(_has_constraints(pod) for pod in (*preemptors, *victims, *process.view.pods.values())),
                plain=self._plain,
            )
        )

    def _group_priority(self, pod: Pod) -> Iterator[int]:
        """The priority of the group of Kubernetes' own that a pod is in, which may have been deleted since."""
        named = pod.spec.scheduling_group
        if named is None:
            return
        for change in reversed(self._server.history[_POD_GROUPS]):
            if change.key == (pod.metadata.namespace, named.pod_group_name):
                yield change.obj.spec.priority or 0
                return

    def binding_requested(self, process: Process, uid: str) -> None:
        self.state(
            Sent(
                by=process.identity,
                uid=uid,
                times=process.bind_attempts[uid],
                may_schedule=process.may_schedule or not process.features.stalls,
                holder=self._holder,
                gang=gang_counts(self._server, process, uid),
            )
        )

    def pod_bound(self, process: Process, uid: str, node_name: str) -> None:
        server, snapshot = self._server, process.snapshots.get(uid)
        pod = next(pod for pod in server.pods() if pod.metadata.uid == uid)
        claims = server.objects(ResourceClaim)
        known: Iterable[str] = () if snapshot is None else snapshot.uids
        self.state(
            Bound(
                by=process.identity,
                pod=pod,
                node_name=node_name,
                decided=None if snapshot is None else snapshot.node_name,
                earlier=server.bindings[uid][:-1],
                node_names=server.node_names,
                beside=[
                    each
                    for each in server.pods_on(node_name)
                    if server.bound_by.get(each.metadata.uid) == process.name or each.metadata.uid in known
                ],
                states=[] if snapshot is None else process.view.node_states[node_name][snapshot.state :],
                # A request that was sent before a stall takes effect in it.
                may_schedule=process.may_schedule or process.is_stalled,
                holder=self._holder,
                claims={claim.metadata.name: claim for claim in claims},
                # The watch of a new leader may not have delivered yet what the old one allocated.
                device_holders={}
                if process.features.leader_election
                else Counter(device for claim in claims for device in devices_of(claim)),
                plain=self._plain,
            )
        )

    @property
    def _holder(self) -> str:
        return self._server.lease.holder or "no process"


def _has_constraints(pod: Pod) -> bool:
    """Whether more decides on the node of a pod than what :class:`Preempting` has."""
    spec = pod.spec
    affinity = spec.affinity
    constrains_pods = affinity is not None and (affinity.pod_affinity or affinity.pod_anti_affinity)
    return bool(constrains_pods or spec.topology_spread_constraints or spec.volumes or spec.resource_claims)
