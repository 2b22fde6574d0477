"""Filter: which nodes can access the devices of allocated claims and have devices for the other claims.

The claims that a pod names, or that were generated for it from templates, come from the ledger, so they include what
the API server has accepted before the watch reports it. Extended resource claims are not in the pod's spec.

Nodes whose devices are in the same state share one search; the devices on the selected node are determined for Reserve.
Drivers report binding conditions in ``status.devices`` of a claim; allocation results name those of their devices.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from kubestow.api.core import PodResourceClaim
from kubestow.api.resource import (
    AllocationResult,
    DeviceClass,
    ResourceClaim,
    ResourceSlice,
)
from kubestow.api.scheduling import PodGroup
from kubestow.cluster.changes.catalog import Catalog
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.caches import BoundedCache
from kubestow.cluster.pods.pod_groups import KUBERNETES
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.cluster.resource_claims import ResourceClaimTracker
from kubestow.framework.interface import Handle
from kubestow.framework.status import SUCCESS, Status, Verdict
from kubestow.plugins.dynamic_resources.allocator import Allocator, ClaimsToAllocate, Outcome, Solution
from kubestow.plugins.dynamic_resources.cel import SelectorError
from kubestow.plugins.dynamic_resources.extended_resources import ExtendedResourceClaim, extended_resources
from kubestow.plugins.dynamic_resources.former_allocators import device_pools
from kubestow.plugins.dynamic_resources.pools import (
    AccessibleDevices,
    CandidateDevice,
    DevicesByNode,
    NodeSelectionError,
    Slices,
    matching_nodes,
)
from kubestow.plugins.dynamic_resources.requests import AllocationError, AllocationTimeout, Features
from kubestow.plugins.dynamic_resources.suitable_devices import DeviceLeft, SuitableDevices
from kubestow.plugins.dynamic_resources.taint_rules import TaintedSlices

_CANNOT_ALLOCATE = Status.unresolvable("cannot allocate all claims")
_TIMED_OUT = Status.unresolvable("timed out trying to allocate devices")
_INVALID_POOLS = Status.unresolvable("invalid resource pools were encountered")
_NOT_AVAILABLE = Status.unresolvable("resourceclaim not available on the node")
_STALE_EXTENDED_CLAIM = Status.unresolvable("cannot schedule extended resource claim")
_CANNOT_FIT = Status.unresolvable("cannot fit resource")

#: So many names of claims of pending pods are kept.
_KEPT_NAMES = 100_000

#: The keys of a verdict beyond those of outcomes; 0 passes.
_FAILED_KEY, _CANNOT_FIT_KEY = len(Outcome), len(Outcome) + 1
_KEYS = {
    _CANNOT_ALLOCATE: int(Outcome.NO_SOLUTION),
    _INVALID_POOLS: int(Outcome.INVALID_POOLS),
    _TIMED_OUT: int(Outcome.TIMED_OUT),
    _CANNOT_FIT: _CANNOT_FIT_KEY,
}


@dataclass(frozen=True, slots=True)
class NodeAllocation:
    """The devices for a pod's unallocated claims on one node; an extended resource claim is the last of ``claims``."""

    claims: Sequence[ResourceClaim]
    solution: Solution
    extended: ExtendedResourceClaim | None


