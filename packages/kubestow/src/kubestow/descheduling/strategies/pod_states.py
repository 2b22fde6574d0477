"""Strategies by the state of pods: too old, failed, or restarted again and again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Annotated

import msgspec

from kubestow.api.core import PodCondition
from kubestow.descheduling.cluster_state import (
    AssignedPod,
    ClusterState,
    exit_codes,
    reasons,
    restarts,
    waiting_reasons,
)
from kubestow.descheduling.interface import ArgumentProblem, DeschedulePlugin, Evictor, evict_of_node
from kubestow.descheduling.pod_selection import SelectingPlugin, SelectionArgs, selection_problems
from kubestow.rules.pods import TERMINAL_PHASES

_Seconds = Annotated[int, msgspec.Meta(le=2**63 - 1)]

_PHASES = ("Running", "Pending", *TERMINAL_PHASES, "Unknown")
_POD_REASONS = ("NodeAffinity", "NodeLost", "Shutdown", "UnexpectedAdmissionError")
_WAITING = (
    "PodInitializing",
    "ContainerCreating",
    "ImagePullBackOff",
    "CrashLoopBackOff",
    "CreateContainerConfigError",
    "ErrImagePull",
    "CreateContainerError",
    "InvalidImageName",
)
_TERMINATED = (
    "OOMKilled",
    "Error",
    "Completed",
    "DeadlineExceeded",
    "Evicted",
    "ContainerCannotRun",
    "StartError",
)
_STATES = frozenset((*_PHASES, *_POD_REASONS, *_WAITING, *_TERMINATED))


class OwnerKinds(msgspec.Struct, frozen=True):
    """Kinds of owners that are meant, or that are not; only one of the lists may be given."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()


class PodConditionFilter(msgspec.Struct, frozen=True, rename="camel"):
    """A condition of pods: each field that is given must match."""

    type: str = ""
    status: str = ""
    reason: str = ""
    min_time_since_last_transition_seconds: _Seconds | None = None


class PodLifeTimeArgs(SelectionArgs, frozen=True, rename="camel"):
    """The arguments of PodLifeTime: criteria that must all apply, at least one."""

    owner_kinds: OwnerKinds | None = None
    max_pod_life_time_seconds: _Seconds | None = None
    states: tuple[str, ...] = ()
    conditions: tuple[PodConditionFilter, ...] = ()
    exit_codes: tuple[int, ...] = ()
    including_init_containers: bool = False
    including_ephemeral_containers: bool = False


class PodLifeTime(SelectingPlugin, DeschedulePlugin):
    """Evicts pods by age and state, the oldest first."""

    name = "PodLifeTime"
    Args = PodLifeTimeArgs

    @classmethod
    def validate(cls, args: PodLifeTimeArgs) -> Iterator[ArgumentProblem]:
        if args.namespaces is not None:
            yield from selection_problems(args.namespaces)
        kinds = args.owner_kinds
        if kinds is not None and kinds.include and kinds.exclude:
            yield ArgumentProblem("ownerKinds", "only one of Include/Exclude ownerKinds can be set")
        yield from selection_problems(None, args.label_selector)
        if not _STATES.issuperset(args.states):
            yield ArgumentProblem("states", f"states must be one of [{' '.join(sorted(_STATES))}]")
        for index, condition in enumerate(args.conditions):
            if condition == PodConditionFilter():
                fields = "type, status, reason, or minTimeSinceLastTransitionSeconds"
                yield ArgumentProblem(
                    f"conditions[{index}]", f"conditions[{index}]: at least one of {fields} must be set"
                )
            if (condition.min_time_since_last_transition_seconds or 0) < 0:
                yield ArgumentProblem(f"conditions[{index}].minTimeSinceLastTransitionSeconds", "must be 0 or more")
        if (args.max_pod_life_time_seconds or 0) < 0:
            yield ArgumentProblem("maxPodLifeTimeSeconds", f"must be 0 or more, got {args.max_pod_life_time_seconds}")
        if args.max_pod_life_time_seconds is None and not (args.states or args.conditions or args.exit_codes):
            criteria = "(maxPodLifeTimeSeconds, states, conditions, or exitCodes)"
            yield ArgumentProblem("", f"at least one filtering criterion must be specified {criteria}")

    def __init__(self, args: PodLifeTimeArgs) -> None:
        super().__init__(args)
        self._states, self._exit_codes = frozenset(args.states), frozenset(args.exit_codes)

    def deschedule(self, cluster: ClusterState, evictor: Evictor) -> None:
        meant = (pod for pod in cluster.pods(finished=True) if self._is_meant(pod, cluster.now))
        pods = [pod for pod in meant if evictor.may_evict(pod)]
        for pod in evictor.in_order(pods, key=lambda pod: pod.created):
            if evictor.evict(pod, f"it is {_age(pod.created, cluster.now):,} s old").ends_plugin:
                return

    def _is_meant(self, pod: AssignedPod, now: datetime) -> bool:
        args: PodLifeTimeArgs = self.args
        return (
            self._selection.matches(pod)
            and (args.max_pod_life_time_seconds is None or _age(pod.created, now) > args.max_pod_life_time_seconds)
            and (not self._states or self._has_state(pod))
            and (args.owner_kinds is None or _has_owner(pod, args.owner_kinds))
            and (
                not args.conditions
                or any(_matches(found, wanted, now) for wanted in args.conditions for found in pod.status.conditions)
            )
            and (not self._exit_codes or bool(self._exit_codes & exit_codes(pod, init=args.including_init_containers)))
        )

    def _has_state(self, pod: AssignedPod) -> bool:
        args: PodLifeTimeArgs = self.args
        init, ephemeral = args.including_init_containers, args.including_ephemeral_containers
        found = reasons(pod, init=init, ephemeral=ephemeral)
        return not self._states.isdisjoint((pod.status.phase, pod.status.reason, *found))


