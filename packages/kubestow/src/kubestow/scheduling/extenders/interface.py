"""The interface to one extender: an external service that filters, scores, preempts or binds beside the plugins.

The HTTP client implements it (:mod:`kubestow.client.http_extender`). Nodes are given by name, because rows of the node
table move while an extender is awaited (semantics 5.5, 9.4).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from kubestow import config
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import ExtenderError
from kubestow.framework.interface import Victims


class PodGone(ExtenderError):
    """The pod was deleted before the extender could be called, which is no failure of the extender."""


@dataclass(frozen=True, slots=True)
class ExtenderFilterResponse:
    """One extender's response to filter: the nodes that pass, and by node name why others do not."""

    passed: Sequence[str]
    failed: Mapping[str, str] = field(default_factory=dict)
    unresolvable: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ExtenderVictims:
    """One extender's response to preempt for one node: the victims by uid, and how many violate a budget."""

    uids: Sequence[str]
    violations: int = 0


class Extender(Protocol):
    """One configured extender. Every method raises ExtenderError."""

    @property
    def settings(self) -> config.Extender:
        """Its entry in the configuration."""

    async def filter(self, pod: PodInfo, names: Sequence[str]) -> ExtenderFilterResponse:
        """Which of the named nodes pass."""

    async def prioritize(self, pod: PodInfo, names: Sequence[str]) -> Sequence[tuple[str, int]]:
        """Raw scores of the named nodes, 0 to 10."""

    async def preempt(self, pod: PodInfo, victims_by_node: Mapping[str, Victims]) -> Mapping[str, ExtenderVictims]:
        """Which candidate nodes remain, with the victims on each."""

    async def bind(self, pod: PodInfo, node_name: str) -> None:
        """Bind the pod."""
