"""A second opinion on every decision, computed from the state that the scheduler's watches had delivered.

:func:`kubestow_lab.oracle.feasibility.check_feasibility` implements all filters except those of volumes and devices,
and shares no code with the engine. A pod may be placed on a node only if it finds the node feasible.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from kubestow.api.core import Node, Pod
from kubestow_lab.fault_simulation.invariants.volumes import volume_violations
from kubestow_lab.fault_simulation.scheduler.process import Process
from kubestow_lab.oracle.feasibility import check_feasibility


def plain(obj: Any) -> Any:
    """An object as plain data, in its API form."""
    return msgspec.to_builtins(obj)


class SecondOpinion:
    """Checks the decisions of one process; caches the plain form of the last version of each object."""

    def __init__(self) -> None:
        self._plain: dict[tuple[str, str], tuple[Any, Any]] = {}

    def check(self, process: Process, pod: Pod, node_name: str) -> Iterator[str]:
        """Why a decision is wrong, given the watch view of the process and its assumed pods."""
        view = process.view
        placed = {known.metadata.uid: (known, known.spec.node_name) for known in view.pods.values()}
        for assumed in process.scheduler.cluster.assumed():
            placed[assumed.info.uid] = assumed.info.pod, assumed.node_name
        nodes = {node.metadata.name for node in view.nodes.values()}
        on_nodes = [(other, where) for other, where in placed.values() if where in nodes]
        yield from self._infeasibility(pod, node_name, nodes=view.nodes.values(), placed=on_nodes)
        yield from volume_violations(
            pod, node_name, placed=on_nodes, claims=view.claims.values(), volumes=view.volumes.values()
        )

    def _infeasibility(
        self, pod: Pod, node_name: str, *, nodes: Iterable[Node], placed: Iterable[tuple[Pod, str]]
    ) -> Iterator[str]:
        known = [self._of(node) for node in nodes]
        bound = [_on(self._of(other), where) for other, where in placed]
        (verdict,) = check_feasibility([self._of(pod)], known, bound)
        if node_name not in verdict.nodes:
            reasons = [*verdict.unresolvable, *verdict.shortages, *verdict.conflicts]
            feasible = list(verdict.nodes)
            yield f"{pod.metadata.name} does not fit {node_name}, feasible are {feasible}: {', '.join(reasons)}"

    def _of(self, obj: Any) -> Any:
        key = (type(obj).__name__, obj.metadata.uid)
        version, converted = self._plain.get(key, (None, None))
        if version is not obj:
            converted = plain(obj)
            self._plain[key] = obj, converted
        return converted


def _on(pod: Any, node_name: str) -> Any:
    return pod if pod["spec"].get("nodeName") == node_name else pod | {"spec": pod["spec"] | {"nodeName": node_name}}
