"""A node with its bound pods, and the scheduling rules between a node and one pod.

One function per rule of the Kubernetes documentation, in plain loops over plain objects: obvious rather than fast.
Constraints between pods are in :mod:`kubestow_lab.oracle.pod_constraints`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from kubestow.api.formats import quantity

Object = dict[str, Any]

_CORDON = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
_HARD_EFFECTS = ("NoSchedule", "NoExecute")
_ANY_ADDRESS = "0.0.0.0"


class NodeWithPods:
    """A node and its bound pods. ``allocatable`` and ``free`` are in the units of :func:`resource_amounts`."""

    def __init__(self, node: Object) -> None:
        spec = node.get("spec") or {}
        self.name: str = node["metadata"]["name"]
        self.labels: dict[str, str] = node["metadata"].get("labels") or {}
        self.taints: list[Object] = spec.get("taints") or []
        self.cordoned = bool(spec.get("unschedulable"))
        self.allocatable = Counter(resource_amounts((node.get("status") or {}).get("allocatable") or {}))
        self.free = self.allocatable.copy()
        self.pods: list[Object] = []
        self._ports: set[tuple[str, str, int]] = set()

    def add(self, pod: Object) -> None:
        """Add a bound pod."""
        self.pods.append(pod)
        self.free.subtract(pod_requests(pod))
        self.free["pods"] -= 1
        self._ports |= _host_ports(pod)

    def conflicts(self, pod: Object) -> list[str]:
        """The conflicts with bound pods: too many pods, host ports in use."""
        ports = [
            f"node(s) didn't have free port {port}/{protocol}"
            for ip, protocol, port in _host_ports(pod)
            if self._is_in_use(ip, protocol, port)
        ]
        return ports if self.free["pods"] > 0 else ["Too many pods", *ports]

    def _is_in_use(self, ip: str, protocol: str, port: int) -> bool:
        return any(
            (protocol, port) == (used_protocol, used_port) and (ip == used_ip or _ANY_ADDRESS in (ip, used_ip))
            for used_ip, used_protocol, used_port in self._ports
        )


def unresolvable_reason(pod: Object, node: NodeWithPods) -> str:
    """The reason why the node is infeasible even when empty, or ""."""
    if not matches_node_affinity(pod, node):
        return "node(s) didn't match Pod's node affinity/selector"
    if node.cordoned and not _tolerates(pod, _CORDON):
        return "node(s) were unschedulable"
    taint = untolerated_taint(pod, node)
    if taint:
        return f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value') or ''}}}"
    return ""


def untolerated_taint(pod: Object, node: NodeWithPods) -> Object | None:
    """The first untolerated NoSchedule or NoExecute taint (semantics 8.5)."""
    return next((t for t in node.taints if t.get("effect") in _HARD_EFFECTS and not _tolerates(pod, t)), None)


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
        case _:  # Lt and Gt need the alpha feature gate TaintTolerationComparisonOperators.
            return False


def matches_node_affinity(pod: Object, node: NodeWithPods) -> bool:
    """Whether the node meets the pod's node selector and required node affinity (semantics 8.6)."""
    spec = pod["spec"]
    node_selector: Mapping[str, str] = spec.get("nodeSelector") or {}
    if any(node.labels.get(key) != value for key, value in node_selector.items()):
        return False
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    return required is None or any(_term_holds(term, node) for term in required.get("nodeSelectorTerms") or [])


def _term_holds(term: Object, node: NodeWithPods) -> bool:
    labels, fields = term.get("matchExpressions") or [], term.get("matchFields") or []
    holds = all(_holds(r, node.labels) for r in labels) and all(_holds(r, {"metadata.name": node.name}) for r in fields)
    return bool(labels or fields) and holds


def matches_selector(selector: Object | None, labels: Mapping[str, str]) -> bool:
    """Whether a label selector matches labels: None matches nothing, an empty selector everything."""
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


def resource_amounts(resources: Mapping[str, quantity.Quantity]) -> dict[str, int]:
    """Quantities as integers: CPU in millicores, all else in units. Raises InvalidQuantity."""
    return {name: quantity.millis(q) if name == "cpu" else quantity.units(q) for name, q in resources.items()}


def pod_requests(pod: Object) -> Counter[str]:
    """The effective requests of a pod (semantics 7.5). Raises InvalidQuantity.

    The maximum of containers plus sidecars and of the init containers' peak, overridden by pod-level requests, plus
    overhead.
    """
    spec = pod["spec"]
    running, sidecars, peak = Counter[str](), Counter[str](), Counter[str]()
    for container in spec.get("containers") or []:
        running.update(_requests(container))
    for container in spec.get("initContainers") or []:
        if container.get("restartPolicy") == "Always":
            sidecars.update(_requests(container))
            peak |= sidecars
        else:
            peak |= sidecars + _requests(container)
    total = (running + sidecars) | peak
    for name, amount in _requests(spec).items():
        if name in ("cpu", "memory") or name.startswith("hugepages-"):
            total[name] = amount
    total.update(resource_amounts(spec.get("overhead") or {}))
    return total


def _requests(container: Object) -> Counter[str]:
    return Counter(resource_amounts((container.get("resources") or {}).get("requests") or {}))


def _host_ports(pod: Object) -> set[tuple[str, str, int]]:
    """Address, protocol and port of every host port of the containers and sidecars."""
    spec = pod["spec"]
    sidecars: list[Any] = [c for c in spec.get("initContainers") or [] if c.get("restartPolicy") == "Always"]
    return {
        (port.get("hostIP") or _ANY_ADDRESS, port.get("protocol") or "TCP", port["hostPort"])
        for container in [*(spec.get("containers") or []), *sidecars]
        for port in container.get("ports") or []
        if port.get("hostPort")
    }
