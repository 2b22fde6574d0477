"""The collections a scheduler watches (reference 1.5).

Pods, nodes and namespaces have a place of their own in the cluster's state; every other kind is kept in a catalog under
its struct.
"""

from __future__ import annotations

from kubestow.api.apps import ReplicaSet, StatefulSet
from kubestow.api.core import Namespace, Node, Pod, ReplicationController, Service
from kubestow.scheduling.ports import Resource

__all__ = ["CATALOGUED", "NAMESPACES", "NODES", "PODS", "WATCHED"]

PODS = Resource("/api/v1", "pods", "Pod", Pod, field_selector="status.phase!=Succeeded,status.phase!=Failed")
NODES = Resource("/api/v1", "nodes", "Node", Node, namespaced=False)
NAMESPACES = Resource("/api/v1", "namespaces", "Namespace", Namespace, namespaced=False)

CATALOGUED = (
    Resource("/api/v1", "services", "Service", Service),
    Resource("/api/v1", "replicationcontrollers", "ReplicationController", ReplicationController),
    Resource("/apis/apps/v1", "replicasets", "ReplicaSet", ReplicaSet),
    Resource("/apis/apps/v1", "statefulsets", "StatefulSet", StatefulSet),
)

WATCHED = (NODES, NAMESPACES, *CATALOGUED, PODS)
"""All of them, in the order in which they should be read first: what pods depend on before the pods."""
