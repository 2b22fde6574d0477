"""How long pods and namespaces wait after an attempt that has held up all others."""

from __future__ import annotations

import pytest

from kubestow.scheduling.queue.budget import NamespaceDebts, delay_after


@pytest.mark.parametrize(("seconds", "pause"), [(2, 18), (60, 540), (70, 600), (1000, 600)])
def test_an_expensive_attempt_takes_a_tenth_of_the_time_and_pauses_for_ten_minutes_at_most(
    seconds: float, pause: float
) -> None:
    assert delay_after(seconds) == pytest.approx(pause)


def test_a_namespace_is_in_debt_until_the_latest_end() -> None:
    debts = NamespaceDebts()
    debts.incur(["a", "b"], until=10, now=0)
    debts.incur(["a"], until=5, now=1)
    debts.incur(["b"], until=20, now=2)
    assert [debts.end_of(namespace, 9) for namespace in "abc"] == [10, 20, None]
    assert [debts.end_of(namespace, 10) for namespace in "ab"] == [None, 20]
    assert debts.end_of("b", 20) is None
    assert not debts


def test_debts_that_have_ended_do_not_accumulate() -> None:
    debts = NamespaceDebts()
    for number in range(100):
        debts.incur([f"namespace-{number}"], until=number + 1, now=number)
    assert [number for number in range(100) if debts.end_of(f"namespace-{number}", 0) is not None] == [99]


def test_a_namespace_is_held_back_until_the_latest_end() -> None:
    debts = NamespaceDebts()
    debts.hold_back("a", 10)
    debts.hold_back("a", 5)
    assert debts
    assert [debts.hold_end("a", now) for now in (9, 10, 9)] == [10, None, None]
    assert debts.end_of("a", 0) is None
    assert not debts
