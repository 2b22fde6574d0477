"""Marks: the rare paths that a fault simulation has to reach, and how often runs have reached them.

A simulation that finds nothing proves little unless the paths on which schedulers break were taken. The scheduler knows
of no mark. They are observed from outside: on requests and watch events where the simulated server handles them, and by
an observer and a log handler (:mod:`kubestow_lab.fault_simulation.scheduler.lookout`).
"""

from __future__ import annotations

from collections import Counter
from enum import StrEnum


class Mark(StrEnum):
    """A rare path; the value says what has happened."""

    # -- bindings on the way to the server
    BINDING_ANSWER_LOST = "the answer to a binding that took effect is lost"
    BINDING_LOST = "a binding is lost before it takes effect"
    BINDING_REFUSED = "a binding is forbidden"
    BINDING_CONFLICTS = "the server answers a binding that it has not carried out with a conflict"
    BINDING_OF_DELETED_POD = "a binding arrives after its pod was deleted"
    BINDING_OF_TERMINATING_POD = "a binding arrives while its pod is being deleted"
    BINDING_OF_REPLACED_POD = "a binding arrives after its pod was deleted and created again under its name"
    BINDING_OF_BOUND_POD = "a binding arrives after another scheduler, or a user, has bound the pod"
    BINDING_OF_KILLED = "a scheduler is killed while its binding is on the way, and that takes effect"
    BINDING_LOST_WITH_KILLED = "a scheduler is killed while its binding is on the way, and that does not"
    BINDING_SHOWN_BEFORE_ANSWER = "the watch shows a binding before its answer arrives"
    BINDING_SHOWN_LATE = "the watch has not shown a binding for half a minute, and the pod is read"
    # -- other requests
    EVICTION_ANSWER_LOST = "the answer to an eviction that took effect is lost"
    STATUS_ANSWER_LOST = "the answer to a status patch that took effect is lost"
    STATUS_OF_DELETED_POD = "a status patch arrives after its pod was deleted"
    CLAIM_ANSWER_LOST = "the answer to a write of a claim that took effect is lost"
    CLAIM_WRITE_STALE = "a write of a claim conflicts with the write of another client"
    LEASE_ANSWER_LOST = "the answer to a renewal of the lease that took effect is lost"
    # -- watches
    EVENT_OVERTAKEN = "an event overtakes an earlier one of another object"
    EVENT_REPEATED = "an event is delivered twice"
    EVENT_CUT = "a watch breaks in the middle of an event"
    WATCH_EXPIRED = "a watch is answered with 410, and the collection is listed"
    LIST_EXPIRED = "a list expires between two of its pages"
    LIST_HIDES_DELETION = "a pod was deleted while the watch was down"
    LIST_HIDES_REPLACEMENT = "a pod was deleted and created again while the watch was down"
    RELISTED_IN_PREEMPTION = "pods are listed again in the middle of a preemption"
    RELISTED_IN_BINDING = "pods are listed again while a pod is being bound"
    # -- the cluster changes under a decision
    ASSUMED_POD_DELETED = "a pod is deleted between its placement and its binding"
    NODE_LOST_UNDER_ASSUMED_POD = "a node is deleted with a pod that is placed on it and not bound yet"
    NODE_LOST_UNDER_NOMINATED_POD = "a node is deleted that a pod is nominated for"
    GANG_TORN_BY_NODE = "a node is deleted with some members of a gang on it, others elsewhere, and not all bound"
    PREEMPTOR_DELETED = "a pod is deleted while its victims are being evicted"
    EVENT_DURING_ATTEMPT = "an event arrives between an attempt that fails and its end"
    # -- preemption
    PREEMPTION = "a pod preempts others"
    GANG_PREEMPTION = "a gang preempts others"
    EVICTION_FAILED = "an eviction fails"
    VICTIM_STOPPED_ON_PERMIT = "a victim is stopped while it waits on Permit"
    VICTIM_STOPPED_IN_PRE_BIND = "a victim is stopped in PreBind"
    PLACED_BESIDE_NOMINATION = "a nominated pod is placed on another node"
    # -- leases
    LEASE_CHANGED_HANDS = "another process becomes the leader"
    LEASE_LOST_BEFORE_BINDING = "the lease changes hands between the placement of a pod and its binding"
    WRITE_WITHOUT_LEASE = "a write is held back because the lease has expired"
    STALLED_PAST_LEASE = "a plugin blocks a leader for longer than its lease lasts"
    SUSPENDED_PAST_LEASE = "a leader is suspended for longer than its lease lasts"
    # -- partitions, if the schedulers share any
    PARTITION_HANDED_OVER = "a partition is handed over to a scheduler that holds fewer"
    PARTITION_TAKEN_OVER = "a partition is taken over whose holder was killed or lost its lease"
    PARTITION_LOST_IN_BINDING = "a partition changes hands between the placement of a pod and its binding"
    OFFER_ACCEPTED = "a pod is bound by the scheduler of a node that it was offered for"
    OFFER_DECLINED = "the scheduler of a node declines a pod"
    OFFER_OUTLIVES_PROCESS = "a scheduler ends while a pod of its partition is on offer"
    # -- processes
    KILLED_IN_BINDING = "a scheduler is killed while it binds pods"
    KILLED_IN_PREEMPTION = "a scheduler is killed while it evicts pods"
    STOPPED_IN_BINDING = "a scheduler is stopped gracefully while it binds pods"
    RECORD_DISK_FULL = "the disk is full while a flight record is written"
    # -- plugins and extenders
    RESERVE_FAILED = "a Reserve plugin rejects a pod, or fails"
    UNRESERVE_RAISED = "a plugin raises in Unreserve"
    PERMIT_REJECTED = "a pod is rejected while it waits on Permit"
    PERMIT_TIMED_OUT = "a pod's wait on Permit times out"
    PRE_BIND_TIMED_OUT = "a PreBind plugin hangs until its time limit"
    POST_BIND_RAISED = "a plugin raises in PostBind"
    EXTENDER_BOUND_AND_FAILED = "an extender binds a pod and answers with an error"
    # -- the queue
    ATTEMPT_OVER_BUDGET = "an attempt takes so long that other namespaces come first"
    FLUSHED = "a pod is tried again after minutes without an event"


MARKS_OF_PARTITIONS = frozenset(
    {
        Mark.PARTITION_HANDED_OVER,
        Mark.PARTITION_TAKEN_OVER,
        Mark.PARTITION_LOST_IN_BINDING,
        Mark.OFFER_ACCEPTED,
        Mark.OFFER_DECLINED,
        Mark.OFFER_OUTLIVES_PROCESS,
    }
)
"""The marks of runs in which schedulers share partitions."""


class Marks:
    """How often each mark has been reached; a run counts each at most once per occurrence."""

    def __init__(self) -> None:
        self.counts: Counter[Mark] = Counter()

    def reach(self, mark: Mark) -> None:
        """A path was taken."""
        self.counts[mark] += 1