@dataclass(slots=True)
class DynamicResourcesState:
    """What is kept for one pod per cycle. Claims are identified by their index in ``claims``.

    PreFilter creates the state, Filter adds the claims to allocate, Reserve allocates them on the chosen node, and
    PreBind writes them. Score and PostFilter only read it; Unreserve drops what is pending.
    """

    claims: list[ResourceClaim] = field(default_factory=list)
    #: The index of the extended resource claim; None if the pod needs none.
    extended_index: int | None = None
    #: The claims with a pending allocation that pods of the same group share. Those that another pod has allocated are
    #: in ``claims`` as if that had been written.
    shared: set[int] = field(default_factory=set)
    #: The groups whose pods share allocations before these are written.
    sharing_groups: frozenset[Hashable] = frozenset()
    #: The groups of the claims (by uid) that are reserved for a group instead of the pod.
    groups: dict[str, PodGroup] = field(default_factory=dict)

    # Set by Filter.
    # Nodes differ in the extended resources that they lack, the keys of the next two; without such resources ().
    extended_claims: dict[tuple[str, ...], ExtendedResourceClaim] = field(default_factory=dict)
    claims_to_allocate: dict[tuple[str, ...], ClaimsToAllocate] = field(default_factory=dict)
    #: Allocated claims that are not available on some node.
    unavailable_claims: set[int] = field(default_factory=set)

    # Set by Reserve.
    extended_claim: ExtendedResourceClaim | None = None
    allocations: dict[int, AllocationResult] = field(default_factory=dict)
    #: The uids of the claims with a pending allocation in the ledger.
    pending_allocations: list[str] = field(default_factory=list)

    #: So many of the first claims were ready for binding when PreBind looked at them.
    ready_claims: int = 0

    # Set by PreBind and Unreserve.
    #: The index and the uid of the claim that PreBind is writing.
    writing: tuple[int, str] | None = None
    #: The uid of the claim that PreBind was writing at Unreserve; it is released when the write has ended.
    release_after_write: str | None = None

    @property
    def unallocated(self) -> list[int]:
        """The claims without an allocation."""
        return [index for index, claim in enumerate(self.claims) if claim.status.allocation is None]


class ClaimNotUsable(Exception):
    """A claim of a pod does not exist, is being deleted, or belongs to another pod; the text says which claim.

    ``former`` is the text before :attr:`Behaviour.CLAIM_OWNER_IS_CAPITALIZED`.
    """

    def __init__(self, text: str, *, former: str = "") -> None:
        super().__init__(text)
        self.former = former or text


class ClaimLookup:
    """Finds the claims of pods. ``pod_groups`` are those that may have claims of their own; None if none may."""

    def __init__(self, tracker: ResourceClaimTracker, pod_groups: Catalog[PodGroup] | None = None) -> None:
        self.tracker, self._pod_groups = tracker, pod_groups

    def group_of(self, pod: PodInfo, reference: PodResourceClaim) -> PodGroup | None:
        """The pod group whose claim an entry of ``spec.resourceClaims`` is about; None if it is the pod's own."""
        name = None if self._pod_groups is None else KUBERNETES.group_of(pod.pod)
        if self._pod_groups is None or not name:
            return None
        group = self._pod_groups.get(pod.namespace, name)
        return group if group is not None and reference in group.spec.resource_claims else None

    def claims_of(self, pod: PodInfo) -> list[ResourceClaim]:
        """The claims in ``spec.resourceClaims``, in this order. Raises ClaimNotUsable."""
        generated = _generated_names(pod)
        claims = (self.usable_claim(pod, reference, generated) for reference in pod.spec.resource_claims)
        return [claim for claim in claims if claim is not None]

    def group_claims(self, pod: PodInfo) -> dict[str, PodGroup]:
        """The groups of the claims (by uid) that pods of a group share as that group's. Raises ClaimNotUsable."""
        found: dict[str, PodGroup] = {}
        for reference in pod.spec.resource_claims if self._pod_groups is not None else ():
            group = self.group_of(pod, reference)
            claim = None if group is None else self.usable_claim(pod, reference, {})
            if group is not None and claim is not None:
                found[claim.metadata.uid] = group
        return found

    def usable_claim(
        self, pod: PodInfo, reference: PodResourceClaim, generated: Mapping[str, str | None]
    ) -> ResourceClaim | None:
        """The claim of one entry of ``spec.resourceClaims``; None if the pod needs none for it. Raises ClaimNotUsable.

        ``generated`` are the names of the claims that were generated for the pod.
        """
        group = self.group_of(pod, reference)
        name = _claim_name(pod, reference, generated) if group is None else _group_claim_name(group, reference)
        if name is None:
            return None
        claim = self.tracker.get(pod.namespace, name)
        if claim is None:
            raise ClaimNotUsable(f'could not find ResourceClaim "{pod.namespace}/{name}"')
        if claim.metadata.deletion_timestamp is not None:
            raise ClaimNotUsable(f'resourceclaim "{name}" is being deleted')
        owner = claim.metadata.controller
        if reference.resource_claim_name is not None:
            return claim
        if group is not None and (owner is None or owner.uid != group.metadata.uid):
            of_group = f"PodGroup {group.metadata.namespace}/{group.metadata.name} (PodGroup is not owner)"
            raise ClaimNotUsable(f"ResourceClaim {claim.key} was not created for {of_group}")
        if group is None and (owner is None or owner.uid != pod.uid):
            raise ClaimNotUsable(
                f"ResourceClaim {claim.key} was not created for Pod {pod.key} (Pod is not owner)",
                former=f"ResourceClaim {claim.key} was not created for pod {pod.key} (pod is not owner)",
            )
        return claim


