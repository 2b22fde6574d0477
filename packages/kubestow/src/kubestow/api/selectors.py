"""Compiled label selectors.

A :class:`Selector` is an immutable, hashable conjunction of requirements on labels. It implements the label selectors
of pods and namespaces; node selectors (:mod:`kubestow.rules.matching`) consist of the same requirements.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from kubestow.api.meta import LabelSelector
from kubestow.errors import InvalidSelector

_NEEDS_VALUES = frozenset({"In", "NotIn"})
_OPERATORS = frozenset({"In", "NotIn", "Exists", "DoesNotExist"})


@dataclass(frozen=True, slots=True)
class Requirement:
    """A requirement on a label. ``NotIn`` and ``DoesNotExist`` match if the label is missing.

    ``Gt`` and ``Lt`` have one 64-bit integer as their value, and match labels whose value is a larger or smaller one.
    """

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels meet this requirement."""
        return self.holds(labels.get(self.key))

    def holds(self, value: str | None) -> bool:
        """Whether a value of the label meets this requirement; None if the label is missing."""
        match self.operator:
            case "In":
                return value is not None and value in self.values
            case "NotIn":
                return value is None or value not in self.values
            case "Exists":
                return value is not None
            case "Gt" | "Lt":
                (bound,), number = map(go_int64, self.values), go_int64(value or "")
                if number is None or bound is None:
                    return False
                return number > bound if self.operator == "Gt" else number < bound
            case _:
                return value is None


def go_int64(text: str) -> int | None:
    """Go's ``strconv.ParseInt`` in base 10: an optional sign, ASCII digits, 64 bits; None for anything else."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit()):
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None


@dataclass(frozen=True, slots=True)
class Selector:
    """A conjunction of requirements; an empty one matches everything, ``nothing`` makes it match nothing."""

    requirements: tuple[Requirement, ...] = ()
    nothing: bool = False

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels meet every requirement."""
        return not self.nothing and all(one.holds(labels.get(one.key)) for one in self.requirements)

    @property
    def is_empty(self) -> bool:
        """Whether this is the selector ``{}``, which matches everything."""
        return not self.nothing and not self.requirements

    @property
    def label_keys(self) -> frozenset[str]:
        """The keys of the labels on which it depends whether this matches."""
        return frozenset(requirement.key for requirement in self.requirements)

    def with_requirements(self, requirements: Iterable[Requirement]) -> Selector:
        """This selector with further requirements."""
        added = tuple(requirements)
        return self if self.nothing or not added else Selector(_canonical((*self.requirements, *added)))


EVERYTHING = Selector()
NOTHING = Selector(nothing=True)


def _canonical(requirements: Iterable[Requirement]) -> tuple[Requirement, ...]:
    """Sorted and deduplicated requirements, so that equivalent selectors compare equal."""
    return tuple(sorted(set(requirements), key=lambda r: (r.key, r.operator, sorted(r.values))))


def compile_selector(selector: LabelSelector | None) -> Selector:
    """Compile a label selector: None matches nothing, an empty selector matches everything.

    Raises InvalidSelector for an unknown operator, and for missing or superfluous values.
    """
    if selector is None:
        return NOTHING
    requirements = [Requirement(key, "In", frozenset({value})) for key, value in selector.match_labels.items()]
    for expression in selector.match_expressions:
        if expression.operator not in _OPERATORS:
            raise InvalidSelector(f'"{expression.operator}" is not a valid label selector operator')
        if expression.operator in _NEEDS_VALUES and not expression.values:
            problem = "Invalid value: null: for 'in', 'notin' operators, values set can't be empty"
            raise InvalidSelector(problem, path="values")
        if expression.operator not in _NEEDS_VALUES and expression.values:
            found = msgspec.json.encode(expression.values).decode()
            problem = f"Invalid value: {found}: values set must be empty for exists and does not exist"
            raise InvalidSelector(problem, path="values")
        requirements.append(Requirement(expression.key, expression.operator, frozenset(expression.values)))
    return Selector(_canonical(requirements))
