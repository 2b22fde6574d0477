"""The summed weight of the label selectors that match some labels.

A pod may have tens of thousands of affinity terms, and every placed pod is matched against them. The requirements of
the selectors are therefore looked up by the labels: a sum takes time in proportion to the number of labels and of
selectors that match by the values that they list. Selectors that only exclude values, such as ``app NotIn [web]``, cost
nothing unless they exclude one of the labels.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Generic, TypeVar

from kubestow.api.selectors import Requirement, Selector

T = TypeVar("T")

_EXCLUDING = frozenset({"NotIn", "DoesNotExist"})
_LISTING = frozenset({"In", "NotIn"})


class _ByLabel(Generic[T]):
    """Items by the labels that requirements name: a key with one of some values, or a key with any value."""

    __slots__ = ("_by_key",)

    def __init__(self) -> None:
        self._by_key: dict[str, tuple[dict[str, list[T]], list[T]]] = {}

    def add(self, requirement: Requirement, item: T) -> None:
        """List an item under the labels that a requirement names."""
        by_value, of_any_value = self._by_key.setdefault(requirement.key, ({}, []))
        if requirement.operator not in _LISTING:
            of_any_value.append(item)
        for value in requirement.values if requirement.operator in _LISTING else ():
            by_value.setdefault(value, []).append(item)

    def find(self, labels: Mapping[str, str]) -> Iterator[T]:
        """The items that are listed under these labels, once for each requirement that names one of them."""
        by_key = self._by_key
        for key in labels if len(labels) < len(by_key) else by_key:
            if key in labels and key in by_key:
                by_value, of_any_value = by_key[key]
                yield from of_any_value
                yield from by_value.get(labels[key], ())


class _Group:
    """Selectors with the same including requirements; ``others`` are those by which they are not looked up."""

    __slots__ = ("_excluded", "_number", "_weight", "others")

    def __init__(self, others: tuple[Requirement, ...]) -> None:
        self.others = others
        self._weight = self._number = 0
        #: The number and the weight of selectors, by the labels that they exclude.
        self._excluded: _ByLabel[tuple[int, int]] | None = None

    def add(self, excluding: Iterable[Requirement], weight: int) -> None:
        self._weight += weight
        self._number += 1
        for requirement in excluding:
            if self._excluded is None:
                self._excluded = _ByLabel()
            self._excluded.add(requirement, (self._number, weight))

    def weight(self, labels: Mapping[str, str]) -> int:
        if not all(requirement.holds(labels.get(requirement.key)) for requirement in self.others):
            return 0
        if self._excluded is None:
            return self._weight
        return self._weight - sum(weight for _, weight in set(self._excluded.find(labels)))


class SelectorWeights:
    """Selectors with weights."""

    __slots__ = ("_always", "_groups")

    def __init__(self, weighted: Iterable[tuple[Selector, int]]) -> None:
        #: Those without including requirements.
        self._always: _Group | None = None
        #: The others, by the labels that one of their including requirements names.
        self._groups: _ByLabel[_Group] = _ByLabel()
        groups: dict[tuple[Requirement, ...], _Group] = {}
        for selector, weight in weighted:
            if selector.nothing:
                continue
            including = tuple(one for one in selector.requirements if one.operator not in _EXCLUDING)
            group = groups.get(including)
            if group is None:
                group = groups[including] = self._new_group(including)
            group.add((one for one in selector.requirements if one.operator in _EXCLUDING), weight)

    def _new_group(self, including: tuple[Requirement, ...]) -> _Group:
        if not including:
            self._always = _Group(())
            return self._always
        named = min(including, key=lambda one: (one.operator != "In", len(one.values)))
        others = tuple(one for one in including if one is not named or one.operator not in ("In", "Exists"))
        group = _Group(others)
        self._groups.add(named, group)
        return group

    def of(self, labels: Mapping[str, str]) -> int:
        """The sum of the weights of the selectors that match."""
        always = self._always.weight(labels) if self._always is not None else 0
        return always + sum(group.weight(labels) for group in self._groups.find(labels))
