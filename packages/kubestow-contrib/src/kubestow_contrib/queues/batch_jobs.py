"""Jobs of Kubernetes (``batch/v1``), as far as queues read them: how long each may run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, NamedTuple

from kubestow.api.core import Pod
from kubestow.api.custom import CustomObject
from kubestow.api.meta import APIObject
from kubestow.cluster.changes.catalog import Catalog

_API_VERSION = "batch/v1"


class JobSpec(APIObject, frozen=True):
    """``spec``."""

    active_deadline_seconds: int | None = None


class Job(CustomObject, frozen=True):
    """The Job of Kubernetes."""

    resource: ClassVar[str] = "jobs.v1.batch"
    is_namespaced: ClassVar[bool] = True
    spec: JobSpec = JobSpec()


class JobReference(NamedTuple):
    """The namespace and name of a Job."""

    namespace: str
    name: str


def job_of(pod: Pod) -> JobReference | None:
    """The Job that controls a pod, None if none does."""
    controller = pod.metadata.controller
    if controller is None or (controller.api_version, controller.kind) != (_API_VERSION, "Job"):
        return None
    return JobReference(pod.metadata.namespace, controller.name)


def deadline_of(jobs: Catalog[Job], references: Iterable[JobReference]) -> float | None:
    """How long Jobs may run at most in seconds, the longest of several; None if one has no limit, or there is none.

    The time counts from when a Job is created or resumed, so what is left of it for its pods is never more.
    """
    found = [jobs.get(*reference) for reference in references]
    deadlines = [None if job is None else job.spec.active_deadline_seconds for job in found]
    limited = [float(deadline) for deadline in deadlines if deadline is not None]
    return max(limited) if limited and len(limited) == len(deadlines) else None
