"""AppGroups, with what the workloads of an application depend on, and NetworkTopologies, with what distance costs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar, TypeVar

from kubestow.api.custom import CustomObject
from kubestow.api.meta import APIObject
from kubestow.cluster.cache import Cluster

__all__ = ["GROUP_LABEL", "REGION", "WORKLOAD_LABEL", "ZONE", "AppGroup", "Dependency", "NetworkTopology", "first_of"]

GROUP_LABEL = "appgroup.diktyo.x-k8s.io"
"""The label of a pod that names its AppGroup."""
WORKLOAD_LABEL = "appgroup.diktyo.x-k8s.io.workload"
"""The label of a pod that is the selector of its workload."""

REGION, ZONE = "topology.kubernetes.io/region", "topology.kubernetes.io/zone"

T = TypeVar("T", bound=CustomObject)


class Workload(APIObject, frozen=True):
    """A workload, by the value of its pods' label."""

    selector: str = ""


class Dependency(APIObject, frozen=True):
    """A workload that another depends on, and the network cost up to which that is good."""

    workload: Workload = Workload()
    max_network_cost: int = 0


class AppGroupWorkload(APIObject, frozen=True):
    """``spec.workloads[]``."""

    workload: Workload = Workload()
    dependencies: list[Dependency] = []


class AppGroupSpec(APIObject, frozen=True):
    """``spec`` of an AppGroup."""

    workloads: list[AppGroupWorkload] = []


class TopologyInfo(APIObject, frozen=True):
    """``status.topologyOrder[]``: the position of a workload."""

    workload: Workload = Workload()
    index: int = 0


class AppGroupStatus(APIObject, frozen=True):
    """``status`` of an AppGroup."""

    topology_order: list[TopologyInfo] = []


class AppGroup(CustomObject, frozen=True):
    """An application."""

    resource: ClassVar[str] = "appgroups.v1alpha1.appgroup.diktyo.x-k8s.io"
    spec: AppGroupSpec = AppGroupSpec()
    status: AppGroupStatus = AppGroupStatus()

    def dependencies(self, selector: str) -> list[Dependency]:
        """What a workload depends on."""
        return [
            dependency
            for workload in self.spec.workloads
            if workload.workload.selector == selector
            for dependency in workload.dependencies
        ]

    def position(self, selector: str) -> int:
        """The position of a workload in the order of the topology, -1 if it has none."""
        order = self.status.topology_order
        return next((entry.index for entry in order if entry.workload.selector == selector), -1)


class Cost(APIObject, frozen=True):
    """The cost from an origin to a destination."""

    destination: str = ""
    network_cost: int = 0


class Origin(APIObject, frozen=True):
    """The costs from a region or zone."""

    origin: str = ""
    cost_list: list[Cost] = []


class TopologyCosts(APIObject, frozen=True):
    """The costs between the values of a topology key."""

    topology_key: str = ""
    origin_list: list[Origin] = []


class Weights(APIObject, frozen=True):
    """Named costs, such as those of the user or measured ones."""

    name: str = ""
    topology_list: list[TopologyCosts] = []


class NetworkTopologySpec(APIObject, frozen=True):
    """``spec`` of a NetworkTopology."""

    weights: list[Weights] = []


class NetworkTopology(CustomObject, frozen=True):
    """Costs between regions and between zones."""

    resource: ClassVar[str] = "networktopologies.v1alpha1.networktopology.diktyo.x-k8s.io"
    spec: NetworkTopologySpec = NetworkTopologySpec()

    def costs(self, weights_name: str, topology_key: str) -> Mapping[tuple[str, str], int]:
        """The costs by origin and destination."""
        return {
            (origin.origin, cost.destination): cost.network_cost
            for weights in self.spec.weights
            if weights.name == weights_name
            for topology in weights.topology_list
            if topology.topology_key == topology_key
            for origin in topology.origin_list
            for cost in origin.cost_list
        }


def first_of(cluster: Cluster, kind: type[T], namespaces: Iterable[str], name: str) -> T | None:
    """The object of a name in the first of some namespaces that has one."""
    catalog = cluster.catalog(kind)
    return next((obj for namespace in namespaces if (obj := catalog.get(namespace, name)) is not None), None)
