"""Parsing and rounding of resource quantities."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubestow.api.formats.canonical_quantity import canonical
from kubestow.api.formats.quantity import millis, nanos, units
from kubestow.errors import InvalidQuantity


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1", 1), ("1.5Gi", 1610612736), ("2e3", 2000), ("2E3", 2000), ("1E", 10**18), (".5", 1), ("5.", 5), ("-1.5", -2)],
)
def test_units_are_whole_numbers_rounded_away_from_zero(text: str, expected: int) -> None:
    assert units(text) == expected


@pytest.mark.parametrize(("text", "expected"), [("100m", 100), ("0.0001", 1), ("2", 2000), ("1u", 1), ("0", 0)])
def test_millis_count_millicores(text: str, expected: int) -> None:
    assert millis(text) == expected


@pytest.mark.parametrize("text", ["", "1.5.2", "abc", "1 Gi", "1Kii", "1e", "--1", "0x10", "1gi", "١"])
def test_an_invalid_quantity_is_named_in_the_error(text: str) -> None:
    with pytest.raises(InvalidQuantity, match="is not a resource quantity"):
        units(text)


def test_a_quantity_has_at_most_256_characters() -> None:
    assert units("0" * 255 + "7") == 7
    with pytest.raises(InvalidQuantity) as error:
        units("0" * 256 + "7")
    expected = f'"{"0" * 20}…" of 257 characters are no resource quantity, at most 256 are allowed'
    assert str(error.value) == expected


def test_a_bare_number_is_a_quantity() -> None:
    assert (millis(2), millis(0.5)) == (2000, 500)


def test_quantities_saturate_at_64_bits() -> None:
    assert units("1e999999999") == units("100E") == 2**63 - 1
    assert canonical("900e999") == canonical("8Ei") == str(2**63 - 1)


@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=0, max_value=10**9, places=6))
def test_decimal_quantities_are_exact(value: object) -> None:
    assert Fraction(nanos(format(value, "f")), 10**9) == Fraction(str(value))
