"""Where a pod fits, by an implementation that shares no code with the scheduler.

:func:`kubestow_lab.oracle.feasibility.check_feasibility` implements all filters except those of volumes and devices.
A pod may be placed on a node only if it finds the node feasible.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from kubestow.api.core import Node, Pod
from kubestow_lab.oracle.feasibility import check_feasibility


def plain(obj: Any) -> Any:
    """An object as plain data, in its API form."""
    return msgspec.to_builtins(obj)


class PlainObjects:
    """The plain form of the last version of each object, converted once."""

    def __init__(self) -> None:
        self._plain: dict[tuple[str, str], tuple[Any, Any]] = {}

    def of(self, obj: Any) -> Any:
        """An object as plain data, in its API form."""
        key = (type(obj).__name__, obj.metadata.uid or obj.metadata.name)
        version, converted = self._plain.get(key, (None, None))
        if version is not obj:
            converted = plain(obj)
            self._plain[key] = obj, converted
        return converted


def infeasibility(
    pod: Pod, node_name: str, *, nodes: Iterable[Node], placed: Iterable[tuple[Pod, str]], plain: PlainObjects
) -> Iterator[str]:
    """Why a pod does not fit on a node, given all nodes and the pods on them, each with the name of its node."""
    known = [plain.of(node) for node in nodes]
    bound = [_on(plain.of(other), where) for other, where in placed]
    (verdict,) = check_feasibility([plain.of(pod)], known, bound)
    if node_name not in verdict.nodes:
        reasons = [*verdict.unresolvable, *verdict.shortages, *verdict.conflicts]
        feasible = list(verdict.nodes)
        yield f"{pod.metadata.name} does not fit {node_name}, feasible are {feasible}: {', '.join(reasons)}"


def misfits_of_preemption(preemptor: Pod, node: Node, beside: Iterable[Pod], *, plain: PlainObjects) -> Iterator[str]:
    """Why a preemptor does not fit on its node beside other pods, none of which has constraints on other pods."""
    name = node.metadata.name
    return infeasibility(preemptor, name, nodes=[node], placed=[(pod, name) for pod in beside], plain=plain)


def _on(pod: Any, node_name: str) -> Any:
    return pod if pod["spec"].get("nodeName") == node_name else pod | {"spec": pod["spec"] | {"nodeName": node_name}}
