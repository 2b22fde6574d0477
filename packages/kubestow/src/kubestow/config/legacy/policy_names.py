"""The predicates and priorities of a scheduler Policy, and the plugins that implement them.

The names are those of all releases from Kubernetes 1.13 to 1.22, the last one that read a Policy.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

PREDICATES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "CheckNodeUnschedulable": ("NodeUnschedulable",),
        "CheckVolumeBinding": ("VolumeBinding",),
        "EvenPodsSpread": ("PodTopologySpread",),
        "GeneralPredicates": ("NodeResourcesFit", "NodeName", "NodePorts", "NodeAffinity"),
        "HostName": ("NodeName",),
        "MatchInterPodAffinity": ("InterPodAffinity",),
        "MatchNodeSelector": ("NodeAffinity",),
        "MaxCSIVolumeCountPred": ("NodeVolumeLimits",),
        "NoDiskConflict": ("VolumeRestrictions",),
        "NoVolumeZoneConflict": ("VolumeZone",),
        "PodFitsHostPorts": ("NodePorts",),
        "PodFitsPorts": ("NodePorts",),
        "PodFitsResources": ("NodeResourcesFit",),
        "PodToleratesNodeNoExecuteTaints": ("TaintToleration",),
        "PodToleratesNodeTaints": ("TaintToleration",),
    }
)
"""The Filter plugins that implement a predicate."""

MANDATORY_PREDICATES = ("PodToleratesNodeTaints", "CheckNodeUnschedulable")
"""Predicates that apply whether a Policy names them or not."""

DEFAULT_PREDICATES = (
    "NoVolumeZoneConflict",
    "MaxCSIVolumeCountPred",
    "MatchInterPodAffinity",
    "NoDiskConflict",
    "GeneralPredicates",
    "CheckVolumeBinding",
    "EvenPodsSpread",
)
"""The predicates of a Policy without a list of predicates, besides the mandatory ones."""

REMOVED_PREDICATES: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(
            ("MaxEBSVolumeCount", "MaxGCEPDVolumeCount", "MaxAzureDiskVolumeCount", "MaxCinderVolumeCount"),
            "these volumes have been migrated to CSI drivers, whose limits NodeVolumeLimits enforces",
        ),
        **dict.fromkeys(
            ("CheckNodeCondition", "CheckNodeMemoryPressure", "CheckNodeDiskPressure", "CheckNodePIDPressure"),
            "node conditions are represented by taints, which TaintToleration checks",
        ),
    }
)
"""Predicates without a plugin, and why they are not needed."""

PRIORITIES: Mapping[str, str] = MappingProxyType(
    {
        "BalancedResourceAllocation": "NodeResourcesBalancedAllocation",
        "ImageLocalityPriority": "ImageLocality",
        "InterPodAffinityPriority": "InterPodAffinity",
        "NodeAffinityPriority": "NodeAffinity",
        "TaintTolerationPriority": "TaintToleration",
    }
)
"""The Score plugin that implements a priority. The priorities of the next two constants share a plugin."""

STRATEGIES: Mapping[str, str] = MappingProxyType(
    {"LeastRequestedPriority": "LeastAllocated", "MostRequestedPriority": "MostAllocated"}
)
"""The scoring strategy of NodeResourcesFit that implements a priority."""

EVEN_PODS_SPREAD_PRIORITY = "EvenPodsSpreadPriority"
SELECTOR_SPREAD_PRIORITIES = ("SelectorSpreadPriority", "ServiceSpreadingPriority")
"""Spreading by the pod's own constraints, and by its service or controller: both are PodTopologySpread in v1."""

REMOVED_PRIORITIES: Mapping[str, str] = MappingProxyType(
    {
        "EqualPriority": "it gives every node the same score",
        "NodePreferAvoidPodsPriority": "its annotation is no longer read, use PreferNoSchedule taints instead",
    }
)
"""Priorities without a plugin, and why they are not needed."""

DEFAULT_PRIORITIES: Mapping[str, int] = MappingProxyType(
    {
        "SelectorSpreadPriority": 1,
        "InterPodAffinityPriority": 1,
        "LeastRequestedPriority": 1,
        "BalancedResourceAllocation": 1,
        "NodeAffinityPriority": 1,
        "TaintTolerationPriority": 1,
        "ImageLocalityPriority": 1,
        EVEN_PODS_SPREAD_PRIORITY: 2,
    }
)
"""The priorities, with weights, of a Policy without a list of priorities."""

FILTER_PLUGINS = tuple(dict.fromkeys(plugin for plugins in PREDICATES.values() for plugin in plugins))
SCORE_PLUGINS = (*PRIORITIES.values(), "NodeResourcesFit", "PodTopologySpread")
"""The plugins that a Policy can select, for Filter and for Score."""

PRE_FILTER_PLUGINS = frozenset({"NodeAffinity", "NodeResourcesFit", "PodTopologySpread", "InterPodAffinity"})
PRE_SCORE_PLUGINS = frozenset(SCORE_PLUGINS) - {"ImageLocality"}
"""Those of the Filter and Score plugins that implement PreFilter, and those of the Score plugins with PreScore."""
