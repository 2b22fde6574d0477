"""DynamicResources finds devices for a pod's claims, and reserves them for it (semantics 8.16).

A claim that has devices already pins its pod to the nodes that reach them; for the others the allocator looks for
devices on every node. What it finds is promised in memory when the pod is placed and written into the claims before the
pod is bound. The parts are in :mod:`kubestow.plugins.dynamic_resources`.
"""

from __future__ import annotations

from collections.abc import Hashable
from datetime import timedelta
from functools import partial
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from kubestow.api.resource import DeviceClass, ResourceClaim, ResourceClaimStatus
from kubestow.cluster.devices.claims import ClaimLedger
from kubestow.cluster.events import Action, EventResource
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.config.plugin_args import DynamicResourcesArgs
from kubestow.errors import InvalidSelector, PluginError
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.diagnosis import Diagnosis
from kubestow.framework.event_registration import Invalidation, on
from kubestow.framework.filters import Filters
from kubestow.framework.interface import (
    FilterPlugin,
    Handle,
    PostFilterPlugin,
    PostFilterResult,
    PreBindPlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    ReservePlugin,
    ScorePlugin,
    normalized,
)
from kubestow.framework.status import SUCCESS, Status, Verdict
from kubestow.plugins.dynamic_resources.allocator.node_search import NodeSearch
from kubestow.plugins.dynamic_resources.allocator.requests import AllocationError
from kubestow.plugins.dynamic_resources.claim_status import ClaimChanges
from kubestow.plugins.dynamic_resources.extended_resources import IN_MEMORY, ExtendedResources, is_backed_by_name
from kubestow.plugins.dynamic_resources.features import Features
from kubestow.plugins.dynamic_resources.inventory.slices import selects
from kubestow.plugins.dynamic_resources.pod_claims import ClaimsMissing, PodClaims, claims_of
from kubestow.plugins.dynamic_resources.pre_bind import Preparation

__all__ = ["DynamicResources"]

_NOT_FOUND = "not found"

#: A search is bounded by steps and not by the clock, so that it ends alike on every machine. A step takes about 10 µs:
#: a second of filterTimeout holds up the event loop for a fifth of one.
_STEPS_PER_SECOND = 20_000
#: The best of several alternatives scores this much.
_MOST_ALTERNATIVES = 8

_NO_ROWS = np.empty(0, np.intp)


