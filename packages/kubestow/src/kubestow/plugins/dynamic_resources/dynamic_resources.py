"""DynamicResources allocates devices to the claims of pods (semantics 8.16).

An allocated claim restricts its pod to the nodes that can access the devices. For unallocated claims, Filter searches
devices on each node, Reserve records the allocation as pending, and PreBind writes it into the claims before the pod is
bound. PostFilter deallocates claims that keep the pod from being scheduled.
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
from kubestow.api.scheduling import PodGroup
from kubestow.cluster.changes.catalog import Catalog
from kubestow.cluster.changes.events import Action, ClusterEvent, EventResource
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.pod_groups import KUBERNETES, WORKLOADS
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.config.plugin_args import DynamicResourcesArgs
from kubestow.errors import InvalidSelector, PluginError
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.diagnosis import Diagnosis
from kubestow.framework.event_registration import HintKeys, Invalidation, on, only_itself
from kubestow.framework.interface import (
    FilterPlugin,
    FilterRunner,
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
from kubestow.framework.status import SUCCESS, Code, Status, Verdict
from kubestow.plugins.dynamic_resources.cel import SelectorError
from kubestow.plugins.dynamic_resources.extended_resources import IN_MEMORY_CLAIM_NAME, extended_resources
from kubestow.plugins.dynamic_resources.filtering import (
    ClaimFilter,
    ClaimLookup,
    ClaimNotUsable,
    ClaimUsability,
    DynamicResourcesState,
    claim_names,
)
from kubestow.plugins.dynamic_resources.pools import NodeSelectionError, matching_nodes
from kubestow.plugins.dynamic_resources.pre_bind import ClaimBinder, ClaimUpdates
from kubestow.plugins.dynamic_resources.requests import AllocationError, Features
from kubestow.rules.minors import Behaviour

_STATE_NOT_FOUND = "not found"
_NO_NODE_ALLOCATION = Status.error("claim allocation not found for node")
_DISABLED = Status.unschedulable("plugin disabled")
_NOTHING_TO_SAY = Status.unschedulable()
_NO_CLAIMS = Status.unschedulable("no new claims to deallocate")
_DEALLOCATED = Status.unschedulable("deallocation of ResourceClaim completed")
_DELETED = Status.unschedulable("deletion of ResourceClaim completed")
_STILL_UNSCHEDULABLE = Status.unschedulable("still not schedulable")
#: The event that a pending allocation was dropped after Unreserve, which no event of the cluster reports.
_DEVICES_FREED = "DevicesFreed"

#: Bounds a search by steps instead of time, so that the result does not depend on the machine. A step takes about
#: 10 microseconds, so one second of filterTimeout blocks the event loop for about 0.2 seconds.
_STEPS_PER_SECOND = 20_000
#: The score of the first subrequest of a request.
_MAX_SUBREQUEST_SCORE = 8

_DEFAULT_BINDING_TIMEOUT_SECONDS = 600

_NO_ROWS = np.empty(0, np.intp)


class DynamicResourcesWithoutScore(
    PreEnqueuePlugin, PreFilterPlugin, FilterPlugin, PostFilterPlugin, ReservePlugin, PreBindPlugin
):
    """Allocates devices to the claims of pods. Keeps a :class:`DynamicResourcesState` from PreFilter on.

    This is the plugin before :attr:`Behaviour.SCORES_DEVICE_ALTERNATIVES`. It does nothing while the feature gate
    DynamicResourceAllocation is off.
    """

    name = "DynamicResources"
    #: Device classes map devices to extended resources.
    applicability_events = (ClusterEvent(EventResource.DEVICE_CLASS, Action.ALL),)
    label_keys = ()
    applies_to_identical_pods = True
    reserves_only_for_filtered_pods = True
    pre_binds_only_filtered_pods = True
    uncached = True
    missing_pre_filter_error: str | None = _STATE_NOT_FOUND
    time_limit = None  # bindingTimeout applies instead
    parallel = True

    def __init__(self, args: object, handle: Handle) -> None:
        if not isinstance(args, DynamicResourcesArgs):  # a minor version that does not read them
            args = DynamicResourcesArgs()
        super().__init__(args, handle)
        self._tracker = handle.cluster.resource_claims
        has_group_claims = handle.feature_enabled("DRAWorkloadResourceClaims")
        #: Finds the claims of pods.
        self.claim_lookup = ClaimLookup(self._tracker, handle.cluster.catalog(PodGroup) if has_group_claims else None)
        self._usability = ClaimUsability(self.claim_lookup)
        self._enabled = handle.feature_enabled("DynamicResourceAllocation")
        self._capitalizes_owner = handle.emulates(Behaviour.CLAIM_OWNER_IS_CAPITALIZED)
        #: Whether PostFilter has no reason for a pod without claims in its spec.
        self._reports_only_actions = handle.emulates(Behaviour.POST_FILTER_REPORTS_ONLY_ACTIONS)
        self._skips_pods_without_claims = handle.emulates(
            Behaviour.POST_FILTER_SKIPS_PODS_WITHOUT_CLAIMS
        ) and not handle.emulates(Behaviour.POST_FILTER_LOOKS_AT_ALL_PODS)
        self._features = Features.from_gates(handle)
        self._shares_in_groups = handle.feature_enabled("GenericWorkload")
        self._classes = handle.cluster.catalog(DeviceClass)
        self._extended_resources = extended_resources(self._classes, handle.emulates)
        self._updates = ClaimUpdates(handle, allocation_timestamps=self._features.binding_conditions)
        timeout = args.binding_timeout
        binding_timeout = timedelta(seconds=_DEFAULT_BINDING_TIMEOUT_SECONDS if timeout is None else timeout.seconds)
        filter_timeout = args.filter_timeout.seconds if args.filter_timeout is not None else 0
        max_steps = round(filter_timeout * _STEPS_PER_SECOND) or None
        #: Which nodes have devices for claims.
        self.claim_filter = self._filter = ClaimFilter(
            handle, self._features, max_steps=max_steps, binding_timeout=binding_timeout
        )
        self._binder = ClaimBinder(
            handle,
            self._features,
            self._updates,
            binding_timeout=binding_timeout,
            on_devices_freed=lambda: handle.report_change(ClusterEvent(_DEVICES_FREED, Action.UPDATE)),
        )
        node_events = Action.ADD | Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_ALLOCATABLE
        self.events_to_register = (
            on(EventResource.NODE, node_events, invalidates=Invalidation.NOTHING),
            on(
                EventResource.RESOURCE_CLAIM,
                Action.ADD | Action.UPDATE,
                invalidates=Invalidation.NOTHING,
                hint=self._is_schedulable_after_claim_change,
                hint_keys=_keys_of_claim,
            ),
            on(
                EventResource.POD,
                Action.UPDATE_POD_GENERATED_RESOURCE_CLAIM,
                invalidates=Invalidation.NOTHING,
                hint=self._is_schedulable_after_pod_change,
                hint_keys=only_itself,
            ),
            on(EventResource.DEVICE_CLASS, Action.ADD | Action.UPDATE, invalidates=Invalidation.NOTHING),
            on(EventResource.RESOURCE_SLICE, Action.ADD | Action.UPDATE, invalidates=Invalidation.NOTHING),
            on(_DEVICES_FREED, Action.UPDATE, invalidates=Invalidation.NOTHING),
        )
        if has_group_claims:
            self.kinds = (PodGroup,)
            generated = on(
                EventResource.POD_GROUP,
                Action.ADD | Action.UPDATE,
                invalidates=Invalidation.NOTHING,
                hint=self._is_schedulable_after_group_change,
            )
            self.events_to_register = (*self.events_to_register, generated)
        if not self._enabled:
            self.events_to_register, self.missing_pre_filter_error = (), None

    def signature(self, pod: PodInfo) -> Hashable | None:
        """The same for all pods without claims; None for the others, and for those that devices are requested for."""
        return None if pod.spec.resource_claims or self._requests_devices(pod) else ()

    def hint_signature(self, pod: PodInfo) -> Hashable | None:
        """None for pods with claims in their spec: claims, and their names in a pod's status, belong to single pods."""
        return None if pod.spec.resource_claims else ()

    def hint_keys(self, pod: PodInfo) -> HintKeys:
        """Namespace and name of the claims that exist or are expected."""
        return ((pod.namespace, name) for name in claim_names(pod))

    def _requests_devices(self, pod: PodInfo) -> bool:
        """Whether the pod requests an extended resource that has a device class."""
        return self._features.extended_resources and self._extended_resources.is_requested(pod.shape.requests)

    def may_gate(self, pod: PodInfo) -> bool:
        """Pods with claims in their spec."""
        return bool(pod.spec.resource_claims)

    def pre_enqueue(self, pod: PodInfo) -> Status:
        """Gates a pod until all its claims are usable."""
        if not self._enabled:
            return SUCCESS
        try:
            self.claim_lookup.claims_of(pod)
        except ClaimNotUsable as error:
            return self._not_usable(error)
        return SUCCESS

    def _not_usable(self, error: ClaimNotUsable) -> Status:
        return Status.unresolvable(str(error) if self._capitalizes_owner else error.former)

    # -- PreFilter and Filter --------------------------------------------------------------------------------------

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Status | None:
        """Collects the claims and rejects the pod if one cannot be allocated on any node; skips without claims."""
        state.put(DynamicResourcesState())
        if not self._enabled:
            return Status.skip()
        try:
            found = DynamicResourcesState(self.claim_lookup.claims_of(pod))
            found.groups = self.claim_lookup.group_claims(pod)
        except ClaimNotUsable as error:
            return self._not_usable(error)
        if self._requests_devices(pod):
            found.extended_index = len(found.claims)
            existing = self._tracker.extended_resource_claim(pod.uid)
            found.claims.append(existing or self._extended_resources.in_memory_claim(pod))
        if not found.claims:
            return Status.skip()
        groups = found.sharing_groups = self._sharing_groups(pod)
        for index, claim in enumerate(found.claims):
            if claim.status.allocation is None and groups:
                shared = self._tracker.shared_allocation(claim.metadata.uid, groups)
                if shared is not None:
                    found.claims[index] = claim = shared
                    found.shared.add(index)
            rejection = self._check_claim(claim, nodes, is_extended=index == found.extended_index)
            if rejection is not None:
                return rejection
        state.put(found)
        return None

    def claims_of(self, pod: PodInfo) -> DynamicResourcesState | None:
        """The claims of a pod, as PreFilter finds them; None if it needs none, or rejects the pod."""
        state = CycleState()
        status = self.pre_filter(state, pod, self.handle.cluster.all_nodes())
        return state.get(DynamicResourcesState) if status is None else None

    def _sharing_groups(self, pod: PodInfo) -> frozenset[Hashable]:
        """The groups of a pod that are scheduled in one cycle, so that its pods share allocations before the binding.

        Those of 1.35 are not.
        """
        names = self.handle.cluster.pod_groups.memberships(pod)
        unshared = {WORKLOADS.name} if self._shares_in_groups else {WORKLOADS.name, KUBERNETES.name}
        return frozenset(name for name in names if name.api not in unshared)

    def _check_claim(self, claim: ResourceClaim, nodes: Nodes, *, is_extended: bool) -> Status | None:
        if claim.status.allocation is not None:
            selector = claim.status.allocation.node_selector
            try:
                if selector is not None:
                    matching_nodes(selector, nodes.select(_NO_ROWS))  # parses the selector
            except InvalidSelector as error:
                return Status.error(str(error))
            return None
        if self._tracker.has_pending_allocation(claim.metadata.uid):
            return Status.unresolvable(f"resource claim {claim.key} is in the process of being allocated")
        return None if is_extended else _rejection_of_requests(claim, self._features, self._classes)

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict | None:
        """Passes nodes with access to the devices of allocated claims, and with devices for the other claims."""
        found = state.get(DynamicResourcesState)
        return None if found is None or not found.claims else self._filter.verdict(found, pod, nodes)

    # -- PostFilter ------------------------------------------------------------------------------------------------

    def post_filter(
        self, state: CycleState, pod: PodInfo, diagnosis: Diagnosis, filters: FilterRunner
    ) -> PostFilterResult:
        """Deallocates an unavailable claim that no other pod uses, or deletes a stale extended resource claim.

        QUIRK (semantics 8.16): without state, because an earlier PreFilter plugin rejected the pod, this is an error.
        """
        result = self._deallocation(state, pod)
        is_silent = self._reports_only_actions and result.action is None and result.status.code is not Code.ERROR
        return PostFilterResult(_NOTHING_TO_SAY) if is_silent else result

    def _deallocation(self, state: CycleState, pod: PodInfo) -> PostFilterResult:
        if not self._enabled:
            return PostFilterResult(_DISABLED)
        if self._skips_pods_without_claims and not pod.spec.resource_claims:
            return PostFilterResult(_NOTHING_TO_SAY)
        found = state.get(DynamicResourcesState)
        if found is None:
            return PostFilterResult(Status.error(_STATE_NOT_FOUND))
        if not found.claims:
            return PostFilterResult(_NO_CLAIMS)
        for index in sorted(found.unavailable_claims):
            claim = found.claims[index]
            if index not in (*found.shared, found.extended_index) and all(
                user.uid == pod.uid for user in claim.status.reserved_for
            ):
                deallocate = partial(self._updates.deallocate, claim)
                return PostFilterResult(_DEALLOCATED, action=deallocate)
        if found.extended_index is not None:
            claim = found.claims[found.extended_index]
            if claim.metadata.name != IN_MEMORY_CLAIM_NAME:
                delete = partial(self._updates.delete, claim)
                return PostFilterResult(_DELETED, action=delete)
        return PostFilterResult(_STILL_UNSCHEDULABLE)

    # -- Reserve ---------------------------------------------------------------------------------------------------

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Records the allocations found on the node as pending, so that no other pod gets the devices."""
        found = state.get(DynamicResourcesState)
        if found is None:
            return Status.error(_STATE_NOT_FOUND)
        for index in sorted(found.shared):
            claim = found.claims[index]
            assert claim.status.allocation is not None
            found.allocations[index] = claim.status.allocation
            found.pending_allocations.append(claim.metadata.uid)
            self._tracker.share_pending_allocation(claim.metadata.uid)
        if not found.unallocated:
            return None
        try:
            on_node = self._filter.allocation_on(found, pod, node_name)
            if on_node is None:
                is_missing = any(index != found.extended_index for index in found.unallocated)
                return _NO_NODE_ALLOCATION if is_missing else None
            allocations = on_node.solution.allocation_results(on_node.claims, node_name, self._features)
        except (AllocationError, NodeSelectionError, SelectorError) as error:
            return Status.error(str(error))
        has_extended = on_node.extended is not None
        indices = [index for index in found.unallocated if index != found.extended_index or has_extended]
        found.extended_claim = on_node.extended
        groups = found.sharing_groups
        for index, allocation in zip(indices, allocations, strict=True):
            claim = found.claims[index]
            found.allocations[index] = allocation
            found.pending_allocations.append(claim.metadata.uid)
            allocated = msgspec.structs.replace(claim, status=ResourceClaimStatus(allocation=allocation))
            self._tracker.signal_pending_allocation(allocated, groups)
            if groups:
                found.shared.add(index)
        return None

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Drops pending allocations and undoes, in the background, what PreBind has written."""
        found = state.get(DynamicResourcesState)
        if found is None:
            return
        written_index, written_uid = found.writing or (None, None)
        for uid in found.pending_allocations:
            if uid != written_uid:
                self._tracker.remove_pending_allocation(uid)
        found.pending_allocations = [uid for uid in found.pending_allocations if uid == written_uid]
        if written_index is not None:
            found.release_after_write = found.claims[written_index].metadata.uid
            self._updates.begin_release(found.release_after_write)
        for index, claim in enumerate(found.claims):
            if claim.metadata.uid not in found.groups:
                self._updates.undo_in_background(claim, pod, is_extended=index == found.extended_index)

    # -- PreBind ---------------------------------------------------------------------------------------------------

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Skips pods without claims."""
        found = state.get(DynamicResourcesState)
        if found is None:
            return Status.error(_STATE_NOT_FOUND)
        return SUCCESS if found.claims else Status.skip()

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Writes allocations and reservations, then waits for binding conditions."""
        found = state.get(DynamicResourcesState)
        if found is None:
            return Status.error(_STATE_NOT_FOUND)
        return await self._binder.bind(found, pod, node_name)

    # -- queueing hints --------------------------------------------------------------------------------------------

    def _is_schedulable_after_pod_change(self, pod: PodInfo, old: Any, new: PodInfo) -> bool:
        return new.uid == pod.uid and self.pre_enqueue(new).ok

    def _is_schedulable_after_group_change(self, pod: PodInfo, old: Any, new: PodGroup) -> bool:
        """Whether it is the pod's group, for which claims may have been generated."""
        name = KUBERNETES.group_of(pod.pod)
        return (pod.namespace, name) == (new.metadata.namespace, new.metadata.name) and self.pre_enqueue(pod).ok

    def _is_schedulable_after_claim_change(self, pod: PodInfo, old: ResourceClaim | None, new: ResourceClaim) -> bool:
        # What is cheap comes first: a pod may have thousands of claims, and each of them thousands of events.
        if not _is_deallocated(old, new):
            if old is not None and old.status == new.status:
                return False
            if self._usability.are_usable(pod):
                return any(claim.metadata.uid == new.metadata.uid for claim in self.claim_lookup.claims_of(pod))
            return False
        return self._usability.are_usable(pod)


