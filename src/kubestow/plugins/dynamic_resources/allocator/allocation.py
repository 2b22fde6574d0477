"""From chosen devices to the allocation that is written into a claim: results, configuration, nodes."""

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
from kubestow.plugins.dynamic_resources.allocator.requests import AllocationError, ClaimDemand, Demand
from kubestow.plugins.dynamic_resources.allocator.search import Chosen
from kubestow.plugins.dynamic_resources.features import Features
from kubestow.plugins.dynamic_resources.inventory.devices import PooledDevice

__all__ = ["allocation"]


def allocation(
    claim: ResourceClaim, demand: ClaimDemand, chosen: Sequence[Chosen], node_name: str, *, features: Features
) -> AllocationResult:
    """A claim's allocation on a node, from devices that were chosen for it or for one that asks for the same.

    Raises AllocationError for a slice that is offered in an unknown way.
    """
    return AllocationResult(
        devices=DeviceAllocationResult(
            results=[_result(claim, number, choice, features) for number, choice in enumerate(chosen)],
            config=list(_configuration(demand, chosen)),
        ),
        node_selector=_node_selector(claim, [choice.device for choice in chosen], node_name),
    )


def _result(claim: ResourceClaim, number: int, choice: Chosen, features: Features) -> DeviceRequestAllocationResult:
    device, demand = choice.device, choice.demand
    conditions = features.binding_conditions
    return DeviceRequestAllocationResult(
        request=demand.name,
        driver=device.id.driver,
        pool=device.id.pool,
        device=device.id.device,
        admin_access=True if demand.has_admin_access else None,
        tolerations=demand.selection.tolerations,
        binding_conditions=device.device.binding_conditions if conditions else [],
        binding_failure_conditions=device.device.binding_failure_conditions if conditions else [],
        share_id=None if choice.consumed is None else _share_id(claim, number, device),
        consumed_capacity=dict(choice.consumed or {}),
    )


def _share_id(claim: ResourceClaim, number: int, device: PooledDevice) -> str:
    """Tells the shares of a device apart: claims are distinct, and so are the results of one."""
    return str(uuid5(NAMESPACE_OID, f"{claim.metadata.uid}/{number}/{device.id}"))


def _configuration(demand: ClaimDemand, chosen: Sequence[Chosen]) -> Iterator[DeviceAllocationConfiguration]:
    """Of each class once, then of the claim. One that is for all requests names none."""
    selected = _selected(demand, chosen)
    by_class: dict[str, list[Demand]] = {}
    for one in selected:
        by_class.setdefault(one.device_class.metadata.name, []).append(one)
    for users in by_class.values():
        for config in users[0].device_class.spec.config:
            names = [user.name for user in users]
            yield _configured("FromClass", names if len(names) < len(selected) else [], config.opaque)
    for config in demand.claim.spec.devices.config:
        users = [one for one in selected if one.request in config.requests or one.name in config.requests]
        names = config.requests if len(config.requests) != len(selected) else []
        for _ in users if config.requests else [None]:
            yield _configured("FromClaim", names, config.opaque)


def _configured(source: str, requests: list[str], opaque: dict[str, object] | None) -> DeviceAllocationConfiguration:
    return DeviceAllocationConfiguration(source=source, requests=requests, opaque=opaque)


def _selected(demand: ClaimDemand, chosen: Sequence[Chosen]) -> list[Demand]:
    """What became of each request: itself, or the alternative that was taken."""
    taken = {choice.demand.request: choice.demand for choice in chosen}
    return [taken.get(alternatives[0].request, alternatives[0]) for alternatives in demand.requests]


# -- nodes -------------------------------------------------------------------------------------------------------------


def _node_selector(claim: ResourceClaim, devices: Sequence[PooledDevice], node_name: str) -> NodeSelector | None:
    """The nodes that reach all devices; None means all nodes."""
    term = NodeSelectorTerm(match_expressions=[], match_fields=[])
    for device in devices:
        spec = device.slice.spec
        offered = device.device if spec.per_device_node_selection else spec
        if offered.node_name or device.device.binds_to_node:
            only = NodeSelectorRequirement(key="metadata.name", operator="In", values=[node_name])
            return NodeSelector(node_selector_terms=[NodeSelectorTerm(match_fields=[only])])
        terms = offered.node_selector.node_selector_terms if offered.node_selector is not None else []
        if len(terms) > 1:
            problem = f"unsupported ResourceSlice.NodeSelector with {len(terms)} terms"
            raise AllocationError(f"create NodeSelector for claim {claim.metadata.name}: {problem}")
        for one in terms:
            _add_missing(term.match_fields, one.match_fields)
            _add_missing(term.match_expressions, one.match_expressions)
    return NodeSelector(node_selector_terms=[term]) if term.match_fields or term.match_expressions else None


def _add_missing(to: list[NodeSelectorRequirement], requirements: Sequence[NodeSelectorRequirement]) -> None:
    for requirement in requirements:
        if not any(_says_the_same(requirement, known) for known in to):
            to.append(requirement)


def _says_the_same(one: NodeSelectorRequirement, other: NodeSelectorRequirement) -> bool:
    return (one.key, one.operator, set(one.values)) == (other.key, other.operator, set(other.values))
