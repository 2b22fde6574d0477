"""The default plugins, and their merge with the plugin sets of a profile (semantics 2.3, 2.4).

The default plugins are enabled in the ``multiPoint`` set only; the sets of the single extension points are empty.
:mod:`kubestow.config.expansion` resolves ``multiPoint`` to extension points.
"""

from __future__ import annotations

from msgspec import structs

from kubestow.config.configuration import PluginEntry, Plugins, PluginSet
from kubestow.config.feature_gates import FeatureGates

__all__ = ["default_plugins", "merge_plugins"]

_DEFAULT_PLUGINS = (
    PluginEntry(name="SchedulingGates"),
    PluginEntry(name="PrioritySort"),
    PluginEntry(name="NodeUnschedulable"),
    PluginEntry(name="NodeName"),
    PluginEntry(name="TaintToleration", weight=3),
    PluginEntry(name="NodeAffinity", weight=2),
    PluginEntry(name="NodePorts"),
    PluginEntry(name="NodeResourcesFit", weight=1),
    PluginEntry(name="VolumeRestrictions"),
    PluginEntry(name="NodeVolumeLimits"),
    PluginEntry(name="VolumeBinding"),
    PluginEntry(name="VolumeZone"),
    PluginEntry(name="PodTopologySpread", weight=2),
    PluginEntry(name="InterPodAffinity", weight=2),
    # Before DefaultPreemption: PostFilter deallocates an unused claim rather than evict a pod.
    PluginEntry(name="DynamicResources", weight=2),
    PluginEntry(name="DefaultPreemption"),
    PluginEntry(name="NodeResourcesBalancedAllocation", weight=1),
    PluginEntry(name="ImageLocality", weight=1),
    PluginEntry(name="DefaultBinder"),
)
_GATED_PLUGINS = {
    "NodeDeclaredFeatures": (PluginEntry(name="NodeDeclaredFeatures"),),
    "GangScheduling": (PluginEntry(name="GangScheduling"),),
    "TopologyAwareWorkloadScheduling": (
        PluginEntry(name="TopologyPlacementGenerator"),
        PluginEntry(name="PodGroupPodsCount", weight=1),
    ),
}


def default_plugins(gates: FeatureGates) -> Plugins:
    """The plugin sets of a profile that configures none."""
    gated = (entry for gate, entries in _GATED_PLUGINS.items() if gates.enabled(gate) for entry in entries)
    return Plugins(multi_point=PluginSet(enabled=(*_DEFAULT_PLUGINS, *gated)))


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
