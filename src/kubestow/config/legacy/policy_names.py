"""The predicates and priorities of a scheduler Policy, and the plugins that do their work today.

The names are those of Kubernetes 1.22, the last release that read a Policy, and of the node condition checks before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

__all__ = [
    "DEFAULT_PREDICATES",
    "DEFAULT_PRIORITIES",
    "EVEN_SPREADING",
    "FILTERS",
    "GONE_PREDICATES",
    "GONE_PRIORITIES",
    "MANDATORY_PREDICATES",
    "PREDICATES",
    "PRE_FILTERS",
    "PRE_SCORES",
    "PRIORITIES",
    "SCORES",
    "SELECTOR_SPREADING",
    "STRATEGIES",
]

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
        "PodToleratesNodeTaints": ("TaintToleration",),
    }
)
"""The filters that a predicate stands for."""

MANDATORY_PREDICATES = ("PodToleratesNodeTaints", "CheckNodeUnschedulable")
"""They hold whether a Policy names them or not."""

DEFAULT_PREDICATES = (
    "NoVolumeZoneConflict",
    "MaxCSIVolumeCountPred",
    "MatchInterPodAffinity",
    "NoDiskConflict",
    "GeneralPredicates",
    "CheckVolumeBinding",
    "EvenPodsSpread",
)
"""What a Policy without a list of predicates means, beside the mandatory ones."""

GONE_PREDICATES: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(
            ("MaxEBSVolumeCount", "MaxGCEPDVolumeCount", "MaxAzureDiskVolumeCount", "MaxCinderVolumeCount"),
            "such volumes are served by CSI drivers, which NodeVolumeLimits counts",
        ),
        **dict.fromkeys(
            ("CheckNodeCondition", "CheckNodeMemoryPressure", "CheckNodeDiskPressure", "CheckNodePIDPressure"),
            "conditions have become taints of the node, which TaintToleration reads",
        ),
    }
)
"""Predicates without a plugin, and why nothing is missing without them."""

PRIORITIES: Mapping[str, str] = MappingProxyType(
    {
        "BalancedResourceAllocation": "NodeResourcesBalancedAllocation",
        "ImageLocalityPriority": "ImageLocality",
        "InterPodAffinityPriority": "InterPodAffinity",
        "NodeAffinityPriority": "NodeAffinity",
        "TaintTolerationPriority": "TaintToleration",
    }
)
"""The score that a priority stands for. Those of the two following tables share a plugin."""

STRATEGIES: Mapping[str, str] = MappingProxyType(
    {"LeastRequestedPriority": "LeastAllocated", "MostRequestedPriority": "MostAllocated"}
)
"""The scoring strategy of NodeResourcesFit that a priority stands for."""

EVEN_SPREADING = "EvenPodsSpreadPriority"
SELECTOR_SPREADING = ("SelectorSpreadPriority", "ServiceSpreadingPriority")
"""Spreading by the pod's own constraints, and by its service or controller: both PodTopologySpread today."""

GONE_PRIORITIES: Mapping[str, str] = MappingProxyType(
    {
        "EqualPriority": "it adds the same to every node",
        "NodePreferAvoidPodsPriority": "nothing reads its annotation any more; taint nodes with PreferNoSchedule",
    }
)
"""Priorities without a plugin, and why."""

DEFAULT_PRIORITIES: Mapping[str, int] = MappingProxyType(
    {
        "SelectorSpreadPriority": 1,
        "InterPodAffinityPriority": 1,
        "LeastRequestedPriority": 1,
        "BalancedResourceAllocation": 1,
        "NodeAffinityPriority": 1,
        "TaintTolerationPriority": 1,
        "ImageLocalityPriority": 1,
        EVEN_SPREADING: 2,
    }
)
"""What a Policy without a list of priorities means, with their weights."""

FILTERS = tuple(dict.fromkeys(plugin for plugins in PREDICATES.values() for plugin in plugins))
SCORES = (*PRIORITIES.values(), "NodeResourcesFit", "PodTopologySpread")
"""The plugins that a Policy decides about, as filters and as scores."""

PRE_FILTERS = frozenset({"NodeAffinity", "NodeResourcesFit", "PodTopologySpread", "InterPodAffinity"})
PRE_SCORES = frozenset(SCORES) - {"ImageLocality"}
"""Those that both filter and score and have a stage before filtering; those with a stage before scoring."""
