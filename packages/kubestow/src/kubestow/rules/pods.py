"""Qualities of one pod that many decisions depend on: terminal phases, conditions, QoS class and host ports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import cached_property
from typing import Any, NamedTuple, Protocol

from kubestow.api.core import PodCondition, PodSpec, PodStatus
from kubestow.api.formats.quantity import Quantity, nanos
from kubestow.errors import InvalidQuantity
from kubestow.rules.minors import DEFAULT_MINOR, Behaviour, Minor
from kubestow.rules.requests import is_pod_level

#: The phases of pods whose containers have ended for good. Such a pod holds no resources of its node (semantics 1.5).
TERMINAL_PHASES = ("Succeeded", "Failed")


def is_terminal(phase: str | None) -> bool:
    """Whether a pod in this phase has finished; None, without a phase, counts as Pending (Pod lifecycle)."""
    return phase in TERMINAL_PHASES


# -- QoS class -------------------------------------------------------------------------------------------------------

_COMPUTE = ("cpu", "memory")
#: The requests and the limits of a container, or of the pod as a whole.
_Resources = tuple[Mapping[str, Quantity], Mapping[str, Quantity]]


class QOSClass(StrEnum):
    """How a pod's resources are assured."""

    GUARANTEED = "Guaranteed"
    BURSTABLE = "Burstable"
    BEST_EFFORT = "BestEffort"


def condition_of(status: PodStatus, kind: str) -> PodCondition | None:
    """The condition of a type, such as PodScheduled; None without it."""
    return next((condition for condition in status.conditions if condition.type == kind), None)


def is_preempted(status: PodStatus) -> bool:
    """Whether a scheduler has chosen a pod as a victim of preemption: its condition DisruptionTarget says so."""
    target = condition_of(status, "DisruptionTarget")
    return target is not None and target.status == "True" and target.reason == "PreemptionByScheduler"


def qos_class(spec: PodSpec) -> QOSClass:
    """The class by requests and limits of CPU and memory ("Pod Quality of Service Classes", KEP-2837).

    The resources of the pod as a whole count if it has any, else those of its containers and init containers.
    Guaranteed pods have limits that equal the requests, BestEffort pods have neither. A missing request is the limit;
    zero, and a quantity that does not parse, count as missing.
    """
    containers = [(one.resources.requests, one.resources.limits) for one in (*spec.containers, *spec.init_containers)]
    whole = spec.resources
    return _by_resources((whole.requests, whole.limits) if whole is not None else ({}, {}), containers)


def qos_class_of(manifest: Mapping[str, Any]) -> QOSClass:
    """:func:`qos_class` of the pod spec of a manifest."""
    containers = (*(manifest.get("containers") or ()), *(manifest.get("initContainers") or ()))
    return _by_resources(_resources_of(manifest), [_resources_of(container) for container in containers])


def _resources_of(owner: Mapping[str, Any]) -> _Resources:
    resources = owner.get("resources") or {}
    return resources.get("requests") or {}, resources.get("limits") or {}


def _by_resources(pod_level: _Resources, containers: Sequence[_Resources]) -> QOSClass:
    has_pod_level = any(is_pod_level(name) for amounts in pod_level for name in amounts)
    owners = [pod_level] if has_pod_level else containers
    if not any(_value(amounts.get(name, "0")) > 0 for owner in owners for amounts in owner for name in _COMPUTE):
        return QOSClass.BEST_EFFORT
    return QOSClass.GUARANTEED if all(map(_is_guaranteed, owners)) else QOSClass.BURSTABLE


def _is_guaranteed(resources: _Resources) -> bool:
    requests, limits = resources
    bounds = ((name, limits.get(name, "0")) for name in _COMPUTE)
    return all(_value(requests.get(name, bound)) == _value(bound) > 0 for name, bound in bounds)


def _value(quantity: Quantity) -> int:
    try:
        return nanos(quantity)
    except InvalidQuantity:
        return 0


# -- host ports ------------------------------------------------------------------------------------------------------

_ANY_IP = "0.0.0.0"


class _HasHostPorts(Protocol):
    @property
    def host_ports(self) -> HostPorts: ...


class HostPort(NamedTuple):
    """A host port: its IP address, protocol and number."""

    ip: str
    protocol: str
    port: int

    @property
    def on_any_ip(self) -> HostPort:
        """The same port on any IP address."""
        return self._replace(ip=_ANY_IP)

    def conflicts_with(self, other: HostPort) -> bool:
        """Whether two pods with these ports cannot share a node (semantics 7.4)."""
        return (
            self.port == other.port
            and self.protocol == other.protocol
            and (_ANY_IP in (self.ip, other.ip) or self.ip == other.ip)
        )

    def conflicts_in(self, pod: _HasHostPorts) -> int:
        """How many host ports of a pod conflict with this one."""
        return pod.host_ports.conflicts_with(self)

    def is_used_by(self, pod: _HasHostPorts) -> bool:
        """Whether a pod has exactly this host port."""
        return self in pod.host_ports.distinct


class HostPorts(tuple[HostPort, ...]):
    """The host ports of a pod, sorted and without duplicates."""

    @cached_property
    def distinct(self) -> frozenset[HostPort]:
        """The same ports."""
        return frozenset(self)

    @cached_property
    def _counts(self) -> Counter[tuple[str, int]]:
        """How many ports have a protocol and a number."""
        return Counter((port.protocol, port.port) for port in self)

    def conflicts_with(self, other: HostPort) -> int:
        """How many of the ports conflict with another one (:meth:`HostPort.conflicts_with`)."""
        if other.ip == _ANY_IP:
            return self._counts[other.protocol, other.port]
        return (other in self.distinct) + (other.on_any_ip in self.distinct)


def host_ports(spec: PodSpec, minor: Minor = DEFAULT_MINOR) -> HostPorts:
    """The host ports that count, sorted and without duplicates (semantics 7.4)."""
    counts_sidecars = minor.has(Behaviour.HOST_PORTS_OF_SIDECARS_COUNT)
    sidecars = (one for one in spec.init_containers if counts_sidecars and one.restart_policy == "Always")
    ports = {
        HostPort(port.host_ip or _ANY_IP, port.protocol or "TCP", port.host_port)
        for container in (*spec.containers, *sidecars)
        for port in container.ports
        if port.host_port > 0
    }
    return HostPorts(sorted(ports))
