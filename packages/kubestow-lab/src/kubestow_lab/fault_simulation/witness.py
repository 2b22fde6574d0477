"""The witness: states what the schedulers of a simulation do as the facts that the specification judges."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

from kubestow.api.core import Pod
from kubestow.api.resource import ResourceClaim
from kubestow.api.scheduling import CompositePodGroup, PodGroup
from kubestow.cluster.pods.hierarchies import disrupted_as_a_whole
from kubestow.cluster.pods.pod_groups import KUBERNETES
from kubestow.rules.minors import Behaviour
from kubestow.scheduling.events.resources import resource_of
from kubestow.scheduling.partitions.held_partitions import offered_node
from kubestow.scheduling.preemption.evictions import SEVERAL_NODES
from kubestow.scheduling.queued_pod import Place
from kubestow_lab.fault_simulation.actors.devices import devices_of
from kubestow_lab.fault_simulation.apiserver.server import SimulatedServer, ended
from kubestow_lab.fault_simulation.invariants.fairness import FirstAttempts, Overtaken
from kubestow_lab.fault_simulation.invariants.feasible_nodes import PlainObjects
from kubestow_lab.fault_simulation.invariants.gangs import gang_counts
from kubestow_lab.fault_simulation.invariants.scheduler_state import miscounted
from kubestow_lab.fault_simulation.scheduler.process import Process
from kubestow_lab.fault_simulation.specification import (
    MAX_AT_ONCE,
    Attempted,
    Begun,
    Bound,
    Cancelled,
    Decided,
    Evicted,
    Fact,
    Preempting,
    Released,
    Sent,
    Watched,
    Written,
    violations,
)

#: How often a pod of a gang may be decided about in one attempt: for several placements, each more than once.
_DECISIONS_OF_GANG = 20
_POD_GROUPS = resource_of(KUBERNETES.kind)


class Witness:
    """Implements :class:`kubestow_lab.fault_simulation.scheduler.process.Checks`; ``report`` gets each violation.

    ``processes`` are those that share the partitions, if there are any.
    """

    def __init__(
        self, server: SimulatedServer, report: Callable[[str], None], processes: Sequence[Process] = ()
    ) -> None:
        self._server, self._report, self._processes = server, report, processes
        #: By which process each pod was placed whose partition follows from its constraints: what they are, by uid.
        self._placed_like: dict[str, tuple[str, Hashable]] = {}
        self._plain = PlainObjects()
        #: The pods that the present start of each process has not tried.
        self._first_attempts: dict[str, FirstAttempts] = {}
        #: How often each start has tried each pod, by its identity and uid, at the time of the last attempt.
        self._tried_now: Counter[tuple[str, str]] = Counter()
        self._now = 0.0
        #: When each start of a process has tried a pod for the last time.
        self._last_attempts: dict[str, float] = {}
        #: The (first) preemptors so far, by the identity of a start and their uid.
        self._have_preempted: set[tuple[str, str]] = set()
        #: The preemptions in progress, by the identity of a start and the uid of the (first) preemptor: the victims.
        self._awaited: dict[tuple[str, str], list[Pod]] = {}
        #: The same with those that were begun before the newest one, and may still wait for a response.
        self._evicting: dict[tuple[str, str], list[list[Pod]]] = {}
        #: The pods whose evictions have ended since the last attempt of a start, without victims that are left.
        self._have_evicted: dict[str, list[Pod]] = {}
        #: The pods that have preempted others since the last attempt of a start, with their nodes.
        self._preemptors: dict[str, list[tuple[Pod, str]]] = {}

    def state(self, fact: Fact) -> None:
        """Have the specification judge a fact."""
        for violation in violations(fact):
            self._report(violation)

    def pod_attempted(self, process: Process, pod: Pod) -> bool:
        at_once, idle, queue = self._at_once(process, pod), self._idle(process, pod), process.scheduler.queue
        self.state(
            Attempted(
                by=process.identity,
                pod=pod,
                # An attempt that a stall interrupted ends after it; its decision is not written.
                may_schedule=self._may_attempt(process, pod) or process.ends_stall,
                holder=self._holder_of_pod(process, pod),
                unknown_of_workload=self._unknown_of_workload(process, pod),
                overtaken=self._overtaken(process, pod),
                at_once=at_once,
                held_by_gone=self._held_by_gone(process),
                without_nomination=self._without_nomination(process, pod),
                idle=idle,
                since_error=self._since_error(process, pod),
                waiting=self._waiting_too_long(process),
                queued_in_flight=[uid for uid in queue.in_flight.uids() if uid in queue.pods],
                outdated=self._outdated(process),
                preemptors_left=self._preemptors_left(process, pod),
            )
        )
        return at_once >= MAX_AT_ONCE

    def _preemptors_left(self, process: Process, attempted: Pod) -> list[str]:
        """The pods whose evictions have ended since the last attempt, and that wait for an event all the same."""
        queued = process.scheduler.queue.pods
        return [
            pod.metadata.name
            for pod in self._have_evicted.pop(process.identity, ())
            if pod.metadata.uid != attempted.metadata.uid
            and (found := queued.get(pod.metadata.uid)) is not None
            and found.place is Place.UNSCHEDULABLE
        ]

    @staticmethod
    def _outdated(process: Process) -> list[str]:
        """The pods that are queued in another version than the watch has shown last, by uid."""
        versions = {pod.metadata.uid: pod.metadata.resource_version for pod in process.view.pods.values()}
        queued = process.scheduler.queue.pods
        return [
            uid
            for uid, each in queued.items()
            if versions.get(uid, each.info.metadata.resource_version) != each.info.metadata.resource_version
        ]

    def _may_attempt(self, process: Process, pod: Pod) -> bool:
        if not process.features.partitions:
            return process.may_schedule
        return process.holds_on_server(self._partition_of(process, pod))

    def _holder_of_pod(self, process: Process, pod: Pod) -> str:
        if not process.features.partitions:
            return self._holder
        return self._server.partition_leases[self._partition_of(process, pod)].holder or "no process"

    @staticmethod
    def _partition_of(process: Process, pod: Pod) -> int:
        """The partition whose scheduler may try a pod, as the process knows the pod."""
        info = process.scheduler.cluster.shapes.info(pod)
        offered = offered_node(info)
        return process.partitions.of_node(offered) if offered else process.partitions.of_pod(info)

    def _unknown_of_workload(self, process: Process, pod: Pod) -> list[str]:
        """The pods like this one that other processes have placed, and that this one does not know to have nodes."""
        info = process.scheduler.cluster.shapes.info(pod)
        if not process.features.partitions or offered_node(info):
            return []
        like = process.partitions.membership.criterion(info)
        if not isinstance(like, bytes):
            return []
        placed = self._placed(process)
        pods = {each.metadata.uid: each for each in self._server.pods() if not ended(each)}
        others = [other for other in self._processes if other is not process]
        assumed = {each.info.uid for other in others for each in other.scheduler.cluster.assumed()}
        return [
            uid
            for uid, (by, criterion) in self._placed_like.items()
            if criterion == like
            and by != process.name
            and uid in pods
            and uid not in placed
            and (uid in assumed or (pods[uid].spec.node_name and self._server.bound_by.get(uid) != "user"))
        ]

    def _at_once(self, process: Process, pod: Pod) -> int:
        """How often a pod has been tried in no time, this attempt included. Gangs try several nodes in one attempt."""
        if self._now != process.view.now:
            self._now = process.view.now
            self._tried_now.clear()
        self._tried_now[process.identity, pod.metadata.uid] += 1
        times = self._tried_now[process.identity, pod.metadata.uid]
        return times // _DECISIONS_OF_GANG if "job" in pod.metadata.labels else times

    def _idle(self, process: Process, pod: Pod) -> float:
        """For how many seconds the process has tried no pod while this one waited for its first attempt.

        An attempt with extenders takes time itself. A pod with claims may have waited for these, one of a gang for
        others, and after a stall or from another partition pods come later.
        """
        now, last = process.view.now, self._last_attempts.get(process.identity)
        self._last_attempts[process.identity] = now
        features, tried = process.features, self._first_attempts.get(process.identity)
        if last is None or tried is None or tried.has_tried(pod.metadata.uid) or _awaits_others(pod):
            return 0.0
        if features.faulty_extender or features.stalls or features.partitions or features.gang_search:
            return 0.0
        return now - max(last, process.view.pod_delivered_at.get(pod.metadata.uid, now))

    def _since_error(self, process: Process, pod: Pod) -> float | None:
        """The seconds since an attempt of a pod has ended with an error.

        A gang is tried again with other members of it, a preemptor when its preemption has failed, and a pod of another
        partition when its offer has.
        """
        uid, features = pod.metadata.uid, process.features
        is_tried_early = "job" in pod.metadata.labels or (process.identity, uid) in self._have_preempted
        if is_tried_early or features.stalls or features.partitions or uid not in process.failed_at:
            return None
        return process.clock.monotonic() - process.failed_at[uid]

    @staticmethod
    def _waiting_too_long(process: Process) -> dict[str, float]:
        """The pods that wait on Permit although their time has passed: since how many seconds, by name."""
        now = asyncio.get_running_loop().time()
        waiting = [] if process.features.stalls else process.scheduler.waiting_pods.all()
        return {each.info.name: now - each.deadline for each in waiting if each.pending_plugins and each.deadline < now}

    def _held_by_gone(self, process: Process) -> dict[str, float]:
        """For how many seconds the process has held a node for pods that it knows are gone, by their names.

        Before v1.36 such a pod keeps its node until its binding fails. A stall delays what follows from a deletion.
        """
        if process.features.stalls or not process.minor.has(Behaviour.DELETED_ASSUMED_PODS_ARE_FORGOTTEN):
            return {}
        settled_at, now = process.view.settled_at, process.view.now
        gone = [each.info for each in process.scheduler.cluster.assumed() if not _stays(_known(process, each.info.pod))]
        return {info.name: now - settled_at.get(info.uid, now) for info in gone}

    def _without_nomination(self, process: Process, attempted: Pod) -> list[str]:
        """The pods that have preempted others since the last attempt, have not changed, and are not nominated."""
        preemptors = self._preemptors.pop(process.identity, [])
        if not preemptors or not process.features.gates.enabled("SchedulerAsyncPreemption"):
            return []  # else they are nominated in a task of their own
        return [
            pod.metadata.name
            for pod, node_name in preemptors
            if pod.metadata.uid != attempted.metadata.uid
            and (known := _known(process, pod)) is not None
            and known.metadata.resource_version == pod.metadata.resource_version
            and node_name in process.scheduler.cluster.nodes.rows
            and process.scheduler.cluster.nomination(pod.metadata.uid) != node_name
        ]

    def _overtaken(self, process: Process, pod: Pod) -> list[Overtaken]:
        """Pods of gangs are tried together, and some wait for claims; after a stall other namespaces come first."""
        first_attempts = self._first_attempts.get(process.identity)
        if first_attempts is None:
            first_attempts = self._first_attempts[process.identity] = FirstAttempts()
        if process.features.stalls or process.features.partitions:
            return []
        names, cluster = process.scheduler_names, process.scheduler.cluster
        ready = [
            each
            for each in process.view.pods.values()
            if each.spec.scheduler_name in names
            and not (each.spec.node_name or each.spec.scheduling_gates or each.metadata.deletion_timestamp)
            and not _awaits_others(each)
            and not cluster.is_assumed(each.metadata.uid)
        ]
        overtaken = list(first_attempts.attempted(pod, ready))
        return [] if "job" in pod.metadata.labels else overtaken

    def pod_decided(self, process: Process, pod: Pod, node_name: str) -> None:
        view = process.view
        if process.features.partitions and not offered_node(info := process.scheduler.cluster.shapes.info(pod)):
            criterion = process.partitions.membership.criterion(info)
            self._placed_like[pod.metadata.uid] = process.name, criterion
        placed = self._placed(process)
        nodes = {node.metadata.name for node in view.nodes.values()}
        self.state(
            Decided(
                by=process.name,
                pod=pod,
                node_name=node_name,
                nodes=list(view.nodes.values()),
                placed=[(other, where) for other, where in placed.values() if where in nodes],
                nominated=[
                    info.pod
                    for info in process.scheduler.cluster.nominated_pods(node_name)
                    if (info.spec.priority or 0) >= (pod.spec.priority or 0)
                    and info.uid != pod.metadata.uid
                    # Those of them that constrain others count only if a pod on a node does, too, as in kube-scheduler.
                    and not _has_constraints(info.pod)
                ],
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
        units: dict[Hashable, list[Pod]] = {}
        if node_name != SEVERAL_NODES:
            node = process.view.nodes.get(("", node_name))
            (preemptor,) = preemptors
            leaving = {victim.metadata.uid for victim in victims}
            stay = [pod for pod, where in self._placed(process).values() if where == node_name]
            for victim in (pod for pod in stay if pod.metadata.uid in leaving):
                units.setdefault(self._unit(process, victim), []).append(victim)
            stay += [
                info.pod
                for info in process.scheduler.cluster.nominated_pods(node_name)
                if (info.spec.priority or 0) >= (preemptor.spec.priority or 0)
            ]
            beside = [pod for pod in stay if pod.metadata.uid not in {preemptor.metadata.uid, *leaving}]
            self._preemptors.setdefault(process.identity, []).append((preemptor, node_name))
        key = (process.identity, preemptors[0].metadata.uid)
        awaited = [pod for pod in self._awaited.get(key, ()) if _stays(_known(process, pod))]
        self._awaited[key] = list(victims)
        if any(map(_stays, victims)):  # without any to evict the preemption has ended as it started
            self._evicting.setdefault(key, []).append(list(victims))
        self._have_preempted.add(key)
        self.state(
            Preempting(
                by=process.name,
                preemptors=preemptors,
                victims=victims,
                units=list(units.values()),
                priorities={
                    pod.metadata.uid: [pod.spec.priority or 0, *self._group_priority(pod)]
                    for pod in (*preemptors, *victims)
                },
                node=node,
                beside=beside,
                awaited=awaited,
                is_checkable=not process.features.faulty_extender
                and not any(_has_constraints(pod) for pod in (*preemptors, *victims, *process.view.pods.values())),
                plain=self._plain,
            )
        )

    @staticmethod
    def _unit(process: Process, victim: Pod) -> Hashable:
        """What is evicted as a whole with a victim of a single pod: a group, a tree of groups, or only this pod."""
        named, cluster = victim.spec.scheduling_group, process.scheduler.cluster
        whole: PodGroup | CompositePodGroup | None = None
        if named is not None and process.minor.has(Behaviour.POD_GROUPS_ARE_VICTIMS):
            group = cluster.catalog(PodGroup).get(victim.metadata.namespace, named.pod_group_name or "")
            whole = None if group is None else disrupted_as_a_whole(group, cluster.catalog(CompositePodGroup))
        return victim.metadata.uid if whole is None else (type(whole), whole.metadata.namespace, whole.metadata.name)

    def _group_priority(self, pod: Pod) -> Iterator[int]:
        """The priority of the group of Kubernetes' own that a pod is in, which may have been deleted since."""
        named = pod.spec.scheduling_group
        if named is None:
            return
        for change in reversed(self._server.history[_POD_GROUPS]):
            if change.key == (pod.metadata.namespace, named.pod_group_name):
                yield change.obj.spec.priority or 0
                return

    def evictions_ended(self, process: Process, preemptor: Pod, *, succeeded: bool) -> None:
        key = (process.identity, preemptor.metadata.uid)
        self._awaited.pop(key, None)
        in_progress = self._evicting.get(key) or [[]]
        # Which of them has ended is not said: if it has succeeded, one of which all victims have gone, if there is one.
        is_placed = process.scheduler.cluster.placed_pod
        is_left = any(is_placed(victim.metadata.uid) for victims in in_progress for victim in victims)
        if "job" not in preemptor.metadata.labels and not (succeeded and is_left):
            self._have_evicted.setdefault(process.identity, []).append(preemptor)
        remaining = [self._on_their_nodes(victims) for victims in in_progress]
        counts = [len(each) if succeeded else 0 for each in remaining]
        ended_one = counts.index(min(counts))
        del in_progress[ended_one]
        if not in_progress:
            self._evicting.pop(key, None)
        self.state(Evicted(by=process.name, preemptor=preemptor, succeeded=succeeded, remaining=remaining[ended_one]))

    def _on_their_nodes(self, victims: Sequence[Pod]) -> list[Pod]:
        """Those victims that are on their nodes on the server, and are not being deleted."""
        # Others were stopped before they were bound, and may be on a node since.
        evicted = {victim.metadata.uid for victim in victims if victim.spec.node_name}
        return [pod for pod in self._server.pods() if pod.metadata.uid in evicted and _stays(pod) and not ended(pod)]

    def lease_released(self, process: Process) -> None:
        self.state(Released(by=process.identity, bindings=process.scheduler.binding_cycle_count))

    def watch_requested(self, process: Process, what: str, since: int, seen: int) -> None:
        self.state(Watched(by=process.identity, what=what, since=since, seen=seen))

    def binding_begun(self, process: Process, pod: Pod) -> None:
        view = process.view
        since = view.settled_at.get(pod.metadata.uid)
        # What has been delivered just before a stall, the process can act on only after it.
        settled_for = None if since is None else 0.0 if process.ends_stall else view.now - since
        self.state(Begun(by=process.identity, pod=pod, settled_for=settled_for, miscounted=list(miscounted(process))))

    def write_requested(self, process: Process, what: str) -> None:
        self.state(
            Written(
                by=process.identity,
                what=what,
                may_schedule=process.may_schedule or not process.features.stalls,
                holder=self._holder,
            )
        )

    def write_cancelled(self, process: Process, what: str) -> None:
        if process.stopped_at is not None:
            seconds = process.clock.monotonic() - process.stopped_at
            may_wait = process.may_schedule and not (process.has_lost_lease or process.is_stalled)
            self.state(Cancelled(by=process.identity, what=what, seconds=seconds, may_wait=may_wait))

    def binding_requested(self, process: Process, uid: str) -> None:
        self.state(
            Sent(
                by=process.identity,
                uid=uid,
                times=process.bind_attempts[uid],
                may_schedule=process.may_schedule or not process.features.stalls,
                holder=self._holder,
                gang=gang_counts(self._server, process, uid),
                is_stopped=uid in process.stopped_victims,
            )
        )

    def pod_bound(self, process: Process, uid: str, node_name: str) -> None:
        server, snapshot = self._server, process.snapshots.get(uid)
        pod = next(pod for pod in server.pods() if pod.metadata.uid == uid)
        claims = server.objects(ResourceClaim)
        known: Iterable[str] = () if snapshot is None else snapshot.uids
        # The holder of the partition of a node knows of all pods that former holders have bound to it.
        binders = {process.name}
        may_schedule, holder = process.may_schedule or process.is_stalled, self._holder
        if process.features.partitions:
            binders.update(other.name for other in self._processes)
            partition = process.partitions.of_node(node_name)
            may_schedule = process.holds_on_server(partition)
            holder = server.partition_leases[partition].holder or "no process"
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
                    if server.bound_by.get(each.metadata.uid) in binders or each.metadata.uid in known
                ],
                states=[] if snapshot is None else process.view.node_states[node_name][snapshot.state :],
                # A request that was sent before a stall takes effect in it.
                may_schedule=may_schedule,
                holder=holder,
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


def _known(process: Process, pod: Pod) -> Pod | None:
    """The state of a pod that the watches of a process have delivered last; None if it is gone."""
    known = process.view.pods.get((pod.metadata.namespace, pod.metadata.name))
    return known if known is not None and known.metadata.uid == pod.metadata.uid else None


def _stays(pod: Pod | None) -> bool:
    return pod is not None and pod.metadata.deletion_timestamp is None


def _awaits_others(pod: Pod) -> bool:
    """Whether a pod may wait for other pods of its gang, or for claims."""
    return bool("job" in pod.metadata.labels or pod.spec.volumes or pod.spec.resource_claims)


def _has_constraints(pod: Pod) -> bool:
    """Whether more decides on the node of a pod than what :class:`Preempting` has."""
    spec = pod.spec
    affinity = spec.affinity
    constrains_pods = affinity is not None and (affinity.pod_affinity or affinity.pod_anti_affinity)
    return bool(constrains_pods or spec.topology_spread_constraints or spec.volumes or spec.resource_claims)
