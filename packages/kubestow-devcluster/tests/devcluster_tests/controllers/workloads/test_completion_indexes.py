"""Sets of completion indexes behave as sets of numbers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kubestow_devcluster.controllers.workloads.jobs import CompletionIndexes

numbers = st.sets(st.integers(0, 20))


def made(members: set[int]) -> CompletionIndexes:
    return CompletionIndexes(",".join(map(str, members)))


@given(numbers, st.lists(st.integers(0, 20)))
def test_added_numbers_are_members_and_counted_once(members: set[int], added: list[int]) -> None:
    indexes = made(members)
    for index in added:
        indexes.add(index)
    expected = members | set(added)
    assert len(indexes) == len(expected)
    assert {index for index in range(25) if index in indexes} == expected
    assert list(indexes.missing(22)) == [index for index in range(22) if index not in expected]
    assert str(CompletionIndexes(str(indexes))) == str(indexes) == str(made(expected))


@given(numbers, numbers)
def test_common_numbers_are_counted(left: set[int], right: set[int]) -> None:
    assert made(left).count_in(made(right)) == len(left & right)


def test_adjacent_numbers_are_written_as_a_range() -> None:
    indexes = CompletionIndexes("7,1,3-4")
    for index in (5, 0):
        indexes.add(index)
    assert str(indexes) == "0-1,3-5,7"


def test_a_range_costs_the_same_however_long_it_is() -> None:
    indexes = CompletionIndexes("0-9,5-1000000000000000")
    assert indexes.count_in(CompletionIndexes("999999999999999-2000000000000000")) == 2
    assert 10**12 in indexes