def _group_claim_name(group: PodGroup, reference: PodResourceClaim) -> str | None:
    """The name of a group's claim; None if the group needs none for this entry. Raises ClaimNotUsable."""
    if reference.resource_claim_name is not None:
        return reference.resource_claim_name
    for status in group.status.resource_claim_statuses:
        if status.name == reference.name:
            return status.resource_claim_name
    key = f"{group.metadata.namespace}/{group.metadata.name}"
    raise ClaimNotUsable(f'pod group "{key}": ResourceClaim not created yet')


def claim_names(pod: PodInfo) -> Iterator[str]:
    """The names of the claims in ``spec.resourceClaims``, as far as they are known."""
    generated = _generated_names(pod)
    for reference in pod.spec.resource_claims:
        try:
            name = _claim_name(pod, reference, generated)
        except ClaimNotUsable:
            continue
        if name is not None:
            yield name


class ClaimUsability:
    """Whether the claims of pending pods are all usable, with one look-up as long as the same claim is not."""

    def __init__(self, lookup: ClaimLookup) -> None:
        self._lookup = lookup
        self._by_uid: BoundedCache[str, _KnownClaims] = BoundedCache(_KEPT_NAMES)

    def are_usable(self, pod: PodInfo) -> bool:
        """Whether all claims of a pod are usable."""
        references = pod.spec.resource_claims
        known = self._by_uid.get(pod.uid)
        if known is None or known.pod is not pod:
            known = self._by_uid.put(pod.uid, _KnownClaims(pod, _generated_names(pod)), cost=1 + len(references))
        for position in chain(range(known.unusable, len(references)), range(known.unusable)):
            try:
                self._lookup.usable_claim(pod, references[position], known.generated)
            except ClaimNotUsable:
                known.unusable = position
                return False
        return True


@dataclass(slots=True)
class _KnownClaims:
    """What is known about a pod's claims: those generated for it, and the position of one that was not usable."""

    pod: PodInfo
    generated: Mapping[str, str | None]
    unusable: int = 0


def _generated_names(pod: PodInfo) -> dict[str, str | None]:
    """The names of the claims generated from templates by the name of the entry; None for an entry without a claim."""
    # The first status of an entry prevails.
    return {status.name: status.resource_claim_name for status in reversed(pod.status.resource_claim_statuses)}


def _claim_name(pod: PodInfo, reference: PodResourceClaim, generated: Mapping[str, str | None]) -> str | None:
    """The name of the claim; None if the pod needs no claim for this entry."""
    if reference.resource_claim_name is not None:
        return reference.resource_claim_name
    if reference.resource_claim_template_name is None:
        problem = "none of the supported fields are set"
        raise ClaimNotUsable(f'pod "{pod.key}", spec.resourceClaim "{reference.name}": {problem}')
    if reference.name not in generated:
        raise ClaimNotUsable(f'pod "{pod.key}": ResourceClaim not created yet')
    return generated[reference.name]


