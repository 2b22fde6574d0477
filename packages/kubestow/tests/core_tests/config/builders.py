"""Builders of configurations as plain data, and the extension points of the in-tree plugins."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from kubestow import config

DEFAULT = "default-scheduler"


def v1(**fields: Any) -> dict[str, Any]:
    """A configuration object with the given top-level fields."""
    return {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration", **fields}


def profile(name: str = DEFAULT, *, args: Mapping[str, Any] | None = None, **plugins: Any) -> dict[str, Any]:
    """A profile with arguments by plugin and plugin sets by extension point (see :func:`enabled`)."""
    plugin_config = [{"name": plugin, "args": given} for plugin, given in (args or {}).items()]
    return {"schedulerName": name, "plugins": plugins, "pluginConfig": plugin_config}


def enabled(*names: str, disabled: tuple[str, ...] = (), **weights: int) -> dict[str, Any]:
    """A plugin set: plugins without a weight, then plugins with one."""
    entries: list[dict[str, Any]] = [{"name": name} for name in names]
    entries += [{"name": name, "weight": weight} for name, weight in weights.items()]
    return {"enabled": entries, "disabled": [{"name": name} for name in disabled]}


def disabled(*names: str) -> dict[str, Any]:
    """A plugin set that only disables plugins."""
    return enabled(disabled=names)


def with_args(plugin: str, given: Any) -> dict[str, Any]:
    """A configuration with one profile and arguments for one plugin."""
    return v1(profiles=[profile(args={plugin: given})])


def loaded(*profiles: dict[str, Any], gates: config.FeatureGates | None = None) -> config.KubeSchedulerConfiguration:
    """The loaded configuration of these profiles."""
    return config.load(v1(profiles=list(profiles)), gates=gates)


def field_errors(source: config.Source, **choices: bool) -> list[str]:
    """The errors of a configuration, as lines, with feature gate overrides."""
    return [str(error) for error in config.check(source, gates=config.FeatureGates(choices))]


_BY_POINT = {
    "preEnqueue": "SchedulingGates DynamicResources DefaultPreemption GangScheduling",
    "queueSort": "PrioritySort",
    "preFilter": "NodeAffinity NodePorts NodeResourcesFit VolumeRestrictions NodeVolumeLimits VolumeBinding VolumeZone"
    " PodTopologySpread InterPodAffinity DynamicResources NodeDeclaredFeatures",
    "filter": "NodeUnschedulable NodeName TaintToleration NodeAffinity NodePorts NodeResourcesFit VolumeRestrictions"
    " NodeVolumeLimits VolumeBinding VolumeZone PodTopologySpread InterPodAffinity DynamicResources"
    " NodeDeclaredFeatures",
    "postFilter": "DynamicResources DefaultPreemption",
    "preScore": "TaintToleration NodeAffinity NodeResourcesFit VolumeBinding PodTopologySpread InterPodAffinity"
    " NodeResourcesBalancedAllocation",
    "score": "TaintToleration NodeAffinity NodeResourcesFit VolumeBinding PodTopologySpread InterPodAffinity"
    " DynamicResources NodeResourcesBalancedAllocation ImageLocality",
    "reserve": "VolumeBinding DynamicResources",
    "permit": "GangScheduling",
    "preBind": "VolumeBinding DynamicResources",
    "bind": "DefaultBinder",
    "placementGenerate": "TopologyPlacementGenerator",
    "placementScore": "NodeResourcesFit PodGroupPodsCount",
}


def _implements() -> dict[str, frozenset[str]]:
    points: defaultdict[str, set[str]] = defaultdict(set)
    for point, names in _BY_POINT.items():
        for name in names.split():
            points[name].add(point)
    return {name: frozenset(where) for name, where in points.items()}


IN_TREE: config.Implements = _implements()
"""The extension points of each in-tree plugin (semantics 2.3)."""


def expanded(plugin_profile: dict[str, Any], point: str, implements: config.Implements = IN_TREE) -> list[str]:
    """The names of the plugins at one extension point of a profile."""
    (only,) = loaded(plugin_profile).profiles
    return [plugin.name for plugin in config.expand(only, implements)[config.ExtensionPoint(point)]]


def construction_errors(*profiles: dict[str, Any], implements: config.Implements = IN_TREE) -> list[str]:
    """The errors of building a scheduler from these profiles."""
    return [error.message for error in config.construction_errors(loaded(*profiles), implements)]
