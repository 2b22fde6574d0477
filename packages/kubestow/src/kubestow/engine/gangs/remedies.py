"""What would make a gang fit now: fewer pods, other nodes, another level of its topology.

Each change is tried by the search for a placement, so what it finds is verified by the engine, pod by pod.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import msgspec
import numpy as np

from kubestow.api.scheduling import PodGroup
from kubestow.cluster.nodes.columns import MISSING
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.pod_groups import Members
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.engine.gangs.gang_search import GangAnswer, GangSearch, SearchOptions
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.engine.job_forecasts import Remedy
from kubestow.engine.pipeline.offline_scheduler import OfflineScheduler, SchedulerOptions
from kubestow.framework.gang import Gang, Segments
from kubestow.reports.model import counted

#: So many other values of a label that the pods select are tried.
_MOST_VALUES = 8


class GangRemedies:
    """The changes with which a gang of a cluster fits that does not as it is."""

    def __init__(
        self,
        cluster: ClusterObjects,
        options: SchedulerOptions,
        scheduler: OfflineScheduler,
        answer: GangAnswer,
        search: SearchOptions,
    ) -> None:
        """``scheduler`` is that of the cluster, ``answer`` that the gang does not fit."""
        self._cluster, self._options, self._scheduler, self._search = cluster, options, scheduler, search
        self._gang, self._waiting = answer.gang, list(answer.pods)
        self._answer, self._nodes = answer, scheduler.cache.all_nodes()

    def find(self) -> Iterator[Remedy]:
        """The changes that help, each by itself. Raises InputError without OR-Tools, and PluginError."""
        for remedy in (self._fewer_pods(), *self._other_nodes(), self._other_segments(), self._other_topology()):
            if remedy is not None:
                yield remedy

    def _tried(self, gang: Gang, change: str, scheduler: OfflineScheduler | None = None) -> Remedy | None:
        scheduler = scheduler or self._scheduler
        profile = scheduler.profile(self._waiting[0].pod)
        answer = GangSearch(scheduler.cache, profile, self._search).find(gang)
        if not answer.is_placed:
            return None
        return Remedy(change, Counter(node_name for _, node_name in answer.assignments))

    # -- fewer pods ----------------------------------------------------------------------------------------------------

    def _fewer_pods(self) -> Remedy | None:
        """The most pods with which the gang fits, without some of its most numerous kind; in whole segments."""
        gang = self._gang
        if gang.children or gang.roles or not self._waiting:
            return None
        placed, size = len(gang.members.placed), 1 if gang.segments is None else gang.segments.size
        [(shape, _)] = Counter(info.shape for info in self._waiting).most_common(1)
        others = [info for info in self._waiting if info.shape is not shape]
        same = [info for info in self._waiting if info.shape is shape]

        def fewer(total: int) -> Remedy | None:
            kept = [*others, *same[: total - len(others) - placed]]
            members = _members(gang, kept)
            text = f"{counted(total, 'pod')} instead of {gang.min_count:,}"
            return self._tried(replace(gang, members=members, min_count=total), text)

        most = max((each.most for each in self._answer.certificates), default=gang.min_count) + placed
        low, high, found = (len(others) + placed) // size, min(-(-gang.min_count // size), most // size + 1), None
        while high - low > 1:  # segments or pods: the gang fits with low, and not with high
            middle = (low + high) // 2
            tried = fewer(middle * size)
            low, high, found = (low, middle, found) if tried is None else (middle, high, tried)
        return found

    # -- other nodes ---------------------------------------------------------------------------------------------------

    def _other_nodes(self) -> Iterator[Remedy | None]:
        """Other values of the labels that the pods select, and no selection at all."""
        if self._gang.children or self._gang.roles:
            return
        keys = {key for info in self._waiting for key in info.spec.node_selector}
        has_affinity = any(info.spec.affinity and info.spec.affinity.node_affinity for info in self._waiting)
        nodes = self._nodes
        for key in sorted(keys & set(nodes.label_keys)):
            asked = {info.spec.node_selector.get(key) for info in self._waiting}
            values = [nodes.label_values(key)[number] for number in np.unique(nodes.label(key)).tolist()]
            others = [value for value in values if value is not None and value not in asked]
            for value in others[:_MOST_VALUES]:
                changed = {info.uid: {**info.spec.node_selector, key: value} for info in self._waiting}
                yield self._on_nodes(changed, f"nodes with {key}={value}")
        if keys or has_affinity:
            yield self._on_nodes(
                {info.uid: {} for info in self._waiting}, "no node selector and node affinity", affinity=False
            )

    def _on_nodes(
        self, selectors: Mapping[str, dict[str, str]], change: str, *, affinity: bool = True
    ) -> Remedy | None:
        """The gang with other node selectors, by uid, and without node affinity unless that stays."""
        changed = []
        for info in self._waiting:
            spec = msgspec.structs.replace(info.spec, node_selector=selectors[info.uid])
            if not affinity and spec.affinity is not None:
                spec = msgspec.structs.replace(
                    spec, affinity=msgspec.structs.replace(spec.affinity, node_affinity=None)
                )
            changed.append(self._scheduler.cache.shapes.info(msgspec.structs.replace(info.pod, spec=spec)))
        return self._tried(replace(self._gang, members=_members(self._gang, changed)), change)

    # -- another level of the topology ---------------------------------------------------------------------------------

    def _other_segments(self) -> Remedy | None:
        """Segments in the nearest larger domains in which the gang fits."""
        segments = self._gang.segments
        if segments is None:
            return None
        for key in larger_domains(self._nodes, segments.key):
            gang = replace(self._gang, segments=Segments(key, segments.size))
            if remedy := self._tried(gang, f"the topology level {key} for segments instead of {segments.key}"):
                return remedy
        return None

    def _other_topology(self) -> Remedy | None:
        """The nearest larger domain in which the gang fits instead of the one that its group requires, or any nodes."""
        group = pod_group_of(self._gang, (each for each in self._cluster.objects if isinstance(each, PodGroup)))
        if group is None or not group.spec.scheduling_constraints.topology:
            return None
        asked = group.spec.scheduling_constraints.topology[0]
        for key in (*larger_domains(self._nodes, asked.key), None):
            terms = [] if key is None else [msgspec.structs.replace(asked, key=key)]
            constraints = msgspec.structs.replace(group.spec.scheduling_constraints, topology=terms)
            spec = msgspec.structs.replace(group.spec, scheduling_constraints=constraints)
            changed = msgspec.structs.replace(group, spec=spec)
            objects = [changed if each is group else each for each in self._cluster.objects]
            scheduler = OfflineScheduler(self._cluster.altered(objects=objects), self._options)
            profile = scheduler.profile(self._waiting[0].pod)
            gang = profile.gangs.gang_of(scheduler.cache.shapes.info(self._waiting[0].pod))
            text = f"no topology constraint instead of {asked.key}"
            if key is not None:
                text = f"the topology level {key} instead of {asked.key}"
            if gang is not None and (remedy := self._tried(gang, text, scheduler)):
                return remedy
        return None


def pod_group_of(gang: Gang, groups: Iterable[PodGroup]) -> PodGroup | None:
    """The PodGroup of Kubernetes that a gang is of; None if it is of another API."""
    return next((group for group in groups if gang.uid and group.metadata.uid == gang.uid), None)


def larger_domains(nodes: Nodes, key: str) -> list[str]:
    """The keys of labels in whose domains those of a key are contained, the keys with the smallest domains first."""
    own = nodes.label(key)
    has_own = own != MISSING
    found: list[tuple[int, str]] = []
    for other in nodes.label_keys:
        domains = nodes.label(other)[has_own]
        pairs = np.unique(np.stack([own[has_own], domains]), axis=1)
        is_nested = pairs.shape[1] == len(np.unique(pairs[0])) and not (domains == MISSING).any()
        number = len(np.unique(pairs[1]))
        if is_nested and number < pairs.shape[1]:
            found.append((-number, other))
    return [other for _, other in sorted(found)]


def _members(gang: Gang, waiting: Sequence[PodInfo]) -> Members:
    """The members that are on nodes, and others that wait."""
    placed = gang.members.placed
    found = Members(dict.fromkeys(placed).keys())
    for info in (*(gang.members.pods[uid] for uid in placed), *waiting):
        found.put(info)
    return found
