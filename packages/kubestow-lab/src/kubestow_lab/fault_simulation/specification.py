"""The specification: what must hold of any scheduler, whatever its server, clocks, plugins and processes do.

Each rule is a function of one fact, which is plain data: what a scheduler knew, and what it did. Its name is the law,
its docstring is the reason, and what it yields are violations. :data:`RULES` has all of them. The simulation states the
facts (:mod:`kubestow_lab.fault_simulation.simulation`):

    Attempted    a scheduler has tried to find a node for a pod
    Decided      it has placed a pod on a node
    Preempting   it starts to evict pods for another one
    Evicted      it has ended that, whether it could or not
    Begun        it begins to bind a pod, which holds what it needs until that has ended
    Sent         it sends a binding
    Written      it sends another write
    Bound        the server has carried the binding out
    Cancelled    it has cancelled a request on its way
    Released     it has given its lease back
    Watched      it asks for the changes of a collection
    Rested       nothing has happened for so long that a scheduler must have nothing left to do
    Settled      the same of the whole cluster

What takes more than a few lines to find out is in :mod:`kubestow_lab.fault_simulation.invariants`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, TypeVar

from kubestow.api.core import Node, Pod
from kubestow.api.resource import ResourceClaim
from kubestow.api.storage import PersistentVolume, PersistentVolumeClaim
from kubestow_lab.fault_simulation.actors.devices import claims_of, devices_of
from kubestow_lab.fault_simulation.apiserver.server import SimulatedServer
from kubestow_lab.fault_simulation.invariants.fairness import Overtaken, request_storms
from kubestow_lab.fault_simulation.invariants.feasible_nodes import PlainObjects, infeasibility, misfits_of_preemption
from kubestow_lab.fault_simulation.invariants.gangs import unscheduled_gangs
from kubestow_lab.fault_simulation.invariants.missed_pods import idle_preemptors, unscheduled_pods
from kubestow_lab.fault_simulation.invariants.scheduler_state import (
    cache_differences,
    leaks,
    nominations_left,
    reservations_taken_back,
    unreported,
)
from kubestow_lab.fault_simulation.invariants.volumes import volume_violations
from kubestow_lab.fault_simulation.scheduler.process import Process
from kubestow_lab.oracle.node_with_pods import NodeWithPods, pod_requests

#: Allowed bindings of a pod per second: by an extender and by a plugin, with retries.
_MAX_BINDINGS = 6
#: Allowed attempts of one pod in no time: events may skip its backoff.
MAX_AT_ONCE = 50
#: The shortest backoff after an error, and within how many seconds a ready pod is tried if nothing else is.
_INITIAL_BACKOFF, _IDLE = 1.0, 5.0
#: How long a scheduler that is stopped gracefully waits for its requests, in seconds.
_GRACE = 9.0
#: How soon it gives up what it holds for a pod that it knows is gone, in seconds.
_SOON = 1.0


@dataclass(frozen=True, kw_only=True)
class Attempted:
    """A scheduler has tried to find a node for a pod. ``holder`` is the process that holds the lease on the server.

    ``overtaken`` are pods that wait for their first attempt, although they come before this one, which was tried
    meanwhile for the second time. ``at_once`` is how often this pod has been tried at this very moment.
    ``held_by_gone`` has the pods that have a node although they are known to be gone: for how many seconds, by
    name. ``without_nomination`` are pods that have preempted others since, have not changed, and are not nominated.
    ``idle`` are the seconds that the scheduler has tried no pod, although this one has waited for its first attempt,
    and ``since_error`` those since an attempt of this pod has ended with an error, None where it has not. ``waiting``
    has the pods that wait on Permit longer than a plugin wants: for how many seconds, by name. ``queued_in_flight`` are
    the pods that are queued although an attempt of them is in progress, by uid, and ``outdated`` those that are queued
    as they were before their latest change that the watch has shown.
    """

    by: str
    pod: Pod
    may_schedule: bool
    holder: str
    overtaken: Sequence[Overtaken]
    at_once: int
    held_by_gone: Mapping[str, float]
    without_nomination: Sequence[str]
    idle: float = 0.0
    since_error: float | None = None
    waiting: Mapping[str, float] = field(default_factory=dict)
    #: Pods with the same constraints on each other that the scheduler of another partition has placed, by uid, and that
    #: this one does not know to have nodes.
    unknown_of_workload: Sequence[str] = ()
    queued_in_flight: Sequence[str] = ()
    outdated: Sequence[str] = ()
    #: Pods whose evictions have ended since the last attempt, with no victims left, and that wait for an event.
    preemptors_left: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Decided:
    """A scheduler has placed a pod on a node.

    Everything else is what it knew: the objects that its watches had delivered, and ``placed``, the pods on nodes with
    the names of these, those that it had assumed itself included. ``nominated`` are the pods nominated for this node
    that this pod yields to.
    """

    by: str
    pod: Pod
    node_name: str
    nodes: Sequence[Node]
    placed: Sequence[tuple[Pod, str]]
    nominated: Sequence[Pod]
    claims: Sequence[PersistentVolumeClaim]
    volumes: Sequence[PersistentVolume]
    plain: PlainObjects


@dataclass(frozen=True, kw_only=True)
class Preempting:
    """A scheduler starts to evict ``victims`` for pods; on the node ``node``, or on several (None).

    ``units`` are the victims on that node; those that are evicted together are in one: the pods of a group that is
    disrupted as a whole, where such a group may be a victim.
    ``priorities`` has those of all these pods by uid: their own, and that of their group if there is one, because which
    of them counts depends on the minor version.
    ``beside`` are the pods on that node that stay, and those nominated for it that the preemptor yields to.
    ``awaited`` are the victims of an earlier preemption for the same pods that is in progress, as far as the scheduler
    does not know yet that they leave.
    ``is_checkable``: only capacity, taints, ports and selectors decide whether a pod fits.
    """

    by: str
    preemptors: Sequence[Pod]
    victims: Sequence[Pod]
    units: Sequence[Sequence[Pod]]
    priorities: Mapping[str, Sequence[int]]
    node: Node | None
    beside: Sequence[Pod]
    awaited: Sequence[Pod]
    is_checkable: bool
    plain: PlainObjects


@dataclass(frozen=True, kw_only=True)
class Evicted:
    """A scheduler has ended to evict pods for another one, and takes it for done or not.

    ``remaining`` are the victims that are on their nodes on the server, and are not being deleted.
    """

    by: str
    preemptor: Pod
    succeeded: bool
    remaining: Sequence[Pod]


@dataclass(frozen=True, kw_only=True)
class Begun:
    """A scheduler begins to bind a pod.

    ``settled_for``: for so many seconds it has known that the pod is gone, being deleted, or on a node; None for a
    pod that is pending. ``miscounted`` has the pods that do not count where its watches have shown them: what is wrong.
    """

    by: str
    pod: Pod
    settled_for: float | None
    miscounted: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Sent:
    """A scheduler sends a binding; ``times`` are those of all bindings of this pod that it has sent, in seconds.

    ``gang`` is None for a pod of no gang, else how many members are bound, placed or nominated, and how many must be.
    ``is_stopped``: since it has placed the pod, it has reported that the pod was stopped in favour of another one.
    """

    by: str
    uid: str
    times: Sequence[float]
    may_schedule: bool
    holder: str
    gang: tuple[int, int] | None
    is_stopped: bool


@dataclass(frozen=True, kw_only=True)
class Written:
    """A scheduler sends a write that is no binding: a patch, or the eviction of a pod."""

    by: str
    what: str
    may_schedule: bool
    holder: str


@dataclass(frozen=True, kw_only=True)
class Cancelled:
    """A scheduler that was stopped gracefully so many seconds ago has cancelled a write that was on its way.

    ``may_wait``: it had no reason to hurry, because it was still the leader.
    """

    by: str
    what: str
    seconds: float
    may_wait: bool


@dataclass(frozen=True, kw_only=True)
class Bound:
    """The server has bound a pod, at the request of a scheduler that had ``decided`` for a node (None: for none).

    ``earlier`` are the nodes that the pod has been bound to before. ``beside`` are the pods on the node that the
    scheduler knew of or has bound itself, this one included, and ``states`` those of the node since its decision.
    ``device_holders`` has the number of claims of the cluster that each device is allocated to.
    """

    by: str
    pod: Pod
    node_name: str
    decided: str | None
    earlier: Sequence[str]
    node_names: Set[str]
    beside: Sequence[Pod]
    states: Sequence[Node]
    may_schedule: bool
    holder: str
    claims: Mapping[str, ResourceClaim]
    device_holders: Mapping[tuple[str, str], int]
    plain: PlainObjects


@dataclass(frozen=True, kw_only=True)
class Released:
    """A scheduler has given its lease back; ``bindings`` is how many pods it is still about to bind."""

    by: str
    bindings: int


@dataclass(frozen=True, kw_only=True)
class Watched:
    """A scheduler asks for the changes ``since`` a version, and has ``seen`` another one of the same collection."""

    by: str
    what: str
    since: int
    seen: int


@dataclass(frozen=True)
class Rested:
    """A scheduler has had time to end whatever it had to do."""

    server: SimulatedServer
    process: Process


@dataclass(frozen=True)
class Settled:
    """All schedulers have had that time; ``processes`` is empty where only the pods are looked at."""

    server: SimulatedServer
    scheduler_names: Sequence[str]
    processes: Sequence[Process] = ()
    #: Whether pods are tried again after minutes without an event.
    flushes: bool = True


Fact = (
    Attempted
    | Decided
    | Preempting
    | Evicted
    | Begun
    | Sent
    | Written
    | Cancelled
    | Bound
    | Released
    | Watched
    | Rested
    | Settled
)
F = TypeVar(
    "F",
    Attempted,
    Decided,
    Preempting,
    Evicted,
    Begun,
    Sent,
    Written,
    Cancelled,
    Bound,
    Released,
    Watched,
    Rested,
    Settled,
)


@dataclass(frozen=True)
class Rule:
    """A law: its name, the reason for it, the kind of facts that it is about, and what finds its violations."""

    name: str
    reason: str
    fact: type[Any]
    check: Callable[[Any], Iterator[str]]


#: All rules, in the order of this file.
RULES: list[Rule] = []


def _rule(fact: type[F]) -> Callable[[Callable[[F], Iterator[str]]], Callable[[F], Iterator[str]]]:
    def declare(check: Callable[[F], Iterator[str]]) -> Callable[[F], Iterator[str]]:
        reason = " ".join((check.__doc__ or "").split())
        RULES.append(Rule(check.__name__.replace("_", " "), reason, fact, check))
        return check

    return declare


def violations(fact: Fact) -> Iterator[str]:
    """The violations of all rules about a fact, each with the name of the rule."""
    for rule in RULES:
        if rule.fact is type(fact):
            for violation in rule.check(fact):
                yield f"{rule.name}: {violation}"


# -- who may act ---------------------------------------------------------------------------------------------------


@_rule(Attempted)
def only_the_leader_decides(fact: Attempted) -> Iterator[str]:
    """Two schedulers that decide at once fill one node twice; by the clocks of both, only the lease holder may."""
    if not fact.may_schedule:
        yield f"{fact.by} decides while {fact.holder} holds the lease"


@_rule(Attempted)
def pods_that_constrain_each_other_have_one_scheduler(fact: Attempted) -> Iterator[str]:
    """Between partitions, a scheduler that spreads pods without knowing where their like are breaks their maxSkew."""
    for uid in fact.unknown_of_workload:
        yield f"{fact.by} decides about {fact.pod.metadata.name} and does not know where {uid} is"


@_rule(Sent)
def only_the_leader_sends_bindings(fact: Sent) -> Iterator[str]:
    """A scheduler that was stalled past its lease has decided on a state that its successor has changed since."""
    if not fact.may_schedule:
        yield f"{fact.by} sends a binding while {fact.holder} leads"


@_rule(Written)
def only_the_leader_writes(fact: Written) -> Iterator[str]:
    """A former leader that evicts a pod, or reports on one, contradicts what its successor has decided meanwhile."""
    if not fact.may_schedule:
        yield f"{fact.by} sends {fact.what} while {fact.holder} leads"


@_rule(Cancelled)
def a_graceful_stop_waits_for_requests(fact: Cancelled) -> Iterator[str]:
    """A write that is cut off may take effect or not, and its pod has to be read again by the next scheduler."""
    if fact.may_wait and fact.seconds < _GRACE:
        yield f"{fact.by} has cancelled {fact.what} {fact.seconds:.1f} s after it was stopped"


@_rule(Bound)
def only_the_leader_binds(fact: Bound) -> Iterator[str]:
    """A binding that arrives after the lease has changed hands may be the second one on a full node."""
    if not fact.may_schedule:
        yield f"{fact.by} binds while {fact.holder} holds the lease"


@_rule(Released)
def a_lease_is_released_when_nothing_is_in_progress(fact: Released) -> Iterator[str]:
    """The next leader decides at once, and counts the nodes as free that these pods are about to be bound to."""
    if fact.bindings:
        yield f"{fact.by} has released the lease and is about to bind {fact.bindings} pods"


# -- order ---------------------------------------------------------------------------------------------------------


@_rule(Attempted)
def no_pod_is_overtaken_twice(fact: Attempted) -> Iterator[str]:
    """A pod that fails again and again must not keep others of its priority, or of a higher one, from their first try.

    That is what backoff is for: a pod that has failed comes after those that wait.
    """
    for other in fact.overtaken:
        yield f"{fact.by} tries {fact.pod.metadata.name} for the {other.attempts}. time before {other.name}"


@_rule(Attempted)
def a_pod_in_flight_is_not_queued(fact: Attempted) -> Iterator[str]:
    """It would be tried for the second time before it is known what becomes of the first attempt."""
    for uid in fact.queued_in_flight:
        yield f"{fact.by} has {uid} in flight, and queues it"


@_rule(Attempted)
def a_pod_is_queued_as_it_is(fact: Attempted) -> Iterator[str]:
    """Its next attempt would be made with requests, constraints or gates that it no longer has."""
    for uid in fact.outdated:
        yield f"{fact.by} queues {uid} as it was before its latest change"


@_rule(Attempted)
def attempts_back_off(fact: Attempted) -> Iterator[str]:
    """A scheduler that tries one pod again and again does nothing else, and fills every log."""
    if fact.at_once == MAX_AT_ONCE:
        yield f"{fact.by} tries {fact.pod.metadata.name} {fact.at_once} times at once"


@_rule(Attempted)
def an_error_is_not_retried_at_once(fact: Attempted) -> Iterator[str]:
    """A server that refuses a binding, or a plugin that raises, would be asked again and again without a pause."""
    if fact.since_error is not None and fact.since_error < _INITIAL_BACKOFF - 1e-6:
        yield f"{fact.by} tries {fact.pod.metadata.name} {fact.since_error:.3f} s after an error"


@_rule(Attempted)
def a_ready_pod_is_tried(fact: Attempted) -> Iterator[str]:
    """A scheduler that does nothing while a pod waits makes every start late; it must not wait for another event."""
    if fact.idle > _IDLE:
        yield f"{fact.by} has done nothing for {fact.idle:.1f} s, and {fact.pod.metadata.name} was ready"


@_rule(Sent)
def bindings_back_off(fact: Sent) -> Iterator[str]:
    """A server that refuses a binding is not asked again at once; a few retries of one request are allowed."""
    if len(fact.times) > _MAX_BINDINGS and fact.times[-1] - fact.times[-1 - _MAX_BINDINGS] < 1.0:
        yield f"{fact.by} has sent {len(fact.times)} bindings of {fact.uid}, {_MAX_BINDINGS} of them in the last second"


# -- decisions -----------------------------------------------------------------------------------------------------


@_rule(Decided)
def a_pod_is_placed_where_it_fits(fact: Decided) -> Iterator[str]:
    """Every filter holds of the node, as far as the scheduler could know: the kubelet may refuse the pod otherwise.

    An implementation that shares no code with the scheduler finds the nodes on which the pod fits.
    """
    yield from infeasibility(fact.pod, fact.node_name, nodes=fact.nodes, placed=fact.placed, plain=fact.plain)


@_rule(Decided)
def a_volume_is_mounted_where_it_can_be(fact: Decided) -> Iterator[str]:
    """A claim has one volume within reach of the node, a disk one pod per node, ReadWriteOncePod one pod at all."""
    yield from volume_violations(fact.pod, fact.node_name, placed=fact.placed, claims=fact.claims, volumes=fact.volumes)


@_rule(Decided)
def no_gated_pod_is_placed(fact: Decided) -> Iterator[str]:
    """A scheduling gate is how a quota, or a topology that is yet to come, holds a pod back."""
    if fact.pod.spec.scheduling_gates:
        yield f"{fact.by} places {fact.pod.metadata.name} on {fact.node_name}, and it is gated"


@_rule(Decided)
def room_is_kept_for_nominated_pods(fact: Decided) -> Iterator[str]:
    """A pod has evicted others for this room; a pod of lower priority that took it would have them evicted in vain."""
    if fact.nominated:
        placed = [*fact.placed, *((pod, fact.node_name) for pod in fact.nominated)]
        yield from infeasibility(fact.pod, fact.node_name, nodes=fact.nodes, placed=placed, plain=fact.plain)


@_rule(Attempted)
def nothing_is_held_for_a_pod_that_is_gone(fact: Attempted) -> Iterator[str]:
    """Others wait for the node, the volumes and the devices that a deleted pod will never use."""
    for name, seconds in fact.held_by_gone.items():
        if seconds > _SOON:
            yield f"{fact.by} holds a node for {name}, {seconds:.1f} s after it has known that this pod is gone"


@_rule(Attempted)
def a_wait_on_permit_times_out(fact: Attempted) -> Iterator[str]:
    """A pod that waits holds its node; a plugin that never answers must not hold it for ever."""
    for name, seconds in fact.waiting.items():
        if seconds > _SOON:
            yield f"{fact.by} lets {name} wait on Permit, {seconds:.1f} s after its time has passed"


# -- preemption ----------------------------------------------------------------------------------------------------


@_rule(Preempting)
def a_pod_preempts_once_at_a_time(fact: Preempting) -> Iterator[str]:
    """Until the victims of a preemption leave, it is not known whether more of them are needed."""
    if fact.awaited:
        names = ", ".join(pod.metadata.name for pod in fact.awaited)
        yield f"{fact.by} evicts more pods for {fact.preemptors[0].metadata.name}, {names} have yet to leave"


@_rule(Attempted)
def a_preemptor_is_nominated(fact: Attempted) -> Iterator[str]:
    """Another pod would take the room that the victims leave, and they would have been evicted in vain."""
    for name in fact.without_nomination:
        yield f"{fact.by} tries {fact.pod.metadata.name}, {name} has preempted others and is not nominated"


@_rule(Attempted)
def a_preemptor_is_tried_after_its_evictions(fact: Attempted) -> Iterator[str]:
    """Once its victims are gone, or could not be evicted, no event may follow that would have it tried again."""
    for name in fact.preemptors_left:
        yield f"{fact.by} tries {fact.pod.metadata.name}, {name} waits for an event although its evictions have ended"


@_rule(Preempting)
def victims_have_lower_priority(fact: Preempting) -> Iterator[str]:
    """Priority is what preemption is for; two pods of one priority would evict each other for ever.

    The pods of a gang are placed together, so it has the priority of its most important one.
    """
    highest = max(max(fact.priorities[preemptor.metadata.uid]) for preemptor in fact.preemptors)
    for victim in fact.victims:
        if min(fact.priorities[victim.metadata.uid]) >= highest:
            yield f"{fact.by} evicts {victim.metadata.name} for {fact.preemptors[0].metadata.name}"


@_rule(Preempting)
def a_pod_that_must_not_preempt_does_not(fact: Preempting) -> Iterator[str]:
    """``preemptionPolicy: Never`` is how users keep batch pods of high priority from evicting others."""
    for preemptor in fact.preemptors:
        if fact.victims and preemptor.spec.preemption_policy == "Never":
            yield f"{fact.by} evicts pods for {preemptor.metadata.name}, whose policy is Never"


@_rule(Preempting)
def preemption_makes_the_preemptor_fit(fact: Preempting) -> Iterator[str]:
    """Pods are evicted for nothing if the preemptor does not fit on the node that they leave."""
    if fact.node is not None and fact.is_checkable:
        for problem in misfits_of_preemption(fact.preemptors[0], fact.node, fact.beside, plain=fact.plain):
            yield f"{fact.by} evicts pods for {fact.preemptors[0].metadata.name}: {problem}"


@_rule(Preempting)
def no_victim_is_needless(fact: Preempting) -> Iterator[str]:
    """A budget of disruptions is spent only where the preemptor would not fit otherwise, and so is any pod's work."""
    if fact.node is None or not fact.is_checkable:
        return
    for unit in fact.units:
        if not list(misfits_of_preemption(fact.preemptors[0], fact.node, [*fact.beside, *unit], plain=fact.plain)):
            victims = " and ".join(victim.metadata.name for victim in unit)
            yield f"{fact.by} evicts {victims}, {fact.preemptors[0].metadata.name} would fit beside"


