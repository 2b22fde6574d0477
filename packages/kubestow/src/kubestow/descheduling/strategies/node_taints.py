"""RemovePodsViolatingNodeTaints: evicts pods that do not tolerate the taints of their nodes."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from kubestow.api.core import Taint
from kubestow.api.meta import LabelSelector
from kubestow.cluster.pods.shapes import ShapeFamily
from kubestow.descheduling.cluster_state import AssignedPod, ClusterState
from kubestow.descheduling.interface import ArgumentProblem, DeschedulePlugin, Evictor, evict_of_node
from kubestow.descheduling.pod_selection import Namespaces, PodSelection, selection_problems
from kubestow.rules.matching import NO_SCHEDULE, PREFER_NO_SCHEDULE, untolerated


class RemovePodsViolatingNodeTaintsArgs(msgspec.Struct, frozen=True, rename="camel"):
    """The arguments of RemovePodsViolatingNodeTaints. Taints are named by ``key`` or ``key=value``."""

    namespaces: Namespaces | None = None
    label_selector: LabelSelector | None = None
    include_prefer_no_schedule: bool = False
    excluded_taints: tuple[str, ...] = ()
    included_taints: tuple[str, ...] | None = None


class RemovePodsViolatingNodeTaints(DeschedulePlugin):
    """Evicts pods from nodes with NoSchedule taints that they do not tolerate; NoExecute is a matter of others."""

    name = "RemovePodsViolatingNodeTaints"
    Args = RemovePodsViolatingNodeTaintsArgs

    @classmethod
    def validate(cls, args: RemovePodsViolatingNodeTaintsArgs) -> Iterator[ArgumentProblem]:
        yield from selection_problems(args.namespaces, args.label_selector)
        if args.excluded_taints and args.included_taints:
            yield ArgumentProblem("includedTaints", "either includedTaints or excludedTaints can be set, but not both")

    def __init__(self, args: RemovePodsViolatingNodeTaintsArgs) -> None:
        super().__init__(args)
        self._selection = PodSelection(args.namespaces, args.label_selector)
        self._effects = (NO_SCHEDULE, PREFER_NO_SCHEDULE) if args.include_prefer_no_schedule else (NO_SCHEDULE,)

    def deschedule(self, cluster: ClusterState, evictor: Evictor) -> None:
        for row in cluster.ready.tolist():
            taints = [taint for taint in cluster.nodes[row].spec.taints if self._counts(taint)]
            if not taints:
                continue
            violated: dict[ShapeFamily, list[Taint]] = {}
            pods: list[AssignedPod] = []
            for pod in cluster.pods_on(row):
                family = pod.shape.family
                if family not in violated:
                    tolerations = pod.spec.tolerations
                    violated[family] = untolerated(taints, tolerations, effects=self._effects, comparisons=True)
                if violated[family] and self._selection.matches(pod) and evictor.may_evict(pod):
                    pods.append(pod)
            reasons = [(pod, _why(violated[pod.shape.family])) for pod in evictor.in_order(pods)]
            if not evict_of_node(reasons, evictor):
                return

    def _counts(self, taint: Taint) -> bool:
        args: RemovePodsViolatingNodeTaintsArgs = self.args
        names = {taint.key, f"{taint.key}={taint.value}"} if taint.value else {taint.key}
        if taint.effect not in self._effects or names & set(args.excluded_taints):
            return False
        return args.included_taints is None or bool(names & set(args.included_taints))


def _why(violated: list[Taint]) -> str:
    return "it does not tolerate " + ", ".join(f"{taint.key}:{taint.effect}" for taint in violated)
