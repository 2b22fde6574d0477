"""What selects and repels nodes: node selectors and node affinity, taints and tolerations, for one node.

:mod:`kubestow.cluster.nodes.selectors` applies the same requirements to the columns of many nodes at once. The node
table interns lists of taints, so a plugin decides once per distinct list instead of once per node (see
:meth:`kubestow.cluster.nodes.views.Nodes.by_taints`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from kubestow.api.core import NodeSelectorRequirement, NodeSelectorTerm, PodSpec, Taint, Toleration
from kubestow.api.selectors import Requirement, go_int64
from kubestow.errors import InvalidSelector

NO_SCHEDULE, NO_EXECUTE, PREFER_NO_SCHEDULE = "NoSchedule", "NoExecute", "PreferNoSchedule"

_NAME_FIELD = "metadata.name"
_FIELD_OPERATORS = ("In", "NotIn")
_LABEL_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")


# -- node selectors and node affinity --------------------------------------------------------------------------------


def required_terms(spec: PodSpec) -> Sequence[NodeSelectorTerm] | None:
    """The terms of a pod's required node affinity, None when it has none; an empty list matches no node."""
    affinity = spec.affinity.node_affinity if spec.affinity else None
    selector = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    return None if selector is None else selector.node_selector_terms


def changed_labels(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """The keys of the labels that were added, removed or got another value."""
    return [key for key in {**old, **new} if old.get(key) != new.get(key)]


def selects_node(spec: PodSpec, name: str, labels: Mapping[str, str]) -> bool:
    """Whether a node meets a pod's node selector and required node affinity (semantics 8.6).

    Terms are ORed. A term that is invalid matches no node.
    """
    if any(labels.get(key) != value for key, value in spec.node_selector.items()):
        return False
    terms = required_terms(spec)
    return terms is None or any(_matches_if_valid(term, name, labels) for term in terms)


def _matches_if_valid(term: NodeSelectorTerm, name: str, labels: Mapping[str, str]) -> bool:
    try:
        return term_matches(term, name, labels)
    except InvalidSelector:
        return False


def term_matches(term: NodeSelectorTerm, name: str, labels: Mapping[str, str]) -> bool:
    """Whether a node meets all requirements of a term; none without requirements (semantics 8.6).

    Raises InvalidSelector for an invalid term.
    """
    by_label = [label_requirement(one, f"matchExpressions[{n}]") for n, one in enumerate(term.match_expressions)]
    by_field = [field_requirement(one, f"matchFields[{n}]") for n, one in enumerate(term.match_fields)]
    fields = {_NAME_FIELD: name}
    matches = all(one.matches(labels) for one in by_label) and all(one.matches(fields) for one in by_field)
    return bool(by_label or by_field) and matches


def label_requirement(requirement: NodeSelectorRequirement, path: str) -> Requirement:
    """A valid requirement of ``matchExpressions`` on the labels of a node (semantics 8.6).

    Raises InvalidSelector, in the words of kube-scheduler, for the requirement at ``path``.
    """
    values = requirement.values
    match requirement.operator:
        case "In" | "NotIn":
            if not values:
                raise _invalid_values(values, "for 'in', 'notin' operators, values set can't be empty", path)
        case "Exists" | "DoesNotExist":
            if values:
                raise _invalid_values(values, "values set must be empty for exists and does not exist", path)
        case "Gt" | "Lt":
            if len(values) != 1:
                raise _invalid_values(values, "for 'Gt', 'Lt' operators, exactly one value is required", path)
            if go_int64(values[0]) is None:
                problem = "for 'Gt', 'Lt' operators, the value must be an integer"
                raise InvalidSelector(f"Invalid value: {_as_json(values[0])}: {problem}", path=f"{path}.values[0]")
        case unknown:
            raise _unsupported(unknown, _LABEL_OPERATORS, path)
    return Requirement(requirement.key, requirement.operator, frozenset(values))


def field_requirement(requirement: NodeSelectorRequirement, path: str) -> Requirement:
    """A valid requirement of ``matchFields``, of which ``metadata.name`` is the only field (semantics 8.6).

    Raises InvalidSelector, in the words of kube-scheduler, for the requirement at ``path``.
    """
    if requirement.operator not in _FIELD_OPERATORS:
        raise _unsupported(requirement.operator, _FIELD_OPERATORS, path)
    if len(requirement.values) != 1:
        raise _invalid_values(requirement.values, "must have one element", path)
    return Requirement(requirement.key, requirement.operator, frozenset(requirement.values))


def _invalid_values(values: Sequence[str], problem: str, path: str) -> InvalidSelector:
    """An error in the words of kube-scheduler, which writes an empty list as null."""
    return InvalidSelector(f"Invalid value: {_as_json(list(values) or None)}: {problem}", path=f"{path}.values")


def _unsupported(operator: str, supported: Sequence[str], path: str) -> InvalidSelector:
    known = ", ".join(map(_as_json, supported))
    problem = f"Unsupported value: {_as_json(operator)}: supported values: {known}"
    return InvalidSelector(problem, path=f"{path}.operator")


def _as_json(value: object) -> str:
    return msgspec.json.encode(value).decode()


# -- taints and tolerations, of nodes and of devices -----------------------------------------------------------------


def tolerates(toleration: Toleration, taint: Taint, *, comparisons: bool = False) -> bool:
    """Whether a toleration tolerates a taint (semantics 8.5).

    ``comparisons`` enables the operators ``Lt`` and ``Gt`` (feature gate TaintTolerationComparisonOperators).
    """
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    match toleration.operator:
        case "" | "Equal":
            return toleration.value == taint.value
        case "Exists":
            return True
        case "Lt" | "Gt" if comparisons:
            bound, value = go_int64(toleration.value), go_int64(taint.value)
            if bound is None or value is None or str(bound) != toleration.value or str(value) != taint.value:
                return False  # numbers must be canonical: not "+5", not "05"
            return value < bound if toleration.operator == "Lt" else value > bound
        case _:
            return False


def untolerated(
    taints: Iterable[Taint], tolerations: Sequence[Toleration], *, effects: Iterable[str], comparisons: bool = False
) -> list[Taint]:
    """The taints with one of the effects that no toleration tolerates, in order (semantics 8.5)."""
    return [
        taint
        for taint in taints
        if taint.effect in effects and not any(tolerates(t, taint, comparisons=comparisons) for t in tolerations)
    ]