@_rule(Evicted)
def an_eviction_that_was_refused_is_no_success(fact: Evicted) -> Iterator[str]:
    """A preemptor whose victims stay waits for room that will not come; it has to be tried again."""
    if fact.succeeded and fact.remaining:
        names = ", ".join(pod.metadata.name for pod in fact.remaining)
        yield f"{fact.by} takes {names} for evicted, for {fact.preemptor.metadata.name}"


# -- bindings ------------------------------------------------------------------------------------------------------


@_rule(Begun)
def no_binding_begins_of_a_pod_that_needs_none(fact: Begun) -> Iterator[str]:
    """A pod that was deleted, or has a node, would hold another node until the server refuses its binding."""
    if fact.settled_for:  # else it has learned that this very moment
        yield f"{fact.by} begins to bind {fact.pod.metadata.name}, and has known for {fact.settled_for:.3f} s better"


@_rule(Begun)
def a_pod_counts_where_it_is(fact: Begun) -> Iterator[str]:
    """A pod that counts nowhere, or elsewhere, leaves room that others are bound to, and one that is gone takes it.

    The next change of the pod makes up for it, so that nothing may be left of it in the end.
    """
    for problem in fact.miscounted:
        yield f"{fact.by} {problem}"


@_rule(Sent)
def no_binding_is_sent_of_a_pod_that_was_stopped(fact: Sent) -> Iterator[str]:
    """The pod that it was stopped for is about to take its place."""
    if fact.is_stopped:
        yield f"{fact.by} binds {fact.uid}, and has reported that it was stopped"


