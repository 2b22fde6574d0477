"""The rules for one node, and that the columns of many nodes give the same answers."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kubestow.api.core import (
    Affinity,
    Node,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PodSpec,
    Taint,
    Toleration,
)
from kubestow.api.selectors import Requirement
from kubestow.cluster.nodes.selectors import matches_term, selected_by
from kubestow.cluster.nodes.table import NodeTable
from kubestow.cluster.nodes.views import Nodes
from kubestow.errors import InvalidSelector
from kubestow.rules.matching import (
    changed_labels,
    label_requirement,
    selects_node,
    term_matches,
    tolerates,
    untolerated,
)
from kubestow.testing import node

VALUES = ["", "a", "b", "5", "05", "-3", "+4", "9223372036854775808"]
NODES: list[Node] = [
    node("n0"),
    *(node(f"n{number}", labels={"key": value, "other": "x"}) for number, value in enumerate(VALUES, start=1)),
]

requirements = st.builds(
    NodeSelectorRequirement,
    key=st.sampled_from(["key", "other", "missing"]),
    operator=st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Near"]),
    values=st.lists(st.sampled_from(VALUES), max_size=2),
)
fields = st.builds(
    NodeSelectorRequirement,
    key=st.sampled_from(["metadata.name", "metadata.uid"]),
    operator=st.sampled_from(["In", "NotIn", "Exists"]),
    values=st.lists(st.sampled_from(["n1", "n2", "elsewhere"]), max_size=2),
)
terms = st.builds(
    NodeSelectorTerm, match_expressions=st.lists(requirements, max_size=2), match_fields=st.lists(fields, max_size=1)
)


def requirement(key: str, value: str) -> NodeSelectorRequirement:
    return NodeSelectorRequirement(key=key, operator="In", values=[value])


def columns() -> Nodes:
    table = NodeTable()
    for each in NODES:
        table.add(each)
    return Nodes(table, slice(0, len(table)))


@example(NodeSelectorTerm(match_expressions=[requirement("key", "a")]))
@example(NodeSelectorTerm(match_expressions=[requirement("key", "a"), requirement("other", "y")]))
@given(terms)
def test_a_term_matches_the_same_nodes_one_by_one_and_all_at_once(term: NodeSelectorTerm) -> None:
    try:
        expected = [term_matches(term, each.metadata.name, each.metadata.labels) for each in NODES]
    except InvalidSelector as error:
        with pytest.raises(InvalidSelector) as raised:
            matches_term(columns(), term)
        assert str(raised.value) == str(error)
        return
    assert matches_term(columns(), term).tolist() == expected


@pytest.mark.parametrize("affinity", [None, Affinity(), Affinity(node_affinity=NodeAffinity())])
def test_a_pod_without_required_node_affinity_selects_every_node(affinity: Affinity | None) -> None:
    assert selects_node(PodSpec(affinity=affinity), "n", {})


@given(st.none() | st.lists(terms, max_size=2), st.dictionaries(st.sampled_from(["key", "other"]), st.just("x")))
def test_a_pod_selects_the_same_nodes_one_by_one_and_all_at_once(
    required: list[NodeSelectorTerm] | None, node_selector: dict[str, str]
) -> None:
    selector = None if required is None else NodeSelector(node_selector_terms=required)
    affinity = Affinity(node_affinity=NodeAffinity(required_during_scheduling_ignored_during_execution=selector))
    spec = PodSpec(node_selector=node_selector, affinity=affinity)
    expected = [selects_node(spec, each.metadata.name, each.metadata.labels) for each in NODES]
    assert selected_by(columns(), spec).tolist() == expected


@pytest.mark.parametrize(
    ("operator", "values", "problem"),
    [
        ("In", [], "values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty"),
        ("NotIn", [], "values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty"),
        ("Exists", ["a"], 'values: Invalid value: ["a"]: values set must be empty for exists and does not exist'),
        ("DoesNotExist", ["a"], 'values: Invalid value: ["a"]: values set must be empty for exists and does not exist'),
        ("Gt", [], "values: Invalid value: null: for 'Gt', 'Lt' operators, exactly one value is required"),
        (
            "Lt",
            ["1", "2"],
            "values: Invalid value: [\"1\",\"2\"]: for 'Gt', 'Lt' operators, exactly one value is required",
        ),
        ("Gt", ["a"], "values[0]: Invalid value: \"a\": for 'Gt', 'Lt' operators, the value must be an integer"),
        (
            "Near",
            ["a"],
            'operator: Unsupported value: "Near": supported values: '
            '"In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"',
        ),
    ],
)
def test_an_invalid_requirement_is_described_as_kube_scheduler_does(
    operator: str, values: list[str], problem: str
) -> None:
    with pytest.raises(InvalidSelector) as raised:
        label_requirement(NodeSelectorRequirement(key="k", operator=operator, values=values), "matchExpressions[0]")
    assert f"{raised.value.path}: {raised.value.problem}" == f"matchExpressions[0].{problem}"


@pytest.mark.parametrize("operator", ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"])
def test_a_valid_requirement_keeps_its_parts(operator: str) -> None:
    values = [] if "Exist" in operator else ["5"]
    found = label_requirement(NodeSelectorRequirement(key="k", operator=operator, values=values), "x")
    assert found == Requirement("k", operator, frozenset(values))


@pytest.mark.parametrize("value", ["9223372036854775808", "-9223372036854775809", "٣", "1_0", "", " 5"])
def test_values_that_are_no_64_bit_integers_compare_with_nothing(value: str) -> None:
    assert not Requirement("key", "Gt", frozenset({"-1"})).holds(value)
    assert not Requirement("key", "Lt", frozenset({"99"})).holds(value)


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        ({"operator": "Exists"}, True),
        ({"key": "k", "value": "v"}, True),
        ({"key": "k", "operator": "Equal", "value": "w"}, False),
        ({"key": "k", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "other", "operator": "Exists"}, False),
        ({"key": "k", "operator": "Gt", "value": "1"}, False),
    ],
)
def test_tolerations(toleration: dict[str, str], expected: bool) -> None:
    taint = Taint(key="k", value="v", effect="NoSchedule")
    assert tolerates(Toleration(**toleration), taint) is expected
    assert (untolerated([taint], [Toleration(**toleration)], effects=("NoSchedule",)) == []) is expected
    assert untolerated([taint], [], effects=("NoExecute",)) == []


def test_one_of_several_tolerations_is_enough() -> None:
    taints = [Taint(key=key, value="v", effect="NoSchedule") for key in "abc"]
    tolerations = [Toleration(key=key, operator="Exists") for key in "ac"]
    assert untolerated(taints, tolerations, effects=("NoSchedule",)) == [taints[1]]


def test_labels_have_changed_if_they_are_new_gone_or_different() -> None:
    assert changed_labels({"a": "1", "b": "1", "c": "1"}, {"a": "1", "b": "2", "d": ""}) == ["b", "c", "d"]


@pytest.mark.parametrize(
    ("operator", "bound", "expected"),
    [
        ("Gt", "4", True),
        ("Gt", "5", False),
        ("Gt", "6", False),
        ("Lt", "6", True),
        ("Lt", "5", False),
        ("Lt", "4", False),
        ("Gt", "04", False),  # not canonical
        ("Gt", "+4", False),
        ("Gt", "many", False),
    ],
)
def test_a_toleration_compares_numbers_if_its_gate_is_enabled(operator: str, bound: str, expected: bool) -> None:
    toleration, taint = (
        Toleration(key="k", operator=operator, value=bound),
        Taint(key="k", value="5", effect="NoExecute"),
    )
    assert tolerates(toleration, taint, comparisons=True) is expected
    assert not tolerates(toleration, taint)
    for value in ("05", "many"):
        assert not tolerates(toleration, Taint(key="k", value=value, effect="NoExecute"), comparisons=True)
