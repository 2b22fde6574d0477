"""The affinity terms that placed pods carry.

Whether a pod may go to a node also depends on the terms of the pods that are there already. Pods are copies of each
other and so are their terms, so :class:`CarriedTerms` holds the few distinct ones, by the pods that they can match. How
many pods carry a term on which node is a counter (:mod:`kubestow.cluster.topology.counters`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from typing import NamedTuple

from kubestow.cluster.pods.affinity_terms import CarriedTerm
from kubestow.cluster.pods.index_keys import IndexKeys

__all__ = ["CarriedTerms", "TermVersions"]

_ANY_POD = frozenset((None,))
#: Versions of this many groups without terms are kept.
_KEPT_VERSIONS = 1024


class TermVersions(NamedTuple):
    """The versions of carried terms as they were: that of all terms, and those of some groups."""

    version: int
    by_group: dict[Hashable, int | None]


class CarriedTerms:
    """The distinct terms of the pods in the cluster, by the groups of pods that they can speak of.

    Every change has a version number of its own, also one that is undone later.
    """

    def __init__(self) -> None:
        self._carriers: Counter[CarriedTerm] = Counter()
        self._by_group: dict[Hashable, dict[CarriedTerm, None]] = {}
        self._versions: dict[Hashable, int] = {}
        #: The version of groups that have none of their own.
        self._floor = 0
        self._last_version = 0
        #: The version of the latest change.
        self.version = 0

    def terms_for(self, index_keys: IndexKeys) -> Iterator[CarriedTerm]:
        """The terms that may speak of pods in these groups, each once, in no particular order."""
        for group in index_keys | _ANY_POD:
            yield from self._by_group.get(group, ())

    def has_terms_for(self, index_keys: IndexKeys) -> bool:
        """Whether there are any terms that may speak of pods in these groups."""
        return not self._by_group.keys().isdisjoint(index_keys | _ANY_POD)

    def version_for(self, index_keys: IndexKeys) -> int:
        """The version of the latest change of :meth:`about` for these groups."""
        return max(self._versions.get(group, self._floor) for group in index_keys | _ANY_POD)

    def add(self, terms: Iterable[CarriedTerm]) -> None:
        """A further shape of pods carries these terms."""
        for term in terms:
            self._carriers[term] += 1
            if self._carriers[term] == 1:
                for group in self._changed(term):
                    self._by_group.setdefault(group, {})[term] = None

    def remove(self, terms: Iterable[CarriedTerm]) -> None:
        """Undoes one :meth:`add`."""
        for term in terms:
            self._carriers[term] -= 1
            if not self._carriers[term]:
                del self._carriers[term]
                for group in self._changed(term):
                    terms_about = self._by_group[group]
                    del terms_about[term]
                    if not terms_about:
                        del self._by_group[group]

    def drop_vacated_groups(self) -> None:
        """Drop the versions of groups that no terms are about, once they are many. Not to be called while changes may
        still be undone."""
        if len(self._versions) - len(self._by_group) > max(_KEPT_VERSIONS, len(self._by_group)):
            self._versions = {group: self._versions[group] for group in self._by_group}
            self._floor = self._next_version()

    def versions_of(self, terms: Iterable[CarriedTerm]) -> TermVersions:
        """The versions that a change of these terms would replace."""
        index_keys = {group for term in terms for group in _groups_of(term)}
        return TermVersions(self.version, {group: self._versions.get(group) for group in index_keys})

    def restore_versions(self, before: TermVersions) -> None:
        """Restore the versions from before a change that has been reversed."""
        self.version = before.version
        for group, version in before.by_group.items():
            if version is None:
                self._versions.pop(group, None)
            else:
                self._versions[group] = version

    def _changed(self, carried: CarriedTerm) -> IndexKeys:
        index_keys = _groups_of(carried)
        self.version = self._next_version()
        for group in index_keys:
            self._versions[group] = self.version
        return index_keys

    def _next_version(self) -> int:
        self._last_version += 1
        return self._last_version


def _groups_of(carried: CarriedTerm) -> IndexKeys:
    index_keys = carried.term.index_keys
    return _ANY_POD if index_keys is None else index_keys
