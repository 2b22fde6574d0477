"""The affinity and anti-affinity terms of a pod, parsed (semantics 8.15).

A term selects other pods by namespace and labels, and names the topology key within whose domains they are to be near
or far. A term that does not parse makes all terms of its list unusable; :attr:`PodAffinityTerms.problems` says which.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from kubestow.api.core import Affinity, PodAffinity, PodAffinityTerm, WeightedPodAffinityTerm
from kubestow.api.selectors import EVERYTHING, NOTHING, Selector, compile_selector
from kubestow.cluster.pods.index_keys import IndexKeys, selected_index_keys
from kubestow.errors import InvalidSelector

__all__ = ["AffinityTerm", "CarriedTerm", "PodAffinityTerms", "TermKind"]

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
    def index_keys(self) -> IndexKeys | None:
        """Groups of which all pods that the term speaks of are in one; None when they may be any."""
        return selected_index_keys(self.namespaces if self.namespace_selector.nothing else None, self.selector)

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


class TermKind(Enum):
    """What a pod carries a term for."""

    REQUIRED = "required affinity"
    REQUIRED_ANTI = "required anti-affinity"
    PREFERRED = "preferred affinity or anti-affinity"


@dataclass(frozen=True, slots=True)
class CarriedTerm:
    """A term with its role; ``weight`` is that of a preference, negative for anti-affinity, else 0."""

    role: TermKind
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
                *(CarriedTerm(TermKind.REQUIRED, term) for term in self.required),
                *(CarriedTerm(TermKind.REQUIRED_ANTI, term) for term in self.required_anti),
                *(CarriedTerm(TermKind.PREFERRED, term, weight) for weight, term in self.preferred),
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
