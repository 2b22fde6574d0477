"""A second opinion on every decision, from what the scheduler had been told when it made it.

:func:`kubestow.workloads.feasibility.check_feasibility` knows all the rules that keep a pod from a node but those of
volumes and devices, and shares no code with the engine. A pod may go to a node only if it agrees.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from kubestow.api.core import Node, Pod
from kubestow.workloads.feasibility import check_feasibility

__all__ = ["Opinion", "plain"]


def plain(obj: Any) -> Any:
    """An object as the API shows it."""
    return msgspec.to_builtins(obj)


class Opinion:
    """Judges decisions; objects are made plain once for each of their versions."""

    def __init__(self) -> None:
        self._plain: dict[tuple[str, str], tuple[Any, Any]] = {}

    def objections(
        self, pod: Pod, node_name: str, *, nodes: Iterable[Node], placed: Iterable[tuple[Pod, str]]
    ) -> Iterator[str]:
        """Why a pod may not go to a node, given nodes and the pods on them, each with the name of its node."""
        known = [self._of(node) for node in nodes]
        bound = [_on(self._of(other), where) for other, where in placed]
        (verdict,) = check_feasibility([self._of(pod)], known, bound)
        if node_name not in verdict.nodes:
            why = [*verdict.unresolvable, *verdict.shortages, *verdict.conflicts]
            yield f"{pod.metadata.name} must not go to {node_name}, only to {list(verdict.nodes)}: {', '.join(why)}"

    def _of(self, obj: Any) -> Any:
        key = (type(obj).__name__, obj.metadata.uid)
        seen, made = self._plain.get(key, (None, None))
        if seen is not obj:
            made = plain(obj)
            self._plain[key] = obj, made
        return made


def _on(pod: Any, node_name: str) -> Any:
    return pod if pod["spec"].get("nodeName") == node_name else pod | {"spec": pod["spec"] | {"nodeName": node_name}}
