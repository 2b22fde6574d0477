"""The journal lists what has changed since a position, however long ago and in whatever simulation that was."""

from __future__ import annotations

from functools import reduce
from operator import or_

from hypothesis import given
from hypothesis import strategies as st

from kubestow.cluster.changes.journal import EVERY_ROW, ROLLED_BACK, Journal

ADDED, DELETED, LABELLED = 1, 2, 8
UNDONE = ADDED | DELETED

ENTRIES = st.lists(st.tuples(st.integers(EVERY_ROW, 40), st.sampled_from([ADDED, DELETED, LABELLED, 1 << 40])))


def since(journal: Journal, position: int) -> list[tuple[int, int]]:
    changes = journal.since(position)
    assert changes is not None
    return list(zip(changes.rows, changes.bits, strict=True))


@given(ENTRIES, st.integers(1, 100), st.sampled_from([ADDED, ADDED | DELETED, LABELLED, 1 << 40, 1 << 50]))
def test_the_union_and_the_rows_of_changes_are_those_of_their_entries(
    entries: list[tuple[int, int]], repeated: int, wanted: int
) -> None:
    journal = Journal()
    for row, bits in entries * repeated:
        journal.write(row, bits)
    changes = journal.since(0)
    assert changes is not None and list(zip(changes.rows, changes.bits, strict=True)) == entries * repeated
    assert changes.union == reduce(or_, (bits for _, bits in entries), 0)
    rows = {row for row, bits in entries if bits & wanted}
    assert changes.rows_with(wanted).tolist() == sorted(rows)
    for most in (len(rows) - 1, len(rows)):
        listed = changes.list_rows(wanted, most)
        expected = None if len(rows) > most or EVERY_ROW in rows else sorted(rows)
        assert (None if listed is None else sorted(listed)) == expected


@given(ENTRIES, ENTRIES, ENTRIES, st.data())
def test_changes_are_listed_from_any_position_in_nested_branches_and_after_them(
    before: list[tuple[int, int]], outer: list[tuple[int, int]], inner: list[tuple[int, int]], data: st.DataObject
) -> None:
    journal = Journal()
    positions = _write(journal, before)
    journal.begin_branch()
    positions += _write(journal, outer)
    journal.begin_branch()
    positions += _write(journal, inner)
    entries = [*before, *outer, *inner]
    number = data.draw(st.integers(0, len(entries)))
    start = [0, *positions][number]
    assert since(journal, start) == entries[number:]

    journal.roll_back(1, UNDONE)
    changed = [(EVERY_ROW, ROLLED_BACK)] if outer or inner else []
    changed += [entry for entry in (*outer, *inner) if not entry[1] & UNDONE]
    found = since(journal, start)
    if number <= len(before):
        assert [entry for entry in found if entry[1] != ROLLED_BACK] == before[number:] + changed[1:]
    else:
        reversals = found[: len(found) - len(changed)]
        assert {row for row, _ in reversals} >= {row for row, bits in entries[len(before) : number] if bits & UNDONE}
        assert all(bits & UNDONE in (0, UNDONE) for _, bits in reversals)


def _write(journal: Journal, entries: list[tuple[int, int]]) -> list[int]:
    positions = []
    for row, bits in entries:
        journal.write(row, bits)
        positions.append(journal.position)
    return positions


def test_only_recent_entries_are_kept() -> None:
    journal = Journal()
    for number in range(100_000):
        journal.write(number % 10, ADDED)
    assert journal.since(0) is None
    assert since(journal, journal.position - 5000) == [(number % 10, ADDED) for number in range(95_000, 100_000)]
    assert len(journal._rows) < 20_000


def _simulated(journal: Journal, entries: int) -> int:
    """A position inside a simulation with so many entries, which has ended."""
    journal.begin_branch()
    position = _write(journal, [(number % 10, ADDED) for number in range(entries)])[0]
    journal.roll_back(1, UNDONE)
    return position


def test_a_position_inside_a_simulation_is_unknown_once_what_came_before_it_is_dropped() -> None:
    journal = Journal()
    journal.write(1, ADDED)
    position = _simulated(journal, 5)
    assert journal.since(position) is not None
    _write(journal, [(number % 10, ADDED) for number in range(30_000)])
    assert journal.since(position) is None


def test_a_position_inside_a_simulation_is_unknown_once_later_simulations_are_long() -> None:
    journal = Journal()
    position = _simulated(journal, 5)
    for _ in range(4):
        assert journal.since(position) is not None
        _simulated(journal, 2500)
    assert journal.since(position) is None


def test_the_same_position_is_read_again_after_further_changes() -> None:
    journal = Journal()
    journal.write(1, ADDED)
    assert since(journal, 0) == [(1, ADDED)]
    journal.write(2, DELETED)
    assert since(journal, 0) == [(1, ADDED), (2, DELETED)]
    assert since(journal, 1) == [(2, DELETED)]
    assert since(journal, 0) == [(1, ADDED), (2, DELETED)]


def test_no_changes_have_no_rows() -> None:
    changes = Journal().since(0)
    assert changes is not None
    assert (changes.rows_with(ADDED).tolist(), changes.union, list(changes.rows)) == ([], 0, [])
