"""Plugins of the neighbours that kubestow does not have, each with what comes nearest to it.

The registry (entry point group ``kubestow.absent_plugins``) says so where a configuration enables one. Those of Volcano
are in :mod:`kubestow_contrib.volcano.configuration`, because they are in configurations of its own format.
"""

from __future__ import annotations

from collections.abc import Mapping

#: As registered by koord-scheduler. What is not here and not contributed is not known.
KOORDINATOR: Mapping[str, str] = {
    "BatchResourceFit": "NodeResourcesFit, to which batch-cpu and batch-memory are extended resources",
    "CompatibleDefaultPreemption": "DefaultPreemption",
    "DefaultPreBind": "nothing is needed, it writes the changes of koordinator's other plugins",
    "DeviceShare": "DynamicResources for devices in ResourceClaims, FragmentationGradientDescent for shares of GPUs",
    "ElasticQuota": "CapacityScheduling for quotas without parents, Volcano (plugin capacity) for trees",
    "NodeNUMAResource": "NodeResourceTopologyMatch, which reads NodeResourceTopology objects and binds no CPUs",
    "NodeResourcesFitPlus": "NodeResourcesFit, with one strategy for all resources",
    "Reservation": "pods of a low priority that keep the place, which DefaultPreemption evicts",
    "ScarceResourceAvoidance": "taints on nodes with scarce resources (TaintToleration)",
    "SchedulingHint": "status.nominatedNodeName of a pod, whose node is tried first",
}
SCHEDULER_PLUGINS: Mapping[str, str] = {
    "CrossNodePreemption": "DefaultPreemption, which evicts from one node",
    "NodeMetadata": "NodeAffinity with preferred terms about labels",
}