class ClaimFilter:
    """Filters nodes by a pod's claims. ``max_steps`` bounds the search for devices per node; None for no bound."""

    def __init__(
        self, handle: Handle, features: Features, *, max_steps: int | None, binding_timeout: timedelta
    ) -> None:
        self._handle = handle
        self._features = features
        self._binding_timeout = binding_timeout
        classes = handle.cluster.catalog(DeviceClass)
        self._extended_resources = extended_resources(classes, features.emulates)
        self._slices: Slices = handle.cluster.catalog(ResourceSlice)
        if features.taint_rules:
            self._slices = TaintedSlices(handle, features)
        self._pools = device_pools(self._slices, handle.cluster.nodes, features)
        self._allocator = Allocator(handle.cluster.resource_claims, classes, features, max_steps=max_steps)

    def verdict(self, state: DynamicResourcesState, pod: PodInfo, nodes: Nodes) -> Verdict:
        """The verdict on nodes. Records the claims to allocate and unavailable claims in ``state``."""
        try:
            by_node = self._pools.by_node() if state.unallocated else None
        except NodeSelectionError as error:
            return Verdict.of(np.ones(len(nodes), np.int32), {1: Status.error(str(error))})
        if state.extended_index is not None and state.claims[state.extended_index].spec.devices.requests:
            return Verdict.of(np.ones(len(nodes), np.int32), {1: _STALE_EXTENDED_CLAIM})
        keys = np.zeros(len(nodes), np.int32)
        has_claims_in_spec = len(state.claims) > (state.extended_index is not None)
        failed_at, failure = len(nodes), SUCCESS
        for positions, resources in self._by_backed_resources(state, pod, nodes):
            if resources is None:
                keys[positions] = _CANNOT_FIT_KEY
            elif by_node is not None and (resources or has_claims_in_spec):
                to_allocate = self._to_allocate(state, pod, resources, by_node)
                keys[positions], failed, problem = self._search(to_allocate, nodes.row_numbers[positions], by_node)
                if failed < len(positions) and positions[failed] < failed_at:
                    failed_at, failure = int(positions[failed]), problem
        statuses = dict(_KEYS)
        if not failure.ok:  # an error fails the cycle: the other nodes are irrelevant
            keys[failed_at:] = statuses[failure] = _FAILED_KEY
        self._reject_unavailable(state, nodes, keys, statuses)
        return Verdict.of(keys, {key: status for status, key in statuses.items()})

    def _by_backed_resources(
        self, state: DynamicResourcesState, pod: PodInfo, nodes: Nodes
    ) -> Iterator[tuple[NDArray[np.intp], tuple[str, ...] | None]]:
        """The extended resources of a pod that need devices, each time with the nodes (positions, intp) that lack them.

        None for the nodes that lack a resource without devices.
        """
        if state.extended_index is None:
            yield np.arange(len(nodes)), ()
            return
        numbers, backed = self._extended_resources.backed_by_devices(nodes, pod)
        for number, resources in enumerate(backed):
            yield np.flatnonzero(numbers == number), resources

    def _to_allocate(
        self, state: DynamicResourcesState, pod: PodInfo, resources: tuple[str, ...], by_node: DevicesByNode
    ) -> ClaimsToAllocate:
        """The unallocated claims, on nodes on which some extended resources need devices."""
        self._allocator.device_states(by_node)  # what is prepared holds for a numbering of the states
        claims = [state.claims[index] for index in state.unallocated if index != state.extended_index]
        claim = None if state.extended_index is None else state.claims[state.extended_index]
        if claim is not None and claim.status.allocation is None:
            # QUIRK (semantics 8.16): a pod with claims of its own gets an extended resource claim without requests on a
            # node that offers all its resources, and PreBind fails.
            if resources not in state.extended_claims:
                state.extended_claims[resources] = self._extended_resources.with_requests(claim, pod, resources)
            claims.append(state.extended_claims[resources].claim)
        to_allocate = self._allocator.prepare(claims, slices_version=self._slices.version)
        state.claims_to_allocate[resources] = to_allocate
        return to_allocate

    def _search(
        self, to_allocate: ClaimsToAllocate, rows: NDArray[np.intp], by_node: DevicesByNode
    ) -> tuple[NDArray[np.int32], int, Status]:
        """The keys of rows, searching once per state of devices; with the position and status of the first error."""
        states = self._allocator.device_states(by_node)[by_node.positions[rows]]
        known = self._allocator.outcomes(to_allocate, states)
        failed_at, failure = len(rows), SUCCESS
        unknown = np.flatnonzero(known == Outcome.UNKNOWN)
        if len(unknown):
            # An error fails the cycle, so the states are searched in the order of the nodes.
            for position in unknown[np.sort(np.unique(states[unknown], return_index=True)[1])].tolist():
                row = int(rows[position])
                try:
                    self._allocator.determine(to_allocate, by_node.of_row(row), int(states[position]))
                except (AllocationError, SelectorError) as error:
                    name = self._handle.cluster.nodes.names[row]
                    text = f"node {name}: {error}" if isinstance(error, AllocationTimeout) else str(error)
                    failed_at, failure = position, Status.error(text)
                    break
            known = self._allocator.outcomes(to_allocate, states)
        keys = known.astype(np.int32)
        keys[keys == Outcome.SOLVED] = 0
        return keys, failed_at, failure

    def _reject_unavailable(
        self, state: DynamicResourcesState, nodes: Nodes, keys: NDArray[np.int32], statuses: dict[Status, int]
    ) -> None:
        """Reject the nodes on which an allocated claim is not available, of those with devices for the others."""
        allocatable = keys == 0
        for index, claim in enumerate(state.claims):
            allocation = claim.status.allocation
            if allocation is None:
                continue
            unavailable = allocatable
            if not self._has_binding_failed(claim):
                if allocation.node_selector is None:
                    continue
                unavailable = allocatable & ~matching_nodes(allocation.node_selector, nodes)
            if unavailable.any():
                state.unavailable_claims.add(index)
                keys[unavailable] = statuses.setdefault(_NOT_AVAILABLE, max(statuses.values(), default=0) + 1)

    def _has_binding_failed(self, claim: ResourceClaim) -> bool:
        """Whether the binding conditions of a claim have failed or timed out."""
        if not self._features.binding_conditions or not has_binding_conditions(claim):
            return False
        try:
            deadline = binding_deadline(claim, self._binding_timeout)
            return not is_ready_for_binding(claim) and deadline is not None and deadline < self._handle.now()
        except DeviceBindingFailed:
            return True

    # -- results for Score and Reserve -----------------------------------------------------------------------------

    def allocation_on(self, state: DynamicResourcesState, pod: PodInfo, node_name: str) -> NodeAllocation | None:
        """The devices for a pod's unallocated claims on a node that passed the filter; None without any.

        Raises AllocationError, SelectorError or NodeSelectionError.
        """
        table = self._handle.cluster.nodes
        row = table.rows.get(node_name)
        if row is None:
            return None
        ((_, resources),) = self._by_backed_resources(state, pod, Nodes(table, slice(row, row + 1)))
        to_allocate = None if resources is None else state.claims_to_allocate.get(resources)
        if resources is None or to_allocate is None:
            return None
        solution = self._solution_on(to_allocate.claims, row)
        if solution is None:
            return None
        return NodeAllocation(to_allocate.claims, solution, state.extended_claims.get(resources))

    def _solution_on(self, claims: Sequence[ResourceClaim], row: int) -> Solution | None:
        """Devices for claims on the node of a row. Raises AllocationError, SelectorError or NodeSelectionError."""
        by_node = self._pools.by_node()
        states = self._allocator.device_states(by_node)  # what is prepared holds for a numbering of the states
        to_allocate = self._allocator.prepare(claims, slices_version=self._slices.version)
        return self._allocator.allocate(to_allocate, by_node.of_row(row), int(states[by_node.positions[row]]))

    # -- trials ----------------------------------------------------------------------------------------------------

    def devices_by_node(self) -> DevicesByNode:
        """The devices that each node can access. Raises NodeSelectionError."""
        return self._pools.by_node()

    def device_states(self, by_node: DevicesByNode) -> NDArray[np.intp]:
        """Equal for entries of ``by_node.devices`` on which the same claims get the same devices, intp."""
        return self._allocator.device_states(by_node)

    def claims_by_node(
        self, state: DynamicResourcesState, pod: PodInfo, nodes: Nodes
    ) -> Iterator[tuple[NDArray[np.intp], Sequence[ResourceClaim] | None]]:
        """The claims that a pod needs devices for, each time with the nodes (positions, intp) on which it does.

        They differ by the extended resources that the nodes lack. None for nodes on which the pod cannot be.
        """
        index = state.extended_index
        extended = None if index is None else state.claims[index]
        in_spec = [state.claims[number] for number in state.unallocated if number != index]
        for positions, resources in self._by_backed_resources(state, pod, nodes):
            if resources is None or (extended is not None and extended.spec.devices.requests):
                yield positions, None
            elif extended is None or extended.status.allocation is not None or not resources:
                yield positions, in_spec
            else:
                claim = self._extended_resources.with_requests(extended, pod, resources).claim
                yield positions, [*in_spec, claim]

    def allocate_on(self, claims: Sequence[ResourceClaim], row: int) -> list[AllocationResult] | None:
        """The allocations that claims get together on the node of a row; None if there are none."""
        try:
            solution = self._solution_on(claims, row)
            if solution is None:
                return None
            return solution.allocation_results(claims, self._handle.cluster.nodes.names[row], self._features)
        except (AllocationError, NodeSelectionError, SelectorError):
            return None

    def suitable_devices(self, claim: ResourceClaim, devices: AccessibleDevices) -> list[SuitableDevices]:
        """The devices that suit each request of a claim; none at all if the claim cannot be allocated there."""
        return self._allocator.suitable_devices(claim, devices)

    def what_is_left(self, candidate: CandidateDevice) -> DeviceLeft:
        """What is left of a device."""
        return self._allocator.what_is_left(candidate)

    def sum_over_claims(
        self, state: DynamicResourcesState, pod: PodInfo, nodes: Nodes, score: Callable[[ResourceClaim, set[str]], int]
    ) -> dict[int, int]:
        """``score`` of each unallocated claim and the names of its allocated requests, summed, by position in a view.

        Nodes without an allocation are left out.
        """
        sums: dict[int, int] = {}
        for positions, resources in self._by_backed_resources(state, pod, nodes):
            to_allocate = None if resources is None else state.claims_to_allocate.get(resources)
            if to_allocate is None:
                continue
            claims, known = to_allocate.claims, to_allocate.results.solutions
            by_node = self._pools.by_node()
            entries = by_node.positions[nodes.row_numbers[positions]]
            states = self._allocator.device_states(by_node)[entries].tolist()
            totals = {
                each: sum(map(score, claims, known[each].allocated_requests)) for each in set(states) if each in known
            }
            of_states = zip(positions.tolist(), states, strict=True)
            sums |= {position: totals[each] for position, each in of_states if each in totals}
        return sums


