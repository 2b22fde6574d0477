"""Placing the members of a gang one after the other, each decision seeing those before it.

A member is placed as in the scheduling cycle of a single pod: decide, assume, Reserve. In a dry run a member that fits
only after preemption is placed as well, and its victims are removed for the members that follow, to find out whether
the gang fits after all its preemptions.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import replace

from kubestow.cluster.cache import Cluster
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.cluster.simulation import Simulation
from kubestow.framework.interface import PostFilterResult
from kubestow.framework.status import Code
from kubestow.scheduling.cycle.binding_context import BindingContext
from kubestow.scheduling.decision.result import Decision, Scheduled, Unschedulable
from kubestow.scheduling.decision.scope import WHOLE_CLUSTER, Scope
from kubestow.scheduling.events.pod_store import PodStore
from kubestow.scheduling.gangs.attempt import GangAttempt, MemberFailure
from kubestow.scheduling.queued_pod import QueuedPod


class MemberPlacement:
    """The placements of some members of a gang, which can be undone. ``decide`` finds the node of one pod.

    ``kind_of`` returns equal values for pods whose shapes lead to the same decision while the cluster does not change.
    With a ``simulation`` members preempt; all calls must then be within its block.
    """

    def __init__(
        self,
        cluster: Cluster,
        pods: PodStore,
        attempt: GangAttempt,
        decide: Callable[[PodInfo, Scope], Awaitable[Decision]],
        *,
        kind_of: Callable[[PodInfo], Hashable],
        simulation: Simulation | None = None,
    ) -> None:
        self._cluster, self._pods, self._simulation = cluster, pods, simulation
        self._decide, self._kind_of = decide, kind_of
        self._profile, self._members = attempt.profile, attempt.gang.members.pods
        post_filters = attempt.profile.runtime.plugins.post_filter
        self._post_filter_holds_for_copies = all(plugin.applies_to_identical_pods for plugin in post_filters)
        self._undo_steps: list[Callable[[], None]] = []
        #: The failures since the last placement, by the kind of the pod: others of the kind would fail alike.
        self._failed_kinds: dict[Hashable, MemberFailure] = {}
        self.placed: list[BindingContext] = []
        #: Members that would preempt, with the results that say where and whom.
        self.preemptors: list[tuple[QueuedPod, PostFilterResult]] = []
        self.failures: list[MemberFailure] = []
        #: Members that were deleted or assigned before it was their turn.
        self.withdrawn: list[QueuedPod] = []

    async def place(self, members: Sequence[QueuedPod], scope: Scope = WHOLE_CLUSTER) -> None:
        """Place as many of the members as possible. Suspends only while extenders are awaited."""
        self._failed_kinds.clear()
        for queued in members:
            await self._place(queued, scope)

    def undo(self) -> None:
        """Undo every placement, the last one first."""
        for step in reversed(self._undo_steps):
            step()
        self._undo_steps.clear()

    async def _place(self, queued: QueuedPod, scope: Scope) -> None:
        if self._withdraw_if_gone(queued):
            return
        kind = self._kind_of(queued.info)
        known = self._failed_kinds.get(kind)
        holds_for_copies = self._post_filter_holds_for_copies or not scope.preempts
        if known is not None and holds_for_copies and self._depends_on_shape_alone(queued.info):
            self.failures.append(replace(known, queued=queued))
            return
        decision = await self._decide(queued.info, scope)
        if self._withdraw_if_gone(queued):
            return
        if isinstance(decision, Scheduled):
            self._reserve(queued, decision)
            return
        if self._simulation is not None and isinstance(decision, Unschedulable):
            result = decision.post_filter.nomination
            if result is not None and self._preempt(queued, result, self._simulation):
                return
        is_nominated = self._cluster.nomination(queued.info.uid) is not None
        failure = MemberFailure.of_decision(queued, decision, is_nominated=is_nominated)
        self.failures.append(failure)
        if failure.status.code is not Code.ERROR:
            self._failed_kinds[kind] = failure

    def _withdraw_if_gone(self, queued: QueuedPod) -> bool:
        """Leave out a member that was deleted or assigned meanwhile; whether it is one."""
        if self._pods.wants_node(queued.info.uid):
            return False
        self.withdrawn.append(queued)
        return True

    def _depends_on_shape_alone(self, info: PodInfo) -> bool:
        """Whether an identical pod gets the same decision: claims and nominations are a pod's own."""
        return not (info.shape.spec.volumes or info.spec.resource_claims or self._cluster.nomination(info.uid))

    def _reserve(self, queued: QueuedPod, decision: Scheduled) -> None:
        info, state, node_name, runtime = queued.info, decision.state, decision.node_name, self._profile.runtime
        nomination = self._cluster.nomination(info.uid)
        self._assume(info, node_name)
        self._undo_steps.append(lambda: runtime.run_unreserve_plugins(state, info, node_name))
        status = runtime.run_reserve_plugins(state, info, node_name)
        if not status.ok:
            for _ in range(2):
                self._undo_steps.pop()()
            self.failures.append(MemberFailure.of_status(queued, status))
            return
        context = BindingContext(queued, info, node_name, state, self._profile, former_nomination=nomination)
        self.placed.append(context)
        self._failed_kinds.clear()

    def _preempt(self, queued: QueuedPod, result: PostFilterResult, simulation: Simulation) -> bool:
        """Simulate a preemption; False without one, or if it evicts members of the gang itself."""
        if not result.status.ok or not result.nominated_node_name:
            return False
        if any(victim.uid in self._members for victim in result.victims):
            return False
        for victim in result.victims:
            simulation.remove_pod(victim.uid)
        self._assume(queued.info, result.nominated_node_name)
        self.preemptors.append((queued, result))
        self._failed_kinds.clear()
        return True

    def _assume(self, info: PodInfo, node_name: str) -> None:
        nomination = self._cluster.nomination(info.uid)
        self._cluster.assume(info, node_name)
        self._undo_steps.append(lambda: self._forget(info, nomination))

    def _forget(self, info: PodInfo, nomination: str | None) -> None:
        self._cluster.forget(info.uid)
        if nomination is not None and self._pods.wants_node(info.uid):
            self._cluster.nominate(info, nomination)
