"""The affinity and anti-affinity terms of a pod, parsed (semantics 8.15).

A term selects pods by namespace and labels; with a pod of the term they have to be, or must not be, in one domain of a
topology key. A term that does not parse makes its whole list unusable; :attr:`PodAffinityTerms.problems` names these
lists.

Index keys: what pods are looked up by, so that a selector need not be matched against every pod.

A pod has a key for its namespace, one for each of its labels, one for each label within its namespace, and one for each
affinity term that it carries. A selector yields keys of which every pod that it selects has exactly one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from kubestow.api.core import Affinity, PodAffinity, PodAffinityTerm, WeightedPodAffinityTerm
from kubestow.api.selectors import EVERYTHING, NOTHING, Selector, compile_selector
from kubestow.errors import InvalidSelector

IndexKeys = frozenset[Hashable]


def index_keys_of(namespace: str, labels: Mapping[str, str], carried: Iterable[Hashable]) -> IndexKeys:
    """The keys of a pod; ``carried`` are its affinity terms."""
    pairs = labels.items()
    return frozenset((namespace, *pairs, *((namespace, *pair) for pair in pairs), *carried))


def selected_index_keys(namespaces: frozenset[str] | None, selector: Selector) -> IndexKeys | None:
    """Keys of which every selected pod in the namespaces (None: in all of them) has exactly one.

    None when the selector restricts neither namespaces nor labels by equality, so that any pod may be selected.
    """
    if selector.nothing:
        return frozenset()
    needed = [requirement for requirement in selector.requirements if requirement.operator == "In"]
    if not needed:
        return namespaces
    key, values = min(((r.key, r.values) for r in needed), key=lambda pair: len(pair[1]))
    if namespaces is None:
        return frozenset((key, value) for value in values)
    return frozenset((namespace, key, value) for namespace in namespaces for value in values)


_NO_LABELS: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class AffinityTerm:
    """A selector of pods and a topology key (semantics 8.15)."""

    topology_key: str
    selector: Selector
    namespaces: frozenset[str]
    namespace_selector: Selector

    def matches(
        self, namespace: str, labels: Mapping[str, str], namespace_labels: Mapping[str, str] = _NO_LABELS
    ) -> bool:
        """Whether the term selects a pod with these labels, in a namespace with these labels."""
        in_namespaces = namespace in self.namespaces or self.namespace_selector.matches(namespace_labels)
        return in_namespaces and self.selector.matches(labels)

    @property
    def index_keys(self) -> IndexKeys | None:
        """Keys of which every pod that the term selects has one; None when it may select any pod."""
        return selected_index_keys(self.namespaces if self.namespace_selector.nothing else None, self.selector)

    def resolved(self, namespaces: Mapping[str, Mapping[str, str]]) -> AffinityTerm:
        """The term with the namespaces listed that its namespace selector selects; ``namespaces`` are labels by name.

        QUIRK (semantics 8.15): kube-scheduler then still matches the selector, against an empty set of labels; a
        selector that this satisfies selects every namespace.
        """
        selector = self.namespace_selector
        if selector.nothing or selector.is_empty:
            return self
        selected = {name for name, labels in namespaces.items() if selector.matches(labels)}
        rest = EVERYTHING if selector.matches(_NO_LABELS) else NOTHING
        return replace(self, namespaces=self.namespaces | selected, namespace_selector=rest)


class TermKind(Enum):
    """The list of a pod's affinity that a term is in."""

    REQUIRED = "required affinity"
    REQUIRED_ANTI = "required anti-affinity"
    PREFERRED = "preferred affinity or anti-affinity"


@dataclass(frozen=True, slots=True)
class CarriedTerm:
    """A term with its kind; ``weight`` is that of a preferred term, negative for anti-affinity, else 0."""

    kind: TermKind
    term: AffinityTerm
    weight: int = 0


@dataclass(frozen=True, slots=True)
class PodAffinityTerms:
    """The terms of one pod. ``preferred`` has signed weights: negative ones are anti-affinity.

    ``problems`` are the lists that do not parse, each with its error; such a list is empty here.
    """

    required: tuple[AffinityTerm, ...] = ()
    required_anti: tuple[AffinityTerm, ...] = ()
    preferred: tuple[tuple[int, AffinityTerm], ...] = ()
    problems: tuple[str, ...] = ()

    @classmethod
    def of(cls, namespace: str, affinity: Affinity | None) -> PodAffinityTerms:
        """Parse the affinity of a pod in a namespace."""
        if affinity is None or (affinity.pod_affinity is None and affinity.pod_anti_affinity is None):
            return _NO_TERMS
        pod_affinity, pod_anti_affinity = (
            affinity.pod_affinity or PodAffinity(),
            affinity.pod_anti_affinity or PodAffinity(),
        )
        parser = _TermParser(namespace)
        return cls(
            parser.terms("requiredAffinityTerms", pod_affinity.required_during_scheduling_ignored_during_execution),
            parser.terms(
                "requiredAntiAffinityTerms", pod_anti_affinity.required_during_scheduling_ignored_during_execution
            ),
            (
                *parser.weighted("preferredAffinityTerms", pod_affinity, sign=+1),
                *parser.weighted("preferredAntiAffinityTerms", pod_anti_affinity, sign=-1),
            ),
            tuple(parser.problems),
        )

    def carried(self) -> Counter[CarriedTerm]:
        """Every term with its kind, and how often the pod has it."""
        return Counter(
            (
                *(CarriedTerm(TermKind.REQUIRED, term) for term in self.required),
                *(CarriedTerm(TermKind.REQUIRED_ANTI, term) for term in self.required_anti),
                *(CarriedTerm(TermKind.PREFERRED, term, weight) for weight, term in self.preferred),
            )
        )


_NO_TERMS = PodAffinityTerms()


class _TermParser:
    """Parses lists of terms; a term that does not parse makes its list empty."""

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
