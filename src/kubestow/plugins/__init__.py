"""The in-tree plugins, one module each, named as in Kubernetes."""

from __future__ import annotations

from kubestow.framework.interface import Plugin
from kubestow.plugins.default_binder import DefaultBinder
from kubestow.plugins.default_preemption.plugin import DefaultPreemption
from kubestow.plugins.dynamic_resources.plugin import DynamicResources
from kubestow.plugins.gang_scheduling.plugin import GangScheduling
from kubestow.plugins.gang_scheduling.pod_group_pods_count import PodGroupPodsCount
from kubestow.plugins.gang_scheduling.topology_placement_generator import TopologyPlacementGenerator
from kubestow.plugins.image_locality import ImageLocality
from kubestow.plugins.inter_pod_affinity.plugin import InterPodAffinity
from kubestow.plugins.node_affinity import NodeAffinity
from kubestow.plugins.node_declared_features import NodeDeclaredFeatures
from kubestow.plugins.node_name import NodeName
from kubestow.plugins.node_ports import NodePorts
from kubestow.plugins.node_resources.balanced_allocation import NodeResourcesBalancedAllocation
from kubestow.plugins.node_resources.fit import NodeResourcesFit
from kubestow.plugins.node_unschedulable import NodeUnschedulable
from kubestow.plugins.node_volume_limits import NodeVolumeLimits
from kubestow.plugins.pod_topology_spread.plugin import PodTopologySpread
from kubestow.plugins.priority_sort import PrioritySort
from kubestow.plugins.scheduling_gates import SchedulingGates
from kubestow.plugins.taint_toleration import TaintToleration
from kubestow.plugins.volume_binding.plugin import VolumeBinding
from kubestow.plugins.volume_restrictions import VolumeRestrictions
from kubestow.plugins.volume_zone import VolumeZone

__all__ = ["IN_TREE", "in_tree_registry"]

IN_TREE: tuple[type[Plugin], ...] = (
    SchedulingGates,
    PrioritySort,
    NodeUnschedulable,
    NodeName,
    TaintToleration,
    NodeAffinity,
    NodePorts,
    NodeResourcesFit,
    VolumeRestrictions,
    NodeVolumeLimits,
    VolumeBinding,
    VolumeZone,
    DynamicResources,
    PodTopologySpread,
    InterPodAffinity,
    DefaultPreemption,
    NodeResourcesBalancedAllocation,
    ImageLocality,
    NodeDeclaredFeatures,
    DefaultBinder,
    GangScheduling,
    TopologyPlacementGenerator,
    PodGroupPodsCount,
)


def in_tree_registry() -> dict[str, type[Plugin]]:
    """The classes of all in-tree plugins by name."""
    return {plugin.name: plugin for plugin in IN_TREE}