@_rule(Bound)
def a_pod_is_bound_where_it_was_placed(fact: Bound) -> Iterator[str]:
    """What was checked, reserved and counted is one node, and a binding to another one is none of that."""
    if fact.decided is None:
        yield f"{fact.by} bound {fact.pod.metadata.uid} to {fact.node_name} without a decision"
    elif fact.decided != fact.node_name:
        yield f"{fact.by} bound {fact.pod.metadata.uid} to {fact.node_name}, but decided for {fact.decided}"


@_rule(Bound)
def a_pod_is_bound_once(fact: Bound) -> Iterator[str]:
    """A pod runs on one node; two kubelets that run it corrupt what it writes."""
    if fact.earlier:
        yield f"{fact.pod.metadata.uid} is bound to {fact.node_name}, and was to {', '.join(fact.earlier)}"


@_rule(Bound)
def no_pod_is_bound_after_its_deletion(fact: Bound) -> Iterator[str]:
    """Its controller has replaced it already, and its volumes and devices are given to others."""
    if fact.pod.metadata.deletion_timestamp is not None:
        yield f"{fact.pod.metadata.uid} is bound to {fact.node_name}, and is being deleted"


@_rule(Bound)
def a_pod_is_bound_to_a_node_that_existed(fact: Bound) -> Iterator[str]:
    """The server does not check the name; no kubelet would ever run the pod."""
    if fact.node_name not in fact.node_names:
        yield f"{fact.pod.metadata.uid} was bound to {fact.node_name}, which never existed"


