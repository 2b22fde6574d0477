"""The plugins of gangs: which pods are one, where it may be placed, and which pods may be evicted for it."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from operator import index
from random import Random

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.cache import Cluster
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import PluginError
from kubestow.framework.gang import (
    Evictable,
    Gang,
    GangOutcome,
    GangPlugin,
    Placement,
    PlacementGeneratePlugin,
    PlacementScorePlugin,
    Proposal,
    placements_by_label,
)
from kubestow.framework.runtime.plugin_caller import (
    PluginCaller,
    hashable,
    logged_error,
    may_gate,
    truth,
    unless_it_fails,
)
from kubestow.framework.runtime.validation import (
    as_assignments,
    as_gang,
    as_placement,
    as_scores,
    as_status,
    in_range,
    unexpected,
)
from kubestow.framework.status import SUCCESS, Code, Status

#: What there is instead of placements where none has a node.
NO_PLACEMENTS = Status.unschedulable("no feasible placements found")

Scores = NDArray[np.int64]


class GangRuntime(PluginCaller):
    """Calls the gang and placement plugins of one profile."""

    def gang_of(self, pod: PodInfo) -> Gang | None:
        """The gang of a pod, None for a pod that is scheduled by itself. Raises PluginError."""
        plugin = self.plugins.gang_source
        if plugin is None:
            return None
        return as_gang(plugin, self.call(plugin, "GangOf", plugin.gang_of, pod))

    def queued_group_of(self, pod: PodInfo) -> Hashable | None:
        """The gang with which a pod is one entity of the queue; None for a pod that is queued by itself.

        A pod for which the plugin fails is queued by itself, and its own attempt reports the failure.
        """
        plugin = self.plugins.gang_source
        if plugin is None:
            return None
        return unless_it_fails(
            None, plugin.name, "QueuedGroupOf", lambda: hashable(plugin.queued_group_of(pod)), pod=pod.key
        )

    def run_gang_pre_enqueue(self, pod: PodInfo) -> Status:
        """What PreEnqueue of the gang plugin returns for a pod now; SUCCESS in a profile without one."""
        plugin = self.plugins.gang_source
        if not isinstance(plugin, GangPlugin) or not may_gate(plugin, pod):
            return SUCCESS
        try:
            status = as_status(plugin, "PreEnqueue", self.call(plugin, "PreEnqueue", plugin.pre_enqueue, pod))
        except PluginError as error:
            status = logged_error(error)
        return status.by(plugin.name)

    def gang_attempt_ended(
        self, gang: Gang, outcome: GangOutcome, message: str, *, began: float, decided: float | None
    ) -> None:
        """Report the end of an attempt at a gang to the observer and to the plugin that defines the gang.

        ``began`` and ``decided`` are times of the clock; ``decided`` is None when no placement has been tried.
        """
        if self.observer is not None:
            deciding = None if decided is None else decided - began
            self.observer.gang_attempt_ended(outcome.value, self.now() - began, deciding=deciding)
        plugin = self.plugins.gang_source
        if plugin is not None:
            try:
                self.call(plugin, "Concluded", plugin.attempt_ended, gang, outcome, message)
            except PluginError as error:
                logged_error(error)

    def gang_preemption_ended(self, code: Code, *, evaluating: float | None) -> None:
        """Report the end of PodGroupPostFilter to the observer (:meth:`PluginObserver.gang_preemption_ended`)."""
        if self.observer is not None:
            self.observer.gang_preemption_ended(code, evaluating=evaluating)

    def preempts_as_a_whole(self, gang: Gang) -> bool:
        """Whether pods are evicted for the gang as a whole; False without a plugin for that, or when it fails."""
        plugin = self.plugins.gang_preemption
        if plugin is None:
            return False
        try:
            return self.call(plugin, "PreemptsFor", truth, plugin.preempts_as_a_whole, gang)
        except PluginError as error:
            logged_error(error)
            return False

    def evictable_units(self, gang: Gang, pods: Sequence[PodInfo]) -> Evictable | Status:
        """The pods that may be evicted for a gang as a whole, or the reason why none. Raises PluginError.

        ``pods`` are the members without a node. Only for gangs that :meth:`preempts_as_a_whole` is true of.
        """
        plugin = self.plugins.gang_preemption
        assert plugin is not None
        units = self.call(plugin, "PodGroupPostFilter", plugin.evictable_units, gang, pods)
        if isinstance(units, Evictable):
            return units
        if not isinstance(units, Status):
            raise unexpected(plugin, "PodGroupPostFilter", units, expected="Evictable or a Status")
        return as_status(plugin, "PodGroupPostFilter", units)

    def place_gang(self, gang: Gang, pods: Sequence[PodInfo]) -> Sequence[tuple[PodInfo, str]] | Status:
        """What the plugin that finds nodes for gangs answers; SUCCESS without one, or for no nodes at all.

        ``pods`` are the members without a node. Raises PluginError.
        """
        plugin = self.plugins.gang_placement
        if plugin is None:
            return SUCCESS
        found = self.call(plugin, "PlaceGang", plugin.place_gang, gang, pods)
        if found is None or isinstance(found, Status):
            return as_status(plugin, "PlaceGang", found).by(plugin.name)
        return as_assignments(plugin, found) or SUCCESS

    # -- placements of a gang --------------------------------------------------------------------------------------

    def generate_placements(
        self, gang: Gang, pods: Sequence[PodInfo], cluster: Cluster, within: Nodes | None = None
    ) -> Sequence[Placement] | Status | None:
        """The placements to try, at least one; a status when there are none, None when the gang may use all nodes.

        They are among the nodes ``within``, or all, and each in one domain of the gang's level. Raises PluginError.
        """
        nodes = cluster.all_nodes() if within is None else within
        plugin = self.plugins.placement_generate
        found: Sequence[Placement] | None = None
        if plugin is not None:
            listed = self.call(plugin, "PlacementGenerate", _listed_placements, plugin, gang, pods, nodes)
            if isinstance(listed, Status):
                status = as_status(plugin, "PlacementGenerate", listed)
                if not status.ok:
                    return status.by(plugin.name)
            elif listed is not None:
                found = [placement for placement in listed if len(as_placement(plugin, placement).nodes)]
                if not found:
                    return NO_PLACEMENTS.by(plugin.name)
        if not gang.level:
            return found
        return list(_in_domains_of_level(gang, found or [Placement("", nodes)], cluster)) or NO_PLACEMENTS

    def respects_terms(self, gang: Gang, nodes: Mapping[str, str], cluster: Cluster) -> bool:
        """Whether members on some nodes (names by uid) are in one placement of each gang, and in whole segments.

        Members that have nodes already count for their segments. Raises PluginError.
        """

        def respects(gang: Gang, within: Nodes) -> bool:
            pods = [gang.members.pods[uid] for uid in nodes if uid in gang.members.pods]
            if not pods:
                return True
            placements = self.generate_placements(gang, pods, cluster, within)
            if isinstance(placements, Status):
                return False
            names = {nodes[pod.uid] for pod in pods}
            candidates = [within] if placements is None else [placement.nodes for placement in placements]
            return has_whole_segments(gang) and any(
                names.issubset(each.names) and all(respects(child, each) for child in gang.children)
                for each in candidates
            )

        def has_whole_segments(gang: Gang) -> bool:
            segments = gang.segments
            if segments is None:
                return True
            before = (cluster.placed_pod(uid) for uid in gang.members.placed)
            here = {each.info.uid: each.node_name for each in before if each is not None}
            here |= {uid: nodes[uid] for uid in gang.members.pods if uid in nodes}
            rows = [cluster.nodes.rows.get(name) for name in here.values()]
            labels = [None if row is None else cluster.nodes.objects[row].metadata.labels for row in rows]
            return segments.are_whole(None if each is None else each.get(segments.key) for each in labels)

        return respects(gang, cluster.all_nodes())

    def choose_placement(self, gang: Gang, proposals: Sequence[Proposal], random: Random) -> int:
        """The position of the proposal with the highest score, a random one of several. Raises PluginError."""
        totals = np.zeros(len(proposals), np.int64)
        for plugin, weight in self.plugins.placement_score:
            totals += self._score_placements(plugin, gang, proposals) * weight
        best = np.flatnonzero(totals == totals.max())
        return int(best[0]) if len(best) == 1 else int(best[random.randrange(len(best))])

    def _score_placements(self, plugin: PlacementScorePlugin, gang: Gang, proposals: Sequence[Proposal]) -> Scores:
        raw = np.zeros(len(proposals), np.int64)
        for position, proposal in enumerate(proposals):
            raw[position] = self.call(
                plugin, "PlacementScore", lambda p: index(plugin.score_placement(gang, p)), proposal
            )
        raw.flags.writeable = False
        point = "NormalizePlacementScore"
        normalized = self.call(plugin, point, plugin.normalize_placements, gang, raw)
        return in_range(plugin, point, as_scores(plugin, point, normalized, len(proposals)))


def _in_domains_of_level(gang: Gang, placements: Iterable[Placement], cluster: Cluster) -> Iterator[Placement]:
    """The parts of placements in each domain of a gang's level; of members that are placed only their common domain."""
    placed = (cluster.placed_pod(uid) for uid in gang.members.placed)
    rows = {cluster.nodes.rows.get(each.node_name) for each in placed if each is not None}
    values = {None if row is None else cluster.nodes.objects[row].metadata.labels.get(gang.level) for row in rows}
    if None in values or len(values) > 1:
        return
    for placement in placements:
        for part in placements_by_label(placement.nodes, gang.level, next(iter(values), None)):
            yield Placement(f"{placement.name}/{part.name}" if placement.name else part.name, part.nodes)


def _listed_placements(
    plugin: PlacementGeneratePlugin, gang: Gang, pods: Sequence[PodInfo], nodes: Nodes
) -> list[Placement] | Status | None:
    """The placements of a generator, which may be lazy."""
    placements = plugin.placements(gang, pods, nodes)
    return placements if placements is None or isinstance(placements, Status) else list(placements)
