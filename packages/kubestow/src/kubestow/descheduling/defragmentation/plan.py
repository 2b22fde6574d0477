"""A defragmentation plan: which pods leave which nodes, in which steps, so that these are free for a gang.

``kubestow what-if defragment`` makes plans, ``kubestow deschedule --plan`` carries them out; between them a plan is a
JSON document. The pods of one step may be evicted together; the next step begins when their replacements run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import msgspec

from kubestow.api.core import Pod
from kubestow.api.meta import APIObject
from kubestow.errors import InputError
from kubestow.reports.model import Block, Paragraph, Table, counted
from kubestow.reports.text import Displayed

KIND = "DefragmentationPlan"

#: The controllers of pods that belong to their node: those of a DaemonSet, and static pods.
_OF_NODES = ("DaemonSet", "Node")


@dataclass(frozen=True, slots=True)
class PlannedMove:
    """The eviction of a pod (``namespace/name``), and the node that its replacement gets.

    ``step`` counts from 1. ``controller`` replaces the pod, such as ``ReplicaSet/web``. ``uid`` is that of the pod; ""
    if the cluster was read from a file without.
    """

    pod: str
    source: str
    target: str
    step: int = 1
    uid: str = ""
    controller: str = ""

    @property
    def namespace(self) -> str:
        """The namespace of the pod."""
        return self.pod.partition("/")[0]

    def is_of(self, pod: Pod) -> bool:
        """Whether a pod is the one that is to move: by its uid, or by its name where the plan has no uid."""
        return pod.metadata.uid == self.uid if self.uid else pod.key == self.pod


@dataclass(frozen=True, slots=True)
class FreedDomains:
    """The domains of a topology key, such as racks, that are free in the end; ``count`` of them were asked for."""

    topology_key: str
    count: int
    domains: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class DefragmentationPlan(Displayed):
    """How a gang gets its nodes: cordon some, evict pods step by step, and uncordon them for the gang.

    The node that a pod leaves is cordoned too, until all replacements of its step have a node. ``name`` is that of the
    gang, and ``pods`` the number of its pods; without a gang the nodes are freed for nothing in particular.
    ``staying`` are the pods that remain on cordoned nodes, those of DaemonSets and static ones aside, each with its
    node.

    ``fewest`` is a number of moves that no plan can do without; ``problem`` says why there is no plan, and is empty if
    there is one.
    """

    name: str = ""
    pods: int = 0
    cordoned: tuple[str, ...] = ()
    moves: tuple[PlannedMove, ...] = ()
    assignments: tuple[tuple[str, str], ...] = ()
    staying: tuple[tuple[str, str], ...] = ()
    freed: FreedDomains | None = None
    fewest: int = 0
    problem: str = ""

    @property
    def exists(self) -> bool:
        """Whether there is a plan; one without moves if the gang fits already."""
        return not self.problem

    @property
    def subject(self) -> str:
        """What the plan is for: the name of the gang, or the domains that it frees."""
        if self.name or self.freed is None:
            return self.name
        domains = ", ".join(self.freed.domains) or counted(self.freed.count, "domain")
        return f"{self.freed.topology_key} {domains}"

    @property
    def reason(self) -> str:
        """Why its pods are evicted, in words."""
        return f"makes room for {self.name}" if self.name else f"frees {self.subject}"

    def steps(self) -> Iterator[tuple[PlannedMove, ...]]:
        """The moves of one step after the other."""
        for _, moves in groupby(self.moves, key=lambda move: move.step):
            yield tuple(moves)

    def document(self) -> dict[str, Any]:
        """The plan as data for JSON and YAML."""
        free = None
        if self.freed is not None:
            domains = list(self.freed.domains)
            free = {"count": self.freed.count, "topologyKey": self.freed.topology_key, "domains": domains}
        return {
            "kind": KIND,
            "gang": self.name,
            "pods": self.pods,
            "exists": self.exists,
            "problem": self.problem,
            "fewestMoves": self.fewest,
            "free": free,
            "cordon": list(self.cordoned),
            "staying": [{"pod": pod, "node": node_name} for pod, node_name in self.staying],
            "moves": [
                {
                    "step": move.step,
                    "pod": move.pod,
                    "uid": move.uid,
                    "controller": move.controller,
                    "from": move.source,
                    "to": move.target,
                }
                for move in self.moves
            ],
            "assignments": [{"pod": pod, "node": node_name} for pod, node_name in self.assignments],
        }

    def blocks(self) -> Iterator[Block]:
        """The steps in their order."""
        if self.problem:
            yield Paragraph(f"{self.subject}: no plan: {self.problem}")
            return
        after = f"after {counted(len(self.moves), 'move')}" if self.moves else "as it is"
        if self.name:
            nodes = counted(len({node_name for _, node_name in self.assignments}), "node")
            fits = f"{self.name}: {counted(self.pods, 'pod fits', 'pods fit')}"
            yield Paragraph(f"{fits} on {nodes} {after}" if self.moves else f"{fits} {after}, on {nodes}")
        if self.freed is not None:
            free = counted(self.freed.count, "domain is free", "domains are free")
            yield Paragraph(f"{self.freed.topology_key}: {free} {after}: {', '.join(self.freed.domains)}")
        if not self.moves:
            return
        if self.fewest == len(self.moves):
            yield Paragraph("no plan has fewer moves", note=True)
        several = self.moves[-1].step > 1
        how = "then evict step by step" if several else "then evict"
        yield Paragraph(f"cordon {', '.join(self.cordoned)}; {how}, each pod from a cordoned node:")
        table = Table("step", "pod", "from", "to", right=("step",))
        for move in self.moves:
            table.add(str(move.step), move.pod, move.source, move.target)
        yield table
        if several:
            yield Paragraph("a step begins when the replacements of the one before run", note=True)
        yield Paragraph(f"then uncordon the nodes{', and create the gang' if self.name else ''}")


def stays_with_node(pod: Pod) -> bool:
    """Whether a pod belongs to its node, so that it is there whatever the node is freed for."""
    controller = pod.metadata.controller
    return controller is not None and controller.kind in _OF_NODES


# -- from JSON ---------------------------------------------------------------------------------------------------------


class _Move(APIObject, frozen=True, rename={"source": "from", "target": "to"}):
    pod: str
    source: str
    target: str
    step: int
    uid: str = ""
    controller: str = ""


class _Placed(APIObject, frozen=True):
    pod: str
    node: str


class _Freed(APIObject, frozen=True):
    count: int
    topology_key: str
    domains: tuple[str, ...] = ()


class _Document(APIObject, frozen=True):
    kind: str
    gang: str = ""
    pods: int = 0
    problem: str = ""
    fewest_moves: int = 0
    free: _Freed | None = None
    cordon: tuple[str, ...] = ()
    staying: tuple[_Placed, ...] = ()
    moves: tuple[_Move, ...] = ()
    assignments: tuple[_Placed, ...] = ()


def read_plan(content: bytes, subject: str) -> DefragmentationPlan:
    """The plan in a JSON document. Raises InputError, also for a document that says that there is no plan."""
    try:
        found = msgspec.json.decode(content, type=_Document)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(subject, f"is no plan of `kubestow what-if defragment -o json`: {error}") from None
    if found.kind != KIND:
        raise InputError(subject, f"expected a {KIND}, got kind {found.kind!r}")
    if found.problem:
        raise InputError(subject, f"has no plan: {found.problem}")
    steps = [move.step for move in found.moves]
    if steps != sorted(steps):
        raise InputError(subject, "the steps of its moves are not in order")
    free = found.free
    freed = None if free is None else FreedDomains(free.topology_key, free.count, free.domains)
    return DefragmentationPlan(
        found.gang,
        found.pods,
        found.cordon,
        tuple(PlannedMove(m.pod, m.source, m.target, m.step, m.uid, m.controller) for m in found.moves),
        tuple((each.pod, each.node) for each in found.assignments),
        tuple((each.pod, each.node) for each in found.staying),
        freed,
        found.fewest_moves,
    )
