"""FlowPlacement: pending pods are placed in rounds of min-cost flow instead of one by one.

PreEnqueue gates plain pods. Every round solves one flow for all of them and suggests a node to each that it places;
then all are admitted, and have scheduling cycles as usual. A pod whose node has been taken meanwhile, or that the flow
leaves unscheduled, is placed like any other pod, by filters, scores and preemption. Pods that flow cannot model (with
volumes, resource claims or devices, or in a gang) and nominated pods are never gated.
"""

from __future__ import annotations

import math
from datetime import datetime

import msgspec

from kubestow.cluster.pods.shapes import PodInfo
from kubestow.engine.placement.modelled_pods import why_not_modelled
from kubestow.engine.placement.solvers import require_solvers
from kubestow.framework.interface import Handle, PreEnqueuePlugin
from kubestow.framework.profile import BatchHandle
from kubestow.framework.status import SUCCESS, Status
from kubestow_lab.flow.cost_models import COST_MODELS
from kubestow_lab.flow.rounds import FlowRounds

_GATED = Status.unresolvable("waiting for the next round of FlowPlacement")


class FlowPlacementArgs(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The cost model, the pause between two rounds, and how many pods a round places at most.

    The scheduler decides nothing else during a round, so ``maxPods`` limits how long that is.
    """

    cost_model: str = "cpu-mem"
    interval_seconds: float = 1.0
    max_pods: int = 10_000

    def __post_init__(self) -> None:
        if self.cost_model not in COST_MODELS:
            raise ValueError(f'costModel is "{self.cost_model}", expected one of {", ".join(COST_MODELS)}')
        if not 0 < self.interval_seconds < math.inf:
            raise ValueError(f"intervalSeconds is {self.interval_seconds:g}, expected a positive number")
        if self.max_pods < 1:
            raise ValueError(f"maxPods is {self.max_pods}, expected at least 1")


class FlowPlacement(PreEnqueuePlugin):
    """Gates plain pods until a round of flow has decided about them."""

    name = "FlowPlacement"
    Args = FlowPlacementArgs
    events_to_register = ()  # rounds admit pods, not events

    def __init__(self, args: FlowPlacementArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        require_solvers(self.name)
        self._cost_model = COST_MODELS[args.cost_model]()
        self._max_pods = args.max_pods
        #: The uids of the pods that wait for a round, and of those that the last round has admitted.
        self._gated: set[str] = set()
        self._admitted: set[str] = set()
        self._scheduler = handle if isinstance(handle, BatchHandle) else None
        handle.run_periodically(args.interval_seconds, self._run_round)

    def may_gate(self, pod: PodInfo) -> bool:
        """Pods without a nominated node."""
        return not pod.status.nominated_node_name

    def pre_enqueue(self, pod: PodInfo) -> Status:
        """Gates a pod that flow can model until a round has decided about it."""
        if self._scheduler is None or pod.uid in self._admitted:
            return SUCCESS
        if why_not_modelled(self._scheduler.profiles[pod.spec.scheduler_name], pod):
            return SUCCESS
        self._gated.add(pod.uid)
        return _GATED

    async def _run_round(self) -> None:
        scheduler = self._scheduler
        if scheduler is None:
            return
        gated = [pod for pod in scheduler.pending_pods() if pod.uid in self._gated]
        gated.sort(key=lambda pod: -pod.priority)
        pods = gated[: self._max_pods]
        self._gated = {pod.uid for pod in gated[self._max_pods :]}
        self._admitted = {pod.uid for pod in pods}
        if not pods:
            return
        now, waited = scheduler.now(), {}
        for pod in pods:
            created = pod.metadata.creation_timestamp
            age = (now - datetime.fromisoformat(created)).total_seconds() if created else 0.0
            waited[pod.uid] = max(0.0, age)
        rounds = FlowRounds(scheduler.cluster, scheduler.profiles, self._cost_model)
        try:
            for pod, node_name in rounds.simulate(pods, waited):
                scheduler.suggest_node(pod, node_name)
        finally:
            scheduler.activate(pods)  # after an error, too: no pod depends on the success of a round