@_rule(Bound)
def no_node_is_bound_above_its_allocatable(fact: Bound) -> Iterator[str]:
    """A kubelet refuses a pod that does not fit, and one that does not refuse it runs out of memory.

    Of what this pod requests, the node has had enough at some time since the decision, because nodes can shrink, for
    all pods that this scheduler knew of or has bound.
    """
    allocatable: Counter[str] = Counter()
    for state in fact.states:
        allocatable |= Counter(NodeWithPods(fact.plain.of(state)).allocatable)
    used = Counter({"pods": len(fact.beside)})
    for pod in fact.beside:
        used.update(pod_requests(fact.plain.of(pod)))
    for name in pod_requests(fact.plain.of(fact.pod)) + Counter({"pods": 1}):
        if fact.states and used[name] > allocatable[name]:
            yield (
                f"{fact.node_name} has {allocatable[name]} {name}, "
                f"and {used[name]} are requested with {fact.pod.metadata.uid}"
            )


@_rule(Bound)
def no_host_port_is_used_twice(fact: Bound) -> Iterator[str]:
    """The second container that listens on a port of its node does not start."""
    mine = _host_ports(fact.pod)
    for other in fact.beside:
        if other.metadata.uid != fact.pod.metadata.uid and (both := _host_ports(other) & mine):
            yield (
                f"host ports {sorted(both)} of {fact.node_name} are used by "
                f"{other.metadata.uid} and {fact.pod.metadata.uid}"
            )


