"""RemoveFailedPods: evicts pods that have failed."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Annotated

import msgspec

from kubestow.api.meta import LabelSelector
from kubestow.descheduling.cluster_state import AssignedPod, ClusterState, exit_codes, reasons
from kubestow.descheduling.interface import ArgumentProblem, DeschedulePlugin, Evictor, evict_of_node
from kubestow.descheduling.pod_selection import Namespaces, PodSelection, selection_problems

_DEFAULT_MIN_SECONDS = 3600


class RemoveFailedPodsArgs(msgspec.Struct, frozen=True, rename="camel"):
    """The arguments of RemoveFailedPods. Lists that are given must match; ``min_pod_lifetime_seconds`` is an age."""

    namespaces: Namespaces | None = None
    label_selector: LabelSelector | None = None
    exclude_owner_kinds: tuple[str, ...] = ()
    min_pod_lifetime_seconds: Annotated[int, msgspec.Meta(le=2**63 - 1)] | None = None
    reasons: tuple[str, ...] = ()
    exit_codes: tuple[int, ...] = ()
    including_init_containers: bool = False


class RemoveFailedPods(DeschedulePlugin):
    """Evicts failed pods, so that their controllers create new ones."""

    name = "RemoveFailedPods"
    Args = RemoveFailedPodsArgs

    @classmethod
    def validate(cls, args: RemoveFailedPodsArgs) -> Iterable[ArgumentProblem]:
        yield from selection_problems(args.namespaces, args.label_selector)
        if (args.min_pod_lifetime_seconds or 0) < 0:
            yield ArgumentProblem("minPodLifetimeSeconds", f"must be 0 or more, got {args.min_pod_lifetime_seconds}")

    def __init__(self, args: RemoveFailedPodsArgs) -> None:
        super().__init__(args)
        self._selection = PodSelection(args.namespaces, args.label_selector)
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
