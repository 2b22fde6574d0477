"""The plugins every profile starts with, and how a profile's own sets change them (semantics 2.3, 2.4).

By default plugins stand in the ``multiPoint`` set alone and serve every extension point they implement; the sets of the
single points are empty. Which points those are is known only where the plugin classes are:
:mod:`kubestow.config.expansion`.
"""

from __future__ import annotations

from msgspec import structs

from kubestow.config.configuration import PluginEntry, Plugins, PluginSet
from kubestow.config.feature_gates import FeatureGates

__all__ = ["default_plugins", "merge_plugins"]

_ALWAYS = (
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
    # Before DefaultPreemption: freeing an idle claim in PostFilter is kinder than evicting a pod.
    PluginEntry(name="DynamicResources", weight=2),
    PluginEntry(name="DefaultPreemption"),
    PluginEntry(name="NodeResourcesBalancedAllocation", weight=1),
    PluginEntry(name="ImageLocality", weight=1),
    PluginEntry(name="DefaultBinder"),
)
_GATED = {
    "NodeDeclaredFeatures": (PluginEntry(name="NodeDeclaredFeatures"),),
    "GangScheduling": (PluginEntry(name="GangScheduling"),),
    "TopologyAwareWorkloadScheduling": (
        PluginEntry(name="TopologyPlacementGenerator"),
        PluginEntry(name="PodGroupPodsCount", weight=1),
    ),
}


def default_plugins(gates: FeatureGates) -> Plugins:
    """The sets of a profile that says nothing about plugins."""
    gated = (entry for gate, entries in _GATED.items() if gates.enabled(gate) for entry in entries)
    return Plugins(multi_point=PluginSet(enabled=(*_ALWAYS, *gated)))


def merge_plugins(defaults: Plugins, custom: Plugins) -> Plugins:
    """The sets of a profile: at each point, and in ``multiPoint``, the custom set laid over the default one."""
    return Plugins(
        **{
            field.name: _merge(getattr(defaults, field.name), getattr(custom, field.name))
            for field in structs.fields(Plugins)
        }
    )


def _merge(default: PluginSet, custom: PluginSet) -> PluginSet:
    """Defaults that are not disabled, a custom entry taking its default's place; the other custom entries after them.

    A plugin that the custom set enables twice stays there twice: building the profile refuses it.
    """
    disabled = tuple(PluginEntry(name=entry.name) for entry in (*custom.disabled, *default.disabled))
    names = {entry.name for entry in disabled}
    kept = () if "*" in names else tuple(entry for entry in default.enabled if entry.name not in names)
    last_position = {entry.name: position for position, entry in enumerate(custom.enabled)}
    replaced = {last_position[entry.name] for entry in kept if entry.name in last_position}
    in_default_places = tuple(
        custom.enabled[last_position[entry.name]] if entry.name in last_position else entry for entry in kept
    )
    added = tuple(entry for position, entry in enumerate(custom.enabled) if position not in replaced)
    return PluginSet(enabled=in_default_places + added, disabled=disabled)
