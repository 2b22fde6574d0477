"""The observer: the interface for metrics, logs and displays.

It receives what happens: a decision, an attempt, an eviction. What can be read at any time, such as the number of
pending pods, is not reported; read it from the queue and the cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.runtime.plugin_caller import PluginObserver
from kubestow.framework.status import Code
from kubestow.scheduling.decision.result import Decision
from kubestow.scheduling.queued_pod import QueuedPod


class Result(StrEnum):
    """How an attempt to schedule a pod ended; the values are labels of metrics."""

    SCHEDULED = "scheduled"
    UNSCHEDULABLE = "unschedulable"
    ERROR = "error"


class Call(StrEnum):
    """The kinds of writes to the API server; the values are labels of metrics."""

    POD_STATUS_PATCH = "pod_status_patch"
    POD_BINDING = "pod_binding"
    POD_DELETION = "pod_deletion"
    #: Writes of plugins to other objects.
    OBJECT_WRITE = "object_write"


class Offer(StrEnum):
    """How the offer of a pod to the scheduler of another partition ended; the values are labels of metrics."""

    ACCEPTED = "accepted"
    DECLINED = "declined"
    #: The pod was deleted, the offer could not be written, or this scheduler has taken over the partition.
    WITHDRAWN = "withdrawn"


class Preemptor(StrEnum):
    """What a preemption is for, a group of any API being one; the values are labels of metrics."""

    POD = "pod"
    POD_GROUP = "podgroup"


@dataclass(frozen=True, slots=True)
class Disruption:
    """What a preemption disrupts.

    ``violations`` is the number of victims whose eviction violates a disruption budget, ``group_units`` that of the
    units with pods of Kubernetes' groups: a group that is evicted as a whole is one, and so is each pod of another.
    """

    preemptor: Preemptor
    violations: int = 0
    group_units: int = 0


class Observer:
    """Does nothing; derive from it. No method may block or raise. Seconds are those of the injected clock."""

    def plugin_observer(self, scheduler_name: str) -> PluginObserver | None:
        """The observer of the plugins of a profile; None for none."""
        return None

    def wrap_plugin_observer(self, observer: PluginObserver) -> PluginObserver:
        """The observer of the plugins of a profile that does what another one does, and more; that one for no more."""
        return observer

    # -- one attempt to schedule a pod, in the order in which things happen --------------------------------------------

    def attempt_started(self, queued: QueuedPod) -> None:
        """A pod was popped. The members of a gang are popped together; no decision has been made yet."""

    def decision_started(self, info: PodInfo) -> None:
        """A decision about a pod begins, in the task that also calls the plugins up to Permit."""

    def decision_made(self, decision: Decision, seconds: float) -> None:
        """A decision about a pod was made, PostFilter included.

        A gang's pod may be decided about more than once in one cycle. Decisions in a simulated cluster, by which the
        victims of a gang are found, are not reported.
        """

    def node_found(self, info: PodInfo) -> None:
        """A node was found for a pod without a decision to report, by an engine that keeps the totals of nodes."""

    def binding_started(self, info: PodInfo) -> None:
        """The binding cycle of a pod begins, in its own task."""

    def permit_wait_ended(self, info: PodInfo, code: Code, seconds: float) -> None:
        """A pod's wait on Permit ended."""

    def attempt_ended(self, queued: QueuedPod, result: Result, message: str, seconds: float) -> None:
        """An attempt ended, so many seconds after the pod was popped. ``message`` says why it failed."""

    def attempt_over_budget(self, queued: QueuedPod, plugin: str, extension_point: str, seconds: float) -> None:
        """A scheduling cycle took more than a second, most of it in this plugin ("" if in none); other pods waited."""

    def pod_bound(self, queued: QueuedPod, node_name: str, seconds: float) -> None:
        """A pod was bound, so many seconds after it first entered activeQ."""

    # -- preemption ----------------------------------------------------------------------------------------------------

    def preemption_started(
        self, preemptors: Sequence[PodInfo], node_name: str, victims: Sequence[PodInfo], disruption: Disruption
    ) -> None:
        """A preemption was decided on: its node (``cluster`` for a gang), and the victims, the most important first.

        A gang has all members that the preemption is for. Nothing in the cluster has changed since the decision, apart
        from nominations of pods of lower priority.
        """

    def evictions_ended(self, preemptor: PodInfo, *, kind: Preemptor, succeeded: bool, seconds: float) -> None:
        """The evictions of a preemption ended; not ``succeeded`` if any of them failed.

        ``preemptor`` is the pod, or the first one of the group, that the preemption is for.
        """

    # -- the API server ------------------------------------------------------------------------------------------------

    def api_call_ended(self, call: Call, *, succeeded: bool, seconds: float) -> None:
        """A request ended; each try of a retried request is reported."""

    # -- partitions ----------------------------------------------------------------------------------------------------

    def offer_ended(self, offer: Offer) -> None:
        """An offer of a pod to the scheduler of another partition has ended."""

    def partition_handed_over(self) -> None:
        """A partition has been drained, so that another scheduler can take it over."""

    # -- devices -------------------------------------------------------------------------------------------------------

    def claim_created(self, *, succeeded: bool) -> None:
        """The creation of a ResourceClaim for a pod's extended resources ended."""

    def device_wait_ended(self, pod: PodInfo, driver: str, outcome: str, seconds: float) -> None:
        """A pod's wait for devices of a driver ended with ``success``, ``failure``, ``timeout`` or ``error``."""

    # -- the queue and the watch ---------------------------------------------------------------------------------------

    def pod_enqueued(self, place: str, event: str) -> None:
        """A pod entered the ``active``, ``backoff`` or ``unschedulable`` part of the queue because of an event."""

    def group_enqueued(self, place: str, event: str, pods: int) -> None:
        """The same of a pod group that is one entity of the queue, with so many pods."""

    def group_joined(self, place: str, event: str) -> None:
        """A pod joined such a group in that part of the queue."""

    def event_handled(self, event: str, seconds: float) -> None:
        """A cluster event was handled, the requeueing of pods included."""

    def event_handler_failed(self, kind: str) -> None:
        """The handler of an object of this kind failed, and the state of the object was made anew."""