def _host_ports(pod: Pod) -> set[int]:
    return {port.host_port for container in pod.spec.containers for port in container.ports if port.host_port}


@_rule(Bound)
def claims_of_a_bound_pod_are_reserved_for_it(fact: Bound) -> Iterator[str]:
    """A kubelet prepares a claim only for the pods that it is reserved for, on the node that has its devices."""
    name, uid = fact.pod.metadata.name, fact.pod.metadata.uid
    for claim_name in claims_of(fact.pod):
        claim = fact.claims.get(claim_name)
        if claim is None or uid not in {consumer.uid for consumer in claim.status.reserved_for}:
            yield f"{name} is bound to {fact.node_name}, claim {claim_name} is not reserved for it"
        elif {pool for pool, _ in devices_of(claim)} != {fact.node_name}:
            yield f"{name} is bound to {fact.node_name}, claim {claim_name} has {devices_of(claim)}"


@_rule(Bound)
def no_device_is_allocated_twice(fact: Bound) -> Iterator[str]:
    """Each of two pods would take a device for its own."""
    for (pool, device), times in fact.device_holders.items():
        if times > 1:
            yield f"device {device} of {pool} is allocated to {times} claims"


@_rule(Sent)
def a_gang_is_bound_whole_or_not_at_all(fact: Sent) -> Iterator[str]:
    """Members that run without the others hold what these need, and compute nothing.

    Before the first binding is sent, minCount members are bound, placed or nominated. Members that were bound count
    even if they were deleted since, because a binding cannot be undone.
    """
    if fact.gang is not None and fact.gang[0] < fact.gang[1]:
        yield f"{fact.by} binds {fact.uid}, {fact.gang[0]} members are placed or nominated of {fact.gang[1]}"


