"""The affinity terms that placed pods carry.

Whether a pod may go to a node also depends on the terms of the pods that are there already. Pods are copies of each
other and so are their terms, so :class:`CarriedTerms` keeps the few distinct ones, all terms of a pod as one, by the
index keys of the pods that they may select. How many pods carry them on each node is a counter
(:mod:`kubestow.cluster.topology.counters`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable
from typing import NamedTuple

from kubestow.cluster.pods.affinity_terms import IndexKeys, PodAffinityTerms

#: Terms that may select any pod are listed under this key.
_ANY_POD = frozenset((None,))
#: Versions are kept of at least this many keys that no longer have terms.
_KEPT_VERSIONS = 1024
#: Label keys are counted at most this many times as often as terms have namespaces and label keys.
_MOST_COUNTS = 16
#: Label keys are kept of this many namespaces.
_KNOWN_NAMESPACES = 1024
_ALL_NAMESPACES: Collection[str | None] = (None,)
_NO_TERMS: dict[PodAffinityTerms, None] = {}


class TermVersions(NamedTuple):
    """Saved versions: that of all terms, and those of some keys (None: the key had none)."""

    version: int
    by_key: dict[Hashable, int | None]


class CarriedTerms:
    """The distinct terms of placed pods.

    Every change gets a version number that is never used again, not even after the change has been undone.
    """

    def __init__(self) -> None:
        self._carriers: Counter[PodAffinityTerms] = Counter()
        self._by_key: dict[Hashable, dict[PodAffinityTerms, None]] = {}
        #: How many terms read each label key, by the namespaces of the pods that they select; None for all.
        self._label_keys: dict[str | None, Counter[str]] = {}
        #: The results of :meth:`label_keys`.
        self._known_label_keys: dict[str, frozenset[str]] = {}
        self._versions: dict[Hashable, int] = {}
        #: The version of keys that have none of their own.
        self._floor = 0
        self._last_version = 0
        #: The version of the latest change.
        self.version = 0

    def terms_for(self, index_keys: IndexKeys) -> Collection[PodAffinityTerms]:
        """The terms of which one may select pods with these keys, each once, in no particular order."""
        found: dict[PodAffinityTerms, None] = {}
        for key in index_keys | _ANY_POD:
            found.update(self._by_key.get(key, _NO_TERMS))
        return found

    def has_terms_for(self, index_keys: IndexKeys) -> bool:
        """Whether any term may select pods with these keys."""
        return not self._by_key.keys().isdisjoint(index_keys | _ANY_POD)

    def version_for(self, index_keys: IndexKeys) -> int:
        """The version of the latest change of :meth:`terms_for` for these keys."""
        return max(self._versions.get(key, self._floor) for key in index_keys | _ANY_POD)

    def label_keys(self, namespace: str) -> frozenset[str]:
        """The keys of the labels by which terms select pods of a namespace, and maybe others."""
        known = self._known_label_keys.get(namespace)
        if known is None:
            known = frozenset(self._label_keys.get(namespace, ())).union(self._label_keys.get(None, ()))
            if len(self._known_label_keys) >= _KNOWN_NAMESPACES:
                self._known_label_keys.clear()
            self._known_label_keys[namespace] = known
        return known

    def add(self, terms: PodAffinityTerms) -> bool:
        """Add the terms of another shape of pods; whether no shape has had them before."""
        self._carriers[terms] += 1
        if self._carriers[terms] > 1:
            return False
        self._count_label_keys(terms, +1)
        for key in self._changed(terms):
            self._by_key.setdefault(key, {})[terms] = None
        return True

    def remove(self, terms: PodAffinityTerms) -> bool:
        """Remove the terms of a shape of pods; whether no shape has them any more."""
        self._carriers[terms] -= 1
        if self._carriers[terms]:
            return False
        del self._carriers[terms]
        self._count_label_keys(terms, -1)
        for key in self._changed(terms):
            terms_for_key = self._by_key[key]
            del terms_for_key[terms]
            if not terms_for_key:
                del self._by_key[key]
        return True

    def prune_versions(self) -> None:
        """Drop the versions of keys without terms, if there are many. Must not be called while versions are saved."""
        if len(self._versions) - len(self._by_key) > max(_KEPT_VERSIONS, len(self._by_key)):
            self._versions = {key: self._versions[key] for key in self._by_key}
            self._floor = self._next_version()

    def save_versions(self, terms: PodAffinityTerms) -> TermVersions:
        """The versions that adding or removing these terms changes."""
        return TermVersions(self.version, {key: self._versions.get(key) for key in _keys_of(terms)})

    def restore_versions(self, saved: TermVersions) -> None:
        """Restore the versions from before a change, after the change has been reversed."""
        self.version = saved.version
        for key, version in saved.by_key.items():
            if version is None:
                self._versions.pop(key, None)
            else:
                self._versions[key] = version

    def _count_label_keys(self, terms: PodAffinityTerms, sign: int) -> None:
        namespaces, label_keys = terms.namespaces, terms.label_keys
        if namespaces is not None and len(namespaces) * len(label_keys) > _MOST_COUNTS * (
            len(namespaces) + len(label_keys)
        ):
            namespaces = None
        for namespace in _ALL_NAMESPACES if namespaces is None else namespaces:
            counts = self._label_keys.setdefault(namespace, Counter())
            for key in label_keys:
                counts[key] += sign
                if not counts[key]:
                    del counts[key]
            if not counts:
                del self._label_keys[namespace]
            if namespace is None:
                self._known_label_keys.clear()
            else:
                self._known_label_keys.pop(namespace, None)

    def _changed(self, terms: PodAffinityTerms) -> IndexKeys:
        keys = _keys_of(terms)
        self.version = self._next_version()
        for key in keys:
            self._versions[key] = self.version
        return keys

    def _next_version(self) -> int:
        self._last_version += 1
        return self._last_version


def _keys_of(terms: PodAffinityTerms) -> IndexKeys:
    keys = terms.index_keys
    return _ANY_POD if keys is None else keys