class DynamicResources(DynamicResourcesWithoutScore, ScorePlugin):
    """Allocates devices to the claims of pods, and prefers nodes with devices for the first alternatives."""

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> NDArray[np.int64]:
        """The ranks of the allocated subrequests, summed over all claims."""
        found = state.get(DynamicResourcesState)
        if found is None:
            raise PluginError(self.name, "Score", _STATE_NOT_FOUND)
        scores = np.zeros(len(nodes), np.int64)
        requests = (request for claim in found.claims for request in claim.spec.devices.requests)
        if not (self._features.prioritized_list and any(request.first_available for request in requests)):
            return scores
        allocated = 0
        for claim in found.claims:
            if (allocation := claim.status.allocation) is not None:
                allocated += _subrequest_score(claim, {result.request for result in allocation.devices.results})
        for position, score in self._filter.sum_over_claims(found, pod, nodes, _subrequest_score).items():
            scores[position] = allocated + score
        return scores

    def normalize(self, state: CycleState, pod: PodInfo, scores: NDArray[np.int64], nodes: Nodes) -> NDArray[np.int64]:
        """Scales linearly: the highest score becomes 100."""
        return normalized(scores)


def _keys_of_claim(old: ResourceClaim | None, new: ResourceClaim) -> HintKeys | None:
    """Devices of a deallocated claim may go to any pod; any other change helps only pods that use the claim."""
    return None if _is_deallocated(old, new) else ((new.metadata.namespace, new.metadata.name),)


