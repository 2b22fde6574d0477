"""Validation of a node affinity in the configuration, with the rules of a pod's node affinity.

As in kube-scheduler, preferred terms of weight 0 are not validated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from kubestow.api.core import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PreferredSchedulingTerm
from kubestow.api.formats.names import label_value_errors, qualified_name_errors
from kubestow.config.field_errors import FieldError, invalid, unsupported

__all__ = ["preferred_term_errors", "selector_errors"]

_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
_FIELD_OPERATORS = ("In", "NotIn")
_INT64 = range(-(2**63), 2**63)


def selector_errors(selector: NodeSelector, path: str) -> Iterator[FieldError]:
    """The errors of a required node selector."""
    for index, term in enumerate(selector.node_selector_terms):
        yield from _term_errors(term, f"{path}.nodeSelectorTerms[{index}]")


def preferred_term_errors(terms: Sequence[PreferredSchedulingTerm], path: str) -> Iterator[FieldError]:
    """The errors of preferred terms. As in kube-scheduler, their paths omit "preference"."""
    for index, term in enumerate(terms):
        if term.weight != 0:
            yield from _term_errors(term.preference, f"{path}[{index}]")


def _term_errors(term: NodeSelectorTerm, path: str) -> Iterator[FieldError]:
    for index, requirement in enumerate(term.match_expressions):
        yield from _expression_errors(requirement, f"{path}.matchExpressions[{index}]")
    for index, requirement in enumerate(term.match_fields):
        yield from _field_errors(requirement, f"{path}.matchFields[{index}]")


def _expression_errors(requirement: NodeSelectorRequirement, path: str) -> Iterator[FieldError]:
    if requirement.operator not in _OPERATORS:
        yield unsupported(f"{path}.operator", requirement.operator, _OPERATORS)
        return
    key_errors = qualified_name_errors(requirement.key)
    if key_errors:
        yield invalid(f"{path}.key", requirement.key, "; ".join(key_errors))
    yield from _value_count_errors(requirement, f"{path}.values")
    for index, value in enumerate(requirement.values):
        value_errors = label_value_errors(value)
        if value_errors:
            yield invalid(f"{path}.values[{index}][{requirement.key}]", value, "; ".join(value_errors))


def _value_count_errors(requirement: NodeSelectorRequirement, path: str) -> Iterator[FieldError]:
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


def _field_errors(requirement: NodeSelectorRequirement, path: str) -> Iterator[FieldError]:
    if requirement.operator not in _FIELD_OPERATORS:
        yield unsupported(f"{path}.operator", requirement.operator, _FIELD_OPERATORS)
    elif len(requirement.values) != 1:
        yield invalid(f"{path}.values", requirement.values or None, "must have one element")
