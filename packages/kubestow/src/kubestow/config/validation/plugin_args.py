"""Validation of the arguments of the in-tree plugins (semantics 2.5).

One function per plugin, with kube-scheduler's messages and field paths.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from kubestow.api.formats.duration import Duration
from kubestow.api.formats.names import qualified_name_errors
from kubestow.config.feature_gates import FeatureGates
from kubestow.config.field_errors import FieldError, child, duplicate, forbidden, invalid, required, unsupported
from kubestow.config.plugin_args import (
    DefaultPreemptionArgs,
    DynamicResourcesArgs,
    InterPodAffinityArgs,
    NodeAffinityArgs,
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
    PluginArgs,
    PodTopologySpreadArgs,
    ResourceSpec,
    ScoringStrategy,
    UtilizationShapePoint,
    VolumeBindingArgs,
)
from kubestow.config.validation.node_affinity import preferred_term_errors, selector_errors

__all__ = ["args_errors", "node_resources_fit_errors"]

_STRATEGIES = ("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio")
_DEFAULTING_TYPES = ("System", "List")
_WHEN_UNSATISFIABLE = ("DoNotSchedule", "ScheduleAnyway")


def args_errors(args: PluginArgs, gates: FeatureGates, path: str) -> list[FieldError]:
    """The errors of a plugin's arguments that kube-scheduler reports when it loads the file.

    The arguments of NodeResourcesFit are validated later, when a profile is built (:func:`node_resources_fit_errors`).
    """
    rule = _RULES.get(type(args))
    return list(rule(args, gates, path)) if rule else []


def node_resources_fit_errors(args: NodeResourcesFitArgs, path: str) -> Iterator[FieldError]:
    """The errors of NodeResourcesFit's arguments."""
    for index, name in enumerate(args.ignored_resources):
        yield from _name_errors(f"{child(path, 'ignoredResources')}[{index}]", name)
    for index, group in enumerate(args.ignored_resource_groups):
        field_path = f"{child(path, 'ignoredResourceGroups')}[{index}]"
        if "/" in group:
            yield invalid(field_path, group, "resource group name can't contain '/'")
        yield from _name_errors(field_path, group)
    yield from _strategy_errors(args.scoring_strategy, child(path, "scoringStrategy"))


def _name_errors(path: str, name: str) -> Iterator[FieldError]:
    for error in qualified_name_errors(name):
        yield invalid(path, name, error)


def _strategy_errors(strategy: ScoringStrategy, path: str) -> Iterator[FieldError]:
    if strategy.type not in _STRATEGIES:
        yield unsupported(f"{path}.type", strategy.type, _STRATEGIES)
    for index, resource in enumerate(strategy.resources):
        if not 0 < resource.weight <= 100:
            detail = f"resource weight of {resource.name} not in valid range (0, 100]"
            yield invalid(f"{path}.resources[{index}].weight", resource.weight, detail)
    ratio, field_path = strategy.requested_to_capacity_ratio, f"{path}.requestedToCapacityRatio"
    if strategy.type == "RequestedToCapacityRatio":
        if ratio is None:
            yield required(field_path, "must be specified when type is RequestedToCapacityRatio")
        else:
            yield from _shape_errors(ratio.shape, f"{field_path}.shape")
    elif ratio is not None:
        yield forbidden(field_path, "must be nil when type is not RequestedToCapacityRatio")


def _shape_errors(shape: tuple[UtilizationShapePoint, ...], path: str) -> Iterator[FieldError]:
    if not shape:
        yield required(path, "at least one point must be specified")
    unsorted = (i for i in range(1, len(shape)) if shape[i - 1].utilization >= shape[i].utilization)
    for index in unsorted:
        field_path = f"{path}[{index}].utilization"
        yield invalid(field_path, shape[index].utilization, "values must be sorted in increasing order")
        break
    for index, point in enumerate(shape):
        if not 0 <= point.utilization <= 100:
            yield invalid(f"{path}[{index}].utilization", point.utilization, "not in valid range [0, 100]")
        if not 0 <= point.score <= 10:
            yield invalid(f"{path}[{index}].score", point.score, "not in valid range [0, 10]")


def _default_preemption(args: DefaultPreemptionArgs, gates: FeatureGates, path: str) -> Iterator[FieldError]:
    percentage, percentage_path = args.min_candidate_nodes_percentage, f"{path}.minCandidateNodesPercentage"
    absolute, absolute_path = args.min_candidate_nodes_absolute, f"{path}.minCandidateNodesAbsolute"
    if not 0 <= percentage <= 100:
        yield invalid(percentage_path, percentage, "not in valid range [0, 100]")
    if absolute < 0:
        yield invalid(absolute_path, absolute, "not in valid range [0, inf)")
    if percentage == absolute == 0:
        yield invalid(percentage_path, 0, "cannot be zero at the same time as minCandidateNodesAbsolute")
        yield invalid(absolute_path, 0, "cannot be zero at the same time as minCandidateNodesPercentage")


def _inter_pod_affinity(args: InterPodAffinityArgs, gates: FeatureGates, path: str) -> Iterator[FieldError]:
    weight = args.hard_pod_affinity_weight
    if not 0 <= weight <= 100:
        yield invalid(f"{path}.hardPodAffinityWeight", weight, "not in valid range [0, 100]")


