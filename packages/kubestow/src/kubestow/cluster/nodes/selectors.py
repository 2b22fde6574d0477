"""Node selectors and node affinity, evaluated for many nodes at once (semantics 8.6).

Terms are ORed, the requirements of a term ANDed. A term without requirements matches nothing, and neither does one that
is invalid. ``NotIn`` and ``DoesNotExist`` match nodes without the label. The only field is ``metadata.name``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from kubestow.api.core import NodeSelectorRequirement, NodeSelectorTerm, PodSpec
from kubestow.cluster.nodes.views import Nodes
from kubestow.errors import InvalidSelector

__all__ = ["go_int64", "labels_match", "matches_any_term", "matches_term", "required_terms", "selected_by"]

Mask = NDArray[np.bool_]

_NAME_FIELD = "metadata.name"
_FIELD_OPERATORS = ("In", "NotIn")
_LABEL_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")


def required_terms(spec: PodSpec) -> Sequence[NodeSelectorTerm] | None:
    """The terms of a pod's required node affinity, None when it has none; an empty list matches no node."""
    affinity = spec.affinity.node_affinity if spec.affinity else None
    selector = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    return None if selector is None else selector.node_selector_terms


def selected_by(nodes: Nodes, spec: PodSpec) -> Mask:
    """Which nodes match a pod's node selector and required node affinity, bool per row."""
    selected = labels_match(nodes, spec.node_selector)
    terms = required_terms(spec)
    return selected if terms is None else selected & matches_any_term(nodes, terms)


def labels_match(nodes: Nodes, labels: Mapping[str, str]) -> Mask:
    """Which nodes have all of the given labels (``spec.nodeSelector``), bool per row."""
    mask = np.ones(len(nodes), np.bool_)
    for key, value in labels.items():
        mask &= _has_value(nodes, key, (value,))
    return mask


def matches_any_term(nodes: Nodes, terms: Sequence[NodeSelectorTerm]) -> Mask:
    """Which nodes match at least one term, bool per row. Invalid terms match nothing."""
    mask = np.zeros(len(nodes), np.bool_)
    for term in terms:
        try:
            mask |= matches_term(nodes, term)
        except InvalidSelector:
            continue
    return mask


def matches_term(nodes: Nodes, term: NodeSelectorTerm) -> Mask:
    """Which nodes match all requirements of a term, bool per row. Raises InvalidSelector for an invalid term."""
    if not term.match_expressions and not term.match_fields:
        return np.zeros(len(nodes), np.bool_)
    mask = np.ones(len(nodes), np.bool_)
    for position, requirement in enumerate(term.match_expressions):
        mask &= _matches_labels(nodes, requirement, f"matchExpressions[{position}]")
    for position, requirement in enumerate(term.match_fields):
        mask &= _matches_fields(nodes, requirement, f"matchFields[{position}]")
    return mask


def _matches_labels(nodes: Nodes, requirement: NodeSelectorRequirement, path: str) -> Mask:
    key, values = requirement.key, requirement.values
    match requirement.operator:
        case "In" | "NotIn" as operator:
            if not values:
                raise _invalid_values(values, "for 'in', 'notin' operators, values set can't be empty", path)
            found = _has_value(nodes, key, values)
            return found if operator == "In" else ~found
        case "Exists" | "DoesNotExist" as operator:
            if values:
                raise _invalid_values(values, "values set must be empty for exists and does not exist", path)
            present: Mask = np.not_equal(nodes.label(key), 0)
            return present if operator == "Exists" else ~present
        case "Gt" | "Lt" as operator:
            return _compares(nodes, requirement, path, greater=operator == "Gt")
        case unknown:
            raise _unsupported(unknown, _LABEL_OPERATORS, path)


def _has_value(nodes: Nodes, key: str, values: Sequence[str]) -> Mask:
    column = nodes.label_column(key)
    ids = [number for value in values if (number := column.id_of(value)) is not None]
    if len(ids) == 1:
        return np.equal(nodes.label(key), ids[0])
    return np.isin(nodes.label(key), ids)


def _compares(nodes: Nodes, requirement: NodeSelectorRequirement, path: str, *, greater: bool) -> Mask:
    values = requirement.values
    if len(values) != 1:
        raise _invalid_values(values, "for 'Gt', 'Lt' operators, exactly one value is required", path)
    bound = go_int64(values[0])
    if bound is None:
        problem = f"Invalid value: {_as_json(values[0])}: for 'Gt', 'Lt' operators, the value must be an integer"
        raise InvalidSelector(problem, path=f"{path}.values[0]")

    def holds(value: str | None) -> bool:
        number = None if value is None else go_int64(value)
        return number is not None and (number > bound if greater else number < bound)

    return nodes.by_label(requirement.key, holds, np.bool_)


def _matches_fields(nodes: Nodes, requirement: NodeSelectorRequirement, path: str) -> Mask:
    if requirement.operator not in _FIELD_OPERATORS:
        raise _unsupported(requirement.operator, _FIELD_OPERATORS, path)
    if len(requirement.values) != 1:
        raise _invalid_values(requirement.values, "must have one element", path)
    found = np.zeros(len(nodes), np.bool_)
    position = nodes.position(requirement.values[0]) if requirement.key == _NAME_FIELD else None
    if position is not None:
        found[position] = True
    return found if requirement.operator == "In" else ~found


def _invalid_values(values: Sequence[str], problem: str, path: str) -> InvalidSelector:
    """An error in the words of kube-scheduler, which writes an empty list as null."""
    return InvalidSelector(f"Invalid value: {_as_json(list(values) or None)}: {problem}", path=f"{path}.values")


def _unsupported(operator: str, supported: Sequence[str], path: str) -> InvalidSelector:
    known = ", ".join(map(_as_json, supported))
    problem = f"Unsupported value: {_as_json(operator)}: supported values: {known}"
    return InvalidSelector(problem, path=f"{path}.operator")


def _as_json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def go_int64(text: str) -> int | None:
    """Go's ``strconv.ParseInt`` in base 10: an optional sign, ASCII digits, 64 bits; None for anything else."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit()):
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None
