"""Validation of a complete configuration: its fields, plugin arguments and node affinities (semantics 2.1 to 2.6).

Every rule is checked and every error reported, in kube-scheduler's order. Whether plugins are registered and implement
their extension points is checked in :mod:`kubestow.config.expansion`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from kubestow.api.core import NodeSelectorRequirement, NodeSelectorTerm
from kubestow.api.formats.duration import Duration
from kubestow.api.formats.names import is_extended_resource, label_value_errors, qualified_name_errors
from kubestow.config.configuration import (
    API_VERSION,
    Extender,
    ExtensionPoint,
    KubeSchedulerConfiguration,
    KubeSchedulerProfile,
    LeaderElectionConfiguration,
    PluginSet,
)
from kubestow.config.feature_gates import FeatureGates, storage_capacity_gate
from kubestow.config.field_errors import FieldError, Wording, child, forbidden, required, unsupported
from kubestow.config.plugin_args import (
    DefaultPreemptionArgs,
    DynamicResourcesArgs,
    InterPodAffinityArgs,
    NodeAffinityArgs,
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
    PluginArgs,
    PodTopologySpreadArgs,
    ScoringStrategy,
    UtilizationShapePoint,
    VolumeBindingArgs,
)
from kubestow.errors import InvalidSelector
from kubestow.rules.matching import field_requirement
from kubestow.rules.minors import Behaviour, Minor

_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
_INT64 = range(-(2**63), 2**63)


def _term_errors(term: NodeSelectorTerm, wording: Wording, path: str) -> Iterator[FieldError]:
    for index, requirement in enumerate(term.match_expressions):
        yield from _expression_errors(requirement, wording, f"{path}.matchExpressions[{index}]")
    for index, requirement in enumerate(term.match_fields):
        try:
            field_requirement(requirement, f"{path}.matchFields[{index}]")
        except InvalidSelector as error:
            yield FieldError(error.path, error.problem)


def _expression_errors(requirement: NodeSelectorRequirement, wording: Wording, path: str) -> Iterator[FieldError]:
    if requirement.operator not in _OPERATORS:
        yield unsupported(f"{path}.operator", requirement.operator, _OPERATORS)
        return
    key_errors = wording.name_errors(qualified_name_errors(requirement.key))
    if key_errors:
        yield wording.invalid(f"{path}.key", requirement.key, "; ".join(key_errors))
    yield from _value_count_errors(requirement, wording, f"{path}.values")
    for index, value in enumerate(requirement.values):
        value_errors = wording.name_errors(label_value_errors(value))
        if value_errors:
            yield wording.invalid(f"{path}.values[{index}][{requirement.key}]", value, "; ".join(value_errors))


def _value_count_errors(requirement: NodeSelectorRequirement, wording: Wording, path: str) -> Iterator[FieldError]:
    values = requirement.values
    match requirement.operator:
        case "In" | "NotIn" if not values:
            yield wording.invalid(path, None, "for 'in', 'notin' operators, values set can't be empty")
        case "Exists" | "DoesNotExist" if values:
            yield wording.invalid(path, values, "values set must be empty for exists and does not exist")
        case "Gt" | "Lt":
            if len(values) != 1:
                yield wording.invalid(path, values or None, "for 'Gt', 'Lt' operators, exactly one value is required")
            for index, value in enumerate(values):
                if not re.fullmatch(r"[-+]?[0-9]+", value) or int(value) not in _INT64:
                    detail = "for 'Gt', 'Lt' operators, the value must be an integer"
                    yield wording.invalid(f"{path}[{index}]", value, detail)


_STRATEGIES = ("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio")
_DEFAULTING_TYPES = ("System", "List")
_WHEN_UNSATISFIABLE = ("DoNotSchedule", "ScheduleAnyway")


def node_resources_fit_errors(args: NodeResourcesFitArgs, minor: Minor, path: str) -> Iterator[FieldError]:
    """The errors of NodeResourcesFit's arguments in a minor version; they are validated when a profile is built."""
    wording = Wording(minor)
    for index, name in enumerate(args.ignored_resources):
        yield from _name_errors(name, wording, f"{child(path, 'ignoredResources')}[{index}]")
    for index, group in enumerate(args.ignored_resource_groups):
        field_path = f"{child(path, 'ignoredResourceGroups')}[{index}]"
        if "/" in group:
            yield wording.invalid(field_path, group, "resource group name can't contain '/'")
        yield from _name_errors(group, wording, field_path)
    yield from _strategy_errors(args.scoring_strategy, wording, child(path, "scoringStrategy"))