# -- watches -------------------------------------------------------------------------------------------------------


@_rule(Watched)
def a_watch_goes_on_where_it_ended(fact: Watched) -> Iterator[str]:
    """Changes that are delivered again take the cache back to states that no longer hold, one after the other."""
    if fact.since < fact.seen:
        yield f"{fact.by} watches {fact.what} since {fact.since}, and has seen {fact.seen}"


# -- once events stop ----------------------------------------------------------------------------------------------


@_rule(Settled)
def every_schedulable_pod_is_bound(fact: Settled) -> Iterator[str]:
    """Whatever was lost, late or refused before: no pod is forgotten that fits on a node."""
    yield from unscheduled_pods(fact.server, fact.scheduler_names)


@_rule(Settled)
def every_schedulable_gang_is_bound(fact: Settled) -> Iterator[str]:
    """The same for minCount members of a gang: one after the other, or wherever they fit if that is searched for."""
    searches = any(process.features.gang_search for process in fact.processes)
    yield from unscheduled_gangs(fact.server, fact.scheduler_names, search=searches)


@_rule(Settled)
def every_pod_that_may_preempt_does(fact: Settled) -> Iterator[str]:
    """An important pod does not wait for ever beside pods that would yield to it."""
    if fact.flushes:  # a change of priority, which a real API server forbids, is no event
        yield from idle_preemptors(fact.server, fact.scheduler_names)


