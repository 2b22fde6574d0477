"""The affinity terms that placed pods carry.

Whether a pod may go to a node also depends on the terms of the pods that are there already. Pods are copies of each
other and so are their terms, so :class:`CarriedTerms` keeps the few distinct ones, by the index keys of the pods that
they may select. How many pods carry a term on each node is a counter (:mod:`kubestow.cluster.topology.counters`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from typing import NamedTuple

from kubestow.cluster.pods.affinity_terms import CarriedTerm, IndexKeys

#: Terms that may select any pod are listed under this key.
_ANY_POD = frozenset((None,))
#: Versions are kept of at least this many keys that no longer have terms.
_KEPT_VERSIONS = 1024


class TermVersions(NamedTuple):
    """Saved versions: that of all terms, and those of some keys (None: the key had none)."""

    version: int
    by_key: dict[Hashable, int | None]


class CarriedTerms:
    """The distinct terms of placed pods.

    Every change gets a version number that is never used again, not even after the change has been undone.
    """

    def __init__(self) -> None:
        self._carriers: Counter[CarriedTerm] = Counter()
        self._by_key: dict[Hashable, dict[CarriedTerm, None]] = {}
        #: How many terms read each label key, by the namespaces of the pods that they select; None for all.
        self._label_keys: dict[str | None, Counter[str]] = {}
        self._versions: dict[Hashable, int] = {}
        #: The version of keys that have none of their own.
        self._floor = 0
        self._last_version = 0
        #: The version of the latest change.
        self.version = 0

    def terms_for(self, index_keys: IndexKeys) -> Iterator[CarriedTerm]:
        """The terms that may select pods with these keys, each once, in no particular order."""
        for key in index_keys | _ANY_POD:
            yield from self._by_key.get(key, ())

    def has_terms_for(self, index_keys: IndexKeys) -> bool:
        """Whether any term may select pods with these keys."""
        return not self._by_key.keys().isdisjoint(index_keys | _ANY_POD)

    def version_for(self, index_keys: IndexKeys) -> int:
        """The version of the latest change of :meth:`terms_for` for these keys."""
        return max(self._versions.get(key, self._floor) for key in index_keys | _ANY_POD)

    def label_keys(self, namespace: str) -> frozenset[str]:
        """The keys of the labels by which terms select pods of a namespace."""
        return frozenset(self._label_keys.get(namespace, ())).union(self._label_keys.get(None, ()))

    def add(self, terms: Iterable[CarriedTerm]) -> None:
        """Add the terms of another shape of pods."""
        for term in terms:
            self._carriers[term] += 1
            if self._carriers[term] == 1:
                self._count_label_keys(term, +1)
                for key in self._changed(term):
                    self._by_key.setdefault(key, {})[term] = None

    def remove(self, terms: Iterable[CarriedTerm]) -> None:
        """Remove the terms of a shape of pods."""
        for term in terms:
            self._carriers[term] -= 1
            if not self._carriers[term]:
                del self._carriers[term]
                self._count_label_keys(term, -1)
                for key in self._changed(term):
                    terms_for_key = self._by_key[key]
                    del terms_for_key[term]
                    if not terms_for_key:
                        del self._by_key[key]

    def prune_versions(self) -> None:
        """Drop the versions of keys without terms, if there are many. Must not be called while versions are saved."""
        if len(self._versions) - len(self._by_key) > max(_KEPT_VERSIONS, len(self._by_key)):
            self._versions = {key: self._versions[key] for key in self._by_key}
            self._floor = self._next_version()

    def save_versions(self, terms: Iterable[CarriedTerm]) -> TermVersions:
        """The versions that adding or removing these terms changes."""
        keys = {key for term in terms for key in _keys_of(term)}
        return TermVersions(self.version, {key: self._versions.get(key) for key in keys})

    def restore_versions(self, saved: TermVersions) -> None:
        """Restore the versions from before a change, after the change has been reversed."""
        self.version = saved.version
        for key, version in saved.by_key.items():
            if version is None:
                self._versions.pop(key, None)
            else:
                self._versions[key] = version

    def _count_label_keys(self, carried: CarriedTerm, sign: int) -> None:
        term = carried.term
        for namespace in term.namespaces if term.namespace_selector.nothing else (None,):
            counts = self._label_keys.setdefault(namespace, Counter())
            for key in term.selector.label_keys:
                counts[key] += sign
                if not counts[key]:
                    del counts[key]
            if not counts:
                del self._label_keys[namespace]

    def _changed(self, carried: CarriedTerm) -> IndexKeys:
        keys = _keys_of(carried)
        self.version = self._next_version()
        for key in keys:
            self._versions[key] = self.version
        return keys

    def _next_version(self) -> int:
        self._last_version += 1
        return self._last_version


def _keys_of(carried: CarriedTerm) -> IndexKeys:
    keys = carried.term.index_keys
    return _ANY_POD if keys is None else keys
