"""PodLifeTime: evicts pods that are too old, or have been in a state for too long."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Annotated

import msgspec

from kubestow.api.core import PodCondition
from kubestow.api.meta import LabelSelector
from kubestow.descheduling.cluster_state import AssignedPod, ClusterState, exit_codes, reasons
from kubestow.descheduling.interface import ArgumentProblem, DeschedulePlugin, Evictor
from kubestow.descheduling.pod_selection import Namespaces, PodSelection, selection_problems
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

    @property
    def is_empty(self) -> bool:
        """Whether no field is given."""
        return self == PodConditionFilter()


class PodLifeTimeArgs(msgspec.Struct, frozen=True, rename="camel"):
    """The arguments of PodLifeTime: criteria that must all apply, at least one."""

    namespaces: Namespaces | None = None
    label_selector: LabelSelector | None = None
    owner_kinds: OwnerKinds | None = None
    max_pod_life_time_seconds: _Seconds | None = None
    states: tuple[str, ...] = ()
    conditions: tuple[PodConditionFilter, ...] = ()
    exit_codes: tuple[int, ...] = ()
    including_init_containers: bool = False
    including_ephemeral_containers: bool = False


class PodLifeTime(DeschedulePlugin):
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
            if condition.is_empty:
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
        self._selection = PodSelection(args.namespaces, args.label_selector)
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
            and self._has_owner(pod)
            and (not args.conditions or _has_condition(pod, args.conditions, now))
            and (not self._exit_codes or bool(self._exit_codes & exit_codes(pod, init=args.including_init_containers)))
        )

    def _has_state(self, pod: AssignedPod) -> bool:
        args: PodLifeTimeArgs = self.args
        status = pod.status
        if status.phase in self._states or status.reason in self._states:
            return True
        init, ephemeral = args.including_init_containers, args.including_ephemeral_containers
        return bool(self._states & reasons(pod, init=init, ephemeral=ephemeral))

    def _has_owner(self, pod: AssignedPod) -> bool:
        kinds: OwnerKinds | None = self.args.owner_kinds
        if kinds is None:
            return True
        if kinds.include:
            return any(owner.kind in kinds.include for owner in pod.owners)
        return all(owner.kind not in kinds.exclude for owner in pod.owners)


def _age(since: datetime, now: datetime) -> int:
    """Whole seconds; negative for a moment in the future, which is never too long ago."""
    return int((now - since).total_seconds()) if since <= now else -1


def _has_condition(pod: AssignedPod, filters: Iterable[PodConditionFilter], now: datetime) -> bool:
    return any(_matches(condition, wanted, now) for wanted in filters for condition in pod.status.conditions)


def _matches(condition: PodCondition, wanted: PodConditionFilter, now: datetime) -> bool:
    if wanted.type and condition.type != wanted.type:
        return False
    if wanted.status and condition.status != wanted.status:
        return False
    if wanted.reason and condition.reason != wanted.reason:
        return False
    seconds, since = wanted.min_time_since_last_transition_seconds, condition.last_transition_time
    return seconds is None or (since is not None and _age(datetime.fromisoformat(since), now) >= seconds)
