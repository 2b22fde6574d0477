"""The affinity and anti-affinity terms of a pod, parsed (semantics 8.15).

A term selects pods by namespace and labels; with a pod of the term they have to be, or must not be, in one domain of a
topology key. A term that does not parse makes its whole list unusable; :attr:`PodAffinityTerms.problems` names these
lists.

Index keys: what pods are looked up by, so that a selector need not be matched against every pod.

A pod has a key for its namespace, one for each of its labels, one for each label within its namespace, and one for its
affinity terms. A selector yields keys of which every pod that it selects has exactly one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from kubestow.api.core import Affinity, PodAffinity, PodAffinityTerm, WeightedPodAffinityTerm
from kubestow.api.selectors import EVERYTHING, NOTHING, Selector, compile_selector
from kubestow.cluster.pods.selector_weights import SelectorWeights
from kubestow.errors import InvalidSelector

IndexKeys = frozenset[Hashable]
#: A selector yields at most this many times as many keys as it has namespaces and values.
_MOST_KEYS = 16


def index_keys_of(namespace: str, labels: Mapping[str, str], carried: Iterable[Hashable]) -> IndexKeys:
    """The keys of a pod; ``carried`` are further keys, such as that of its affinity terms."""
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
    if namespaces is not None and len(namespaces) * len(values) > _MOST_KEYS * (len(namespaces) + len(values)):
        if len(namespaces) < len(values):
            return namespaces
        namespaces = None
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
    def selected(self) -> Selected:
        """What the term selects: its namespaces, namespace selector and selector."""
        return self.namespaces, self.namespace_selector, self.selector


#: Namespaces, namespace selector and selector of a term.
Selected = tuple[frozenset[str], Selector, Selector]


class TermWeights:
    """Terms with weights: the sum of the weights of those that select a pod. Their topology keys do not matter.

    ``weights`` are by what the terms select. What selects nothing is left out.
    """

    __slots__ = (
        "_by_namespace",
        "_by_namespace_selector",
        "_groups",
        "_indexes",
        "_of_namespace",
        "_weights",
        "total",
    )

    def __init__(self, weights: Mapping[Selected, int]) -> None:
        self._weights = {selected: weight for selected, weight in weights.items() if not selected[2].nothing}
        #: The sum of all weights, of what is left out as well.
        self.total = sum(weights.values())
        groups: defaultdict[tuple[frozenset[str], Selector], list[tuple[Selector, int]]] = defaultdict(list)
        for (namespaces, namespace_selector, selector), weight in self._weights.items():
            groups[namespaces, namespace_selector].append((selector, weight))
        #: Selectors with weights, by what they select namespaces by.
        self._groups = list(groups.values())
        #: The positions of the groups that name a namespace, and of those with a namespace selector.
        self._by_namespace: defaultdict[str, list[int]] = defaultdict(list)
        self._by_namespace_selector: list[tuple[Selector, int]] = []
        for position, (namespaces, namespace_selector) in enumerate(groups):
            for namespace in namespaces:
                self._by_namespace[namespace].append(position)
            if not namespace_selector.nothing:
                self._by_namespace_selector.append((namespace_selector, position))
        #: The indexes by the groups that apply, and those of namespaces with their labels.
        self._indexes: dict[tuple[int, ...], SelectorWeights] = {}
        self._of_namespace: dict[str, tuple[Mapping[str, str], SelectorWeights]] = {}

    @classmethod
    def of_terms(cls, weighted: Iterable[tuple[AffinityTerm, int]]) -> TermWeights:
        """Terms with weights; equal ones are added."""
        weights: Counter[Selected] = Counter()
        for term, weight in weighted:
            weights[term.selected] += weight
        return cls(weights)

    def __len__(self) -> int:
        return len(self._weights)

    @property
    def key(self) -> Hashable:
        """Equal for equal terms with equal weights."""
        return frozenset(self._weights.items())

    @property
    def index_keys(self) -> IndexKeys | None:
        """Keys of which every pod that has a weight has one; None when any pod may have one."""
        return _united(_index_keys_of(selected) for selected in self._weights)

    @property
    def index_keys_of_all(self) -> IndexKeys | None:
        """Keys of which every pod that all terms select has one; None when any pod may be selected."""
        keys = (_index_keys_of(selected) for selected in self._weights)
        return next((found for found in keys if found is not None), None)

    def without_weights(self) -> TermWeights:
        """The same terms, each with weight 1."""
        return TermWeights(dict.fromkeys(self._weights, 1))

    def of(self, namespace: str, labels: Mapping[str, str], namespace_labels: Mapping[str, str] = _NO_LABELS) -> int:
        """The weight of a pod with these labels, in a namespace with these labels."""
        known = self._of_namespace.get(namespace)
        if known is None or known[0] != namespace_labels:
            known = namespace_labels, self._index(namespace, namespace_labels)
            if len(self._of_namespace) >= _MOST_NAMESPACES:
                self._of_namespace.clear()
            self._of_namespace[namespace] = known
        return known[1].of(labels)

    def all_match(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Whether all terms, whose weights must be above 0, select a pod with these labels in a namespace."""
        return self.of(namespace, labels) == self.total

    def any_matches(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Whether a term, whose weights must be above 0, selects a pod with these labels in a namespace."""
        return self.of(namespace, labels) > 0

    def _index(self, namespace: str, namespace_labels: Mapping[str, str]) -> SelectorWeights:
        selecting = (
            position for selector, position in self._by_namespace_selector if selector.matches(namespace_labels)
        )
        positions = tuple(sorted({*self._by_namespace.get(namespace, ()), *selecting}))
        index = self._indexes.get(positions)
        if index is None:
            if len(self._indexes) >= _MOST_NAMESPACES:
                self._indexes.clear()
            groups = (self._groups[position] for position in positions)
            index = self._indexes[positions] = SelectorWeights(one for group in groups for one in group)
        return index


def _index_keys_of(selected: Selected) -> IndexKeys | None:
    namespaces, namespace_selector, selector = selected
    return selected_index_keys(namespaces if namespace_selector.nothing else None, selector)


def _united(several: Iterable[IndexKeys | None]) -> IndexKeys | None:
    united: set[Hashable] = set()
    for keys in several:
        if keys is None:
            return None
        united |= keys
    return frozenset(united)


def _by_topology(weighted: Iterable[tuple[AffinityTerm, int]]) -> dict[str, TermWeights]:
    found: defaultdict[str, list[tuple[AffinityTerm, int]]] = defaultdict(list)
    for term, weight in weighted:
        if not term.selector.nothing:
            found[term.topology_key].append((term, weight))
    return {topology_key: TermWeights.of_terms(terms) for topology_key, terms in found.items()}


#: The indexes of this many namespaces are kept.
_MOST_NAMESPACES = 64


@dataclass(frozen=True)
class PodAffinityTerms:
    """The terms of one pod. ``preferred`` has signed weights: negative ones are anti-affinity.

    ``problems`` are the lists that do not parse, each with its error; such a list is empty here. True if there are any
    terms. Equal terms are one index key of the pods that carry them.
    """

    required: tuple[AffinityTerm, ...] = ()
    required_anti: tuple[AffinityTerm, ...] = ()
    preferred: tuple[tuple[int, AffinityTerm], ...] = ()
    problems: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.required or self.required_anti or self.preferred)

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.required, self.required_anti, self.preferred))

    def __iter__(self) -> Iterator[AffinityTerm]:
        """All terms, in no particular order."""
        yield from self.required
        yield from self.required_anti
        for _, term in self.preferred:
            yield term

    @cached_property
    def index_keys(self) -> IndexKeys | None:
        """Keys of which every pod that a term selects has one; None when a term may select any pod."""
        return _united(_index_keys_of(term.selected) for term in self)

    @cached_property
    def namespaces(self) -> frozenset[str] | None:
        """The namespaces that the terms list; None if a term has a namespace selector."""
        if any(not term.namespace_selector.nothing for term in self):
            return None
        return frozenset(namespace for term in self for namespace in term.namespaces)

    @cached_property
    def label_keys(self) -> frozenset[str]:
        """The keys of the labels by which the terms select pods."""
        return frozenset(requirement.key for term in self for requirement in term.selector.requirements)

    @cached_property
    def topology_keys(self) -> frozenset[str]:
        """The topology keys of all terms."""
        return frozenset(term.topology_key for term in self)

    @cached_property
    def required_topology_keys(self) -> frozenset[str]:
        """The topology keys of the required affinity terms."""
        return frozenset(term.topology_key for term in self.required)

    @cached_property
    def required_anti_topology_keys(self) -> frozenset[str]:
        """The topology keys of the required anti-affinity terms."""
        return frozenset(term.topology_key for term in self.required_anti)

    @cached_property
    def every_required(self) -> TermWeights:
        """The required affinity terms, each with weight 1."""
        return TermWeights.of_terms((term, 1) for term in self.required)

    @cached_property
    def every_required_anti(self) -> TermWeights:
        """The required anti-affinity terms, each with weight 1."""
        return TermWeights.of_terms((term, 1) for term in self.required_anti)

    @cached_property
    def required_by_topology(self) -> Mapping[str, TermWeights]:
        """The required affinity terms by topology key, each with weight 1; without those that select nothing."""
        return _by_topology((term, 1) for term in self.required)

    @cached_property
    def required_anti_by_topology(self) -> Mapping[str, TermWeights]:
        """The same of the required anti-affinity terms."""
        return _by_topology((term, 1) for term in self.required_anti)

    @cached_property
    def preferred_by_topology(self) -> Mapping[int, Mapping[str, TermWeights]]:
        """The preferred terms by the sign of their weight (1, -1 or 0) and by topology key.

        Weights are without their sign, and 1 instead of 0, so that a pod has one above 0 if a term selects it.
        """
        by_sign: defaultdict[int, list[tuple[AffinityTerm, int]]] = defaultdict(list)
        for weight, term in self.preferred:
            by_sign[(weight > 0) - (weight < 0)].append((term, abs(weight) or 1))
        return {sign: _by_topology(weighted) for sign, weighted in by_sign.items()}

    def resolved(
        self, namespaces: Mapping[str, Mapping[str, str]], *, matches_without_labels: bool
    ) -> PodAffinityTerms:
        """The terms with the namespaces listed that their selectors of namespaces select, by name with their labels.

        QUIRK (semantics 8.15): kube-scheduler then still matches the selector, against an empty set of labels; a
        selector that this satisfies selects every namespace. Older minor versions set the selector aside: not
        ``matches_without_labels``.
        """
        if self.namespaces is not None:
            return self
        found: dict[Selector, tuple[frozenset[str], Selector]] = {}
        equal: dict[frozenset[str], frozenset[str]] = {}

        def resolve(term: AffinityTerm) -> AffinityTerm:
            selector = term.namespace_selector
            if selector.nothing or selector.is_empty:
                return term
            if selector not in found:
                selected = frozenset(name for name, labels in namespaces.items() if selector.matches(labels))
                found[selector] = (
                    selected,
                    EVERYTHING if matches_without_labels and selector.matches(_NO_LABELS) else NOTHING,
                )
            selected, rest = found[selector]
            listed = term.namespaces | selected
            return replace(term, namespaces=equal.setdefault(listed, listed), namespace_selector=rest)

        return PodAffinityTerms(
            tuple(map(resolve, self.required)),
            tuple(map(resolve, self.required_anti)),
            tuple((weight, resolve(term)) for weight, term in self.preferred),
            self.problems,
        )

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
