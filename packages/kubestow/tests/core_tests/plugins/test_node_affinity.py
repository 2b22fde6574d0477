"""NodeAffinity: preferred terms that do not parse (semantics 8.6)."""

from __future__ import annotations

from typing import Any

import pytest

from kubestow.testing import PluginHarness, nodes, pod

NO_INTEGER = "for 'Gt', 'Lt' operators, the value must be an integer"
NO_VALUE = "for 'in', 'notin' operators, values set can't be empty"


def requirement(operator: str, *values: str) -> dict[str, Any]:
    return {"key": "cores", "operator": operator, "values": list(values)}


def preferred(*requirements: dict[str, Any], kind: str = "matchExpressions", weight: int = 1) -> dict[str, Any]:
    return {"weight": weight, "preference": {kind: list(requirements)}}


def message(*terms: dict[str, Any]) -> str:
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": list(terms)}}
    return PluginHarness(nodes(2)).decide(pod("p", spec={"affinity": affinity})).message


@pytest.mark.parametrize(
    ("term", "problem"),
    [
        (preferred(requirement("Gt", "x")), f'matchExpressions[0].values[0]: Invalid value: "x": {NO_INTEGER}'),
        (
            preferred(requirement("Exists"), requirement("Lt", "1", "2")),
            'matchExpressions[1].values: Invalid value: ["1","2"]: '
            "for 'Gt', 'Lt' operators, exactly one value is required",
        ),
        (preferred(requirement("In")), f"matchExpressions[0].values: Invalid value: null: {NO_VALUE}"),
        (
            preferred(requirement("Exists", "4")),
            'matchExpressions[0].values: Invalid value: ["4"]: values set must be empty for exists and does not exist',
        ),
        (
            preferred(requirement("Near", "4")),
            'matchExpressions[0].operator: Unsupported value: "Near": supported values: '
            '"In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"',
        ),
        (
            preferred(requirement("In", "a", "b"), kind="matchFields"),
            'matchFields[0].values: Invalid value: ["a","b"]: must have one element',
        ),
        (
            preferred(requirement("Gt", "4"), kind="matchFields"),
            'matchFields[0].operator: Unsupported value: "Gt": supported values: "In", "NotIn"',
        ),
    ],
)
def test_a_preferred_term_that_does_not_parse_is_an_error_with_its_path(term: dict[str, Any], problem: str) -> None:
    ignored = preferred(requirement("Gt", "x"), weight=0)
    assert message(ignored, term) == f'running PreScore plugin "NodeAffinity": [1].{problem}'


def test_the_errors_of_several_terms_are_listed() -> None:
    path = "matchExpressions[0].values[0]"
    assert message(preferred(requirement("Gt", "x")), preferred(requirement("Lt", "y"))) == (
        f'running PreScore plugin "NodeAffinity": [[0].{path}: Invalid value: "x": {NO_INTEGER}, '
        f'[1].{path}: Invalid value: "y": {NO_INTEGER}]'
    )


@pytest.mark.parametrize(
    ("affinity", "selector", "expected"),
    [
        ([], {}, {(True, None, None)}),
        ([], {"disk": "ssd"}, {(True, "disk", "ssd")}),
        ([[("zone", "In", ["a", "b"])]], {}, {(True, "zone", "a"), (True, "zone", "b")}),
        ([[("zone", "NotIn", ["a"]), ("disk", "In", ["ssd"])]], {}, {(True, "disk", "ssd")}),
        ([[("zone", "NotIn", ["a"]), ("disk", "Exists", [])]], {}, {(True, "disk", None)}),
        ([[("zone", "In", ["a"])], [("disk", "In", ["ssd"])]], {}, {(True, "zone", "a"), (True, "disk", "ssd")}),
        ([[("zone", "In", ["a", "b"])]], {"disk": "ssd"}, {(True, "disk", "ssd")}),
    ],
)
def test_a_pod_waits_for_new_nodes_by_what_the_fewest_of_them_have(
    affinity: list[list[tuple[str, str, list[str]]]], selector: dict[str, str], expected: set[Any]
) -> None:
    terms = [
        {"matchExpressions": [{"key": key, "operator": operator, "values": values} for key, operator, values in term]}
        for term in affinity
    ]
    required = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    waiting = pod("p", node_selector=selector, spec={"affinity": required} if terms else {})
    harness = PluginHarness(nodes(1))
    (plugin,) = (one for one in harness.profiles["default-scheduler"].plugins if one.name == "NodeAffinity")
    keys = plugin.hint_keys(harness.info(waiting))
    assert keys is not None
    assert {key for key in keys if key[0]} == expected
