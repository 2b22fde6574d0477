"""How many groups of each composite group are ready, and how many have gated pods.

A PodGroup is ready with as many ready pods as its minCount, a composite group with as many ready groups as its
minGroupCount (1 for the basic policy). Each group reports to its parent only when this changes, so a change costs the
levels above it, and not the groups of its tree.
"""

from __future__ import annotations

from dataclasses import dataclass

from kubestow.api.scheduling import CompositePodGroup, PodGroup
from kubestow.cluster.changes.catalog import Catalog
from kubestow.cluster.pods.hierarchies import Group
from kubestow.cluster.pods.pod_groups import KUBERNETES, PodGroupName, PodGroups

#: Namespace and name of a composite group, which may not exist.
_Key = tuple[str, str]


@dataclass(slots=True)
class _Counts:
    """Of the groups below a composite group, directly: those that are ready, and those with gated pods."""

    ready: int = 0
    gated: int = 0


@dataclass(frozen=True, slots=True)
class _Report:
    """What a group counts for in its parent."""

    parent: _Key
    is_ready: bool
    is_gated: bool


class GroupReadiness:
    """Counts the groups of all trees. Those below the fourth level count as well, which no valid tree has."""

    def __init__(
        self, pod_groups: PodGroups, groups: Catalog[PodGroup], composites: Catalog[CompositePodGroup]
    ) -> None:
        self._pod_groups, self._groups, self._composites = pod_groups, groups, composites
        self._counts: dict[_Key, _Counts] = {}
        self._reports: dict[tuple[type[Group], str, str], _Report] = {}
        groups.subscribe(self._group_changed)
        composites.subscribe(self._composite_changed)
        pod_groups.subscribe(self._members_changed)

    def is_ready(self, group: CompositePodGroup) -> bool:
        """Whether enough of the groups below a composite group are ready."""
        gang = group.spec.scheduling_policy.gang
        needed = 1 if gang is None else gang.min_group_count
        return 0 < needed <= self._counts_of(group).ready

    def has_gated(self, group: CompositePodGroup) -> bool:
        """Whether a pod of a group below a composite group has scheduling gates."""
        return self._counts_of(group).gated > 0

    def _counts_of(self, group: CompositePodGroup) -> _Counts:
        return self._counts.get((group.metadata.namespace, group.metadata.name)) or _Counts()

    # -- changes -------------------------------------------------------------------------------------------------

    def _members_changed(self, name: PodGroupName) -> None:
        group = self._groups.get(name.namespace, name.name) if name.api == KUBERNETES.name else None
        if group is not None:
            self._renew_group(group)

    def _group_changed(self, before: PodGroup | None, after: PodGroup | None) -> None:
        if after is not None:
            self._renew_group(after)
        elif before is not None:
            self._replace_report(before, None)

    def _composite_changed(self, before: CompositePodGroup | None, after: CompositePodGroup | None) -> None:
        if after is not None:
            self._renew_composite(after)
        elif before is not None:
            self._replace_report(before, None)

    def _renew_group(self, group: PodGroup) -> None:
        name = PodGroupName(KUBERNETES.name, group.metadata.namespace, group.metadata.name)
        if not group.spec.parent_composite_pod_group_name:
            self._replace_report(group, None)
            return
        min_count, _ = KUBERNETES.gang_policy(group)
        members = self._pod_groups.members(name)
        self._replace_report(group, _report_of(group, len(members.ready) >= max(1, min_count), bool(members.gated)))

    def _renew_composite(self, group: CompositePodGroup) -> None:
        self._replace_report(group, _report_of(group, self.is_ready(group), self.has_gated(group)))

    def _replace_report(self, group: Group, report: _Report | None) -> None:
        """Replace what a group counts for, and have the groups above do the same."""
        key = type(group), group.metadata.namespace, group.metadata.name
        former = self._reports.get(key)
        if report == former:
            return
        if report is None:
            del self._reports[key]
        else:
            self._reports[key] = report
        for changed, sign in ((former, -1), (report, +1)):
            if changed is not None:
                self._count(changed, sign)
        for parent in {each.parent for each in (former, report) if each is not None}:
            above = self._composites.get(*parent)
            if above is not None:
                self._renew_composite(above)

    def _count(self, report: _Report, sign: int) -> None:
        counts = self._counts.setdefault(report.parent, _Counts())
        counts.ready += sign * report.is_ready
        counts.gated += sign * report.is_gated
        if not counts.ready and not counts.gated:
            del self._counts[report.parent]


def _report_of(group: Group, is_ready: bool, is_gated: bool) -> _Report | None:
    """None for a group without a parent, and for one that counts for nothing."""
    parent = group.spec.parent_composite_pod_group_name
    if not parent or not (is_ready or is_gated):
        return None
    return _Report((group.metadata.namespace, parent), is_ready, is_gated)