def _node_affinity(args: NodeAffinityArgs, gates: FeatureGates, path: str) -> Iterator[FieldError]:
    affinity, field_path = args.added_affinity, f"{path}.addedAffinity"
    if affinity is None:
        return
    selector = affinity.required_during_scheduling_ignored_during_execution
    if selector is not None:
        yield from selector_errors(selector, f"{field_path}.requiredDuringSchedulingIgnoredDuringExecution")
    terms = affinity.preferred_during_scheduling_ignored_during_execution
    yield from preferred_term_errors(terms, f"{field_path}.preferredDuringSchedulingIgnoredDuringExecution")


def _balanced_allocation(
    args: NodeResourcesBalancedAllocationArgs, gates: FeatureGates, path: str
) -> Iterator[FieldError]:
    seen: set[str] = set()
    for index, resource in enumerate(args.resources):
        yield from _balanced_resource(resource, f"{path}.resources[{index}]", seen)
        seen.add(resource.name)


def _balanced_resource(resource: ResourceSpec, path: str, seen: set[str]) -> Iterator[FieldError]:
    if resource.name in seen:
        yield duplicate(f"{path}.name", resource.name)
    if resource.weight != 1:
        yield invalid(f"{path}.weight", resource.weight, "must be 1")


def _pod_topology_spread(args: PodTopologySpreadArgs, gates: FeatureGates, path: str) -> Iterator[FieldError]:
    if args.defaulting_type not in _DEFAULTING_TYPES:
        yield unsupported(f"{path}.defaultingType", args.defaulting_type, _DEFAULTING_TYPES)
    elif args.defaulting_type == "System" and args.default_constraints:
        yield invalid(f"{path}.defaultingType", "System", "when .defaultConstraints are not empty")
    seen: set[tuple[str, str]] = set()
    for index, constraint in enumerate(args.default_constraints):
        field_path = f"{path}.defaultConstraints[{index}]"
        if constraint.max_skew <= 0:
            yield invalid(f"{field_path}.maxSkew", constraint.max_skew, "not in valid range (0, inf)")
        if constraint.topology_key:
            yield from _name_errors(f"{field_path}.topologyKey", constraint.topology_key)
        else:
            yield required(f"{field_path}.topologyKey", "can not be empty")
        if not constraint.when_unsatisfiable:
            yield required(f"{field_path}.whenUnsatisfiable", "can not be empty")
        elif constraint.when_unsatisfiable not in _WHEN_UNSATISFIABLE:
            yield unsupported(f"{field_path}.whenUnsatisfiable", constraint.when_unsatisfiable, _WHEN_UNSATISFIABLE)
        if constraint.label_selector is not None:
            yield forbidden(
                f"{field_path}.labelSelector", "constraint must not define a selector, as they deduced for each pod"
            )
        identity = (constraint.topology_key, constraint.when_unsatisfiable)
        if identity in seen:
            yield duplicate(field_path, f"{{{identity[0]}, {identity[1]}}}")
        seen.add(identity)


def _volume_binding(args: VolumeBindingArgs, gates: FeatureGates, path: str) -> Iterator[FieldError]:
    if args.bind_timeout_seconds < 0:
        detail = "invalid BindTimeoutSeconds, should not be a negative value"
        yield invalid(f"{path}.bindTimeoutSeconds", args.bind_timeout_seconds, detail)
    if gates.enabled("StorageCapacityScoring"):
        yield from _shape_errors(args.shape or (), f"{path}.shape")
    elif args.shape is not None:
        detail = "unexpected field `shape`, remove it or turn on the feature gate StorageCapacityScoring"
        yield invalid(f"{path}.shape", args.shape, detail)


def _dynamic_resources(args: DynamicResourcesArgs, gates: FeatureGates, path: str) -> Iterator[FieldError]:
    timeout, field_path = args.filter_timeout, f"{path}.filterTimeout"
    if timeout is not None and not gates.enabled("DRASchedulerFilterTimeout"):
        yield forbidden(field_path, "DRASchedulingFilterTimeout feature gate is disabled")
    elif timeout is not None and timeout < Duration():
        yield invalid(field_path, timeout, "must be zero or positive")
    timeout, field_path = args.binding_timeout, f"{path}.bindingTimeout"
    supported = gates.enabled("DRADeviceBindingConditions") and gates.enabled("DRAResourceClaimDeviceStatus")
    if timeout is not None and not supported:
        yield forbidden(
            field_path, "DRADeviceBindingConditions or DRAResourceClaimDeviceStatus feature gate is disabled"
        )
    elif timeout is not None and timeout < Duration.of(seconds=1):
        yield invalid(field_path, timeout, "must be at least 1 second")


_RULES: Mapping[type[PluginArgs], Callable[[Any, FeatureGates, str], Iterator[FieldError]]] = MappingProxyType(
    {
        DefaultPreemptionArgs: _default_preemption,
        DynamicResourcesArgs: _dynamic_resources,
        InterPodAffinityArgs: _inter_pod_affinity,
        NodeAffinityArgs: _node_affinity,
        NodeResourcesBalancedAllocationArgs: _balanced_allocation,
        PodTopologySpreadArgs: _pod_topology_spread,
        VolumeBindingArgs: _volume_binding,
    }
)
