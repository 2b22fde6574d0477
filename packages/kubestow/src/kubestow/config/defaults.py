"""Defaulting that a Struct's field default cannot express: it depends on another field, on a gate, or on zero.

As in kube-scheduler, several fields treat zero or the empty string as unset. Defaults that depend on a field being
absent are set in the plain data before decoding (:func:`set_data_defaults`), all others in the decoded configuration
(:func:`set_defaults`).
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
    Plugins,
)
from kubestow.config.default_plugins import default_plugins, merge_plugins
from kubestow.config.feature_gates import FeatureGates
from kubestow.config.plugin_args import (
    ARGS_TYPES,
    CPU_AND_MEMORY,
    DynamicResourcesArgs,
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
    PluginArgs,
    PodTopologySpreadArgs,
    ResourceSpec,
    UtilizationShapePoint,
    VolumeBindingArgs,
)

__all__ = ["set_data_defaults", "set_defaults"]

T = TypeVar("T", ClientConnectionConfiguration, LeaderElectionConfiguration)

_FREE_CAPACITY_SHAPE = (
    UtilizationShapePoint(utilization=0, score=10),
    UtilizationShapePoint(utilization=100, score=0),
)


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
    missing = sorted(plugins.enabled_names & ARGS_TYPES.keys() - {config.name for config in given})
    added = tuple(PluginConfig(name=name, args=_default_args(ARGS_TYPES[name](), gates)) for name in missing)
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
        case VolumeBindingArgs() if not args.shape and gates.enabled("StorageCapacityScoring"):
            return structs.replace(args, shape=_FREE_CAPACITY_SHAPE)
        case DynamicResourcesArgs():
            return _default_timeouts(args, gates)
    return args


def _weighted(resources: tuple[ResourceSpec, ...]) -> tuple[ResourceSpec, ...]:
    return tuple(structs.replace(r, weight=r.weight or 1) for r in resources) or CPU_AND_MEMORY


def _default_timeouts(args: DynamicResourcesArgs, gates: FeatureGates) -> PluginArgs:
    filter_timeout, binding_timeout = args.filter_timeout, args.binding_timeout
    if filter_timeout is None and gates.enabled("DRASchedulerFilterTimeout"):
        filter_timeout = Duration.of(seconds=10)
    if binding_timeout is None and gates.enabled("DRADeviceBindingConditions"):
        binding_timeout = Duration.of(seconds=600)
    return structs.replace(args, filter_timeout=filter_timeout, binding_timeout=binding_timeout)
