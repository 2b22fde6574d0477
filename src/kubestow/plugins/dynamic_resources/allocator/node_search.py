"""Which nodes have what a pod's claims need: devices that are allocated already, and devices for the others."""

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
from kubestow.plugins.dynamic_resources.allocator.requests import AllocationError, TimedOut
from kubestow.plugins.dynamic_resources.binding_conditions import (
    BindingFailed,
    has_binding_conditions,
    is_ready,
    overdue_at,
)
from kubestow.plugins.dynamic_resources.extended_resources import ExtendedResources, NodeClaim
from kubestow.plugins.dynamic_resources.features import Features
from kubestow.plugins.dynamic_resources.inventory.cel import SelectorError
from kubestow.plugins.dynamic_resources.inventory.pools import DevicePools, ReachableDevices
from kubestow.plugins.dynamic_resources.inventory.slices import PublishedSlices, Unreachable, selects
from kubestow.plugins.dynamic_resources.pod_claims import Placement, PodClaims

__all__ = ["NodeSearch"]

_CANNOT_ALLOCATE = Status.unresolvable("cannot allocate all claims")
_INVALID_POOLS = Status.unresolvable("invalid resource pools were encountered")
_UNAVAILABLE = Status.unresolvable("resourceclaim not available on the node")
_STALE_EXTENDED = Status.unresolvable("cannot schedule extended resource claim")
_CANNOT_FIT = Status.unresolvable("cannot fit resource")


class NodeSearch:
    """Asks node after node. ``steps`` bounds the search for devices on each, None does not."""

    def __init__(self, handle: Handle, features: Features, *, steps: int | None, binding_timeout: timedelta) -> None:
        self._handle = handle
        self._features = features
        self._binding_timeout = binding_timeout
        classes = handle.cluster.catalog(DeviceClass)
        self._extended = ExtendedResources(classes)
        self._slices = handle.cluster.catalog(ResourceSlice)
        self._pools = DevicePools(PublishedSlices(self._slices, partitionable=features.partitionable))
        self._allocator = Allocator(handle.cluster.claims, classes, features, steps=steps)

    def verdict(self, kept: PodClaims, pod: PodInfo, nodes: Nodes) -> Verdict:
        """What is said of nodes; the devices found on those that pass are noted as placements."""
        try:
            reached = self._pools.reached_by(nodes) if kept.pending else None
        except Unreachable as error:
            return Verdict.of(np.ones(len(nodes), np.int32), {1: Status.error(str(error))})
        reachable = self._reachable(kept, nodes)
        statuses: dict[Status, int] = {}
        keys = np.zeros(len(nodes), np.int32)
        for position in range(len(nodes)):
            here = None if reached is None else reached[position]
            status = self._on_node(kept, pod, nodes.node(position), here)
            if status.ok:
                unavailable = [index for index, mask in reachable.items() if not mask[position]]
                kept.unavailable.update(unavailable)
                status = _UNAVAILABLE if unavailable else SUCCESS
            if status.ok:
                continue
            keys[position] = statuses.setdefault(status, len(statuses) + 1)
            if status.code is Code.ERROR:
                keys[position:] = keys[position]  # it fails the whole cycle
                break
        return Verdict.of(keys, {key: status for status, key in statuses.items()})

    def _reachable(self, kept: PodClaims, nodes: Nodes) -> dict[int, NDArray[np.bool_]]:
        """Where the devices of each allocated claim can be used, bool, for claims that are not usable everywhere."""
        reachable = {}
        for index, claim in enumerate(kept.claims):
            allocation = claim.status.allocation
            if allocation is None:
                continue
            if self._has_failed(claim):
                reachable[index] = np.zeros(len(nodes), np.bool_)
            elif allocation.node_selector is not None:
                reachable[index] = selects(allocation.node_selector, nodes)
        return reachable

    def _has_failed(self, claim: ResourceClaim) -> bool:
        """Whether the devices of a claim will not become ready any more."""
        if not self._features.binding_conditions or not has_binding_conditions(claim):
            return False
        try:
            overdue = overdue_at(claim, self._binding_timeout)
            return not is_ready(claim) and overdue is not None and overdue < self._handle.now()
        except BindingFailed:
            return True

    def _on_node(self, kept: PodClaims, pod: PodInfo, node: Node, reached: ReachableDevices | None) -> Status:
        """Whether a node has what the unallocated claims ask for."""
        needed: tuple[str, ...] = ()
        if kept.extended is not None:
            if kept.claims[kept.extended].spec.devices.requests:
                return _STALE_EXTENDED
            found = self._extended.needed_on(node, pod)
            if found is None:
                return _CANNOT_FIT
            if not found and not kept.has_user_claims:
                return SUCCESS
            needed = found
        return SUCCESS if reached is None else self._allocate(kept, pod, node.metadata.name, reached, needed)

    def _allocate(
        self, kept: PodClaims, pod: PodInfo, node_name: str, reached: ReachableDevices, needed: tuple[str, ...]
    ) -> Status:
        extended = self._variant(kept, pod, needed)
        wanted = kept.wanted.get(needed)
        if wanted is None:
            claims = [kept.claims[index] for index in kept.pending if index != kept.extended]
            claims += [extended.claim] if extended is not None else []
            wanted = kept.wanted[needed] = self._allocator.wanted(claims, slices_version=self._slices.version)
        try:
            found = self._allocator.find(wanted, reached)
        except TimedOut as error:
            return Status.error(f"node {node_name}: {error}")
        except (AllocationError, SelectorError) as error:
            return Status.error(str(error))
        if found is None:
            return _INVALID_POOLS if any(pool.invalid for pool in reached.pools) else _CANNOT_ALLOCATE
        kept.placements[node_name] = Placement(wanted.claims, found, extended)
        return SUCCESS

    def _variant(self, kept: PodClaims, pod: PodInfo, needed: tuple[str, ...]) -> NodeClaim | None:
        if kept.extended is None or not needed:
            return None
        if needed not in kept.variants:
            kept.variants[needed] = self._extended.with_requests(kept.claims[kept.extended], pod, needed)
        return kept.variants[needed]
