"""Pod affinity and anti-affinity terms, ready to be asked, and the terms that pods in the cluster carry.

A pod's terms speak about other pods, so every pending pod has to be held against the terms of all pods that are placed
already. Pods are copies of each other, and so are their terms: :class:`CarriedTerms` keeps the few distinct ones, and
how many pods carry one of them where is a counter (:mod:`kubestow.cluster.topology.counters`). Nothing here walks over
pods.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple

from kubestow.api.core import Affinity, PodAffinity, PodAffinityTerm, WeightedPodAffinityTerm
from kubestow.api.selectors import EVERYTHING, NOTHING, Selector, compile_selector
from kubestow.cluster.pods.index_keys import Groups, groups_meant
from kubestow.errors import InvalidSelector

__all__ = ["AffinityTerm", "CarriedTerm", "CarriedTerms", "PodAffinityTerms", "Role"]

_NO_LABELS: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class AffinityTerm:
    """Pods to be near to, or far from, within one topology domain (semantics 8.15)."""

    topology_key: str
    selector: Selector
    namespaces: frozenset[str]
    namespace_selector: Selector

    def matches(
        self, namespace: str, labels: Mapping[str, str], namespace_labels: Mapping[str, str] = _NO_LABELS
    ) -> bool:
        """Whether a pod with these labels, in this namespace, is one that the term speaks of."""
        named = namespace in self.namespaces or self.namespace_selector.matches(namespace_labels)
        return named and self.selector.matches(labels)

    @property
    def groups(self) -> Groups | None:
        """Groups of which all pods that the term speaks of are in one; None when they may be any."""
        return groups_meant(self.namespaces if self.namespace_selector.nothing else None, self.selector)

    def resolved(self, namespaces: Mapping[str, Mapping[str, str]]) -> AffinityTerm:
        """The term with the namespaces that its namespace selector selects written out.

        QUIRK (semantics 8.15): the selector is still asked afterwards, about no labels at all; one that those match
        selects every namespace.
        """
        selector = self.namespace_selector
        if selector.nothing or selector.is_empty:
            return self
        selected = {name for name, labels in namespaces.items() if selector.matches(labels)}
        rest = EVERYTHING if selector.matches(_NO_LABELS) else NOTHING
        return replace(self, namespaces=self.namespaces | selected, namespace_selector=rest)


class Role(Enum):
    """What a pod carries a term for."""

    REQUIRED = "required affinity"
    REQUIRED_ANTI = "required anti-affinity"
    PREFERRED = "preferred affinity or anti-affinity"


@dataclass(frozen=True, slots=True)
class CarriedTerm:
    """A term with its role; ``weight`` is that of a preference, negative for anti-affinity, else 0."""

    role: Role
    term: AffinityTerm
    weight: int = 0


@dataclass(frozen=True, slots=True)
class PodAffinityTerms:
    """The terms of one pod. ``preferred`` has signed weights: negative ones are anti-affinity.

    ``problems`` are the kinds of terms that could not be read; of such a kind none is there.
    """

    required: tuple[AffinityTerm, ...] = ()
    required_anti: tuple[AffinityTerm, ...] = ()
    preferred: tuple[tuple[int, AffinityTerm], ...] = ()
    problems: tuple[str, ...] = ()

    @classmethod
    def of(cls, namespace: str, affinity: Affinity | None) -> PodAffinityTerms:
        """The terms of a pod in a namespace."""
        if affinity is None or (affinity.pod_affinity is None and affinity.pod_anti_affinity is None):
            return _NO_TERMS
        near, far = affinity.pod_affinity or PodAffinity(), affinity.pod_anti_affinity or PodAffinity()
        reader = _Reader(namespace)
        return cls(
            reader.terms("requiredAffinityTerms", near.required_during_scheduling_ignored_during_execution),
            reader.terms("requiredAntiAffinityTerms", far.required_during_scheduling_ignored_during_execution),
            (
                *reader.weighted("preferredAffinityTerms", near, sign=+1),
                *reader.weighted("preferredAntiAffinityTerms", far, sign=-1),
            ),
            tuple(reader.problems),
        )

    def carried(self) -> Counter[CarriedTerm]:
        """Every term with its role, and how often it is there."""
        return Counter(
            (
                *(CarriedTerm(Role.REQUIRED, term) for term in self.required),
                *(CarriedTerm(Role.REQUIRED_ANTI, term) for term in self.required_anti),
                *(CarriedTerm(Role.PREFERRED, term, weight) for weight, term in self.preferred),
            )
        )


_NO_TERMS = PodAffinityTerms()


class _Reader:
    """Compiles lists of terms; one bad term spoils its list."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self.problems: list[str] = []

    def terms(self, kind: str, terms: Sequence[PodAffinityTerm]) -> tuple[AffinityTerm, ...]:
        try:
            return tuple(self._term(term) for term in terms)
        except InvalidSelector as error:
            self.problems.append(f"{kind}: {error}")
            return ()

    def weighted(self, kind: str, affinity: PodAffinity, *, sign: int) -> Iterator[tuple[int, AffinityTerm]]:
        preferred: Sequence[WeightedPodAffinityTerm] = affinity.preferred_during_scheduling_ignored_during_execution
        terms = self.terms(kind, [weighted.pod_affinity_term for weighted in preferred])
        return ((sign * weighted.weight, term) for weighted, term in zip(preferred, terms, strict=False))

    def _term(self, term: PodAffinityTerm) -> AffinityTerm:
        own = not term.namespaces and term.namespace_selector is None
        return AffinityTerm(
            term.topology_key,
            compile_selector(term.label_selector),
            frozenset((self._namespace,) if own else term.namespaces),
            compile_selector(term.namespace_selector),
        )


_EVERYBODY = frozenset((None,))
#: Versions of this many groups without terms are kept.
_VACATED = 1024


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

    def about(self, groups: Groups) -> Iterator[CarriedTerm]:
        """The terms that may speak of pods in these groups, each once, in no particular order."""
        for group in groups | _EVERYBODY:
            yield from self._by_group.get(group, ())

    def speak_of(self, groups: Groups) -> bool:
        """Whether there are any terms that may speak of pods in these groups."""
        return not self._by_group.keys().isdisjoint(groups | _EVERYBODY)

    def version_about(self, groups: Groups) -> int:
        """The version of the latest change of :meth:`about` for these groups."""
        return max(self._versions.get(group, self._floor) for group in groups | _EVERYBODY)

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
        if len(self._versions) - len(self._by_group) > max(_VACATED, len(self._by_group)):
            self._versions = {group: self._versions[group] for group in self._by_group}
            self._floor = self._next_version()

    def versions_of(self, terms: Iterable[CarriedTerm]) -> TermVersions:
        """The versions that a change of these terms would replace."""
        groups = {group for term in terms for group in _groups_of(term)}
        return TermVersions(self.version, {group: self._versions.get(group) for group in groups})

    def restore_versions(self, before: TermVersions) -> None:
        """Restore the versions from before a change that has been reversed."""
        self.version = before.version
        for group, version in before.by_group.items():
            if version is None:
                self._versions.pop(group, None)
            else:
                self._versions[group] = version

    def _changed(self, carried: CarriedTerm) -> Groups:
        groups = _groups_of(carried)
        self.version = self._next_version()
        for group in groups:
            self._versions[group] = self.version
        return groups

    def _next_version(self) -> int:
        self._last_version += 1
        return self._last_version


def _groups_of(carried: CarriedTerm) -> Groups:
    groups = carried.term.groups
    return _EVERYBODY if groups is None else groups
