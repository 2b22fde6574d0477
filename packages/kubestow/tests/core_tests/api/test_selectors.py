"""Label selectors."""

from __future__ import annotations

import pytest

from kubestow.api.meta import LabelSelector, convert
from kubestow.api.selectors import EVERYTHING, NOTHING, Requirement, compile_selector
from kubestow.errors import InvalidSelector


def selector(**fields: object) -> LabelSelector:
    return convert(LabelSelector, fields)


def test_a_missing_selector_matches_nothing_and_an_empty_one_everything() -> None:
    assert compile_selector(None) == NOTHING
    assert compile_selector(selector()) == EVERYTHING
    assert not NOTHING.matches({"a": "b"})
    assert EVERYTHING.matches({})


@pytest.mark.parametrize(
    ("operator", "values", "matching"),
    [
        ("In", ["x", "y"], {"x": True, "z": False, None: False}),
        ("NotIn", ["x"], {"x": False, "z": True, None: True}),
        ("Exists", [], {"x": True, None: False}),
        ("DoesNotExist", [], {"x": False, None: True}),
    ],
)
def test_each_operator(operator: str, values: list[str], matching: dict[str | None, bool]) -> None:
    compiled = compile_selector(selector(matchExpressions=[{"key": "k", "operator": operator, "values": values}]))
    for value, expected in matching.items():
        assert compiled.matches({} if value is None else {"k": value}) is expected


def test_equivalent_selectors_are_equal() -> None:
    one = selector(matchLabels={"a": "1", "b": "2"})
    other = selector(matchLabels={"b": "2"}, matchExpressions=[{"key": "a", "operator": "In", "values": ["1"]}])
    assert compile_selector(one) == compile_selector(other)


@pytest.mark.parametrize(
    ("operator", "values"), [("Near", ["x"]), ("In", []), ("Exists", ["x"]), ("", []), ("NotIn", [])]
)
def test_an_invalid_selector_is_rejected(operator: str, values: list[str]) -> None:
    with pytest.raises(InvalidSelector):
        compile_selector(selector(matchExpressions=[{"key": "k", "operator": operator, "values": values}]))


def test_further_requirements_restrict_a_selector() -> None:
    has_a, has_b = Requirement("a", "Exists"), Requirement("b", "Exists")
    both = EVERYTHING.with_requirements([has_b]).with_requirements([has_a, has_b])
    assert both == EVERYTHING.with_requirements([has_a, has_b])
    assert both.matches({"a": "", "b": ""}) and not both.matches({"a": ""}) and not both.matches({"b": ""})
    assert both.with_requirements([]) == both
    assert NOTHING.with_requirements([has_a]) == NOTHING