# -- binding conditions ------------------------------------------------------------------------------------------


class DeviceBindingFailed(Exception):
    """A binding failure condition of a device is true; the text names the claim, the reason and the message.

    ``former`` is the text before :attr:`Behaviour.DEVICE_BINDING_ERRORS_NAME_THE_CLAIM_LAST`.
    """

    def __init__(self, claim: str, reason: str, message: str) -> None:
        super().__init__(f'device binding failed: claim={claim}, reason={reason}, message="{message}"')
        self.former = f'claim {claim} binding failed: reason={reason}, message="{message}"'


def has_binding_conditions(claim: ResourceClaim) -> bool:
    """Whether any allocated device has binding conditions."""
    allocation = claim.status.allocation
    return allocation is not None and any(result.binding_conditions for result in allocation.devices.results)


def drivers_with_binding_conditions(claims: Iterable[ResourceClaim]) -> list[str]:
    """The drivers of all allocated devices with binding conditions, sorted, without duplicates."""
    allocations = [claim.status.allocation for claim in claims if claim.status.allocation is not None]
    results = [result for allocation in allocations for result in allocation.devices.results]
    return sorted({result.driver for result in results if result.binding_conditions})


def is_ready_for_binding(claim: ResourceClaim) -> bool:
    """Whether all binding conditions of an allocated claim are true. Raises DeviceBindingFailed."""
    allocation = claim.status.allocation
    if allocation is None:
        return False
    for result in allocation.devices.results:
        if not result.binding_conditions:
            continue
        identity = (result.driver, result.pool, result.device)
        status = next((s for s in claim.status.devices if (s.driver, s.pool, s.device) == identity), None)
        if status is None:
            return False
        true = [condition for condition in status.conditions if condition.status == "True"]
        for condition in true:
            if condition.type in result.binding_failure_conditions:
                raise DeviceBindingFailed(claim.metadata.name, condition.reason, condition.message)
        if not {condition.type for condition in true}.issuperset(result.binding_conditions):
            return False
    return True


def binding_deadline(claim: ResourceClaim, timeout: timedelta) -> datetime | None:
    """The allocation timestamp plus ``timeout``; None for a claim without binding conditions or timestamp."""
    allocation = claim.status.allocation
    if allocation is None or allocation.allocation_timestamp is None or not has_binding_conditions(claim):
        return None
    try:
        return allocation.allocation_timestamp + timeout
    except OverflowError:  # after the year 9999
        return datetime.max.replace(tzinfo=UTC)
