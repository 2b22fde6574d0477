"""Filter: which nodes can access the devices of allocated claims and have devices for the other claims.

The result for each node, including the devices, is kept in :class:`DynamicResourcesState` for Score and Reserve.
"""

from __future__ import annotations

from datetime import timedelta

import numpy as np
from numpy.typing import NDArray

from kubestow.api.core import Node
from kubestow.api.resource import DeviceClass, ResourceClaim, ResourceSlice
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.interface import Handle
from kubestow.framework.status import SUCCESS, Code, Status, Verdict
from kubestow.plugins.dynamic_resources.allocator.allocator import Allocator
from kubestow.plugins.dynamic_resources.allocator.requests import AllocationError, AllocationTimeout
from kubestow.plugins.dynamic_resources.binding_conditions import (
    DeviceBindingFailed,
    binding_deadline,
    has_binding_conditions,
    is_ready_for_binding,
)
from kubestow.plugins.dynamic_resources.extended_resources import ExtendedResourceClaim, ExtendedResources
from kubestow.plugins.dynamic_resources.features import Features
from kubestow.plugins.dynamic_resources.inventory.cel import SelectorError
from kubestow.plugins.dynamic_resources.inventory.pools import AccessibleDevices, DevicePools
from kubestow.plugins.dynamic_resources.inventory.slices import NodeSelectionError, PublishedSlices, matching_nodes
from kubestow.plugins.dynamic_resources.state import DynamicResourcesState, NodeAllocation

__all__ = ["ClaimFilter"]

_CANNOT_ALLOCATE = Status.unresolvable("cannot allocate all claims")
_INVALID_POOLS = Status.unresolvable("invalid resource pools were encountered")
_NOT_AVAILABLE = Status.unresolvable("resourceclaim not available on the node")
_STALE_EXTENDED_CLAIM = Status.unresolvable("cannot schedule extended resource claim")
_CANNOT_FIT = Status.unresolvable("cannot fit resource")


class ClaimFilter:
    """Filters nodes by a pod's claims. ``max_steps`` bounds the search for devices per node; None for no bound."""

    def __init__(
        self, handle: Handle, features: Features, *, max_steps: int | None, binding_timeout: timedelta
    ) -> None:
        self._handle = handle
        self._features = features
        self._binding_timeout = binding_timeout
        classes = handle.cluster.catalog(DeviceClass)
        self._extended_resources = ExtendedResources(classes)
        self._slices = handle.cluster.catalog(ResourceSlice)
        self._pools = DevicePools(PublishedSlices(self._slices, partitionable_devices=features.partitionable_devices))
        self._allocator = Allocator(handle.cluster.resource_claims, classes, features, max_steps=max_steps)

    def verdict(self, state: DynamicResourcesState, pod: PodInfo, nodes: Nodes) -> Verdict:
        """The verdict on nodes. Records node allocations and unavailable claims in ``state``."""
        try:
            accessible = self._pools.accessible_from(nodes) if state.unallocated else None
        except NodeSelectionError as error:
            return Verdict.of(np.ones(len(nodes), np.int32), {1: Status.error(str(error))})
        available = self._availability(state, nodes)
        statuses: dict[Status, int] = {}
        keys = np.zeros(len(nodes), np.int32)
        for position in range(len(nodes)):
            devices = None if accessible is None else accessible[position]
            status = self._allocate_on(state, pod, nodes.node(position), devices)
            if status.ok:
                unavailable = [index for index, mask in available.items() if not mask[position]]
                state.unavailable_claims.update(unavailable)
                status = _NOT_AVAILABLE if unavailable else SUCCESS
            if status.ok:
                continue
            keys[position] = statuses.setdefault(status, len(statuses) + 1)
            if status.code is Code.ERROR:
                keys[position:] = keys[position]  # an error fails the cycle: the other nodes are irrelevant
                break
        return Verdict.of(keys, {key: status for status, key in statuses.items()})

    # -- allocated claims ------------------------------------------------------------------------------------------

    def _availability(self, state: DynamicResourcesState, nodes: Nodes) -> dict[int, NDArray[np.bool_]]:
        """The nodes on which each allocated claim is available, bool; without claims that are available everywhere."""
        available = {}
        for index, claim in enumerate(state.claims):
            allocation = claim.status.allocation
            if allocation is None:
                continue
            if self._has_binding_failed(claim):
                available[index] = np.zeros(len(nodes), np.bool_)
            elif allocation.node_selector is not None:
                available[index] = matching_nodes(allocation.node_selector, nodes)
        return available

    def _has_binding_failed(self, claim: ResourceClaim) -> bool:
        """Whether the binding conditions of a claim have failed or timed out."""
        if not self._features.binding_conditions or not has_binding_conditions(claim):
            return False
        try:
            deadline = binding_deadline(claim, self._binding_timeout)
            return not is_ready_for_binding(claim) and deadline is not None and deadline < self._handle.now()
        except DeviceBindingFailed:
            return True

    # -- unallocated claims ----------------------------------------------------------------------------------------

    def _allocate_on(
        self, state: DynamicResourcesState, pod: PodInfo, node: Node, devices: AccessibleDevices | None
    ) -> Status:
        resources: tuple[str, ...] = ()
        if state.extended_index is not None:
            if state.claims[state.extended_index].spec.devices.requests:
                return _STALE_EXTENDED_CLAIM
            backed = self._extended_resources.backed_by_devices(node, pod)
            if backed is None:
                return _CANNOT_FIT
            if not backed and not state.has_user_claims:
                return SUCCESS
            resources = backed
        return SUCCESS if devices is None else self._allocate(state, pod, node.metadata.name, devices, resources)

    def _allocate(
        self,
        state: DynamicResourcesState,
        pod: PodInfo,
        node_name: str,
        devices: AccessibleDevices,
        resources: tuple[str, ...],
    ) -> Status:
        extended = self._extended_claim(state, pod, resources)
        to_allocate = state.claims_to_allocate.get(resources)
        if to_allocate is None:
            claims = [state.claims[index] for index in state.unallocated if index != state.extended_index]
            claims += [extended.claim] if extended is not None else []
            to_allocate = self._allocator.prepare(claims, slices_version=self._slices.version)
            state.claims_to_allocate[resources] = to_allocate
        try:
            solution = self._allocator.allocate(to_allocate, devices)
        except AllocationTimeout as error:
            return Status.error(f"node {node_name}: {error}")
        except (AllocationError, SelectorError) as error:
            return Status.error(str(error))
        if solution is None:
            return _INVALID_POOLS if any(pool.invalid_reason for pool in devices.pools) else _CANNOT_ALLOCATE
        state.node_allocations[node_name] = NodeAllocation(to_allocate.claims, solution, extended)
        return SUCCESS

    def _extended_claim(
        self, state: DynamicResourcesState, pod: PodInfo, resources: tuple[str, ...]
    ) -> ExtendedResourceClaim | None:
        if state.extended_index is None or not resources:
            return None
        if resources not in state.extended_claims:
            claim = state.claims[state.extended_index]
            state.extended_claims[resources] = self._extended_resources.with_requests(claim, pod, resources)
        return state.extended_claims[resources]
