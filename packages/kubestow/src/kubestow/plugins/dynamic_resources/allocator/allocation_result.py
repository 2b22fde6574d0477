"""Builds the allocation result of a claim from the chosen devices: results, configuration, node selector.

The search does not depend on claim names and uids, so its result serves all claims with the same spec; what is specific
to a claim and a node is added here, when the pod is reserved.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from uuid import NAMESPACE_OID, uuid5

from kubestow.api.core import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from kubestow.api.resource import (
    AllocationResult,
    DeviceAllocationConfiguration,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaim,
)
from kubestow.plugins.dynamic_resources.allocator.requests import AllocationError, ResolvedClaim, ResolvedRequest
from kubestow.plugins.dynamic_resources.allocator.search import DeviceResult
from kubestow.plugins.dynamic_resources.features import Features
from kubestow.plugins.dynamic_resources.inventory.devices import PooledDevice

__all__ = ["allocation_result"]


def allocation_result(
    claim: ResourceClaim,
    resolved: ResolvedClaim,
    results: Sequence[DeviceResult],
    node_name: str,
    *,
    features: Features,
) -> AllocationResult:
    """The allocation of a claim on a node.

    ``resolved`` and ``results`` may be those of another claim with the same spec. Raises AllocationError if the node
    selectors of the devices cannot be merged.
    """
    return AllocationResult(
        devices=DeviceAllocationResult(
            results=[_result(claim, number, result, features) for number, result in enumerate(results)],
            config=list(_configuration(resolved, results)),
        ),
        node_selector=_node_selector(claim, [result.device for result in results], node_name),
    )


def _result(
    claim: ResourceClaim, number: int, result: DeviceResult, features: Features
) -> DeviceRequestAllocationResult:
    device, request = result.device, result.request
    conditions = features.binding_conditions
    return DeviceRequestAllocationResult(
        request=request.result_name,
        driver=device.id.driver,
        pool=device.id.pool,
        device=device.id.device,
        admin_access=True if request.has_admin_access else None,
        tolerations=request.selection.tolerations,
        binding_conditions=device.device.binding_conditions if conditions else [],
        binding_failure_conditions=device.device.binding_failure_conditions if conditions else [],
        share_id=None if result.consumed_capacity is None else _share_id(claim, number, device),
        consumed_capacity=dict(result.consumed_capacity or {}),
    )


def _share_id(claim: ResourceClaim, number: int, device: PooledDevice) -> str:
    """Deterministic, and unique because claim uids are unique and ``number`` is unique within the claim."""
    return str(uuid5(NAMESPACE_OID, f"{claim.metadata.uid}/{number}/{device.id}"))


# -- configuration -------------------------------------------------------------------------------------------------


def _configuration(resolved: ResolvedClaim, results: Sequence[DeviceResult]) -> Iterator[DeviceAllocationConfiguration]:
    """The configuration of each class, then that of the claim. An entry for all requests names none."""
    requests = _effective_requests(resolved, results)
    by_class: dict[str, list[ResolvedRequest]] = {}
    for request in requests:
        by_class.setdefault(request.device_class.metadata.name, []).append(request)
    for users in by_class.values():
        for config in users[0].device_class.spec.config:
            names = [user.result_name for user in users]
            yield DeviceAllocationConfiguration(
                source="FromClass", requests=names if len(names) < len(requests) else [], opaque=config.opaque
            )
    for config in resolved.claim.spec.devices.config:
        users = [user for user in requests if user.request in config.requests or user.result_name in config.requests]
        names = config.requests if len(config.requests) != len(requests) else []
        for _ in users if config.requests else [None]:
            yield DeviceAllocationConfiguration(source="FromClaim", requests=names, opaque=config.opaque)


def _effective_requests(resolved: ResolvedClaim, results: Sequence[DeviceResult]) -> list[ResolvedRequest]:
    """Each request, or the subrequest that was chosen for it."""
    chosen = {result.request.request: result.request for result in results}
    return [chosen.get(subrequests[0].request, subrequests[0]) for subrequests in resolved.requests]


# -- node selector -------------------------------------------------------------------------------------------------


def _node_selector(claim: ResourceClaim, devices: Sequence[PooledDevice], node_name: str) -> NodeSelector | None:
    """The nodes that can access all devices; None for all nodes."""
    merged = NodeSelectorTerm(match_expressions=[], match_fields=[])
    for device in devices:
        spec = device.slice.spec
        source = device.device if spec.per_device_node_selection else spec
        if source.node_name or device.device.binds_to_node:
            by_name = NodeSelectorRequirement(key="metadata.name", operator="In", values=[node_name])
            return NodeSelector(node_selector_terms=[NodeSelectorTerm(match_fields=[by_name])])
        terms = source.node_selector.node_selector_terms if source.node_selector is not None else []
        if len(terms) > 1:
            problem = f"unsupported ResourceSlice.NodeSelector with {len(terms)} terms"
            raise AllocationError(f"create NodeSelector for claim {claim.metadata.name}: {problem}")
        for term in terms:
            _add_missing(merged.match_fields, term.match_fields)
            _add_missing(merged.match_expressions, term.match_expressions)
    return NodeSelector(node_selector_terms=[merged]) if merged.match_fields or merged.match_expressions else None


def _add_missing(merged: list[NodeSelectorRequirement], requirements: Sequence[NodeSelectorRequirement]) -> None:
    for requirement in requirements:
        if not any(_are_equal(requirement, other) for other in merged):
            merged.append(requirement)


def _are_equal(one: NodeSelectorRequirement, other: NodeSelectorRequirement) -> bool:
    return (one.key, one.operator, set(one.values)) == (other.key, other.operator, set(other.values))
