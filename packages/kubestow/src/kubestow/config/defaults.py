"""Defaulting that a Struct's field default cannot express: it depends on another field, on a gate, or on zero.

As in kube-scheduler, several fields treat zero or the empty string as unset. Defaults that depend on a field being
absent are set in the plain data before decoding (:func:`set_data_defaults`), all others in the decoded configuration
(:func:`set_defaults`).

The default plugins are enabled in the ``multiPoint`` set only; the sets of the single extension points are empty.
:mod:`kubestow.config.expansion` resolves ``multiPoint`` to extension points (semantics 2.3, 2.4).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from msgspec import structs

from kubestow.api.formats.duration import Duration
from kubestow.config.configuration import (
    ClientConnectionConfiguration,
    KubeSchedulerConfiguration,
    KubeSchedulerProfile,
    LeaderElectionConfiguration,
    PluginConfig,
    PluginEntry,
    Plugins,
    PluginSet,
)
from kubestow.config.feature_gates import FeatureGates, storage_capacity_gate
from kubestow.config.plugin_args import (
    CPU_AND_MEMORY,
    DynamicResourcesArgs,
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
    PodTopologySpreadArgs,
    ResourceSpec,
    UtilizationShapePoint,
    VolumeBindingArgs,
    args_types,
)
from kubestow.rules.minors import Behaviour


def default_plugins(gates: FeatureGates) -> Plugins:
    """The plugin sets of a profile that configures none (semantics 2.3)."""
    # Dynamic resources come before DefaultPreemption: PostFilter deallocates an unused claim rather than evict a pod.
    devices_weight = 2 if gates.minor.has(Behaviour.SCORES_DEVICE_ALTERNATIVES) else 0
    by_gate = (
        (PluginEntry(name="SchedulingGates"), ""),
        (PluginEntry(name="PrioritySort"), ""),
        (PluginEntry(name="NodeUnschedulable"), ""),
        (PluginEntry(name="NodeName"), ""),
        (PluginEntry(name="TaintToleration", weight=3), ""),
        (PluginEntry(name="NodeAffinity", weight=2), ""),
        (PluginEntry(name="NodePorts"), ""),
        (PluginEntry(name="NodeResourcesFit", weight=1), ""),
        (PluginEntry(name="VolumeRestrictions"), ""),
        (PluginEntry(name="NodeVolumeLimits"), ""),
        (PluginEntry(name="VolumeBinding"), ""),
        (PluginEntry(name="VolumeZone"), ""),
        (PluginEntry(name="PodTopologySpread", weight=2), ""),
        (PluginEntry(name="InterPodAffinity", weight=2), ""),
        (PluginEntry(name="DynamicResources", weight=devices_weight), "DynamicResourceAllocation"),
        (PluginEntry(name="DefaultPreemption"), ""),
        (PluginEntry(name="NodeResourcesBalancedAllocation", weight=1), ""),
        (PluginEntry(name="ImageLocality", weight=1), ""),
        (PluginEntry(name="DefaultBinder"), ""),
        (PluginEntry(name="NodeDeclaredFeatures"), "NodeDeclaredFeatures"),
        (PluginEntry(name="GangScheduling"), "GangScheduling"),
        (PluginEntry(name="TopologyPlacementGenerator"), "TopologyAwareWorkloadScheduling"),
        (PluginEntry(name="PodGroupPodsCount", weight=1), "TopologyAwareWorkloadScheduling"),
    )
    enabled = tuple(entry for entry, gate in by_gate if not gate or gates.enabled(gate))
    return Plugins(multi_point=PluginSet(enabled=enabled))


def merge_plugins(defaults: Plugins, custom: Plugins) -> Plugins:
    """Merge a profile's plugin sets into the default ones, at each extension point and in ``multiPoint``."""
    return Plugins(
        **{
            field.name: _merge(getattr(defaults, field.name), getattr(custom, field.name))
            for field in structs.fields(Plugins)
        }
    )


def _merge(default: PluginSet, custom: PluginSet) -> PluginSet:
    """The defaults that are not disabled, replaced in place by custom entries of the same name, then the other entries.

    A plugin that the custom set enables twice stays twice: it is rejected when the profile is built.
    """
    disabled = tuple(PluginEntry(name=entry.name) for entry in (*custom.disabled, *default.disabled))
    names = {entry.name for entry in disabled}
    kept = () if "*" in names else tuple(entry for entry in default.enabled if entry.name not in names)
    last_position = {entry.name: position for position, entry in enumerate(custom.enabled)}
    replaced = {last_position[entry.name] for entry in kept if entry.name in last_position}
    replaced_in_place = tuple(
        custom.enabled[last_position[entry.name]] if entry.name in last_position else entry for entry in kept
    )
    added = tuple(entry for position, entry in enumerate(custom.enabled) if position not in replaced)
    return PluginSet(enabled=replaced_in_place + added, disabled=disabled)


