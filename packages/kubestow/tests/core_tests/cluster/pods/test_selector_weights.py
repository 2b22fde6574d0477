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
