"""Queues of other projects that admit whole jobs, whose pods are created then, as offline commands use them.

A package that knows such queues registers an :class:`AdmissionSystem` under the entry point group
``kubestow.admission_systems``, by its name. A simulation submits jobs to its queues, creates the pods of those that
start, and tells when they have ended; ``kubestow why`` asks why a job waits, and ``kubestow when`` how long. All times
are in seconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.engine.input.documents import SourceObject
from kubestow.engine.job_forecasts import ForecastAnswer
from kubestow.errors import InputError

Object = dict[str, Any]

_ENTRY_POINT_GROUP = "kubestow.admission_systems"


class Owner(NamedTuple):
    """The controller of a job's pods."""

    kind: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class JobPods:
    """Equal pods of a job: one manifest, complete but for its name, and the name and further labels of each pod."""

    manifest: Object
    names: Sequence[tuple[str, Mapping[str, str]]]


@dataclass(frozen=True, slots=True)
class JobStart:
    """A job was admitted: its pods are to be created. ``flavors`` are the kinds of nodes that it has."""

    job: str
    queue: str
    pods: Sequence[JobPods]
    flavors: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class JobStop:
    """A job was preempted: its pods are to be deleted, and nothing replaces them."""

    job: str


@dataclass(frozen=True, slots=True)
class RunningJob:
    """A job that ran from the start: the controller of its pods, and when it ends, None if that is not known."""

    job: str
    owner: Owner
    ends: float | None = None


@dataclass(frozen=True, slots=True)
class JobState:
    """A job in its queues: its key, what it is called, its queue, the number of its pods, and what it waits for.

    ``flavors`` are the kinds of nodes that it has. ``message`` is empty for one that was admitted.
    """

    job: str
    owner: Owner
    queue: str
    pods: int
    is_admitted: bool
    flavors: Sequence[str] = ()
    message: str = ""


class QuotaChange(NamedTuple):
    """Another nominal amount, such as ``16`` or ``1500m``, of a resource in a kind of nodes (``flavor``) of a queue."""

    queue: str
    flavor: str
    resource: str
    amount: str


class QueueResources(NamedTuple):
    """Where an API server serves the objects of queues: ``versions`` that are understood, the preferred one first."""

    group: str
    versions: Sequence[str]
    plurals: Sequence[str]


class AdmissionQueues(Protocol):
    """The queues of one cluster. They change with each call; none of the calls waits."""

    @property
    def remarks(self) -> Sequence[str]:
        """What was assumed, for people."""

    def submit(self, job: Object, now: float) -> str:
        """Add a job with its namespace set. Its key. Raises InvalidObject."""

    def decide(self, now: float) -> Sequence[JobStart | JobStop]:
        """Admit what can be admitted, and preempt for it."""

    def end(self, job: str, now: float) -> None:
        """All pods of a job have ended, or it did."""

    def withdraw(self, nodes: Collection[str], now: float) -> Sequence[str]:
        """Have the jobs that were assigned places on nodes that are gone wait again; their keys.

        Jobs that were not assigned places keep what they have.
        """

    def next_decision(self) -> float | None:
        """When to decide again, although nothing happens until then; None if never."""

    def running(self) -> Sequence[RunningJob]:
        """The jobs that were running when the queues were read."""

    def states(self) -> Sequence[JobState]:
        """All jobs that have not ended, in the order in which they are considered."""

    def why(self, owner: Owner) -> Sequence[str]:
        """Why a job waits or since when it runs, in lines for people; none if it is in no queue.

        The kind of the ``owner`` may be in lower case, and in the plural.
        """

    def forecast(self, owner: Owner) -> ForecastAnswer | None:
        """When a job starts, and what would make it start now; None if it is in no queue. ``owner`` is as above."""


class AdmissionSystem(Protocol):
    """Reads the queues of clusters."""

    @property
    def resources(self) -> QueueResources:
        """What :meth:`open` reads of a live cluster, nodes and pods aside."""

    def takes(self, job: Object) -> bool:
        """Whether a workload waits in a queue before it has pods."""

    def open(
        self,
        cluster: ClusterObjects,
        *,
        further: Sequence[SourceObject] = (),
        configuration: str | Path | None = None,
        now: float,
    ) -> AdmissionQueues | None:
        """The queues among the custom resources of a cluster, and ``further`` ones; None if there are none.

        ``configuration`` is a file with that of the queues' controller. Raises InputError.
        """

    def with_quotas(self, sources: Sequence[SourceObject], changes: Iterable[QuotaChange]) -> list[SourceObject]:
        """The custom resources of a cluster with other quotas. Raises InputError for a quota that does not exist."""


def find_admission_system(name: str) -> AdmissionSystem:
    """The job queues of a project. Raises InputError if no installed package knows them."""
    for entry_point in entry_points(group=_ENTRY_POINT_GROUP, name=name):
        try:
            found: AdmissionSystem = entry_point.load()
            return found
        except Exception as error:
            problem = f"cannot be loaded: {type(error).__name__}: {error}"
            raise InputError(f"entry point {name} ({entry_point.value})", problem) from error
    raise InputError(name, "no installed package knows these queues; install kubestow-contrib")


def admission_systems() -> Mapping[str, AdmissionSystem]:
    """All that are installed, by name. Raises InputError for one that cannot be loaded."""
    names = sorted({entry_point.name for entry_point in entry_points(group=_ENTRY_POINT_GROUP)})
    return {name: find_admission_system(name) for name in names}
