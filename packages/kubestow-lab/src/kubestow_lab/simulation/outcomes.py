"""What became of each pod in a simulation, recorded while it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from kubestow.api.core import Pod
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.rules.requests import requests_by_spec
from kubestow.scheduling.decision.result import Decision
from kubestow.scheduling.observer import Disruption, Observer, Result
from kubestow.scheduling.queued_pod import QueuedPod
from kubestow_lab.simulation.arrivals import Arrival
from kubestow_lab.simulation.timeline import PlacedRequests


class OutcomeState(StrEnum):
    """Where a pod is at the end of a simulation."""

    #: On its node.
    RUNNING = "Running"
    #: It ran for its duration.
    COMPLETED = "Completed"
    #: Without a node.
    PENDING = "Pending"
    #: Evicted for a pod of higher priority.
    PREEMPTED = "Preempted"

    @property
    def is_placed(self) -> bool:
        """Whether the pod got a node and kept it."""
        return self in (OutcomeState.RUNNING, OutcomeState.COMPLETED)


class Origin(StrEnum):
    """Where a pod of a simulation comes from."""

    #: It was to be placed: pending in the cluster, or of the workload.
    WORKLOAD = "Workload"
    #: It was created for a pod that was evicted.
    REPLACEMENT = "Replacement"
    #: It ran on its node before the simulation, and was evicted or has ended.
    CLUSTER = "Cluster"


@dataclass(slots=True)
class PodOutcome:
    """What became of a pod. Times are in seconds since the start of the simulation, None if it did not happen.

    ``message`` says why the last attempt failed, as the pod's PodScheduled condition does. ``owner`` is kind/name of
    the pod's controller.
    """

    namespace: str
    name: str
    owner: str
    priority: int
    arrived: float
    state: OutcomeState = OutcomeState.PENDING
    node: str = ""
    bound: float | None = None
    ended: float | None = None
    attempts: int = 0
    message: str = ""
    origin: Origin = Origin.WORKLOAD

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"


@dataclass(slots=True)
class JobOutcome:
    """What became of a job that waited in a queue.

    Times are in seconds since the start of the simulation, None if it did not happen. ``admitted`` is when it was
    admitted last, 0 for one that ran from the start. ``flavors`` are the kinds of nodes that it has, ``message`` says
    what it waits for.
    """

    namespace: str
    name: str
    kind: str
    queue: str
    pods: int
    arrived: float
    flavors: Sequence[str] = ()
    admitted: float | None = None
    ended: float | None = None
    preemptions: int = 0
    message: str = ""

    @property
    def state(self) -> str:
        """Completed, Admitted or Waiting."""
        if self.ended is not None:
            return "Completed"
        return "Waiting" if self.admitted is None else "Admitted"


@dataclass(frozen=True, slots=True)
class UnplacedGroup:
    """Pending pods of one owner with the same message; ``pods`` are namespace/name."""

    owner: str
    message: str
    pods: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StartedPreemption:
    """A preemption for the pod namespace/name: its node (``cluster`` for a gang) and the number of victims.

    ``time`` is in seconds since the start of the simulation.
    """

    time: float
    pod: str
    priority: int
    node: str
    victims: int


@dataclass(slots=True)
class _Counts:
    pending: int = 0
    preemptions: int = 0
    attempts: int = 0
    #: Pods with at least one attempt.
    attempted: int = 0


class OutcomeRecorder(Observer):
    """Records the outcome of each pod. ``now`` is virtual time; ``on_change`` is called when a pod comes or goes.

    ``after_attempt`` is called after every decision: it advances virtual time.
    """

    def __init__(
        self, now: Callable[[], float], *, after_attempt: Callable[[], None], on_change: Callable[[], None]
    ) -> None:
        self._now, self._after_attempt, self._on_change = now, after_attempt, on_change
        self.outcomes: dict[str, PodOutcome] = {}
        self.preemptions: list[StartedPreemption] = []
        self.counts = _Counts()
        self.placed = PlacedRequests()
        self._requests: dict[str, Mapping[str, int]] = {}

    def take_outcomes(self) -> dict[str, PodOutcome]:
        """The outcomes by uid, which do not change any more: a scheduler that is stopped may end an attempt later."""
        outcomes, self.outcomes = self.outcomes, {}
        return outcomes

    # -- pods that come and go -----------------------------------------------------------------------------------

    def pod_arrived(self, arrival: Arrival) -> None:
        """A pod was created."""
        origin = Origin.REPLACEMENT if arrival.is_replacement else Origin.WORKLOAD
        self.outcomes[arrival.pod.metadata.uid] = outcome_of(arrival.pod, self._now(), origin)
        self.counts.pending += 1
        self._on_change()

    def pod_ended(self, pod: Pod) -> None:
        """A pod has run for its duration; it may have been placed before the simulation."""
        outcome = self.outcomes.get(pod.metadata.uid)
        if outcome is None:
            outcome = self.outcomes[pod.metadata.uid] = outcome_of(pod, 0.0, Origin.CLUSTER)
            outcome.node = pod.spec.node_name
            self._requests[pod.metadata.uid] = requests_by_spec(pod)
        elif outcome.state is OutcomeState.PENDING:
            self.counts.pending -= 1
        self._left(pod)
        outcome.state, outcome.ended = OutcomeState.COMPLETED, self._now()
        self._on_change()

    def pod_evicted(self, pod: Pod) -> None:
        """A pod was evicted for one of higher priority; it may have been placed before the simulation."""
        outcome = self.outcomes.get(pod.metadata.uid)
        if outcome is None:
            outcome = self.outcomes[pod.metadata.uid] = outcome_of(pod, 0.0, Origin.CLUSTER)
            self._requests[pod.metadata.uid] = requests_by_spec(pod)
        elif outcome.state is OutcomeState.PENDING:
            self.counts.pending -= 1
        self._left(pod)
        outcome.state, outcome.node, outcome.ended = OutcomeState.PREEMPTED, pod.spec.node_name, self._now()
        self._on_change()

    def _left(self, pod: Pod) -> None:
        """A pod frees what it requests, if it was placed."""
        self.placed.add(self._now(), self._requests.pop(pod.metadata.uid, {}), -1)

    # -- what the scheduler reports ------------------------------------------------------------------------------

    def decision_made(self, decision: Decision, seconds: float) -> None:
        self._after_attempt()

    def node_found(self, info: PodInfo) -> None:
        self._after_attempt()

    def attempt_ended(self, queued: QueuedPod, result: Result, message: str, seconds: float) -> None:
        self.counts.attempts += 1
        outcome = self.outcomes.get(queued.info.uid)
        if outcome is not None:
            self.counts.attempted += not outcome.attempts
            outcome.attempts = queued.attempts
            outcome.message = message

    def pod_bound(self, queued: QueuedPod, node_name: str, seconds: float) -> None:
        outcome = self.outcomes.get(queued.info.uid)
        if outcome is None:
            return
        outcome.state, outcome.node, outcome.bound, outcome.message = OutcomeState.RUNNING, node_name, self._now(), ""
        self._requests[queued.info.uid] = queued.info.requests
        self.placed.add(outcome.bound, queued.info.requests)
        self.counts.pending -= 1
        self._on_change()

    def preemption_started(
        self, preemptors: Sequence[PodInfo], node_name: str, victims: Sequence[PodInfo], disruption: Disruption
    ) -> None:
        self.counts.preemptions += 1
        preemptor = preemptors[0]
        self.preemptions.append(
            StartedPreemption(self._now(), preemptor.key, preemptor.priority, node_name, len(victims))
        )


def outcome_of(pod: Pod, arrived: float, origin: Origin = Origin.WORKLOAD) -> PodOutcome:
    """The outcome of a pod that has just arrived."""
    controller = pod.metadata.controller
    return PodOutcome(
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        owner=f"{controller.kind}/{controller.name}" if controller else "",
        priority=pod.spec.priority or 0,
        arrived=arrived,
        origin=origin,
    )
