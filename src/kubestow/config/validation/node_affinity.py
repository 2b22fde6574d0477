"""What a node affinity in the configuration may say: the rules of a pod's node affinity, as far as they can be parsed.

Terms that select nothing, and preferences that weigh nothing, are not looked into, as in the reference.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from kubestow.api.core import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PreferredSchedulingTerm
from kubestow.api.names import label_value_errors, qualified_name_errors
from kubestow.config.field_problems import Problem, invalid, unsupported

__all__ = ["preferred_term_problems", "selector_problems"]

_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
_FIELD_OPERATORS = ("In", "NotIn")
_INT64 = range(-(2**63), 2**63)


def selector_problems(selector: NodeSelector, path: str) -> Iterator[Problem]:
    """The problems with a required node selector."""
    for index, term in enumerate(selector.node_selector_terms):
        yield from _term_problems(term, f"{path}.nodeSelectorTerms[{index}]")


def preferred_term_problems(terms: Sequence[PreferredSchedulingTerm], path: str) -> Iterator[Problem]:
    """The problems with preferred terms. Their paths lack "preference", as the reference's do."""
    for index, term in enumerate(terms):
        if term.weight != 0:
            yield from _term_problems(term.preference, f"{path}[{index}]")


def _term_problems(term: NodeSelectorTerm, path: str) -> Iterator[Problem]:
    for index, requirement in enumerate(term.match_expressions):
        yield from _expression_problems(requirement, f"{path}.matchExpressions[{index}]")
    for index, requirement in enumerate(term.match_fields):
        yield from _field_problems(requirement, f"{path}.matchFields[{index}]")


def _expression_problems(requirement: NodeSelectorRequirement, path: str) -> Iterator[Problem]:
    if requirement.operator not in _OPERATORS:
        yield unsupported(f"{path}.operator", requirement.operator, _OPERATORS)
        return
    key_faults = qualified_name_errors(requirement.key)
    if key_faults:
        yield invalid(f"{path}.key", requirement.key, "; ".join(key_faults))
    yield from _value_count_problems(requirement, f"{path}.values")
    for index, value in enumerate(requirement.values):
        value_faults = label_value_errors(value)
        if value_faults:
            yield invalid(f"{path}.values[{index}][{requirement.key}]", value, "; ".join(value_faults))


def _value_count_problems(requirement: NodeSelectorRequirement, path: str) -> Iterator[Problem]:
    values = requirement.values
    match requirement.operator:
        case "In" | "NotIn" if not values:
            yield invalid(path, None, "for 'in', 'notin' operators, values set can't be empty")
        case "Exists" | "DoesNotExist" if values:
            yield invalid(path, values, "values set must be empty for exists and does not exist")
        case "Gt" | "Lt":
            if len(values) != 1:
                yield invalid(path, values or None, "for 'Gt', 'Lt' operators, exactly one value is required")
            for index, value in enumerate(values):
                if not re.fullmatch(r"[-+]?[0-9]+", value) or int(value) not in _INT64:
                    detail = "for 'Gt', 'Lt' operators, the value must be an integer"
                    yield invalid(f"{path}[{index}]", value, detail)


def _field_problems(requirement: NodeSelectorRequirement, path: str) -> Iterator[Problem]:
    if requirement.operator not in _FIELD_OPERATORS:
        yield unsupported(f"{path}.operator", requirement.operator, _FIELD_OPERATORS)
    elif len(requirement.values) != 1:
        yield invalid(f"{path}.values", requirement.values or None, "must have one element")
