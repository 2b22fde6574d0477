"""Gangs: pods that are scheduled all together or not at all.

A plugin that derives from :class:`GangPlugin` or :class:`GangSource` defines which pods are a gang. The scheduler
places a gang in one cycle (:mod:`kubestow.scheduling.gangs.scheduling_cycle`): if enough members are placed, all of
them continue to the binding cycle; otherwise every placement of the cycle is undone.

Placements: the parts of the cluster to one of which a gang is restricted (semantics 4.10, 8.19).

When the pods of a gang have to be close to each other, a PlacementGenerate plugin lists the parts of the cluster that
qualify, such as the nodes of each rack. The scheduler simulates the gang in each of them. PlacementScore plugins score
the placements in which it fits from 0 to 100; weights and ties work as with the scores of nodes.

These plugins only read the cluster.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.pod_groups import Members
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.cluster.pods.table import PodChanges
from kubestow.config import ExtensionPoint
from kubestow.framework.interface import Plugin, PreEnqueuePlugin
from kubestow.framework.status import Status


@dataclass(frozen=True, slots=True)
class GroupTerms:
    """What all pods of a group have in common that is scheduled as a unit (Behaviour.POD_GROUPS_ARE_UNITS).

    ``preemption_policy`` is None where the group has none and that of its pods counts.
    """

    priority: int
    preemption_policy: str | None = None


@dataclass(frozen=True, slots=True)
class Segments:
    """The pods of a gang are placed in segments of ``size`` pods.

    Each segment is on nodes with one value of the label ``key``; such a domain may have several.
    """

    key: str
    size: int

    def are_whole(self, domains: Iterable[str | None]) -> bool:
        """Whether pods in these domains (one entry per pod, None on nodes without the label) are in whole segments."""
        counts = Counter(domains)
        return None not in counts and all(count % self.size == 0 for count in counts.values())


@dataclass(frozen=True, slots=True)
class Preference:
    """Terms beside those that a gang requires: all its pods are in one domain of the label ``level`` (anywhere if that
    is empty), and in these ``segments``.
    """

    level: str
    segments: Segments | None


@dataclass(frozen=True, slots=True)
class Role:
    """Some members of a gang (``uids``), at least ``min_count`` of which must have nodes."""

    name: str
    min_count: int
    uids: frozenset[str]


@dataclass(frozen=True, slots=True)
class Gang:
    """A gang. ``name`` identifies it and appears in messages as text; ``uid`` is that of its object, such as the
    PodGroup.

    At least ``min_count`` members must have nodes at the same time. Placed members wait for each other up to
    ``timeout`` seconds before they are bound. The pods of a gang with ``terms`` are only ever decided about together.

    Of each of the ``roles`` enough members need nodes too. Where there are ``segments``, only a placement in whole
    segments counts.

    A composite gang has ``children``, of which at least ``min_groups`` must be schedulable; its members are theirs.

    The ``preferences`` are terms that the gang is placed by if it fits so, the best first. ``level`` is the label that
    all its pods are in one domain of, while such a preference is tried.
    """

    name: Hashable
    uid: str
    min_count: int
    timeout: float
    members: Members
    terms: GroupTerms | None = None
    children: tuple[Gang, ...] = ()
    min_groups: int = 0
    roles: tuple[Role, ...] = ()
    segments: Segments | None = None
    preferences: tuple[Preference, ...] = ()
    level: str = ""

    def levels(self) -> list[Gang]:
        """This gang with the terms of each of its preferences, the best first, and at last with those it requires.

        The groups of a tree go on to lesser preferences together.
        """
        own = [(each.level, each.segments) for each in self.preferences] + [(self.level, self.segments)]
        of_children = [child.levels() for child in self.children]
        found = []
        for number in range(max(len(own), *(len(levels) for levels in of_children)) if of_children else len(own)):
            level, segments = own[min(number, len(own) - 1)]
            children = tuple(levels[min(number, len(levels) - 1)] for levels in of_children)
            found.append(replace(self, level=level, segments=segments, preferences=(), children=children))
        return found

    @property
    def has_preferences(self) -> bool:
        """Whether the gang, or one below it, prefers terms beside those that it requires."""
        return bool(self.preferences) or any(child.has_preferences for child in self.children)

    @property
    def topology_text(self) -> str:
        """The terms of topology that are not those of a plugin, in words; empty without any."""
        own = [f"one domain of {self.level}"] if self.level else []
        if self.segments is not None:
            own.append(f"segments of {self.segments.size} in domains of {self.segments.key}")
        return " and ".join(dict.fromkeys([*own, *(c.topology_text for c in self.children if c.topology_text)]))

    def leaves(self) -> Iterator[Gang]:
        """The gangs without children at the end of all branches, this one if it has none."""
        if not self.children:
            yield self
        for child in self.children:
            yield from child.leaves()

    @property
    def missing_pods(self) -> int:
        """How many members at least still need a node; of a composite gang those of its cheapest children."""
        if self.children:
            return sum(sorted(child.missing_pods for child in self.children)[: self.min_groups])
        placed = self.members.placed
        of_roles = sum(max(0, role.min_count - len(placed & role.uids)) for role in self.roles)
        return max(0, self.min_count - len(placed), of_roles)

    def is_satisfied(self, also: Collection[str] = ()) -> bool:
        """Whether enough members have a node, when those of ``also`` (uids) have one as well."""
        if self.children:
            return sum(child.is_satisfied(also) for child in self.children) >= self.min_groups
        with_node = self.members.placed.union(uid for uid in self.members.pods if uid in also)
        has_roles = all(len(with_node & role.uids) >= role.min_count for role in self.roles)
        return len(with_node) >= self.min_count and has_roles

    @property
    def has_segments(self) -> bool:
        """Whether pods of the gang, or of one below it, are placed in segments."""
        return any(leaf.segments is not None for leaf in self.leaves())


class GangOutcome(StrEnum):
    """How an attempt to schedule a gang ended; the values are labels of metrics."""

    SCHEDULED = "scheduled"
    UNSCHEDULABLE = "unschedulable"
    WAITING_ON_PREEMPTION = "waiting_on_preemption"
    ERROR = "error"


class GangSource(Plugin):
    """Defines which pods are a gang."""

    @abstractmethod
    def gang_of(self, pod: PodInfo) -> Gang | None:
        """The gang of a pod, None for a pod that is scheduled by itself."""

    def queued_group_of(self, pod: PodInfo) -> Hashable | None:
        """The name of the gang with which the pod is one entity of the queue (Behaviour.POD_GROUPS_ARE_QUEUED).

        None for a pod that is queued by itself, as those of gangs without terms are.
        """
        return None

    def attempt_ended(self, gang: Gang, outcome: GangOutcome, message: str) -> None:
        """Called after every attempt to schedule a gang; the message says why it failed."""


class GangPlugin(GangSource, PreEnqueuePlugin):
    """Defines which pods are a gang, and gates them until the gang has enough members.

    Only the first such plugin of a profile is used, or the first other GangSource if there is none.
    """


@dataclass(frozen=True, slots=True)
class Evictable:
    """The pods that may be evicted for a gang, in units that are evicted as a whole, the most important unit first.

    ``units`` has a run of pods per unit; ``rows`` (intp, one per pod) are the rows of their nodes in the node table.
    ``violations`` (int64, one per unit) is how many of its evictions violate a disruption budget, None if unknown.
    """

    units: PodChanges
    rows: NDArray[np.intp]
    violations: NDArray[np.int64] | None = None


class GangPreemptionPlugin(Plugin):
    """Lists the pods that may be evicted for a gang as a whole; the scheduler evicts as few of them as possible.

    Only the first such plugin of a profile is used, of those at PodGroupPostFilter or else at PostFilter.
    """

    @abstractmethod
    def preempts_as_a_whole(self, gang: Gang) -> bool:
        """Whether pods are evicted for the gang as a whole; otherwise its pods preempt one after another."""

    @abstractmethod
    def evictable_units(self, gang: Gang, pods: Sequence[PodInfo]) -> Evictable | Status:
        """The pods that may be evicted, or why there are none. ``pods`` are the members without a node.

        A PENDING status means that victims of an earlier preemption for the gang are still terminating.
        """


class PodGroupPostFilterPlugin(GangPreemptionPlugin):
    """A plugin that evicts pods for a gang where it is enabled at PodGroupPostFilter, and not at PostFilter."""


class GangPlacementPlugin(Plugin):
    """Finds nodes for gangs that do not fit where the scheduler places their pods, one after the other.

    It is enabled at PostFilter, and called for gangs there, not for pods. Only the first such plugin of a profile is
    used.
    """

    inert_at: ClassVar[Collection[ExtensionPoint]] = (ExtensionPoint.POST_FILTER,)
    events_to_register = ()

    @abstractmethod
    def place_gang(self, gang: Gang, pods: Sequence[PodInfo]) -> Sequence[tuple[PodInfo, str]] | Status:
        """Nodes for enough of ``pods``, the members without a node, in an order in which they fit; or why not.

        The scheduler places the pods on these nodes if all plugins agree; if not, this is called once more. A PENDING
        status means that the answer is not known yet: the gang does not preempt, and the plugin activates the pods when
        it is. With any other rejection its message is that of the gang, which may preempt. With a success the plugin
        has no say.
        """


Scores = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Placement:
    """A part of the cluster; ``name`` identifies it in messages."""

    name: str
    nodes: Nodes


def placements_by_label(nodes: Nodes, key: str, only: str | None = None) -> list[Placement]:
    """A placement for each value of a node label, sorted by value; for one value only if that is given."""
    ids, values = nodes.label(key), nodes.label_values(key)
    positions = np.argsort(ids, kind="stable")
    numbers, starts = np.unique(ids[positions], return_index=True)
    domains = zip(numbers.tolist(), np.split(positions, starts[1:]), strict=True)
    present = {value: of_value for number, of_value in domains if (value := values[number]) is not None}
    chosen = sorted(present) if only is None else [only] if only in present else []
    return [Placement(value, nodes.select(present[value])) for value in chosen]


@dataclass(frozen=True, slots=True)
class Proposal:
    """A possible assignment of pods of a gang to nodes of a placement, by pod; no pod is placed yet."""

    placement: Placement
    assignments: Sequence[tuple[PodInfo, str]]


class PlacementGeneratePlugin(Plugin):
    """Lists the placements of a gang; a profile has at most one such plugin."""

    @abstractmethod
    def placements(self, gang: Gang, pods: Sequence[PodInfo], nodes: Nodes) -> Sequence[Placement] | Status | None:
        """The placements among ``nodes``, which are all nodes; None when the gang may use all of them.

        ``pods`` are the members without a node; others may be placed already (``gang.members.placed``). A status other
        than a success rejects the gang.
        """


class PlacementScorePlugin(Plugin):
    """Scores the placements in which a gang fits."""

    @abstractmethod
    def score_placement(self, gang: Gang, proposal: Proposal) -> int:
        """The raw score of one placement, as a whole number."""

    def normalize_placements(self, gang: Gang, scores: Scores) -> Scores:
        """Normalize raw scores (int64, one per placement) to 0 .. MAX_SCORE, where they are by default."""
        return scores