def _name_errors(name: str, wording: Wording, path: str) -> Iterator[FieldError]:
    for error in wording.name_errors(qualified_name_errors(name)):
        yield wording.invalid(path, name, error)


def _strategy_errors(strategy: ScoringStrategy, wording: Wording, path: str) -> Iterator[FieldError]:
    if strategy.type not in _STRATEGIES:
        yield unsupported(f"{path}.type", strategy.type, _STRATEGIES)
    for index, resource in enumerate(strategy.resources):
        if not 0 < resource.weight <= 100:
            detail = f"resource weight of {resource.name} not in valid range (0, 100]"
            yield wording.invalid(f"{path}.resources[{index}].weight", resource.weight, detail)
    ratio, field_path = strategy.requested_to_capacity_ratio, f"{path}.requestedToCapacityRatio"
    is_bound = wording.minor.has(Behaviour.CAPACITY_RATIO_IS_BOUND_TO_ITS_STRATEGY)
    if strategy.type == "RequestedToCapacityRatio" and ratio is None:
        # Without the behaviour kube-scheduler crashes when it builds the plugin.
        yield required(field_path, "must be specified when type is RequestedToCapacityRatio")
    elif ratio is not None and not is_bound:
        yield from _shape_errors(ratio.shape, wording, f"{path}.shape")
    elif ratio is not None and strategy.type == "RequestedToCapacityRatio":
        yield from _shape_errors(ratio.shape, wording, f"{field_path}.shape")
    elif ratio is not None:
        yield forbidden(field_path, "must be nil when type is not RequestedToCapacityRatio")


def _shape_errors(shape: tuple[UtilizationShapePoint, ...], wording: Wording, path: str) -> Iterator[FieldError]:
    if not shape:
        yield required(path, "at least one point must be specified")
    for index, (before, point) in enumerate(pairwise(shape), start=1):
        if before.utilization >= point.utilization:
            repeats = "" if wording.minor.has(Behaviour.ERRORS_DO_NOT_REPEAT_THEIR_FIELD) else "utilization "
            detail = f"{repeats}values must be sorted in increasing order"
            yield wording.invalid(f"{path}[{index}].utilization", point.utilization, detail)
            break
    for index, point in enumerate(shape):
        if not 0 <= point.utilization <= 100:
            yield wording.invalid(f"{path}[{index}].utilization", point.utilization, "not in valid range [0, 100]")
        if not 0 <= point.score <= 10:
            yield wording.invalid(f"{path}[{index}].score", point.score, "not in valid range [0, 10]")


def _default_preemption(
    args: DefaultPreemptionArgs, gates: FeatureGates, wording: Wording, path: str
) -> Iterator[FieldError]:
    percentage, percentage_path = args.min_candidate_nodes_percentage, f"{path}.minCandidateNodesPercentage"
    absolute, absolute_path = args.min_candidate_nodes_absolute, f"{path}.minCandidateNodesAbsolute"
    if not 0 <= percentage <= 100:
        yield wording.invalid(percentage_path, percentage, "not in valid range [0, 100]")
    if absolute < 0:
        yield wording.invalid(absolute_path, absolute, "not in valid range [0, inf)")
    if percentage == absolute == 0:
        yield wording.invalid(percentage_path, 0, "cannot be zero at the same time as minCandidateNodesAbsolute")
        yield wording.invalid(absolute_path, 0, "cannot be zero at the same time as minCandidateNodesPercentage")


def _inter_pod_affinity(
    args: InterPodAffinityArgs, gates: FeatureGates, wording: Wording, path: str
) -> Iterator[FieldError]:
    weight = args.hard_pod_affinity_weight
    if not 0 <= weight <= 100:
        yield wording.invalid(f"{path}.hardPodAffinityWeight", weight, "not in valid range [0, 100]")


