"""Trees of Kubernetes' pod groups: PodGroups at the leaves, CompositePodGroups above them, at most four levels.

A group names its parent. The children of a composite group are looked up in an index that follows the catalogs.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from itertools import chain

from kubestow.api.scheduling import CompositePodGroup, PodGroup
from kubestow.cluster.changes.catalog import Catalog
from kubestow.cluster.pods.shapes import PodInfo

MAX_LEVELS = 4
"""The most levels of a tree, its PodGroups included."""

Group = PodGroup | CompositePodGroup


def ancestors(group: Group, composites: Catalog[CompositePodGroup]) -> Iterator[CompositePodGroup | None]:
    """The composite groups above a group, its parent first; then None if one is missing or they are too many."""
    levels, namespace = 1, group.metadata.namespace
    while name := group.spec.parent_composite_pod_group_name:
        parent = composites.get(namespace, name)
        levels += 1
        if parent is None or levels > MAX_LEVELS:
            yield None
            return
        yield parent
        group = parent


def disrupted_as_a_whole(group: Group, composites: Catalog[CompositePodGroup]) -> Group | None:
    """The highest of a group and those above it all of whose pods are evicted together; None if there is none."""
    path = (group, *(above for above in ancestors(group, composites) if above is not None))
    return next((each for each in reversed(path) if each.spec.is_disrupted_as_a_whole), None)


def count_disrupted_units(
    pods: Iterable[PodInfo], groups: Catalog[PodGroup], composites: Catalog[CompositePodGroup]
) -> int:
    """The number of units with pods of Kubernetes' groups that are disrupted if some pods are evicted.

    A group, or a tree of groups, that is evicted as a whole is one; so is each pod of any other group.
    """
    units = set[Hashable]()
    for pod in pods:
        reference = pod.spec.scheduling_group
        if reference is not None:
            group = groups.get(pod.namespace, reference.pod_group_name or "")
            whole = None if group is None else disrupted_as_a_whole(group, composites)
            units.add(pod.uid if whole is None else (type(whole), whole.metadata.namespace, whole.metadata.name))
    return len(units)


class Hierarchies:
    """The trees of a cluster, for as long as the catalogs exist."""

    def __init__(self, groups: Catalog[PodGroup], composites: Catalog[CompositePodGroup]) -> None:
        self._composites = composites
        #: The groups that name each parent, by their kind and name; the namespace is in front of the parent's name.
        self._children: dict[tuple[str, str], dict[tuple[type, str], Group]] = {}
        groups.subscribe(self._changed)
        composites.subscribe(self._changed)

    def _changed(self, before: Group | None, after: Group | None) -> None:
        if before is not None and (parent := _parent(before)) is not None:
            children = self._children[parent]
            if after is None or _parent(after) != parent:
                del children[type(before), before.metadata.name]
                if not children:
                    del self._children[parent]
        if after is not None and (parent := _parent(after)) is not None:
            self._children.setdefault(parent, {})[type(after), after.metadata.name] = after

    def names_above(self, group: Group) -> Iterator[str]:
        """The names of the composite groups above a group, its parent's first, up to the first that is missing."""
        for above in chain((group,), ancestors(group, self._composites)):
            if above is None or not (name := above.spec.parent_composite_pod_group_name):
                return
            yield name

    def root_of(self, group: Group) -> Group | None:
        """The group at the top, which may be the group itself; None if a composite group is missing."""
        root: Group | None = group
        for ancestor in ancestors(group, self._composites):
            root = ancestor
        return root

    def children(self, composite: CompositePodGroup) -> list[Group]:
        """The groups that name a composite group as their parent, the oldest first, then in the order of names."""
        return sorted(self._of(composite), key=_age)

    def pod_groups_below(self, composite: CompositePodGroup) -> Iterator[PodGroup]:
        """The PodGroups of the tree below a composite group, in no particular order."""
        groups: list[Group] = [composite]
        for _ in range(MAX_LEVELS):
            groups = [child for group in groups if isinstance(group, CompositePodGroup) for child in self._of(group)]
            yield from (group for group in groups if isinstance(group, PodGroup))

    def composites_below(self, composite: CompositePodGroup) -> Iterator[CompositePodGroup]:
        """The composite groups of the tree below one, and that itself."""
        groups: list[Group] = [composite]
        for _ in range(MAX_LEVELS):
            composites = [group for group in groups if isinstance(group, CompositePodGroup)]
            yield from composites
            groups = [child for group in composites for child in self._of(group)]

    def _of(self, composite: CompositePodGroup) -> Iterable[Group]:
        return self._children.get((composite.metadata.namespace, composite.metadata.name), {}).values()


def _age(group: Group) -> tuple[str, str]:
    return group.metadata.creation_timestamp or "", group.metadata.name


def _parent(group: Group) -> tuple[str, str] | None:
    name = group.spec.parent_composite_pod_group_name
    return (group.metadata.namespace, name) if name else None
