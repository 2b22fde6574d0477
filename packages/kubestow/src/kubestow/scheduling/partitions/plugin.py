"""The plugin Partitions: it keeps a scheduler to the pods and nodes of the partitions that it holds.

    Filter       leaves pods that cannot be offered the nodes of held partitions
    Score        prefers the nodes of held partitions to all others
    Reserve      declines an offer whose binding fails
    Bind         offers a pod to the partition of its node; bindings to nodes of held partitions are left to others

So a pod gets a node of another partition only if none of its own fits, and preempts others only if none in the cluster
does. The scheduler that knows all pods like it decides, and the one that knows all pods of the node agrees.
"""

from __future__ import annotations

from collections.abc import Awaitable, Hashable
from contextlib import suppress
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.changes.events import Action, ClusterEvent, EventResource
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import APIError, Unreachable
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.event_registration import Invalidation, on
from kubestow.framework.interface import (
    MAX_SCORE,
    BindPlugin,
    FilterPlugin,
    Handle,
    ReservePlugin,
    ScorePlugin,
    Scores,
)
from kubestow.framework.status import Code, Status, Verdict
from kubestow.scheduling.events.pod_store import PodStore
from kubestow.scheduling.observer import Offer
from kubestow.scheduling.partitions.held_partitions import OFFER_ANNOTATION, HeldPartitions, is_on_offer, offered_node
from kubestow.scheduling.partitions.membership import is_confined

NAME = "Partitions"

WEIGHT = 10_000_000
"""The weight of the score: above all others together, so that they decide among the nodes of either kind only."""

CHANGED = ClusterEvent("kubestow.dev/Partitions", Action.UPDATE)
"""Other partitions are held."""

_OTHER_PARTITION = Status.unresolvable("node(s) belong to other partitions")
_SKIP = Status(Code.SKIP)
#: For how long an answer to an offer is waited for before it is looked for without a change, because partitions change
#: hands without one; and the pause after a write that has failed; in seconds.
_LOOK_SECONDS, _PAUSE = 1.0, 1.0


class Partitions(FilterPlugin, ScorePlugin, ReservePlugin, BindPlugin):
    """See the module. Of a running scheduler only, which passes what it holds and its pods to a subclass."""

    name = NAME
    reads_requests = reads_volumes = False
    label_keys = ()
    time_limit = None  # an offer is open until it is answered
    held: ClassVar[HeldPartitions]
    pods: ClassVar[PodStore]

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        #: The pods whose offers are being declined, by uid.
        self._declining: set[str] = set()
        self.events_to_register = (
            on(CHANGED.resource, CHANGED.action, invalidates=Invalidation.ALL),
            on(EventResource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL),
        )

    def signature(self, pod: PodInfo) -> Hashable:
        """Whether the pod is confined to the nodes of held partitions."""
        return is_confined(pod)

    # -- the nodes ---------------------------------------------------------------------------------------------------

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict | None:
        if not is_confined(pod):
            return None
        others = ~self._has_nodes(nodes)
        return Verdict.rejecting(others, _OTHER_PARTITION) if others.any() else None

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Scores:
        return self._has_nodes(nodes).astype(np.int64) * MAX_SCORE

    def _has_nodes(self, nodes: Nodes) -> NDArray[np.bool_]:
        """Which nodes belong to held partitions, bool; computed when partitions or nodes change."""
        held = self.held
        if len(held.held) == held.count:
            return np.ones(len(nodes), np.bool_)
        return np.fromiter(map(held.has_node, nodes.names), np.bool_, len(nodes))

    # -- offers ------------------------------------------------------------------------------------------------------

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Nothing to reserve."""
        return None

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Decline an offer whose binding has failed."""
        self.decline(pod)

    def decline(self, pod: PodInfo) -> None:
        """Decline the offer of a pod, if it is offered to a held partition. Returns at once."""
        if pod.uid not in self._declining and self._is_offered(pod.uid):
            self._declining.add(pod.uid)
            self.handle.spawn(self._decline(pod.uid))

    def _is_offered(self, uid: str) -> bool:
        """Whether a pod is pending, as far as is known, and offered to a held partition."""
        current = self.pods.get(uid)
        if current is None or current.is_assigned:
            return False
        return bool(offered := offered_node(current)) and self.held.may_bind_to(offered)

    async def _decline(self, uid: str) -> None:
        try:
            while self._is_offered(uid):
                current = self.pods.get(uid)
                assert current is not None
                with suppress(APIError, Unreachable):
                    await self.handle.patch(current.pod, {"metadata": {"annotations": {OFFER_ANNOTATION: None}}})
                    return
                await self.handle.wait_for(lambda: None if self._is_offered(uid) else True, _PAUSE)
        finally:
            self._declining.discard(uid)

    def bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | Awaitable[Status | None]:
        """Skips nodes of held partitions. Else None once the holder of the node's partition has bound the pod."""
        return _SKIP if self.held.may_bind_to(node_name) else self._bind_by_other(pod, node_name)

    async def _bind_by_other(self, pod: PodInfo, node_name: str) -> Status | None:
        before = self.pods.get(pod.uid)
        if before is None:
            return Status.error(f"pod {pod.key} was deleted before it was offered")
        self.held.open_offers += 1
        try:
            outcome = await self._offer(before, node_name)
        finally:
            self.held.open_offers -= 1
        self.held.observer.offer_ended(outcome)
        if outcome is Offer.ACCEPTED:
            return None
        partition = self.held.of_node(node_name)
        return Status.error(f"the offer of node {node_name} to partition {partition} was {outcome}")

    async def _offer(self, before: PodInfo, node_name: str) -> Offer:
        """Offer a pod whose last known state is ``before``, and wait for the answer."""
        if not await self._may_be_offered(before, node_name):
            return Offer.WITHDRAWN
        while True:
            answer = await self.handle.wait_for(lambda: self._answer(before, node_name), _LOOK_SECONDS)
            if answer is not None:
                return answer

    async def _may_be_offered(self, before: PodInfo, node_name: str) -> bool:
        """Write the offer. False if it has certainly not been made.

        A write whose answer was lost is repeated: it conflicts with itself if it was made. So a conflict after that is
        an offer if the pod has changed since, and a first conflict is none.
        """
        is_in_doubt = False
        while True:
            try:
                await self.handle.patch(before.pod, {"metadata": {"annotations": {OFFER_ANNOTATION: node_name}}})
            except (APIError, Unreachable) as error:
                may_be_own = is_in_doubt and isinstance(error, APIError) and error.code == 409
                if not error.in_doubt and not may_be_own:
                    return False
            else:
                return True
            is_in_doubt = True
            await self.handle.wait_for(lambda: None, _PAUSE)
            current = self.pods.get(before.uid)
            if current is None or current.metadata.resource_version != before.metadata.resource_version:
                return True

    def _answer(self, before: PodInfo, node_name: str) -> Offer | None:
        """The answer to an offer as far as the watch has shown it; None if there is none yet."""
        current = self.pods.get(before.uid)
        if current is None:
            return Offer.WITHDRAWN
        if current.is_assigned:
            return Offer.ACCEPTED if current.spec.node_name == node_name else Offer.DECLINED
        if current.metadata.resource_version == before.metadata.resource_version:
            return None  # the offer has not been shown yet
        if offered_node(current) != node_name:
            return Offer.DECLINED
        # If this scheduler has taken the node over since, there is no other one to answer.
        return Offer.WITHDRAWN if self.held.may_bind_to(node_name) or not is_on_offer(current) else None
