"""The jobs of a simulation that wait in queues: created when they are admitted, deleted when they are preempted.

:class:`JobController` stands beside the simulated cluster, as the controllers of jobs and of their queues do in a
cluster. It submits jobs at their times, creates the pods of those that start, and tells the queues when all pods of one
have ended. A job that is preempted starts anew when it is admitted again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

import msgspec

from kubestow.api.core import Pod
from kubestow.api.meta import convert
from kubestow.engine.cluster_api.replacements import original_uid
from kubestow.engine.input.admission import Admission
from kubestow.engine.job_admission import AdmissionQueues, JobPods, JobStart, JobState
from kubestow.errors import InvalidObject
from kubestow.scheduling.interfaces import Clock
from kubestow_lab.simulation.arrivals import Arrival, ArrivingJob, RefusedPods, seconds_in
from kubestow_lab.simulation.outcomes import JobOutcome
from kubestow_lab.simulation.simulated_cluster import ArrivalListener, DepartureTimers, SimulatedCluster
from kubestow_lab.workloads.workload import DURATION


@dataclass(slots=True)
class _Job:
    """A job that has not ended; ``pods`` are the uids of its pods, of the original ones for replacements."""

    outcome: JobOutcome
    pods: dict[str, Pod] = field(default_factory=dict)
    starts: int = 0


def arrivals_of(group: JobPods, admission: Admission, time: float, *, start: int = 1) -> Iterator[Arrival]:
    """The pods of a job, completed by ``admission``, as they arrive at a time; ``start`` counts the starts of the job.

    Raises InvalidObject.
    """
    manifest = group.manifest
    namespace = manifest["metadata"]["namespace"]
    admission.admit(manifest, namespace)
    pod = convert(Pod, manifest)
    duration = seconds_in(manifest["metadata"].get("annotations") or {}, DURATION)
    for name, labels in group.names:
        metadata = msgspec.structs.replace(
            pod.metadata,
            name=name,
            uid=f"pod/{namespace}/{name}" + (f"/{start}" if start > 1 else ""),
            labels={**pod.metadata.labels, **labels},
        )
        yield Arrival(msgspec.structs.replace(pod, metadata=metadata), time, duration, manifest)


class JobController(ArrivalListener):
    """Runs the jobs of ``queues`` on a simulated cluster, and passes on what happens to pods to another listener.

    ``admission`` completes the pods that are created.
    """

    def __init__(
        self,
        queues: AdmissionQueues,
        jobs: Iterable[ArrivingJob],
        admission: Admission,
        clock: Clock,
        timers: DepartureTimers,
        listener: ArrivalListener,
    ) -> None:
        self._queues, self._arriving, self._admission = queues, list(jobs), admission
        self._clock, self._timers, self._listener = clock, timers, listener
        self._jobs: dict[str, _Job] = {}
        #: The job of each pod, by the uid of the original pod.
        self._job_of: dict[str, str] = {}
        #: The times of the calls that are due.
        self._due: list[float] = []
        self.outcomes: list[JobOutcome] = []
        self._refusals: list[RefusedPods] = []

    def start(self, cluster: SimulatedCluster) -> None:
        """Begin, with the jobs that run in the cluster."""
        self._cluster = cluster
        states = {state.job: state for state in self._queues.states()}
        now = self._clock.now().timestamp()
        for state in states.values():
            self._know(state, 0.0 if state.is_admitted else None)
        owned: dict[tuple[str, str, str], list[Pod]] = {}
        for pod in cluster.pods():
            if (controller := pod.metadata.controller) is not None:
                owned.setdefault((controller.kind, pod.metadata.namespace, controller.name), []).append(pod)
        for running in self._queues.running():
            job = self._jobs.get(running.job)
            if job is None:
                continue
            job.starts += 1
            for pod in owned.get(running.owner, ()):
                self._adopt(running.job, pod)
            if running.ends is not None:
                ends = self._timers.time() + max(0.0, running.ends - now)
                self._call(ends, partial(self._finish, running.job))
        for arriving in self._arriving:
            self._call(arriving.time, partial(self._submit, arriving))
        self._call(self._timers.time(), self._decide)

    def next_event(self) -> float | None:
        """When something happens next, in seconds of virtual time."""
        return min(self._due, default=None)

    def _call(self, time: float, call: Callable[[], object]) -> None:
        def due() -> None:
            self._due.remove(time)
            call()

        self._due.append(time)
        self._timers.call_at(time, due)

    # -- jobs ----------------------------------------------------------------------------------------------------------

    def _know(self, state: JobState, admitted: float | None) -> _Job:
        outcome = JobOutcome(
            state.owner.namespace,
            state.owner.name,
            state.owner.kind,
            state.queue,
            state.pods,
            self._timers.time(),
            state.flavors,
            admitted,
        )
        self.outcomes.append(outcome)
        job = self._jobs[state.job] = _Job(outcome)
        return job

    def refused(self) -> Iterable[RefusedPods]:
        """The jobs that the queues did not take because they are invalid."""
        return self._refusals

    def _submit(self, arriving: ArrivingJob) -> None:
        metadata = arriving.manifest["metadata"]
        try:
            key = self._queues.submit(arriving.manifest, self._clock.now().timestamp())
        except InvalidObject as error:
            owner = f"{arriving.manifest['kind']} {metadata['namespace']}/{metadata['name']}"
            self._refusals.append(RefusedPods(owner, 1, str(error)))
            return
        outcome = JobOutcome(
            metadata["namespace"], metadata["name"], arriving.manifest["kind"], "", 0, self._timers.time()
        )
        self.outcomes.append(outcome)
        self._jobs[key] = _Job(outcome)
        self._decide()

    def _decide(self) -> None:
        for change in self._queues.decide(self._clock.now().timestamp()):
            if isinstance(change, JobStart):
                self._start(change)
            else:
                self._stop(change.job)
        again = self._queues.next_decision()
        if again is not None:
            time = self._timers.time() + max(0.0, again - self._clock.now().timestamp())
            # Rounded up, so that the decision is due by the queues' clock.
            self._call(time + 1e-6, self._decide)

    def _start(self, change: JobStart) -> None:
        job = self._jobs[change.job]
        job.starts += 1
        outcome = job.outcome
        outcome.admitted, outcome.queue, outcome.flavors = self._timers.time(), change.queue, change.flavors
        outcome.pods = sum(len(group.names) for group in change.pods)
        for group in change.pods:
            for arrival in arrivals_of(group, self._admission, self._timers.time(), start=job.starts):
                self._adopt(change.job, arrival.pod)
                self._cluster.arrive(arrival)
        if not job.pods:
            self._finish(change.job)

    def _stop(self, key: str) -> None:
        job = self._jobs[key]
        job.outcome.preemptions += 1
        job.outcome.admitted = None
        for pod in list(job.pods.values()):
            self._cluster.withdraw(pod)

    def _finish(self, key: str) -> None:
        """End a job, and its pods if it has any."""
        job = self._jobs.get(key)
        if job is None or job.outcome.admitted is None:
            return
        for pod in list(job.pods.values()):
            del job.pods[original_uid(pod.metadata.uid)]
            self._cluster.complete(pod)
        self._end(key, job)

    def _end(self, key: str, job: _Job) -> None:
        del self._jobs[key]
        job.outcome.ended = self._timers.time()
        self._queues.end(key, self._clock.now().timestamp())
        self._call(self._timers.time(), self._decide)  # once the pod that has ended is gone

    def _adopt(self, key: str, pod: Pod) -> None:
        uid = original_uid(pod.metadata.uid)
        self._jobs[key].pods[uid], self._job_of[uid] = pod, key

    def describe_waiting(self) -> None:
        """Say in the outcomes of all jobs where they are, once the simulation is over."""
        states: Mapping[str, JobState] = {state.job: state for state in self._queues.states()}
        for key, job in self._jobs.items():
            state = states.get(key)
            if state is not None:
                job.outcome.queue, job.outcome.pods, job.outcome.flavors = state.queue, state.pods, state.flavors
                job.outcome.message = state.message

    # -- ArrivalListener -----------------------------------------------------------------------------------------------

    def pod_arrived(self, arrival: Arrival) -> None:
        """A pod was created, for an evicted one of a job perhaps."""
        key = self._job_of.get(original_uid(arrival.pod.metadata.uid))
        if key is not None and key in self._jobs:
            self._adopt(key, arrival.pod)
        self._listener.pod_arrived(arrival)

    def pod_ended(self, pod: Pod) -> None:
        """A pod has run for its duration; its job has ended if it was the last."""
        self._listener.pod_ended(pod)
        key = self._job_of.pop(original_uid(pod.metadata.uid), None)
        job = self._jobs.get(key or "")
        if key is None or job is None:
            return
        if job.pods.pop(original_uid(pod.metadata.uid), None) is not None and not job.pods:
            self._end(key, job)

    def pod_evicted(self, pod: Pod) -> None:
        """A pod was evicted, or withdrawn with its job."""
        self._listener.pod_evicted(pod)
        key = self._job_of.get(original_uid(pod.metadata.uid))
        if key is not None and key in self._jobs and self._jobs[key].outcome.admitted is None:
            self._jobs[key].pods.pop(original_uid(pod.metadata.uid), None)
            self._job_of.pop(original_uid(pod.metadata.uid), None)
