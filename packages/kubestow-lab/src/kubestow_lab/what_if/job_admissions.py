"""Which jobs queues would admit in a changed cluster, and which not: with other nodes, or with other quotas.

The queues decide once, at the time of the cluster, as it is and as it would be; nothing that runs ends. The pods of the
jobs that they admit are placed by the scheduler, since a quota is no room: a job that is admitted may find no nodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kubestow.api.core import Pod
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.engine.input.documents import SourceObject
from kubestow.engine.job_admission import AdmissionQueues, JobStart, JobState, JobStop, Owner
from kubestow.engine.pipeline.offline_scheduler import SchedulerOptions
from kubestow.engine.virtual_time import EPOCH
from kubestow.errors import InputError, InvalidObject
from kubestow.reports.model import Block, Paragraph, Table, counted
from kubestow.reports.text import Displayed
from kubestow_lab.simulation.arrivals import Arrival, Arrivals, ArrivingJob
from kubestow_lab.simulation.job_controller import arrivals_of
from kubestow_lab.simulation.plugin_failures import PluginFailure
from kubestow_lab.simulation.simulation import Simulation, SimulationOptions

OpenQueues = Callable[[ClusterObjects, float], AdmissionQueues]
"""Makes the queues of a cluster at a time in seconds since the epoch."""

#: More decisions in a row than these are not made: what waits after so many is said to wait.
_MOST_DECISIONS = 100
_MOST_LISTED = 50


@dataclass(frozen=True, slots=True)
class JobPlacement:
    """Where a job is: admitted or not and why, with which kinds of nodes, and its pods with and without a node."""

    is_admitted: bool
    message: str = ""
    flavors: tuple[str, ...] = ()
    placed: int = 0
    pending: int = 0

    @property
    def state(self) -> str:
        """``Admitted`` or ``Waiting``."""
        return "Admitted" if self.is_admitted else "Waiting"

    def document(self) -> dict[str, Any]:
        """It as data for JSON and YAML."""
        return {
            "state": self.state,
            "message": self.message,
            "flavors": list(self.flavors),
            "podsPlaced": self.placed,
            "podsPending": self.pending,
        }


@dataclass(frozen=True, slots=True)
class JobChange:
    """A job in its queue as the cluster is (``now``), and as it would be (``then``)."""

    owner: Owner
    queue: str
    pods: int
    now: JobPlacement
    then: JobPlacement

    @property
    def differs(self) -> bool:
        """Whether it is admitted in one of the two only, or with other numbers of pods on nodes or other flavors."""
        now, then = self.now, self.then
        return (now.is_admitted, now.flavors, now.pending) != (then.is_admitted, then.flavors, then.pending)


@dataclass(frozen=True, slots=True, repr=False)
class AdmissionChanges(Displayed):
    """The jobs of all queues, now and in a changed cluster."""

    jobs: tuple[JobChange, ...]
    remarks: tuple[str, ...] = ()
    plugin_failures: tuple[PluginFailure, ...] = ()

    def document(self) -> dict[str, Any]:
        """The jobs as data for JSON and YAML."""
        return {
            "kind": "AdmissionChanges",
            "summary": {
                "admittedNow": sum(job.now.is_admitted for job in self.jobs),
                "admittedThen": sum(job.then.is_admitted for job in self.jobs),
            },
            "jobs": [
                {
                    "namespace": job.owner.namespace,
                    "name": job.owner.name,
                    "kind": job.owner.kind,
                    "queue": job.queue,
                    "pods": job.pods,
                    "now": job.now.document(),
                    "then": job.then.document(),
                }
                for job in self.jobs
            ],
            "remarks": list(self.remarks),
        }

    def blocks(self) -> Iterator[Block]:
        """How many jobs are admitted, those that change, and those that still wait with their reasons."""
        more = [job for job in self.jobs if job.then.is_admitted and not job.now.is_admitted]
        fewer = [job for job in self.jobs if job.now.is_admitted and not job.then.is_admitted]
        waiting = [job for job in self.jobs if not job.then.is_admitted]
        parts = [f"{len(more):,} more would be admitted", f"{len(fewer):,} would no longer be"]
        yield Paragraph(f"{counted(len(self.jobs), 'job')} in queues: {', '.join(parts)}, {len(waiting):,} would wait")
        shown = [job for job in self.jobs if job.differs]
        shown += [job for job in waiting if not job.differs]
        if not shown:
            return
        table = Table("job", "queue", "pods", "now", "then", "flavors, or why", right=("pods",))
        for job in shown[:_MOST_LISTED]:
            name = f"{job.owner.namespace}/{job.owner.name}"
            table.add(name, job.queue or "-", f"{job.pods:,}", job.now.state, job.then.state, _what(job.then) or "-")
        if len(shown) > _MOST_LISTED:
            table.add(f"… {len(shown) - _MOST_LISTED:,} more", *([""] * 5))
        yield table


def _what(placement: JobPlacement) -> str:
    if not placement.is_admitted:
        return placement.message
    pending = f"{counted(placement.pending, 'pod finds', 'pods find')} no node" if placement.pending else ""
    why = f": {placement.message}" if pending and placement.message else ""
    return "; ".join(filter(None, (", ".join(placement.flavors), pending + why)))


def compare_admissions(
    cluster: ClusterObjects,
    changed: ClusterObjects,
    open_queues: OpenQueues,
    options: SchedulerOptions | None = None,
    *,
    gone: Collection[str] = (),
    jobs: Sequence[ArrivingJob] = (),
) -> AdmissionChanges:
    """What the queues decide about a cluster as it is, and as it would be, with further ``jobs`` in both.

    Jobs that were assigned places on nodes that are ``gone`` (by name) wait again there. Raises InputError,
    ConfigurationError and PluginError.
    """
    options = options or SchedulerOptions()
    now = _Settled(cluster, open_queues, options, (), jobs)
    then = _Settled(changed, open_queues, options, gone, jobs)
    changes = [
        JobChange(state.owner, state.queue, state.pods, now.placement(now.states[key]), then.placement(state))
        for key, state in then.states.items()
        if key in now.states
    ]
    remarks = dict.fromkeys((*now.remarks, *then.remarks))
    return AdmissionChanges(tuple(changes), tuple(remarks), (*now.plugin_failures, *then.plugin_failures))


class _Settled:
    """A cluster after its queues have decided and the scheduler has placed the pods of what they admit."""

    def __init__(
        self,
        cluster: ClusterObjects,
        open_queues: OpenQueues,
        options: SchedulerOptions,
        gone: Collection[str],
        jobs: Sequence[ArrivingJob],
    ) -> None:
        moment = cluster.time(EPOCH).timestamp()
        queues = open_queues(cluster, moment)
        for job in jobs:
            _submit(queues, job.manifest, moment)
        owners = {state.job: state.owner for state in queues.states()}
        stopped = {owners[key] for key in queues.withdraw(gone, moment)} if gone else set()
        starts: dict[str, JobStart] = {}
        for change in _decisions(queues, moment):
            if isinstance(change, JobStart):
                starts[change.job] = change
            else:
                starts.pop(change.job, None)
                stopped.add(owners[change.job])
        self.states: dict[str, JobState] = {state.job: state for state in queues.states()}
        kept = [pod for pod in cluster.pods if _owner_of(pod) not in stopped]
        arrivals = Arrivals()
        for start in starts.values():
            for group in start.pods:
                arrivals.pods += arrivals_of(group, cluster.admission, 0.0)
        simulation = SimulationOptions(ties="name", departures=False)
        result = Simulation(
            cluster.altered(pods=kept),
            arrivals,
            options.configuration,
            options.plugins,
            options.gates,
            options=simulation,
        ).run()
        self.remarks = (*queues.remarks, *result.remarks)
        self.plugin_failures = result.plugin_failures
        self._placed: Counter[Owner] = Counter()
        self._pending: Counter[Owner] = Counter()
        for pod in result.api.pods():
            if (owner := _owner_of(pod)) is not None:
                (self._placed if pod.spec.node_name else self._pending)[owner] += 1
        self._messages: dict[tuple[str, str], str] = {}
        for outcome in result.outcomes:
            if not outcome.state.is_placed and outcome.message:
                self._messages.setdefault((outcome.namespace, outcome.owner), outcome.message)

    def placement(self, state: JobState) -> JobPlacement:
        """Where a job is, with the reason of one of its pods if it is admitted but these find no node."""
        owner, message = state.owner, state.message
        if state.is_admitted and self._pending[owner]:
            message = self._messages.get((owner.namespace, f"{owner.kind}/{owner.name}"), "")
        counts = (self._placed[owner], self._pending[owner])
        return JobPlacement(state.is_admitted, message, tuple(state.flavors), *counts)


def _submit(queues: AdmissionQueues, manifest: dict[str, Any], moment: float) -> str:
    """Add a job to its queue; its key. Raises InputError for an invalid one."""
    try:
        return queues.submit(manifest, moment)
    except InvalidObject as error:
        metadata = manifest["metadata"]
        raise InputError(f"{manifest['kind']} {metadata['namespace']}/{metadata['name']}", str(error)) from None


def _decisions(queues: AdmissionQueues, moment: float) -> Iterator[JobStart | JobStop]:
    """What the queues decide until they have nothing to decide any more, although nothing ends."""
    due: float | None = moment
    for _ in range(_MOST_DECISIONS):
        if due is None:
            return
        yield from queues.decide(due)
        due = queues.next_decision()


def _owner_of(pod: Pod) -> Owner | None:
    controller = pod.metadata.controller
    return None if controller is None else Owner(controller.kind, pod.metadata.namespace, controller.name)


def with_applied(cluster: ClusterObjects, sources: Iterable[SourceObject]) -> ClusterObjects:
    """A cluster with further custom resources, each in place of one of the same kind and name if there is one."""
    applied = {_identity(source): source for source in sources}
    kept = [applied.pop(_identity(source), source) for source in cluster.custom_resources]
    return cluster.altered(custom_resources=[*kept, *applied.values()])


def _identity(source: SourceObject) -> tuple[str, ...]:
    """The API group, the kind, the namespace and the name of an object."""
    metadata = source.manifest.get("metadata") or {}
    group = source.api_version.rpartition("/")[0]
    return group, source.kind, str(metadata.get("namespace") or "default"), str(metadata.get("name"))


def pods_of_admitted(
    cluster: ClusterObjects, open_queues: OpenQueues, jobs: Sequence[ArrivingJob] = ()
) -> list[Arrival]:
    """The pods of the jobs that queues would admit in a cluster as it is, with further ``jobs``. Raises InputError."""
    moment = cluster.time(EPOCH).timestamp()
    queues = open_queues(cluster, moment)
    for job in jobs:
        _submit(queues, job.manifest, moment)
    starts = {one.job: one for one in _decisions(queues, moment) if isinstance(one, JobStart)}
    return [
        arrival
        for start in starts.values()
        for group in start.pods
        for arrival in arrivals_of(group, cluster.admission, 0.0)
    ]
