"""Node selectors: which nodes match a term, for all nodes at once."""

from __future__ import annotations

from typing import Any

import pytest

from kubestow.api.core import NodeSelectorTerm
from kubestow.api.meta import convert
from kubestow.cluster.cache import Cluster
from kubestow.cluster.nodes.selectors import labels_match, matches_any_term, matches_term
from kubestow.cluster.nodes.views import Nodes
from kubestow.errors import InvalidSelector
from kubestow.testing import node


@pytest.fixture
def nodes() -> Nodes:
    cluster = Cluster()
    for name, labels in (("a", {"disk": "ssd", "size": "5"}), ("b", {"disk": "hdd", "size": "x"}), ("c", {})):
        cluster.add_node(node(name, labels=labels))
    return cluster.all_nodes()


def term(*expressions: dict[str, Any], fields: list[dict[str, Any]] | None = None) -> NodeSelectorTerm:
    return convert(NodeSelectorTerm, {"matchExpressions": list(expressions), "matchFields": fields or []})


def requirement(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


@pytest.mark.parametrize(
    ("key", "operator", "values", "expected"),
    [
        ("disk", "In", ["ssd"], "a"),
        ("disk", "In", ["ssd", "hdd", "tape"], "ab"),
        ("disk", "In", ["tape"], ""),
        ("disk", "NotIn", ["ssd"], "bc"),
        ("disk", "NotIn", ["tape"], "abc"),
        ("disk", "Exists", [], "ab"),
        ("disk", "DoesNotExist", [], "c"),
        ("other", "Exists", [], ""),
        ("other", "DoesNotExist", [], "abc"),
        ("other", "NotIn", ["x"], "abc"),
        ("size", "Gt", ["4"], "a"),
        ("size", "Lt", ["4"], ""),
    ],
)
def test_a_requirement_on_a_label_is_met_by_its_operator(
    nodes: Nodes, key: str, operator: str, values: list[str], expected: str
) -> None:
    mask = matches_term(nodes, term(requirement(key, operator, *values)))
    assert "".join(name for name, matches in zip(nodes.names, mask.tolist(), strict=True) if matches) == expected


@pytest.mark.parametrize(
    ("operator", "name", "expected"),
    [("In", "b", [False, True, False]), ("NotIn", "b", [True, False, True]), ("In", "x", [False] * 3)],
)
def test_a_requirement_on_a_field_is_about_the_name(
    nodes: Nodes, operator: str, name: str, expected: list[bool]
) -> None:
    assert matches_term(nodes, term(fields=[requirement("metadata.name", operator, name)])).tolist() == expected


def test_all_requirements_of_a_term_have_to_be_met(nodes: Nodes) -> None:
    both = term(requirement("disk", "Exists"), requirement("size", "NotIn", "x"))
    assert matches_term(nodes, both).tolist() == [True, False, False]
    with_field = term(requirement("disk", "Exists"), fields=[requirement("metadata.name", "NotIn", "a")])
    assert matches_term(nodes, with_field).tolist() == [False, True, False]
    assert matches_term(nodes, term()).tolist() == [False] * 3


def test_one_of_the_terms_has_to_match_and_an_invalid_one_matches_nothing(nodes: Nodes) -> None:
    ssd, invalid = term(requirement("disk", "In", "ssd")), term(requirement("disk", "Near", "ssd"))
    with pytest.raises(InvalidSelector):
        matches_term(nodes, invalid)
    assert matches_any_term(nodes, [invalid, ssd, term(requirement("disk", "DoesNotExist"))]).tolist() == [
        *(True, False, True)
    ]
    assert matches_any_term(nodes, [invalid]).tolist() == [False] * 3
    assert matches_any_term(nodes, []).tolist() == [False] * 3


def test_all_labels_of_a_node_selector_have_to_match(nodes: Nodes) -> None:
    assert labels_match(nodes, {"disk": "ssd", "size": "5"}).tolist() == [True, False, False]
    assert labels_match(nodes, {"disk": "ssd", "size": "x"}).tolist() == [False] * 3
    assert labels_match(nodes, {}).tolist() == [True] * 3
