"""Node selectors and node affinity, evaluated for many nodes at once (semantics 8.6).

Terms are ORed, the requirements of a term ANDed. A term without requirements matches nothing, and neither does one that
is invalid. The requirements are those of :mod:`kubestow.rules.matching`; here they are applied to columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from kubestow.api.core import NodeSelectorTerm, PodSpec
from kubestow.api.selectors import Requirement
from kubestow.cluster.nodes.views import Nodes
from kubestow.errors import InvalidSelector
from kubestow.rules.matching import field_requirement, label_requirement, required_terms

Mask = NDArray[np.bool_]

_NAME_FIELD = "metadata.name"


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
        mask &= _matches_labels(nodes, label_requirement(requirement, f"matchExpressions[{position}]"))
    for position, requirement in enumerate(term.match_fields):
        mask &= _matches_fields(nodes, field_requirement(requirement, f"matchFields[{position}]"))
    return mask


def _matches_labels(nodes: Nodes, requirement: Requirement) -> Mask:
    """:meth:`Requirement.matches` for the labels of each node, bool per row."""
    key = requirement.key
    match requirement.operator:
        case "In" | "NotIn" as operator:
            found = _has_value(nodes, key, requirement.values)
            return found if operator == "In" else ~found
        case "Exists" | "DoesNotExist" as operator:
            present: Mask = np.not_equal(nodes.label(key), 0)
            return present if operator == "Exists" else ~present
        case _:
            return nodes.by_label(key, requirement.holds, np.bool_)


def _has_value(nodes: Nodes, key: str, values: Iterable[str]) -> Mask:
    column = nodes.label_column(key)
    ids = [number for value in values if (number := column.id_of(value)) is not None]
    if len(ids) == 1:
        return np.equal(nodes.label(key), ids[0])
    return np.isin(nodes.label(key), ids)


def _matches_fields(nodes: Nodes, requirement: Requirement) -> Mask:
    (name,) = requirement.values
    found = nodes.named(name) if requirement.key == _NAME_FIELD else np.zeros(len(nodes), np.bool_)
    return found if requirement.operator == "In" else ~found