def _is_deallocated(old: ResourceClaim | None, new: ResourceClaim) -> bool:
    return old is not None and old.status.allocation is not None and new.status.allocation is None


# -- requests ------------------------------------------------------------------------------------------------------


def _rejection_of_requests(claim: ResourceClaim, features: Features, classes: Catalog[DeviceClass]) -> Status | None:
    """Why the requests of a claim cannot be allocated on any node; None if they may be."""
    for request in claim.spec.devices.requests:
        problem = ""
        if request.first_available and not features.prioritized_list:
            problem = "has subrequests, but the DRAPrioritizedList feature is disabled"
        elif request.exactly is None and not request.first_available:
            problem = "unknown request type"
        if problem:
            return Status.unresolvable(f"resource claim {claim.key}, request {request.name}: {problem}")
        names = [(request.name, request.exactly.device_class_name)] if request.exactly is not None else []
        names += [(f"{request.name}/{sub.name}", sub.device_class_name) for sub in request.first_available]
        for name, class_name in names:
            if not class_name:
                return Status.error(f"request {name}: unsupported request type")
            if classes.get("", class_name) is None:
                return Status.unresolvable(f"request {name}: device class {class_name} does not exist")
    return None


def _subrequest_score(claim: ResourceClaim, allocated_requests: set[str]) -> int:
    """8 for each allocated subrequest that is the first of its request, 7 for the second, and so on."""
    return sum(
        _MAX_SUBREQUEST_SCORE - rank
        for request in claim.spec.devices.requests
        for rank, subrequest in enumerate(request.first_available)
        if f"{request.name}/{subrequest.name}" in allocated_requests
    )