def _node_affinity(args: NodeAffinityArgs, gates: FeatureGates, wording: Wording, path: str) -> Iterator[FieldError]:
    affinity, field_path = args.added_affinity, f"{path}.addedAffinity"
    if affinity is None:
        return
    selector = affinity.required_during_scheduling_ignored_during_execution
    for index, term in enumerate(selector.node_selector_terms if selector is not None else ()):
        place = f"{field_path}.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[{index}]"
        yield from _term_errors(term, wording, place)
    for index, preferred in enumerate(affinity.preferred_during_scheduling_ignored_during_execution):
        if preferred.weight != 0:  # as in kube-scheduler, the path omits "preference"
            place = f"{field_path}.preferredDuringSchedulingIgnoredDuringExecution[{index}]"
            yield from _term_errors(preferred.preference, wording, place)


def _balanced_allocation(
    args: NodeResourcesBalancedAllocationArgs, gates: FeatureGates, wording: Wording, path: str
) -> Iterator[FieldError]:
    seen: set[str] = set()
    for index, resource in enumerate(args.resources):
        if resource.name in seen:
            yield wording.duplicate(f"{path}.resources[{index}].name", resource.name)
        if resource.weight != 1:
            yield wording.invalid(f"{path}.resources[{index}].weight", resource.weight, "must be 1")
        seen.add(resource.name)


def _pod_topology_spread(
    args: PodTopologySpreadArgs, gates: FeatureGates, wording: Wording, path: str
) -> Iterator[FieldError]:
    if args.defaulting_type not in _DEFAULTING_TYPES:
        yield unsupported(f"{path}.defaultingType", args.defaulting_type, _DEFAULTING_TYPES)
    elif args.defaulting_type == "System" and args.default_constraints:
        yield wording.invalid(f"{path}.defaultingType", "System", "when .defaultConstraints are not empty")
    seen: set[tuple[str, str]] = set()
    for index, constraint in enumerate(args.default_constraints):
        field_path = f"{path}.defaultConstraints[{index}]"
        if constraint.max_skew <= 0:
            yield wording.invalid(f"{field_path}.maxSkew", constraint.max_skew, "not in valid range (0, inf)")
        if constraint.topology_key:
            yield from _name_errors(constraint.topology_key, wording, f"{field_path}.topologyKey")
        else:
            yield required(f"{field_path}.topologyKey", "can not be empty")
        if not constraint.when_unsatisfiable:
            yield required(f"{field_path}.whenUnsatisfiable", "can not be empty")
        elif constraint.when_unsatisfiable not in _WHEN_UNSATISFIABLE:
            yield unsupported(f"{field_path}.whenUnsatisfiable", constraint.when_unsatisfiable, _WHEN_UNSATISFIABLE)
        if constraint.label_selector is not None:
            detail = "constraint must not define a selector, as they deduced for each pod"
            yield forbidden(f"{field_path}.labelSelector", detail)
        identity = (constraint.topology_key, constraint.when_unsatisfiable)
        if identity in seen:
            yield wording.duplicate(field_path, f"{{{identity[0]}, {identity[1]}}}")
        seen.add(identity)


def _volume_binding(args: VolumeBindingArgs, gates: FeatureGates, wording: Wording, path: str) -> Iterator[FieldError]:
    if args.bind_timeout_seconds < 0:
        detail = "invalid BindTimeoutSeconds, should not be a negative value"
        yield wording.invalid(f"{path}.bindTimeoutSeconds", args.bind_timeout_seconds, detail)
    gate = storage_capacity_gate(gates.minor)
    if gates.enabled(gate):
        yield from _shape_errors(args.shape or (), wording, f"{path}.shape")
    elif args.shape is not None:
        detail = f"unexpected field `shape`, remove it or turn on the feature gate {gate}"
        yield wording.invalid(f"{path}.shape", args.shape, detail)


def _dynamic_resources(
    args: DynamicResourcesArgs, gates: FeatureGates, wording: Wording, path: str
) -> Iterator[FieldError]:
    timeout, field_path = args.filter_timeout, f"{path}.filterTimeout"
    if timeout is not None and not gates.enabled("DRASchedulerFilterTimeout"):
        yield forbidden(field_path, "DRASchedulingFilterTimeout feature gate is disabled")
    elif timeout is not None and timeout < Duration():
        yield wording.invalid(field_path, timeout, "must be zero or positive")
    timeout, field_path = args.binding_timeout, f"{path}.bindingTimeout"
    supported = gates.enabled("DRADeviceBindingConditions") and gates.enabled("DRAResourceClaimDeviceStatus")
    if timeout is not None and not supported:
        detail = "DRADeviceBindingConditions or DRAResourceClaimDeviceStatus feature gate is disabled"
        yield forbidden(field_path, detail)
    elif timeout is not None and timeout < Duration.of(seconds=1):
        yield wording.invalid(field_path, timeout, "must be at least 1 second")


