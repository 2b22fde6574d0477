"""The QoS class of a pod, by its requests and limits of CPU and memory."""

from __future__ import annotations

from enum import StrEnum

from kubestow.api.core import PodSpec, ResourceRequirements
from kubestow.api.formats.quantity import Quantity, nanos
from kubestow.errors import InvalidQuantity

__all__ = ["QOSClass", "qos_class"]

_COMPUTE = ("cpu", "memory")


class QOSClass(StrEnum):
    """How a pod's resources are assured."""

    GUARANTEED = "Guaranteed"
    BURSTABLE = "Burstable"
    BEST_EFFORT = "BestEffort"


def qos_class(spec: PodSpec) -> QOSClass:
    """The class that the kubelet assigns.

    Guaranteed pods have equal limits and requests of CPU and memory, in all containers or, if they have any, in the
    resources of the pod; BestEffort pods have neither.
    """
    if spec.resources is not None and _sets_any(spec.resources):
        resources = [spec.resources]
    else:
        resources = [container.resources for container in (*spec.containers, *spec.init_containers)]
    if not any(map(_sets_any, resources)):
        return QOSClass.BEST_EFFORT
    return QOSClass.GUARANTEED if all(map(_is_guaranteed, resources)) else QOSClass.BURSTABLE


def _sets_any(resources: ResourceRequirements) -> bool:
    return any(
        _positive(amounts.get(name, 0)) for amounts in (resources.requests, resources.limits) for name in _COMPUTE
    )


def _is_guaranteed(resources: ResourceRequirements) -> bool:
    limits, requests = resources.limits, resources.requests
    return all(
        _positive(limits.get(name, 0)) and _value(requests.get(name, limits[name])) == _value(limits[name])
        for name in _COMPUTE
    )


def _positive(quantity: Quantity) -> bool:
    return _value(quantity) > 0


def _value(quantity: Quantity) -> int:
    try:
        return nanos(quantity)
    except InvalidQuantity:
        return 0
