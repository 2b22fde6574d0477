"""The arguments of the in-tree plugins, one Struct each (semantics 2.5).

Plugins import the type of their arguments from here. A Struct's field defaults are what an absent field means; the few
defaults that depend on a feature gate or on another field are filled in by :mod:`kubestow.config.defaults`, what may be
written is checked by :mod:`kubestow.config.validation.plugin_args`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated

import msgspec

from kubestow.api.core import NodeAffinity, TopologySpreadConstraint
from kubestow.api.duration import Duration

__all__ = [
    "ARGS_TYPES",
    "DefaultPreemptionArgs",
    "DynamicResourcesArgs",
    "InterPodAffinityArgs",
    "NodeAffinityArgs",
    "NodeResourcesBalancedAllocationArgs",
    "NodeResourcesFitArgs",
    "PluginArgs",
    "PodTopologySpreadArgs",
    "RequestedToCapacityRatio",
    "ResourceSpec",
    "ScoringStrategy",
    "UtilizationShapePoint",
    "VolumeBindingArgs",
]

# A bare int is an int32, see the decoder.
_Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class _ArgsObject(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The base of what arguments are made of."""


class PluginArgs(_ArgsObject, frozen=True):
    """The base of all plugin arguments; the name of the class is the ``kind`` on the wire."""


class DefaultPreemptionArgs(PluginArgs, frozen=True):
    """How many candidate nodes DefaultPreemption looks for: the larger of a share of the nodes and a number."""

    min_candidate_nodes_percentage: int = 10
    min_candidate_nodes_absolute: int = 100


class InterPodAffinityArgs(PluginArgs, frozen=True):
    """``hard_pod_affinity_weight`` is what an existing pod's required affinity adds to a node's score."""

    hard_pod_affinity_weight: int = 1
    ignore_preferred_terms_of_existing_pods: bool = False


class NodeAffinityArgs(PluginArgs, frozen=True):
    """``added_affinity`` is required of every pod of the profile, beside the pod's own."""

    added_affinity: NodeAffinity | None = None


class ResourceSpec(_ArgsObject, frozen=True):
    """A resource and its weight among others; the weight 0 means 1."""

    name: str = ""
    weight: _Int64 = 0


class UtilizationShapePoint(_ArgsObject, frozen=True):
    """A point of a piecewise linear function from utilization (0-100) to a score (0-10)."""

    utilization: int = 0
    score: int = 0


class RequestedToCapacityRatio(_ArgsObject, frozen=True):
    """The function of the scoring strategy RequestedToCapacityRatio."""

    shape: tuple[UtilizationShapePoint, ...] = ()


class ScoringStrategy(_ArgsObject, frozen=True):
    """How NodeResourcesFit scores: ``type`` is LeastAllocated, MostAllocated or RequestedToCapacityRatio."""

    type: str = ""
    resources: tuple[ResourceSpec, ...] = ()
    requested_to_capacity_ratio: RequestedToCapacityRatio | None = None


CPU_AND_MEMORY = (ResourceSpec(name="cpu", weight=1), ResourceSpec(name="memory", weight=1))


class NodeResourcesFitArgs(PluginArgs, frozen=True):
    """Extended resources that the filter leaves to others (by name, or by the part before "/"), and how to score."""

    ignored_resources: tuple[str, ...] = ()
    ignored_resource_groups: tuple[str, ...] = ()
    scoring_strategy: ScoringStrategy = ScoringStrategy(type="LeastAllocated", resources=CPU_AND_MEMORY)


class NodeResourcesBalancedAllocationArgs(PluginArgs, frozen=True):
    """The resources whose use should be even."""

    resources: tuple[ResourceSpec, ...] = ()


class PodTopologySpreadArgs(PluginArgs, frozen=True):
    """Constraints of pods that bring none: ``default_constraints`` ("List") or the built-in ones ("System")."""

    default_constraints: tuple[TopologySpreadConstraint, ...] = ()
    defaulting_type: str = ""


class VolumeBindingArgs(PluginArgs, frozen=True):
    """How long binding volumes may take, in seconds, and how free capacity scores (gate StorageCapacityScoring)."""

    bind_timeout_seconds: _Int64 = 600
    shape: tuple[UtilizationShapePoint, ...] | None = None


class DynamicResourcesArgs(PluginArgs, frozen=True):
    """Limits on the time spent per node in Filter (0: none), and on waiting for binding conditions in PreBind.

    None where the feature gate of the limit is off.
    """

    filter_timeout: Duration | None = None
    binding_timeout: Duration | None = None


ARGS_TYPES: Mapping[str, type[PluginArgs]] = MappingProxyType(
    {
        "DefaultPreemption": DefaultPreemptionArgs,
        "DynamicResources": DynamicResourcesArgs,
        "InterPodAffinity": InterPodAffinityArgs,
        "NodeAffinity": NodeAffinityArgs,
        "NodeResourcesBalancedAllocation": NodeResourcesBalancedAllocationArgs,
        "NodeResourcesFit": NodeResourcesFitArgs,
        "PodTopologySpread": PodTopologySpreadArgs,
        "VolumeBinding": VolumeBindingArgs,
    }
)
"""The type of the arguments of each in-tree plugin that has any."""