_RULES: Mapping[type[PluginArgs], Callable[[Any, FeatureGates, Wording, str], Iterator[FieldError]]] = {
    DefaultPreemptionArgs: _default_preemption,
    DynamicResourcesArgs: _dynamic_resources,
    InterPodAffinityArgs: _inter_pod_affinity,
    NodeAffinityArgs: _node_affinity,
    NodeResourcesBalancedAllocationArgs: _balanced_allocation,
    PodTopologySpreadArgs: _pod_topology_spread,
    VolumeBindingArgs: _volume_binding,
}


_REMOVED_PLUGINS = frozenset({"AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits"})
_REMOVED = f'was invalid in version "v1" (KubeSchedulerConfiguration is version "{API_VERSION}")'
_OF_POD_GROUPS = (
    ExtensionPoint.PLACEMENT_GENERATE,
    ExtensionPoint.PLACEMENT_SCORE,
    ExtensionPoint.POD_GROUP_POST_FILTER,
)


def validate(configuration: KubeSchedulerConfiguration, gates: FeatureGates) -> list[FieldError]:
    """All errors of a configuration whose defaults are set; empty if it is valid."""
    return list(dict.fromkeys(_configuration_errors(configuration, gates)))


def _configuration_errors(configuration: KubeSchedulerConfiguration, gates: FeatureGates) -> Iterator[FieldError]:
    wording = Wording(gates.minor)
    burst, parallelism = configuration.client_connection.burst, configuration.parallelism
    if burst < 0:
        yield wording.invalid("clientConnection.burst", burst, "must be non-negative")
    yield from _leader_election(configuration.leader_election, wording, "leaderElection")
    if parallelism <= 0:
        yield wording.invalid("parallelism", parallelism, "should be an integer value greater than zero")
    yield from _profiles(configuration.profiles, gates, wording)
    yield from _percentage(configuration.percentage_of_nodes_to_score, wording, "percentageOfNodesToScore")
    initial, longest = configuration.pod_initial_backoff_seconds, configuration.pod_max_backoff_seconds
    if initial <= 0:
        yield wording.invalid("podInitialBackoffSeconds", initial, "must be greater than 0")
    if longest < initial:
        yield wording.invalid(
            "podMaxBackoffSeconds", longest, "must be greater than or equal to PodInitialBackoffSeconds"
        )
    yield from _extenders(configuration.extenders, wording)


def _leader_election(election: LeaderElectionConfiguration, wording: Wording, path: str) -> Iterator[FieldError]:
    if not election.leader_elect:
        return
    durations = {
        "leaseDuration": election.lease_duration,
        "renewDeadline": election.renew_deadline,
        "retryPeriod": election.retry_period,
    }
    for name, duration in durations.items():
        if duration <= Duration():
            yield wording.invalid(f"{path}.{name}", duration, "must be greater than zero")
    if election.lease_duration <= election.renew_deadline:
        yield wording.invalid(f"{path}.leaseDuration", election.renew_deadline, "must be greater than `RenewDeadline`")
    names = {
        "resourceLock": election.resource_lock,
        "resourceNamespace": election.resource_namespace,
        "resourceName": election.resource_name,
    }
    yield from (required(f"{path}.{field}") for field, name in names.items() if not name)
    if election.resource_lock != "leases":
        yield wording.invalid(f"{path}.resourceLock", election.resource_lock, 'resourceLock value must be "leases"')


def _percentage(percentage: int | None, wording: Wording, path: str) -> Iterator[FieldError]:
    if percentage is not None and not 0 <= percentage <= 100:
        yield wording.invalid(path, percentage, "not in valid range [0-100]")


# Profiles ------------------------------------------------------------------------------------------------------------


def _profiles(profiles: Sequence[KubeSchedulerProfile], gates: FeatureGates, wording: Wording) -> Iterator[FieldError]:
    if not profiles:
        yield required("profiles")
    seen: set[str] = set()
    for index, profile in enumerate(profiles):
        path = f"profiles[{index}]"
        yield from _profile(profile, gates, wording, path)
        if profile.scheduler_name in seen:
            yield wording.duplicate(f"{path}.schedulerName", profile.scheduler_name)
        seen.add(profile.scheduler_name)
    yield from _common_queue_sort(profiles, wording)


