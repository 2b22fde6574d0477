"""Trees of Kubernetes' pod groups: PodGroups at the leaves, CompositePodGroups above them, at most four levels.

A group names its parent. The children of a composite group are looked up in an index, which is built anew after groups
have changed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from kubestow.api.scheduling import CompositePodGroup, PodGroup
from kubestow.cluster.changes.catalog import Catalog

MAX_LEVELS = 4
"""The most levels of a tree, its PodGroups included."""

Group = PodGroup | CompositePodGroup


class _Children(NamedTuple):
    versions: tuple[int, int]
    by_parent: dict[tuple[str, str], list[Group]]


class Hierarchies:
    """The trees of a cluster."""

    def __init__(self, groups: Catalog[PodGroup], composites: Catalog[CompositePodGroup]) -> None:
        self._groups, self._composites = groups, composites
        self._children = _Children((-1, -1), {})

    def ancestors(self, group: Group) -> Iterator[CompositePodGroup | None]:
        """The composite groups above a group, its parent first; then None if one is missing or they are too many."""
        levels, namespace = 1, group.metadata.namespace
        while name := group.spec.parent_composite_pod_group_name:
            parent = self._composites.get(namespace, name)
            levels += 1
            if parent is None or levels > MAX_LEVELS:
                yield None
                return
            yield parent
            group = parent

    def root_of(self, group: Group) -> Group | None:
        """The group at the top, which may be the group itself; None if a composite group is missing."""
        root: Group | None = group
        for ancestor in self.ancestors(group):
            root = ancestor
        return root

    def children(self, composite: CompositePodGroup) -> list[Group]:
        """The groups that name a composite group as their parent, in the order in which they were added."""
        versions = self._groups.version, self._composites.version
        if self._children.versions != versions:
            by_parent: dict[tuple[str, str], list[Group]] = defaultdict(list)
            everything: list[Group] = [*self._groups, *self._composites]
            for group in everything:
                if name := group.spec.parent_composite_pod_group_name:
                    by_parent[group.metadata.namespace, name].append(group)
            self._children = _Children(versions, by_parent)
        return self._children.by_parent.get((composite.metadata.namespace, composite.metadata.name), [])
