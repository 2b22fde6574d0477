"""Which rows a list of changes invalidates."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kubestow.cluster.changes.journal import EVERY_ROW, ChangeWindow, InvalidationMask, Journal
from kubestow.cluster.nodes.table import NodeTable
from kubestow.testing import node

MASK = InvalidationMask(row_bits=0b0011, all_bits=0b0100)
ENTRIES = st.lists(st.tuples(st.integers(EVERY_ROW, 30), st.sampled_from([1, 2, 3, 8, 8, 8, 16, 4])), max_size=40)


def test_a_window_is_outdated_by_a_change_or_by_another_set_of_nodes() -> None:
    journal, nodes = Journal(), NodeTable()
    window = ChangeWindow(journal, nodes)
    window.begin()
    assert not window.is_outdated
    journal.write(0, 1)
    assert window.is_outdated
    window.begin()
    assert not window.is_outdated
    nodes.add(node("n"))
    assert window.is_outdated


@given(ENTRIES, st.sampled_from([1, 40]), st.integers(0, 40))
def test_the_invalid_rows_are_those_of_a_plain_loop(entries: list[tuple[int, int]], repeated: int, most: int) -> None:
    journal, nodes = Journal(), NodeTable()
    for number in range(1000):
        nodes.add(node(f"n{number}"))
    window = ChangeWindow(journal, nodes)
    before = window.begin()
    for row, bits in entries * repeated:
        journal.write(row, bits)
    window.begin()
    rows = window.invalid_rows(before, MASK, most)

    expected = {row for row, bits in entries if bits & MASK.row_bits}
    if any(bits & MASK.all_bits for _, bits in entries) or EVERY_ROW in expected or len(expected) > most:
        assert rows is None
    else:
        assert rows is not None and sorted(rows) == sorted(expected) and len(rows) == len(expected)