T = TypeVar("T", ClientConnectionConfiguration, LeaderElectionConfiguration)

_FREE_CAPACITY_SHAPE = (UtilizationShapePoint(utilization=0, score=10), UtilizationShapePoint(utilization=100, score=0))
_USED_CAPACITY_SHAPE = (UtilizationShapePoint(utilization=0, score=0), UtilizationShapePoint(utilization=100, score=10))


def set_data_defaults(data: Mapping[str, Any]) -> dict[str, Any]:
    """The data with the defaults of fields whose absence is no longer visible after decoding."""
    profiles = data.get("profiles")
    if profiles is None or profiles == []:
        profiles = [{}]
    if isinstance(profiles, list) and len(profiles) == 1:
        profile = {} if profiles[0] is None else profiles[0]
        if isinstance(profile, Mapping) and profile.get("schedulerName") is None:
            profiles = [{**profile, "schedulerName": "default-scheduler"}]
    defaulted = {**data, "profiles": profiles}
    if data.get("enableProfiling") is False and data.get("enableContentionProfiling") is None:
        defaulted["enableContentionProfiling"] = False
    return defaulted


def set_defaults(configuration: KubeSchedulerConfiguration, gates: FeatureGates) -> KubeSchedulerConfiguration:
    """The configuration with every default set, merged plugin sets, and arguments for all enabled plugins."""
    defaults = default_plugins(gates)
    return structs.replace(
        configuration,
        leader_election=_zeros_to_defaults(configuration.leader_election),
        client_connection=_zeros_to_defaults(configuration.client_connection),
        profiles=tuple(_default_profile(profile, defaults, gates) for profile in configuration.profiles),
    )


def _zeros_to_defaults(struct: T) -> T:
    unset = {
        field.name: field.default
        for field in structs.fields(struct)
        if field.name != "leader_elect" and getattr(struct, field.name) in (0, "", Duration())
    }
    return structs.replace(struct, **unset)


def _default_profile(profile: KubeSchedulerProfile, defaults: Plugins, gates: FeatureGates) -> KubeSchedulerProfile:
    plugins = merge_plugins(defaults, profile.plugins)
    given = tuple(structs.replace(config, args=_default_args(config.args, gates)) for config in profile.plugin_config)
    types = args_types(gates.minor)
    missing = sorted(plugins.enabled_names & types.keys() - {config.name for config in given})
    added = tuple(PluginConfig(name=name, args=_default_args(types[name](), gates)) for name in missing)
    return structs.replace(profile, plugins=plugins, plugin_config=given + added)


def _default_args(args: Any, gates: FeatureGates) -> Any:
    match args:
        case NodeResourcesFitArgs(scoring_strategy=strategy):
            defaulted = structs.replace(strategy, resources=_weighted(strategy.resources))
            return structs.replace(args, scoring_strategy=defaulted)
        case NodeResourcesBalancedAllocationArgs():
            return structs.replace(args, resources=_weighted(args.resources))
        case PodTopologySpreadArgs(defaulting_type=""):
            return structs.replace(args, defaulting_type="System")
        case VolumeBindingArgs() if not args.shape and gates.enabled(storage_capacity_gate(gates.minor)):
            prefers_free = gates.minor.has(Behaviour.CAPACITY_TO_PROVISION_IS_SCORED)
            return structs.replace(args, shape=_FREE_CAPACITY_SHAPE if prefers_free else _USED_CAPACITY_SHAPE)
        case DynamicResourcesArgs(filter_timeout=filter_timeout, binding_timeout=binding_timeout):
            if filter_timeout is None and gates.enabled("DRASchedulerFilterTimeout"):
                filter_timeout = Duration.of(seconds=10)
            if binding_timeout is None and gates.enabled("DRADeviceBindingConditions"):
                binding_timeout = Duration.of(seconds=600)
            return structs.replace(args, filter_timeout=filter_timeout, binding_timeout=binding_timeout)
    return args


def _weighted(resources: tuple[ResourceSpec, ...]) -> tuple[ResourceSpec, ...]:
    return tuple(structs.replace(r, weight=r.weight or 1) for r in resources) or CPU_AND_MEMORY
