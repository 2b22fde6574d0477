"""The in-tree plugins: kube-scheduler's, under the same names (semantics 8 and 9).

A plugin is one module, or a package where it needs more. ``IN_TREE`` has all of them:

SchedulingGates                   holds back pods that have scheduling gates
PrioritySort                      orders the active queue by priority, then by age
NodeUnschedulable                 rejects cordoned nodes
NodeName                          rejects all nodes but the one in ``spec.nodeName``
TaintToleration                   rejects nodes with untolerated taints; prefers fewer PreferNoSchedule taints
NodeAffinity                      node selectors and node affinity, required and preferred
NodePorts                         rejects nodes where a requested host port is in use
NodeResourcesFit                  rejects nodes without enough free resources; scores by utilization
VolumeRestrictions                rejects volumes that another pod uses exclusively
NodeVolumeLimits                  enforces the volume limits of CSI drivers
VolumeBinding                     finds, reserves and binds persistent volumes for unbound claims
VolumeZone                        rejects nodes outside the zone or region of a bound volume
DynamicResources                  allocates devices to resource claims
PodTopologySpread                 spreads pods over zones, nodes or other topology domains
InterPodAffinity                  affinity and anti-affinity between pods
DefaultPreemption                 evicts pods of lower priority for a pod that fits no node
NodeResourcesBalancedAllocation   prefers nodes with evenly used resources
ImageLocality                     prefers nodes that have the pod's images
NodeDeclaredFeatures              rejects nodes that lack a feature that the pod requires
DefaultBinder                     binds the pod through the API server
GangScheduling                    schedules pod groups all together or not at all
TopologyPlacementGenerator        places a whole pod group in one topology domain
PodGroupPodsCount                 prefers the placement that takes most pods of a group

:mod:`kubestow.plugins.registry` adds the plugins of installed packages and of the command line.
"""

from __future__ import annotations

from kubestow.framework.interface import Plugin
from kubestow.plugins.default_binder import DefaultBinder
from kubestow.plugins.default_preemption.default_preemption import (
    DefaultPreemption,
    PreemptionForPodGroups,
    PreemptionWithoutPreEnqueue,
)
from kubestow.plugins.dynamic_resources.dynamic_resources import DynamicResources, DynamicResourcesWithoutScore
from kubestow.plugins.gang_scheduling.gang_scheduling import GangScheduling
from kubestow.plugins.gang_scheduling.topology_placement import PodGroupPodsCount, TopologyPlacementGenerator
from kubestow.plugins.gang_scheduling.workloads import GangSchedulingOfWorkloads
from kubestow.plugins.image_locality import ImageLocality
from kubestow.plugins.inter_pod_affinity import InterPodAffinity
from kubestow.plugins.node_affinity import NodeAffinity
from kubestow.plugins.node_declared_features import NodeDeclaredFeatures
from kubestow.plugins.node_name import NodeName
from kubestow.plugins.node_ports import NodePorts
from kubestow.plugins.node_resources.balanced_allocation import BalanceAfterPlacement, NodeResourcesBalancedAllocation
from kubestow.plugins.node_resources.fit import NodeResourcesFit
from kubestow.plugins.node_unschedulable import NodeUnschedulable
from kubestow.plugins.node_volume_limits import NodeVolumeLimits
from kubestow.plugins.pod_topology_spread.pod_topology_spread import PodTopologySpread
from kubestow.plugins.priority_sort import PrioritySort
from kubestow.plugins.scheduling_gates import SchedulingGates
from kubestow.plugins.taint_toleration import TaintToleration, TaintTolerationNamingTaints
from kubestow.plugins.volume_binding.volume_binding import ScoringOfVolumesToBind, VolumeBinding
from kubestow.plugins.volume_restrictions import VolumeRestrictions
from kubestow.plugins.volume_zone import VolumeZone
from kubestow.rules.minors import DEFAULT_MINOR, Behaviour, Minor

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
    PreemptionForPodGroups,
    NodeResourcesBalancedAllocation,
    ImageLocality,
    NodeDeclaredFeatures,
    DefaultBinder,
    GangScheduling,
    TopologyPlacementGenerator,
    PodGroupPodsCount,
)


#: The classes that stand in for in-tree plugins where a minor version does not have a behaviour. The others ask for it.
_FORMER: tuple[tuple[Behaviour, type[Plugin]], ...] = (
    (Behaviour.SCORES_CHANGE_OF_BALANCE, BalanceAfterPlacement),
    (Behaviour.TAINT_REASON_NAMES_NO_TAINT, TaintTolerationNamingTaints),
    (Behaviour.CAPACITY_TO_PROVISION_IS_SCORED, ScoringOfVolumesToBind),
    (Behaviour.SCORES_DEVICE_ALTERNATIVES, DynamicResourcesWithoutScore),
    (Behaviour.POD_GROUP_POST_FILTER, DefaultPreemption),
    (Behaviour.PREEMPTION_EXTENDS_PRE_ENQUEUE, PreemptionWithoutPreEnqueue),
    (Behaviour.POD_GROUPS_ARE_OBJECTS, GangSchedulingOfWorkloads),
)

#: The in-tree plugins that a minor version does not have without a behaviour.
_ADDED: tuple[tuple[Behaviour, type[Plugin]], ...] = (
    (Behaviour.HAS_NODE_DECLARED_FEATURES, NodeDeclaredFeatures),
    (Behaviour.HAS_GANG_SCHEDULING, GangScheduling),
    (Behaviour.PLACEMENT_EXTENSION_POINTS, TopologyPlacementGenerator),
    (Behaviour.PLACEMENT_EXTENSION_POINTS, PodGroupPodsCount),
)


def in_tree_registry(minor: Minor = DEFAULT_MINOR) -> dict[str, type[Plugin]]:
    """The classes of all in-tree plugins of a minor version by name."""
    registry = {plugin.name: plugin for plugin in IN_TREE}
    registry |= {former.name: former for behaviour, former in _FORMER if not minor.has(behaviour)}
    missing = {plugin.name for behaviour, plugin in _ADDED if not minor.has(behaviour)}
    return {name: plugin for name, plugin in registry.items() if name not in missing}
