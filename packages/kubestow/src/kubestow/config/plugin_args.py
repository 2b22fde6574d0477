"""The arguments of the in-tree plugins, one Struct each (semantics 2.5).

Plugins import the type of their arguments from here. A Struct's field defaults apply to absent fields; defaults that
depend on a feature gate or on another field are in :mod:`kubestow.config.defaults`, the validation rules in
:mod:`kubestow.config.validation`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Annotated

import msgspec

from kubestow.api.core import NodeAffinity, TopologySpreadConstraint
from kubestow.api.formats.duration import Duration
from kubestow.rules.minors import Behaviour, Minor

# A bare int is an int32, see the decoder.
_Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class _ArgsObject(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The base of plugin arguments and their parts."""


class PluginArgs(_ArgsObject, frozen=True):
    """The base of all plugin arguments; the class name is the ``kind`` in the configuration."""


class DefaultPreemptionArgs(PluginArgs, frozen=True):
    """The minimum number of candidate nodes for preemption: the larger of a percentage of all nodes and a number."""

    min_candidate_nodes_percentage: int = 10
    min_candidate_nodes_absolute: int = 100


class InterPodAffinityArgs(PluginArgs, frozen=True):
    """``hard_pod_affinity_weight`` (0 to 100) is the score weight of an existing pod's required affinity terms."""

    hard_pod_affinity_weight: int = 1
    ignore_preferred_terms_of_existing_pods: bool = False


class NodeAffinityArgs(PluginArgs, frozen=True):
    """``added_affinity`` applies to every pod of the profile in addition to the pod's own node affinity."""

    added_affinity: NodeAffinity | None = None


class ResourceSpec(_ArgsObject, frozen=True):
    """A resource and its weight; 0 means 1."""

    name: str = ""
    weight: _Int64 = 0


class UtilizationShapePoint(_ArgsObject, frozen=True):
    """A point of a piecewise linear function from utilization (0 to 100) to a score (0 to 10)."""

    utilization: int = 0
    score: int = 0


class RequestedToCapacityRatio(_ArgsObject, frozen=True):
    """The parameters of the scoring strategy RequestedToCapacityRatio."""

    shape: tuple[UtilizationShapePoint, ...] = ()


class ScoringStrategy(_ArgsObject, frozen=True):
    """The scoring strategy of NodeResourcesFit: LeastAllocated, MostAllocated or RequestedToCapacityRatio."""

    type: str = ""
    resources: tuple[ResourceSpec, ...] = ()
    requested_to_capacity_ratio: RequestedToCapacityRatio | None = None


CPU_AND_MEMORY = (ResourceSpec(name="cpu", weight=1), ResourceSpec(name="memory", weight=1))


class NodeResourcesFitArgs(PluginArgs, frozen=True):
    """The extended resources that Filter ignores (by name, or by the prefix before "/"), and the scoring strategy."""

    ignored_resources: tuple[str, ...] = ()
    ignored_resource_groups: tuple[str, ...] = ()
    scoring_strategy: ScoringStrategy = ScoringStrategy(type="LeastAllocated", resources=CPU_AND_MEMORY)


class NodeResourcesBalancedAllocationArgs(PluginArgs, frozen=True):
    """The resources whose utilization is balanced."""

    resources: tuple[ResourceSpec, ...] = ()


class PodTopologySpreadArgs(PluginArgs, frozen=True):
    """The constraints of pods without their own: ``default_constraints`` ("List") or the built-in ones ("System")."""

    default_constraints: tuple[TopologySpreadConstraint, ...] = ()
    defaulting_type: str = ""


class VolumeBindingArgs(PluginArgs, frozen=True):
    """The timeout of binding volumes, in seconds, and the score of free capacity (gate StorageCapacityScoring)."""

    bind_timeout_seconds: _Int64 = 600
    shape: tuple[UtilizationShapePoint, ...] | None = None


class DynamicResourcesArgs(PluginArgs, frozen=True):
    """The timeouts per node in Filter (0: unlimited), and for binding conditions in PreBind.

    None if the feature gate of the timeout is disabled.
    """

    filter_timeout: Duration | None = None
    binding_timeout: Duration | None = None


NODE_SAMPLING = "NodeSampling"
"""Not a plugin, but an entry of ``pluginConfig`` with a setting that kube-scheduler does not have (semantics 5.4).

kube-scheduler ignores the arguments of plugins that it does not know, so the configuration stays valid there.
"""


class NodeSamplingArgs(PluginArgs, frozen=True):
    """Whether ``percentageOfNodesToScore: 0`` is kube-scheduler's adaptive percentage instead of all nodes."""

    adaptive: bool = False


ARGS_TYPES: Mapping[str, type[PluginArgs]] = {
    "DefaultPreemption": DefaultPreemptionArgs,
    "DynamicResources": DynamicResourcesArgs,
    "InterPodAffinity": InterPodAffinityArgs,
    "NodeAffinity": NodeAffinityArgs,
    "NodeResourcesBalancedAllocation": NodeResourcesBalancedAllocationArgs,
    "NodeResourcesFit": NodeResourcesFitArgs,
    NODE_SAMPLING: NodeSamplingArgs,
    "PodTopologySpread": PodTopologySpreadArgs,
    "VolumeBinding": VolumeBindingArgs,
}
"""The args type of each in-tree plugin that takes arguments, and of node sampling."""


@cache
def args_types(minor: Minor) -> Mapping[str, type[PluginArgs]]:
    """The same in a minor version; the arguments of other plugins are plain data."""
    if minor.has(Behaviour.DYNAMIC_RESOURCES_TAKES_ARGUMENTS):
        return ARGS_TYPES
    return MappingProxyType({name: kind for name, kind in ARGS_TYPES.items() if kind is not DynamicResourcesArgs})
