"""A trial: the pods of a gang placed on the cluster itself, to be kept or to be taken back without a trace.

Placing a pod is what the scheduling cycle of a single pod does: decide, assume, reserve. With ``evicting`` a pod that
can only be placed by preemption is placed too, and its victims are gone for those that follow. Such a trial cannot be
kept; it tells whether the preemptions together would be worth it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from kubestow.cluster.cache import Cluster
from kubestow.cluster.pods.shapes import PodInfo, Shape
from kubestow.framework.interface import PostFilterResult
from kubestow.framework.profile import Profile
from kubestow.framework.status import Code, Status
from kubestow.scheduling.binding_cycle import BindingContext
from kubestow.scheduling.decision.pipeline import Decision
from kubestow.scheduling.decision.scope import EVERYWHERE, Scope
from kubestow.scheduling.failure_handler import Unscheduled
from kubestow.scheduling.gangs.absence import put_back
from kubestow.scheduling.queue.queued_pod import QueuedPod

__all__ = ["Failure", "Trial"]


@dataclass(frozen=True, slots=True)
class Failure:
    """A pod without a node.

    ``has_room`` says that preemption could make room for it, ``keeps_promise`` that it has been promised a node which
    is still being cleared for it.
    """

    queued: QueuedPod
    status: Status
    message: str
    rejectors: frozenset[str]
    pending: frozenset[str]
    has_room: bool = False
    keeps_promise: bool = False
    #: The nodes that extenders refused for good.
    vetoed: frozenset[str] = frozenset()

    @classmethod
    def of_decision(cls, queued: QueuedPod, decision: Decision, *, is_promised: bool) -> Failure:
        """No node was found."""
        return cls(
            queued,
            decision.status,
            decision.message,
            rejectors=decision.rejectors,
            pending=decision.pending,
            has_room=decision.nomination is not None and decision.nomination.status.ok,
            keeps_promise=is_promised and decision.nomination is None,
            vetoed=decision.vetoed,
        )

    @classmethod
    def of_status(cls, queued: QueuedPod, status: Status) -> Failure:
        """A node was found, but Reserve or Permit did not agree."""
        why = Unscheduled.by_status(status)
        return cls(queued, status, why.message, rejectors=why.rejectors, pending=why.pending)


class Trial:
    """One attempt to place pods. ``decide`` finds a pod's node; ``siblings`` are never anybody's victims.

    While extenders are waited for the world moves on: ``is_wanted`` says whether a pod still wants a node.
    """

    def __init__(
        self,
        cluster: Cluster,
        profile: Profile,
        decide: Callable[[PodInfo, Scope], Awaitable[Decision]],
        *,
        is_wanted: Callable[[PodInfo], bool],
        siblings: Iterable[str] = (),
        evicting: bool = False,
    ) -> None:
        self._cluster, self._profile, self._decide, self._is_wanted = cluster, profile, decide, is_wanted
        self._siblings, self._evicting = frozenset(siblings), evicting
        self._speaks_for_copies = all(plugin.applies_to_identical_pods for plugin in profile.post_filter)
        self._undoing: list[Callable[[], None]] = []
        #: What is known of pods like one that has failed, as long as nobody else has been placed.
        self._hopeless: dict[Shape, Failure] = {}
        self.placed: list[BindingContext] = []
        #: Pods that need others to be evicted, with whom and where.
        self.promised: list[tuple[QueuedPod, PostFilterResult]] = []
        self.failures: list[Failure] = []
        #: Pods that wanted no node any more when it was their turn.
        self.gone: list[QueuedPod] = []

    async def run(self, pods: Sequence[QueuedPod], scope: Scope = EVERYWHERE) -> None:
        """Try to place some pods, one after the other."""
        self._hopeless.clear()
        for queued in pods:
            await self._place(queued, scope)

    def undo(self) -> None:
        """Leave the cluster as it was before."""
        for step in reversed(self._undoing):
            step()
        self._undoing.clear()

    async def _place(self, queued: QueuedPod, scope: Scope) -> None:
        if self._is_gone(queued):
            return
        known = self._hopeless.get(queued.info.shape)
        applies_to_identical_pods = self._speaks_for_copies or not scope.makes_room
        if known is not None and applies_to_identical_pods and self._is_like_its_copies(queued.info):
            self.failures.append(replace(known, queued=queued))
            return
        decision = await self._decide(queued.info, scope)
        if self._is_gone(queued):
            return
        if decision.node_name is not None:
            self._reserve(queued, decision, decision.node_name)
        elif not (self._evicting and self._promise(queued, decision.nomination)):
            is_promised = self._cluster.nomination(queued.info.uid) is not None
            self._fail(Failure.of_decision(queued, decision, is_promised=is_promised))

    def _is_gone(self, queued: QueuedPod) -> bool:
        if self._is_wanted(queued.info):
            return False
        self.gone.append(queued)
        return True

    def _is_like_its_copies(self, info: PodInfo) -> bool:
        """Whether nothing but its shape decides about a pod: claims may be its own, and so is a promise."""
        return not (info.spec.volumes or info.spec.resource_claims or self._cluster.nomination(info.uid))

    def _fail(self, failure: Failure) -> None:
        self.failures.append(failure)
        if failure.status.code is not Code.ERROR:
            self._hopeless[failure.queued.info.shape] = failure

    def _reserve(self, queued: QueuedPod, decision: Decision, node_name: str) -> None:
        info, state, runtime = queued.info, decision.state, self._profile.runtime
        promised = self._cluster.nomination(info.uid)
        self._assume(info, node_name)
        self._undoing.append(lambda: runtime.run_unreserve_plugins(state, info, node_name))
        status = runtime.run_reserve_plugins(state, info, node_name)
        if status.ok:
            self.placed.append(BindingContext(queued, info, node_name, state, self._profile, {}, promised=promised))
            self._hopeless.clear()
            return
        for _ in range(2):
            self._undoing.pop()()
        self.failures.append(Failure.of_status(queued, status))

    def _promise(self, queued: QueuedPod, room: PostFilterResult | None) -> bool:
        """Imagine that a preemption has been carried out; whether there is one."""
        if room is None or not room.status.ok or not room.nominated_node_name:
            return False
        if any(victim.uid in self._siblings for victim in room.victims):
            return False
        for victim in room.victims:
            self._remove(victim.uid)
        self._assume(queued.info, room.nominated_node_name)
        self.promised.append((queued, room))
        self._hopeless.clear()
        return True

    # -- what can be undone --------------------------------------------------------------------------------------

    def _assume(self, info: PodInfo, node_name: str) -> None:
        promise = self._cluster.nomination(info.uid)
        self._cluster.assume(info, node_name)
        self._undoing.append(lambda: self._forget(info, promise))

    def _forget(self, info: PodInfo, promise: str | None) -> None:
        self._cluster.forget(info.uid)
        if promise is not None and self._is_wanted(info):
            self._cluster.nominate(info, promise)

    def _remove(self, uid: str) -> None:
        placed_pod = self._cluster.placed_pod(uid)
        if placed_pod is not None:
            self._cluster.remove_pod(uid)
            self._undoing.append(lambda: put_back(self._cluster, placed_pod))
