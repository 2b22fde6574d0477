"""A node with what is bound to it, and the rules between it and one pod.

Plain objects in, plain loops, one function for each rule of the Kubernetes documentation: slow and meant to be obvious.
Rules that involve other pods are in :mod:`kubestow.workloads.company`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from kubestow.api import quantity
from kubestow.workloads.workload import Object

__all__ = ["Site", "amounts", "forbidden", "requests", "selected", "selects", "untolerated"]

_CORDON = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
_REPELLING = ("NoSchedule", "NoExecute")
_ANY_ADDRESS = "0.0.0.0"


class Site:
    """A node and the pods bound to it. ``allocatable`` and ``free`` are whole numbers, see :func:`amounts`."""

    def __init__(self, node: Object) -> None:
        spec = node.get("spec") or {}
        self.name: str = node["metadata"]["name"]
        self.labels: dict[str, str] = node["metadata"].get("labels") or {}
        self.taints: list[Object] = spec.get("taints") or []
        self.cordoned = bool(spec.get("unschedulable"))
        self.allocatable = Counter(amounts((node.get("status") or {}).get("allocatable") or {}))
        self.free = self.allocatable.copy()
        self.pods: list[Object] = []
        self._ports: set[tuple[str, str, int]] = set()

    def add(self, pod: Object) -> None:
        """Give a pod bound here its part of the node."""
        self.pods.append(pod)
        self.free.subtract(requests(pod))
        self.free["pods"] -= 1
        self._ports |= _host_ports(pod)

    def conflicts(self, pod: Object) -> list[str]:
        """What the pods here already hold and the pod would need for itself: a pod slot, host ports."""
        taken = [
            f"with port {port}/{protocol} taken"
            for ip, protocol, port in _host_ports(pod)
            if self._taken(ip, protocol, port)
        ]
        return taken if self.free["pods"] > 0 else ["without a free pod slot", *taken]

    def _taken(self, ip: str, protocol: str, port: int) -> bool:
        return any(
            (protocol, port) == (held_protocol, held_port) and (ip == held_ip or _ANY_ADDRESS in (ip, held_ip))
            for held_ip, held_protocol, held_port in self._ports
        )


def forbidden(pod: Object, site: Site) -> str:
    """Why the pod may not use the node however empty it is; "" when it may."""
    if not selected(pod, site):
        return "outside its node selector or affinity"
    if site.cordoned and not _tolerates(pod, _CORDON):
        return "cordoned"
    taint = untolerated(pod, site)
    if taint:
        return f"tainted {taint['key']}={taint.get('value') or ''}:{taint['effect']}"
    return ""


def untolerated(pod: Object, site: Site) -> Object | None:
    """The first taint that keeps the pod away (semantics 8.5)."""
    return next((t for t in site.taints if t.get("effect") in _REPELLING and not _tolerates(pod, t)), None)


def _tolerates(pod: Object, taint: Object) -> bool:
    return any(_covers(toleration, taint) for toleration in pod["spec"].get("tolerations") or [])


def _covers(toleration: Object, taint: Object) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("key") and toleration["key"] != taint.get("key"):
        return False
    match toleration.get("operator") or "Equal":
        case "Exists":
            return True
        case "Equal":
            return (toleration.get("value") or "") == (taint.get("value") or "")
        case _:  # Lt and Gt are an alpha feature, off unless asked for.
            return False


def selected(pod: Object, site: Site) -> bool:
    """Whether the node meets the pod's node selector and required node affinity (semantics 8.6)."""
    spec = pod["spec"]
    wanted: Mapping[str, str] = spec.get("nodeSelector") or {}
    if any(site.labels.get(key) != value for key, value in wanted.items()):
        return False
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    return required is None or any(_term_holds(term, site) for term in required.get("nodeSelectorTerms") or [])


def _term_holds(term: Object, site: Site) -> bool:
    labels, fields = term.get("matchExpressions") or [], term.get("matchFields") or []
    holds = all(_holds(r, site.labels) for r in labels) and all(_holds(r, {"metadata.name": site.name}) for r in fields)
    return bool(labels or fields) and holds


def selects(selector: Object | None, labels: Mapping[str, str]) -> bool:
    """Whether a label selector selects labels: absent selects nothing, empty everything."""
    if selector is None:
        return False
    exact: Mapping[str, str] = selector.get("matchLabels") or {}
    expressions = selector.get("matchExpressions") or []
    return all(labels.get(key) == value for key, value in exact.items()) and all(_holds(r, labels) for r in expressions)


def _holds(requirement: Object, labels: Mapping[str, str]) -> bool:
    value, values = labels.get(requirement["key"]), requirement.get("values") or []
    match requirement["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt":
            return _compare(value, values, lambda a, b: a > b)
        case "Lt":
            return _compare(value, values, lambda a, b: a < b)
        case _:
            return False


def _compare(value: str | None, values: list[str], holds: Callable[[int, int], bool]) -> bool:
    try:
        return value is not None and len(values) == 1 and holds(int(value), int(values[0]))
    except ValueError:
        return False


def amounts(resources: Mapping[str, quantity.Quantity]) -> dict[str, int]:
    """Quantities as whole numbers: CPU in millicores, everything else in units. Raises InvalidQuantity."""
    return {name: quantity.millis(q) if name == "cpu" else quantity.units(q) for name, q in resources.items()}


def requests(pod: Object) -> Counter[str]:
    """What a pod asks of a node: its containers and sidecars together or, where more, the peak of its initialisation;
    overridden by what it asks as a whole; plus overhead (semantics 7.5). Raises InvalidQuantity."""
    spec = pod["spec"]
    running, sidecars, peak = Counter[str](), Counter[str](), Counter[str]()
    for container in spec.get("containers") or []:
        running.update(_asked(container))
    for container in spec.get("initContainers") or []:
        if container.get("restartPolicy") == "Always":
            sidecars.update(_asked(container))
            peak |= sidecars
        else:
            peak |= sidecars + _asked(container)
    total = (running + sidecars) | peak
    for name, amount in _asked(spec).items():
        if name in ("cpu", "memory") or name.startswith("hugepages-"):
            total[name] = amount
    total.update(amounts(spec.get("overhead") or {}))
    return total


def _asked(holder: Object) -> Counter[str]:
    return Counter(amounts((holder.get("resources") or {}).get("requests") or {}))


def _host_ports(pod: Object) -> set[tuple[str, str, int]]:
    """Address, protocol and port of every host port of the containers that keep running."""
    spec = pod["spec"]
    lasting: list[Any] = [c for c in spec.get("initContainers") or [] if c.get("restartPolicy") == "Always"]
    return {
        (port.get("hostIP") or _ANY_ADDRESS, port.get("protocol") or "TCP", port["hostPort"])
        for container in [*(spec.get("containers") or []), *lasting]
        for port in container.get("ports") or []
        if port.get("hostPort")
    }