def _profile(profile: KubeSchedulerProfile, gates: FeatureGates, wording: Wording, path: str) -> Iterator[FieldError]:
    if not profile.scheduler_name:
        yield required(f"{path}.schedulerName")
    yield from _percentage(profile.percentage_of_nodes_to_score, wording, f"{path}.percentageOfNodesToScore")
    yield from _removed_plugins(profile, wording, f"{path}.plugins")
    seen: set[str] = set()
    for index, config in enumerate(profile.plugin_config):
        field_path = f"{path}.pluginConfig[{index}]"
        if config.name in seen:
            yield wording.duplicate(field_path, config.name)
        seen.add(config.name)
        if config.name in _REMOVED_PLUGINS:
            yield wording.invalid(field_path, config.name, _REMOVED)
        elif rule := _RULES.get(type(config.args)):
            yield from rule(config.args, gates, wording, f"{field_path}.args")


def _removed_plugins(profile: KubeSchedulerProfile, wording: Wording, path: str) -> Iterator[FieldError]:
    """Plugins of earlier releases; kube-scheduler does not check the extension points of pod groups for them."""
    for point in ExtensionPoint:
        if point in _OF_POD_GROUPS:
            continue
        for index, entry in enumerate(profile.plugins.at(point).enabled):
            if entry.name in _REMOVED_PLUGINS:
                yield wording.invalid(f"{child(path, point)}.enabled[{index}]", entry.name, _REMOVED)


def _common_queue_sort(profiles: Sequence[KubeSchedulerProfile], wording: Wording) -> Iterator[FieldError]:
    """All profiles share one queue, so their queue sort plugin and its arguments must be equal."""
    if not profiles:
        return
    first = profiles[0].plugins.queue_sort
    if len(first.enabled) > 1:
        detail = "only one queue sort plugin can be enabled"
        yield wording.invalid("profiles[0].plugins.queueSort.Enabled", len(first.enabled), detail)
    name = first.enabled[0].name if first.enabled else ""
    args = profiles[0].args.get(name) if name else None
    for index, profile in enumerate(profiles[1:], start=1):
        if _comparable(profile.plugins.queue_sort) != _comparable(first):
            repeats = "" if wording.minor.has(Behaviour.ERRORS_DO_NOT_REPEAT_THEIR_FIELD) else "queueSort "
            value, detail = profile.plugins.queue_sort, f"{repeats}must be the same for all profiles"
            yield wording.invalid(f"profiles[{index}].plugins.queueSort", value, detail)
        for config in profile.plugin_config:
            if config.name == name and config.args != args:
                detail = "queueSort must be the same for all profiles"
                yield wording.invalid(f"profiles[{index}].pluginConfig.args", config.args, detail)


def _comparable(plugin_set: PluginSet) -> object:
    """A plugin set in which an unset weight equals 0."""
    return [(e.name, e.weight or 0) for e in plugin_set.enabled], [e.name for e in plugin_set.disabled]


# Extenders -----------------------------------------------------------------------------------------------------------


def _extenders(extenders: Sequence[Extender], wording: Wording) -> Iterator[FieldError]:
    managed: set[str] = set()
    for index, extender in enumerate(extenders):
        yield from _extender(extender, managed, wording, f"extenders[{index}]")
    binders = sum(1 for extender in extenders if extender.bind_verb)
    if binders > 1:
        found = f"found {binders} extenders implementing bind"
        yield wording.invalid("extenders", found, "only one extender can implement bind")


def _extender(extender: Extender, managed: set[str], wording: Wording, path: str) -> Iterator[FieldError]:
    if extender.prioritize_verb and extender.weight <= 0:
        yield wording.invalid(f"{path}.weight", extender.weight, "must have a positive weight applied to it")
    for index, resource in enumerate(extender.managed_resources):
        field_path = f"{path}.managedResources[{index}].name"
        errors = wording.name_errors(qualified_name_errors(resource.name))
        yield from (wording.invalid_resource_name(field_path, resource.name, error) for error in errors)
        if not errors and not is_extended_resource(resource.name):
            yield wording.invalid(field_path, resource.name, "is an invalid extended resource name")
        if resource.name in managed:
            yield wording.invalid(field_path, resource.name, "duplicate extender managed resource name")
        managed.add(resource.name)
