"""RemovePodsHavingTooManyRestarts: evicts pods whose containers restart again and again."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from kubestow.api.meta import LabelSelector
from kubestow.descheduling.cluster_state import AssignedPod, ClusterState, restarts, waiting_reasons
from kubestow.descheduling.interface import ArgumentProblem, DeschedulePlugin, Evictor, evict_of_node
from kubestow.descheduling.pod_selection import Namespaces, PodSelection, selection_problems

_STATES = ("CrashLoopBackOff", "Running")


class RemovePodsHavingTooManyRestartsArgs(msgspec.Struct, frozen=True, rename="camel"):
    """The arguments of RemovePodsHavingTooManyRestarts."""

    namespaces: Namespaces | None = None
    label_selector: LabelSelector | None = None
    pod_restart_threshold: int = 0
    including_init_containers: bool = False
    states: tuple[str, ...] = ()


class RemovePodsHavingTooManyRestarts(DeschedulePlugin):
    """Evicts pods with many restarts; of each node those with the most restarts first."""

    name = "RemovePodsHavingTooManyRestarts"
    Args = RemovePodsHavingTooManyRestartsArgs

    @classmethod
    def validate(cls, args: RemovePodsHavingTooManyRestartsArgs) -> Iterator[ArgumentProblem]:
        yield from selection_problems(args.namespaces, args.label_selector)
        if args.pod_restart_threshold < 1:
            yield ArgumentProblem("podRestartThreshold", "invalid PodsHavingTooManyRestarts threshold")
        if not set(args.states) <= set(_STATES):
            yield ArgumentProblem("states", f"states must be one of [{' '.join(_STATES)}]")

    def __init__(self, args: RemovePodsHavingTooManyRestartsArgs) -> None:
        super().__init__(args)
        self._selection = PodSelection(args.namespaces, args.label_selector)

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