@_rule(Settled)
def some_scheduler_leads(fact: Settled) -> Iterator[str]:
    """A lease that no process acquires stops the cluster."""
    if fact.processes and not any(process.is_leader for process in fact.processes):
        yield "no process is the leader"


@_rule(Settled)
def partitions_are_shared_evenly(fact: Settled) -> Iterator[str]:
    """Pods of a partition without a holder wait; one scheduler that holds most of them does most of the work."""
    held = [process.partitions.held for process in fact.processes if process.features.partitions]
    if not held:
        return
    if sorted(partition for each in held for partition in each) != list(range(len(fact.server.partition_leases))):
        yield f"the processes hold partitions {held}"
    elif max(map(len, held)) - min(map(len, held)) > 1:
        yield f"the processes hold partitions {held}, which is not even"


@_rule(Rested)
def a_scheduler_survives(fact: Rested) -> Iterator[str]:
    """Only a lost lease, a signal, or the loss of the machine ends a scheduler."""
    running = fact.process.running
    if not fact.process.alive:
        yield f"{fact.process.name} has ended: {None if running.cancelled() else running.exception()!r}"


@_rule(Rested)
def the_cache_is_what_the_server_has(fact: Rested) -> Iterator[str]:
    """Every decision is made on the cache, so what is wrong in it is wrong for good."""
    yield from cache_differences(fact.server, fact.process)


@_rule(Rested)
def nominations_end(fact: Rested) -> Iterator[str]:
    """A nomination keeps others off its node; that of a pod that is bound or gone would do so for ever."""
    yield from nominations_left(fact.server, fact.process)


@_rule(Rested)
def nothing_is_lost_or_left(fact: Rested) -> Iterator[str]:
    """A pod that is pending is queued, as it is now; whatever a pod was reserved, assumed or awaited for has ended."""
    if fact.process.is_leader:
        yield from leaks(fact.server, fact.process)


@_rule(Rested)
def a_bound_pod_keeps_what_was_reserved(fact: Rested) -> Iterator[str]:
    """A plugin that takes back what a running pod uses gives it to another one."""
    yield from reservations_taken_back(fact.server, fact.process)


@_rule(Rested)
def pods_say_what_has_happened_to_them(fact: Rested) -> Iterator[str]:
    """Users and autoscalers read from the status of a pod, and from its events, why it is pending."""
    if fact.process.is_leader:
        yield from unreported(fact.server, fact.process)


@_rule(Rested)
def a_server_in_trouble_is_spared(fact: Rested) -> Iterator[str]:
    """Retries that do not back off keep a server down that would recover."""
    yield from request_storms(fact.process.name, fact.process.requests)
