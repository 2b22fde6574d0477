"""The port through which a scheduler is watched: metrics, logs and the demo's display all hang on it.

What can be read at any time (how many pods wait, how many nodes there are) is not told here: whoever wants to know
looks at the queue and the cluster. Told is what passes: an attempt, an event, an eviction.
"""

from __future__ import annotations

from enum import StrEnum

from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.observer import PluginObserver
from kubestow.framework.status import Code
from kubestow.scheduling.decision.pipeline import Decision
from kubestow.scheduling.queue.queued_pod import QueuedPod

__all__ = ["Call", "Observer", "Result"]


class Result(StrEnum):
    """How an attempt to schedule a pod ended; the values are labels of metrics."""

    SCHEDULED = "scheduled"
    UNSCHEDULABLE = "unschedulable"
    ERROR = "error"


class Call(StrEnum):
    """What is written to the API server; the values are labels of metrics."""

    POD_STATUS_PATCH = "pod_status_patch"
    POD_BINDING = "pod_binding"
    POD_DELETION = "pod_deletion"
    #: Whatever plugins change about other objects.
    OBJECT_WRITE = "object_write"


class Observer:
    """Does nothing; derive from it to watch. No method may block or raise. Seconds are those of the injected clock."""

    def of_profile(self, scheduler_name: str) -> PluginObserver | None:
        """Who watches the plugins of a profile; None when nobody does."""
        return None

    # -- one attempt to schedule a pod, in the order in which things happen --------------------------------------------

    def attempted(self, decision: Decision, seconds: float) -> None:
        """It has been decided about a pod in the cluster as it is, PostFilter included.

        The placement of a gang's pod may be taken back later in the same cycle, and be decided about a second time.
        Supposing others gone, as is done before they are evicted for a gang, is no attempt and not told of.
        """

    def waited(self, info: PodInfo, code: Code, seconds: float) -> None:
        """A pod that Permit plugins held back has been allowed or refused."""

    def ended(self, queued: QueuedPod, result: Result, message: str, seconds: float) -> None:
        """The attempt is over, so many seconds after the pod left the queue. ``message`` says why it failed."""

    def bound(self, queued: QueuedPod, node_name: str, seconds: float) -> None:
        """A pod has been bound, so many seconds after its first attempt became possible."""

    # -- preemption ----------------------------------------------------------------------------------------------------

    def preempted(self, preemptor: PodInfo, node_name: str, victims: int) -> None:
        """A node has been chosen and the pods that have to go from it; for a gang it is the whole ``cluster``."""

    def evicted(self, preemptor: PodInfo, *, succeeded: bool, seconds: float) -> None:
        """The victims have been evicted, or not all of them could be."""

    # -- the API server ------------------------------------------------------------------------------------------------

    def written(self, call: Call, *, succeeded: bool, seconds: float) -> None:
        """A write has been answered, or tried in vain; each try is told of."""

    # -- devices -------------------------------------------------------------------------------------------------------

    def claim_created(self, *, succeeded: bool) -> None:
        """A claim on devices has been made for a pod's extended resources, or could not be."""

    def device_wait_ended(self, pod: PodInfo, driver: str, outcome: str, seconds: float) -> None:
        """A pod waited for devices of a driver: with ``success``, ``failure``, ``timeout`` or ``error``."""

    # -- the queue and the watch ---------------------------------------------------------------------------------------

    def enqueued(self, place: str, event: str) -> None:
        """A pod has entered the ``active``, ``backoff`` or ``unschedulable`` part of the queue because of an event."""

    def handled(self, event: str, seconds: float) -> None:
        """What the watch told of has been taken in, and the pods it could help have been moved."""
