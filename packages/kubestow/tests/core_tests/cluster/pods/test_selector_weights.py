"""The summed weight of selectors is what asking each of them gives."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kubestow.api.selectors import NOTHING, Requirement, Selector
from kubestow.cluster.pods.selector_weights import SelectorWeights

KEYS, VALUES = st.sampled_from("ab"), st.sampled_from("xyz")
requirements = st.builds(
    Requirement, KEYS, st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]), st.frozensets(VALUES, min_size=1)
)
selectors = st.builds(Selector, st.lists(requirements, max_size=3).map(tuple)) | st.just(NOTHING)


@given(st.lists(st.tuples(selectors, st.integers(-3, 3)), max_size=6), st.dictionaries(KEYS, VALUES))
def test_the_weights_of_the_selectors_that_match_are_added(
    weighted: list[tuple[Selector, int]], labels: dict[str, str]
) -> None:
    expected = sum(weight for selector, weight in weighted if selector.matches(labels))
    assert SelectorWeights(weighted).of(labels) == expected


def requiring(*requirements: tuple[str, str, str]) -> Selector:
    """Requirements as keys, operators and values, each of one letter."""
    return Selector(tuple(Requirement(key, operator, frozenset(values)) for key, operator, values in requirements))


def test_each_selector_matches_by_all_of_its_requirements() -> None:
    selectors = {
        1: requiring(("a", "In", "x"), ("b", "In", "y")),
        2: requiring(("a", "In", "xz"), ("b", "Exists", "")),
        4: requiring(("a", "Exists", ""), ("b", "Exists", "")),
        8: requiring(("a", "In", "x"), ("b", "NotIn", "y")),
        16: requiring(("b", "DoesNotExist", "")),
        32: requiring(("a", "Gt", "5"), ("b", "Lt", "9")),
        64: requiring(("a", "In", "x"), ("b", "NotIn", "y"), ("c", "DoesNotExist", "")),
        128: requiring(),
    }
    weights = SelectorWeights((selector, weight) for weight, selector in selectors.items())
    found = {
        "none": weights.of({}),
        "a=x": weights.of({"a": "x"}),
        "a=x,b=y": weights.of({"a": "x", "b": "y"}),
        "a=x,b=z": weights.of({"a": "x", "b": "z"}),
        "a=z,b=y": weights.of({"a": "z", "b": "y"}),
        "b=y": weights.of({"b": "y"}),
        "a=6,b=8": weights.of({"a": "6", "b": "8"}),
        "a=6,b=9": weights.of({"a": "6", "b": "9"}),
        "a=x,c=y": weights.of({"a": "x", "c": "y"}),
        "a=x,b=y,c=y": weights.of({"a": "x", "b": "y", "c": "y"}),
    }
    assert found == {
        "none": 128 + 16,
        "a=x": 128 + 16 + 8 + 64,
        "a=x,b=y": 128 + 1 + 2 + 4,
        "a=x,b=z": 128 + 2 + 4 + 8 + 64,
        "a=z,b=y": 128 + 2 + 4,
        "b=y": 128,
        "a=6,b=8": 128 + 4 + 32,
        "a=6,b=9": 128 + 4,
        "a=x,c=y": 128 + 16 + 8,
        "a=x,b=y,c=y": 128 + 1 + 2 + 4,
    }


def test_selectors_that_exclude_the_same_label_with_the_same_weight_are_several() -> None:
    weights = SelectorWeights([(requiring(("a", "NotIn", "x")), 3), (requiring(("a", "NotIn", "xy")), 3)])
    assert [weights.of({"a": value}) for value in "xyz"] == [0, 3, 6]
