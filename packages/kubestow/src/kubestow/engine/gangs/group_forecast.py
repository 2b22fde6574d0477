"""Whether the pod groups of some pods fit now, and what would make those start that do not.

Groups that no queue holds back start as soon as they fit. When that will be is not known, since pods may run for ever.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kubestow.api.core import Pod
from kubestow.engine.gangs.gang_search import GangAnswer, GangSearch, SearchOptions, certificates_text
from kubestow.engine.gangs.remedies import GangRemedies
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.engine.job_forecasts import ForecastAnswer, Remedy, forecast_jobs, remedy_table
from kubestow.engine.pipeline.offline_scheduler import OfflineScheduler, SchedulerOptions, extenders_text
from kubestow.errors import InputError, UnknownJob
from kubestow.framework.gang import Gang
from kubestow.reports.model import Block, Paragraph, counted

#: The deterministic time of each search: there is one for each change that is tried.
_SEARCH = SearchOptions(limit=2.0, total_limit=10.0)


@dataclass(frozen=True, slots=True, repr=False)
class GroupState(ForecastAnswer):
    """The answer about one pod group, which is called ``name``.

    ``state`` is ``Running``, ``Startable``, ``Waiting`` or ``Undecided``.
    """

    name: str
    state: str
    pods: int
    reason: str = ""
    remedies: Sequence[Remedy] = ()
    remarks: Sequence[str] = ()

    def document(self) -> dict[str, Any]:
        """The answer as data for JSON and YAML."""
        return {
            "job": self.name,
            "queue": "",
            "state": self.state,
            "pods": self.pods,
            "reason": self.reason,
            "wouldStartNow": [each.document() for each in self.remedies],
        }

    def blocks(self) -> Iterator[Block]:
        """Whether it fits, and why not."""
        where = f"pod group {self.name}: {counted(self.pods, 'pod')}"
        if self.state in ("Running", "Startable"):
            yield Paragraph(f"{where}, {'enough have a node' if self.state == 'Running' else 'fits now'}")
            return
        yield Paragraph(where)
        yield Paragraph(f"why not yet: {self.reason}")
        if self.remedies:
            yield remedy_table(self.remedies)
        elif self.state == "Waiting":
            yield Paragraph("no change of the group alone was found with which it would start now")


@dataclass(frozen=True, slots=True, repr=False)
class GroupForecast(ForecastAnswer):
    """The answers about all pod groups of some pods."""

    groups: Sequence[GroupState]
    remarks: Sequence[str] = ()

    def why_not_yet(self) -> Mapping[str, str]:
        """The reason of each group that waits."""
        return {group.name: group.reason for group in self.groups if group.reason}

    def would_start_now(self) -> Mapping[str, Sequence[Remedy]]:
        """The remedies of each group."""
        return {group.name: group.remedies for group in self.groups}

    def document(self) -> dict[str, Any]:
        """The answers as data for JSON and YAML."""
        return {
            "kind": "JobForecast",
            "jobs": [group.document() for group in self.groups],
            "remarks": list(self.remarks),
        }

    def blocks(self) -> Iterator[Block]:
        """One answer after the other."""
        for group in self.groups:
            yield from group.blocks()


def forecast_start(
    cluster: ClusterObjects, pods: Sequence[Pod], options: SchedulerOptions, name: str
) -> tuple[str, ForecastAnswer]:
    """The answer about the jobs of some pods, after the name of what decides when they start.

    That is the queues that have them, or the scheduler for pod groups without queues. ``name`` is what the jobs are
    called in messages. Raises UnknownJob and InputError as :func:`~kubestow.engine.job_forecasts.forecast_jobs` does;
    ConfigurationError and PluginError.
    """
    try:
        return forecast_jobs(cluster, pods, options, name)
    except (UnknownJob, InputError):
        groups = forecast_groups(cluster, pods, options)
        if groups is None:
            raise
        return "the scheduler", groups


def forecast_groups(cluster: ClusterObjects, pods: Sequence[Pod], options: SchedulerOptions) -> GroupForecast | None:
    """The answer about the pod groups of some pods; None if they are in none.

    Raises ConfigurationError and PluginError.
    """
    scheduler = OfflineScheduler(cluster, options)
    gangs: dict[object, tuple[Gang, Pod]] = {}
    for pod in pods:
        profile = scheduler.profiles.get(pod.spec.scheduler_name)
        gang = None if profile is None else profile.gangs.gang_of(scheduler.cache.shapes.info(pod))
        if gang is not None:
            gangs.setdefault(gang.name, (gang, pod))
    if not gangs:
        return None
    remarks = scheduler.absent
    if scheduler.extenders:
        remarks = (*remarks, extenders_text(scheduler.extenders))
    states = [_state_of(cluster, options, scheduler, gang, pod) for gang, pod in gangs.values()]
    return GroupForecast(states, remarks)


def _state_of(
    cluster: ClusterObjects, options: SchedulerOptions, scheduler: OfflineScheduler, gang: Gang, pod: Pod
) -> GroupState:
    name, pods = str(gang.name), len(gang.members.pods)
    if gang.is_satisfied():
        return GroupState(name, "Running", pods)
    profile = scheduler.profile(pod)
    try:
        answer = GangSearch(scheduler.cache, profile, _SEARCH).find(gang)
        if answer.is_placed:
            return GroupState(name, "Startable", pods)
        remedies = tuple(GangRemedies(cluster, options, scheduler, answer, _SEARCH).find()) if answer.pods else ()
    except InputError as error:  # without OR-Tools
        return GroupState(name, "Undecided", pods, str(error))
    return GroupState(name, "Undecided" if answer.undecided else "Waiting", pods, _reason(answer), remedies)


def _reason(answer: GangAnswer) -> str:
    if answer.undecided:
        return answer.undecided
    if len(answer.pods) < answer.needed:
        there = counted(len(answer.pods), "pod without a node exists", "pods without a node exist")
        return f"{answer.needed:,} of its pods still need a node, and {there}"
    return certificates_text(answer.certificates)
