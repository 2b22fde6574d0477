"""The system default constraints, and the selector of default constraints (semantics 8.14).

Default constraints apply to pods without their own. Their selector is deduced from the services that select the pod and
from the controller that owns it.
"""

from __future__ import annotations

from kubestow.api.apps import ReplicaSet, StatefulSet
from kubestow.api.core import ReplicationController, Service, TopologySpreadConstraint
from kubestow.api.meta import LabelSelector
from kubestow.api.selectors import Selector, compile_selector
from kubestow.cluster.cache import Cluster
from kubestow.cluster.pods.shapes import Shape
from kubestow.errors import InvalidSelector
from kubestow.plugins.pod_topology_spread.constraints import SCHEDULE_ANYWAY

__all__ = ["SYSTEM_DEFAULT_CONSTRAINTS", "default_label_keys", "default_selector", "owning_controller"]

SYSTEM_DEFAULT_CONSTRAINTS = (
    TopologySpreadConstraint(max_skew=3, topology_key="kubernetes.io/hostname", when_unsatisfiable=SCHEDULE_ANYWAY),
    TopologySpreadConstraint(
        max_skew=5, topology_key="topology.kubernetes.io/zone", when_unsatisfiable=SCHEDULE_ANYWAY
    ),
)


def default_selector(cluster: Cluster, shape: Shape) -> Selector:
    """The merged selectors of the pod's services AND the selector of its controller; empty if it has neither."""
    merged: dict[str, str] = {}
    for service in cluster.catalog(Service).in_namespace(shape.namespace):
        selector = service.spec.selector
        if selector and selector.items() <= shape.labels.items():
            merged |= selector
    match owning_controller(cluster, shape):
        case ReplicationController() as controller:
            merged |= controller.spec.selector
        case ReplicaSet() | StatefulSet() as controller:
            return _with_requirements(_from_labels(merged), controller.spec.selector)
    return _from_labels(merged)


def default_label_keys(cluster: Cluster, shape: Shape) -> frozenset[str]:
    """The keys of the pod labels on which :func:`default_selector` depends, and of those that it reads."""
    keys: set[str] = set()
    for service in cluster.catalog(Service).in_namespace(shape.namespace):
        keys.update(service.spec.selector)
    match owning_controller(cluster, shape):
        case ReplicationController() as controller:
            keys.update(controller.spec.selector)
        case ReplicaSet() | StatefulSet() as controller if controller.spec.selector is not None:
            keys.update(controller.spec.selector.label_keys)
    return frozenset(keys)


def owning_controller(cluster: Cluster, shape: Shape) -> ReplicationController | ReplicaSet | StatefulSet | None:
    """The controller of the pods, if it is of one of these kinds and in the cache."""
    owner = shape.controller
    if owner is None:
        return None
    match owner.api_version, owner.kind:
        case "v1", "ReplicationController":
            return cluster.catalog(ReplicationController).get(shape.namespace, owner.name)
        case "apps/v1", "ReplicaSet":
            return cluster.catalog(ReplicaSet).get(shape.namespace, owner.name)
        case "apps/v1", "StatefulSet":
            return cluster.catalog(StatefulSet).get(shape.namespace, owner.name)
    return None


def _from_labels(labels: dict[str, str]) -> Selector:
    return compile_selector(LabelSelector(match_labels=labels))


def _with_requirements(selector: Selector, other: LabelSelector | None) -> Selector:
    """Both selectors; an invalid second one adds nothing."""
    try:
        return selector.with_requirements(compile_selector(other).requirements)
    except InvalidSelector:
        return selector