def _has_owner(pod: AssignedPod, kinds: OwnerKinds) -> bool:
    if kinds.include:
        return any(owner.kind in kinds.include for owner in pod.owners)
    return all(owner.kind not in kinds.exclude for owner in pod.owners)


def _age(since: datetime, now: datetime) -> int:
    """Whole seconds; negative for a moment in the future, which is never too long ago."""
    return int((now - since).total_seconds()) if since <= now else -1


def _matches(condition: PodCondition, wanted: PodConditionFilter, now: datetime) -> bool:
    for field in ("type", "status", "reason"):
        if getattr(wanted, field) not in ("", getattr(condition, field)):
            return False
    seconds, since = wanted.min_time_since_last_transition_seconds, condition.last_transition_time
    return seconds is None or (since is not None and _age(datetime.fromisoformat(since), now) >= seconds)


_DEFAULT_MIN_SECONDS = 3600


class RemoveFailedPodsArgs(SelectionArgs, frozen=True, rename="camel"):
    """Lists that are given must match; ``min_pod_lifetime_seconds`` is an age."""

    exclude_owner_kinds: tuple[str, ...] = ()
    min_pod_lifetime_seconds: Annotated[int, msgspec.Meta(le=2**63 - 1)] | None = None
    reasons: tuple[str, ...] = ()
    exit_codes: tuple[int, ...] = ()
    including_init_containers: bool = False


class RemoveFailedPods(SelectingPlugin, DeschedulePlugin):
    """Evicts failed pods, so that their controllers create new ones."""

    name = "RemoveFailedPods"
    Args = RemoveFailedPodsArgs

    @classmethod
    def validate(cls, args: RemoveFailedPodsArgs) -> Iterable[ArgumentProblem]:
        yield from super().validate(args)
        if (args.min_pod_lifetime_seconds or 0) < 0:
            yield ArgumentProblem("minPodLifetimeSeconds", f"must be 0 or more, got {args.min_pod_lifetime_seconds}")

    def __init__(self, args: RemoveFailedPodsArgs) -> None:
        super().__init__(args)
        seconds = args.min_pod_lifetime_seconds
        self._min_age = timedelta(seconds=min(_DEFAULT_MIN_SECONDS if seconds is None else seconds, 10**12))

    def deschedule(self, cluster: ClusterState, evictor: Evictor) -> None:
        for row in cluster.ready.tolist():
            failed = (pod for pod in cluster.pods_on(row, finished=True) if pod.status.phase == "Failed")
            pods = [pod for pod in failed if self._is_meant(pod, cluster) and evictor.may_evict(pod)]
            if not evict_of_node(((pod, _why(pod)) for pod in evictor.in_order(pods)), evictor):
                return

    def _is_meant(self, pod: AssignedPod, cluster: ClusterState) -> bool:
        args: RemoveFailedPodsArgs = self.args
        init = args.including_init_containers
        if not self._selection.matches(pod) or cluster.now - pod.created < self._min_age:
            return False
        if any(owner.kind in args.exclude_owner_kinds for owner in pod.owners):
            return False
        if args.reasons and not {pod.status.reason, *reasons(pod, init=init)} & set(args.reasons):
            return False
        return not args.exit_codes or bool(exit_codes(pod, init=init) & set(args.exit_codes))


def _why(pod: AssignedPod) -> str:
    return f"it has failed: {pod.status.reason}" if pod.status.reason else "it has failed"


_RESTARTING_STATES = ("CrashLoopBackOff", "Running")


class RemovePodsHavingTooManyRestartsArgs(SelectionArgs, frozen=True, rename="camel"):
    """The arguments of RemovePodsHavingTooManyRestarts."""

    pod_restart_threshold: int = 0
    including_init_containers: bool = False
    states: tuple[str, ...] = ()


class RemovePodsHavingTooManyRestarts(SelectingPlugin, DeschedulePlugin):
    """Evicts pods with many restarts; of each node those with the most restarts first."""

    name = "RemovePodsHavingTooManyRestarts"
    Args = RemovePodsHavingTooManyRestartsArgs

    @classmethod
    def validate(cls, args: RemovePodsHavingTooManyRestartsArgs) -> Iterator[ArgumentProblem]:
        yield from super().validate(args)
        if args.pod_restart_threshold < 1:
            yield ArgumentProblem("podRestartThreshold", "invalid PodsHavingTooManyRestarts threshold")
        if not set(args.states) <= set(_RESTARTING_STATES):
            yield ArgumentProblem("states", f"states must be one of [{' '.join(_RESTARTING_STATES)}]")

    def deschedule(self, cluster: ClusterState, evictor: Evictor) -> None:
        for row in cluster.ready.tolist():
            meant = (pod for pod in cluster.pods_on(row, finished=True) if self._is_meant(pod))
            pods = [pod for pod in meant if evictor.may_evict(pod)]
            ordered = evictor.in_order(pods, key=lambda pod: -self._restarts(pod))
            if not evict_of_node(((pod, f"it has restarted {self._restarts(pod)} times") for pod in ordered), evictor):
                return

    def _restarts(self, pod: AssignedPod) -> int:
        return restarts(pod, init=self.args.including_init_containers)

    def _is_meant(self, pod: AssignedPod) -> bool:
        args: RemovePodsHavingTooManyRestartsArgs = self.args
        if self._restarts(pod) < args.pod_restart_threshold or not self._selection.matches(pod):
            return False
        if not args.states or pod.status.phase in args.states:
            return True
        return bool(waiting_reasons(pod, init=args.including_init_containers) & set(args.states))