class DynamicResources(
    PreEnqueuePlugin, PreFilterPlugin, FilterPlugin, PostFilterPlugin, ScorePlugin, ReservePlugin, PreBindPlugin
):
    """Allocates devices to the claims of pods."""

    name = "DynamicResources"
    applies_to_identical_pods = True
    uncached = True
    missing_pre_filter_error = _NOT_FOUND
    time_limit = None  # its args have limits of their own
    parallel = True

    def __init__(self, args: DynamicResourcesArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self._features = Features.of(handle)
        self._classes = handle.cluster.catalog(DeviceClass)
        self._extended = ExtendedResources(self._classes)
        self._changes = ClaimChanges(handle, timestamps=self._features.binding_conditions)
        binding_timeout = timedelta(seconds=args.binding_timeout.seconds if args.binding_timeout is not None else 600)
        filter_timeout = args.filter_timeout.seconds if args.filter_timeout is not None else 0
        steps = round(filter_timeout * _STEPS_PER_SECOND) or None
        self._nodes = NodeSearch(handle, self._features, steps=steps, binding_timeout=binding_timeout)
        self._preparation = Preparation(
            handle,
            self._features,
            self._changes,
            binding_timeout=binding_timeout,
            on_freed=self._bring_back,
        )
        nodes = Action.ADD | Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_ALLOCATABLE
        self.events_to_register = (
            on(EventResource.NODE, nodes, invalidates=Invalidation.NOTHING),
            on(
                EventResource.RESOURCE_CLAIM,
                Action.ADD | Action.UPDATE,
                invalidates=Invalidation.NOTHING,
                hint=self._claim_may_help,
            ),
            on(
                EventResource.POD,
                Action.UPDATE_POD_GENERATED_RESOURCE_CLAIM,
                invalidates=Invalidation.NOTHING,
                hint=self._has_its_claims,
            ),
            on(EventResource.DEVICE_CLASS, Action.ADD | Action.UPDATE, invalidates=Invalidation.NOTHING),
            on(EventResource.RESOURCE_SLICE, Action.ADD | Action.UPDATE, invalidates=Invalidation.NOTHING),
        )

    @property
    def _ledger(self) -> ClaimLedger:
        return self.handle.cluster.claims

    def signature(self, pod: PodInfo) -> Hashable | None:
        """Pods without claims are all alike; each of the others has claims of its own."""
        if pod.spec.resource_claims:
            return None
        if self._features.extended_resources and any(map(is_backed_by_name, pod.shape.requests)):
            return None
        return ()

    def pre_enqueue(self, pod: PodInfo) -> Status:
        """A pod waits until its claims are there."""
        try:
            claims_of(pod, self._ledger)
        except ClaimsMissing as error:
            return Status.unresolvable(str(error))
        return SUCCESS

    # -- filter --------------------------------------------------------------------------------------------------

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Status | None:
        """Collects the claims; refuses the pod when one is not ready to be allocated."""
        state.put(PodClaims())
        try:
            kept = self._collect(pod)
        except ClaimsMissing as error:
            return Status.unresolvable(str(error))
        if not kept.claims:
            return Status.skip()
        for index in range(len(kept.claims)):
            refused = self._refused(kept, index, nodes)
            if refused is not None:
                return refused
        state.put(kept)
        return None

    def _collect(self, pod: PodInfo) -> PodClaims:
        kept = PodClaims(claims_of(pod, self._ledger))
        if self._features.extended_resources and self._extended.requested(pod.shape.requests):
            kept.extended = len(kept.claims)
            made = self._ledger.made_for_extended_resources_of(pod.uid)
            kept.claims.append(made or self._extended.claim_for(pod))
        return kept

    def _refused(self, kept: PodClaims, index: int, nodes: Nodes) -> Status | None:
        claim = kept.claims[index]
        if claim.status.allocation is not None:
            selector = claim.status.allocation.node_selector
            try:
                if selector is not None:
                    selects(selector, nodes.select(_NO_ROWS))
            except InvalidSelector as error:
                return Status.error(str(error))
            return None
        if self._ledger.is_promised(claim.metadata.uid):
            return Status.unresolvable(f"resource claim {claim.key} is in the process of being allocated")
        return None if index == kept.extended else self._without_class(claim)

    def _without_class(self, claim: ResourceClaim) -> Status | None:
        """Refuses a claim that asks for a class that does not exist (yet)."""
        for request in claim.spec.devices.requests:
            if request.first_available and not self._features.prioritized_list:
                problem = "has subrequests, but the DRAPrioritizedList feature is disabled"
                return Status.unresolvable(f"resource claim {claim.key}, request {request.name}: {problem}")
            if request.exactly is None and not request.first_available:
                problem = "unknown request type"
                return Status.unresolvable(f"resource claim {claim.key}, request {request.name}: {problem}")
            named = [(request.name, request.exactly.device_class_name)] if request.exactly is not None else []
            named += [(f"{request.name}/{sub.name}", sub.device_class_name) for sub in request.first_available]
            for name, class_name in named:
                if not class_name:
                    return Status.error(f"request {name}: unsupported request type")
                if self._class(class_name) is None:
                    return Status.unresolvable(f"request {name}: device class {class_name} does not exist")
        return None

    def _class(self, name: str) -> DeviceClass | None:
        return self._classes.get("", name)

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict | None:
        """Nodes that reach the devices of allocated claims and have devices for the others."""
        kept = state.get(PodClaims)
        return None if kept is None or not kept.claims else self._nodes.verdict(kept, pod, nodes)

    # -- making room ---------------------------------------------------------------------------------------------

    def post_filter(self, state: CycleState, pod: PodInfo, diagnosis: Diagnosis, filters: Filters) -> PostFilterResult:
        """Takes back devices that the pod's own claims have in the wrong place.

        QUIRK: without state, because an earlier PreFilter ended the cycle, this fails, and preemption is not tried.
        """
        kept = state.get(PodClaims)
        if kept is None:
            return PostFilterResult(Status.error(_NOT_FOUND))
        if not kept.claims:
            return PostFilterResult(Status.unschedulable("no new claims to deallocate"))
        for index in sorted(kept.unavailable):
            claim = kept.claims[index]
            if index != kept.extended and all(user.uid == pod.uid for user in claim.status.reserved_for):
                done = Status.unschedulable("deallocation of ResourceClaim completed")
                return PostFilterResult(done, action=partial(self._changes.deallocate, claim))
        if kept.extended is not None and kept.claims[kept.extended].metadata.name != IN_MEMORY:
            done = Status.unschedulable("deletion of ResourceClaim completed")
            return PostFilterResult(done, action=partial(self._changes.delete, kept.claims[kept.extended]))
        return PostFilterResult(Status.unschedulable("still not schedulable"))

    # -- score ---------------------------------------------------------------------------------------------------

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> NDArray[np.int64]:
        """The better the alternatives that a node has devices for, the higher."""
        kept = state.get(PodClaims)
        if kept is None:
            raise PluginError(self.name, "Score", _NOT_FOUND)
        scores = np.zeros(len(nodes), np.int64)
        if not kept.placements or not any(map(_has_alternatives, kept.claims)):
            return scores
        allocated = sum(_points(claim, _allocated_names(claim)) for claim in kept.claims)
        for position, name in enumerate(nodes.names):
            placement = kept.placements.get(name)
            if placement is not None:
                found = zip(placement.claims, placement.found.requests, strict=True)
                scores[position] = allocated + sum(_points(claim, names) for claim, names in found)
        return scores

    def normalize(self, state: CycleState, pod: PodInfo, scores: NDArray[np.int64], nodes: Nodes) -> NDArray[np.int64]:
        """The best node gets 100."""
        return normalized(scores)

    # -- reserve -------------------------------------------------------------------------------------------------

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Promises the devices that were found on the node."""
        kept = state.get(PodClaims)
        if kept is None:
            return Status.error(_NOT_FOUND)
        placement = kept.placements.get(node_name)
        if placement is None:
            missing = any(index != kept.extended for index in kept.pending)
            return Status.error("claim allocation not found for node") if missing else None
        try:
            allocations = placement.found.allocations(placement.claims, node_name, self._features)
        except AllocationError as error:
            return Status.error(str(error))
        indices = [index for index in kept.pending if index != kept.extended or placement.extended is not None]
        kept.allocations = dict(zip(indices, allocations, strict=True))
        kept.needed = placement.extended
        for index, allocation in kept.allocations.items():
            claim = kept.claims[index]
            kept.promised.append(claim.metadata.uid)
            self._ledger.promise(msgspec.structs.replace(claim, status=ResourceClaimStatus(allocation=allocation)))
        return None

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Takes promises back, and what was written already."""
        kept = state.get(PodClaims)
        if kept is None:
            return
        index, written = kept.writing or (None, None)
        for uid in kept.promised:
            if uid != written:
                self._ledger.withdraw(uid)
        kept.promised = [uid for uid in kept.promised if uid == written]
        if index is not None:
            kept.held = kept.claims[index].metadata.uid
            self._changes.hold(kept.held)
        for index, claim in enumerate(kept.claims):
            self._changes.give_back(claim, pod, is_extended=index == kept.extended)

    # -- pre-bind ------------------------------------------------------------------------------------------------

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Pods without claims need nothing."""
        kept = state.get(PodClaims)
        if kept is None:
            return Status.error(_NOT_FOUND)
        return SUCCESS if kept.claims else Status.skip()

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Writes allocations and reservations, then waits for devices that have to be made ready."""
        kept = state.get(PodClaims)
        if kept is None:
            return Status.error(_NOT_FOUND)
        return await self._preparation.prepare(kept, pod, node_name)

    def _bring_back(self) -> None:
        """Have pods with claims tried again: no event tells them that what was promised is free."""
        self.handle.activate([pod for pod in self.handle.pending_pods() if self.signature(pod) != ()])

    # -- queueing hints ------------------------------------------------------------------------------------------

    def _claim_may_help(self, pod: PodInfo, old: ResourceClaim | None, new: ResourceClaim) -> bool:
        try:
            claims = claims_of(pod, self._ledger)
        except ClaimsMissing:
            return False
        if old is not None and old.status.allocation is not None and new.status.allocation is None:
            return True
        if all(claim.metadata.uid != new.metadata.uid for claim in claims):
            return False
        return old is None or old.status != new.status

    def _has_its_claims(self, pod: PodInfo, old: Any, new: PodInfo) -> bool:
        return new.uid == pod.uid and self.pre_enqueue(new).ok


def _has_alternatives(claim: ResourceClaim) -> bool:
    return any(request.first_available for request in claim.spec.devices.requests)


def _allocated_names(claim: ResourceClaim) -> set[str]:
    allocation = claim.status.allocation
    return set() if allocation is None else {result.request for result in allocation.devices.results}


def _points(claim: ResourceClaim, allocated: set[str]) -> int:
    """What a claim's alternatives score: the first of them most."""
    return sum(
        _MOST_ALTERNATIVES - rank
        for request in claim.spec.devices.requests
        for rank, alternative in enumerate(request.first_available)
        if f"{request.name}/{alternative.name}" in allocated
    )
