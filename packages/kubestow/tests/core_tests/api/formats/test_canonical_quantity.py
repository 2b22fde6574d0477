"""The canonical form of quantities, as kube-apiserver returns them."""

from __future__ import annotations

import pytest

from kubestow.api.formats.canonical_quantity import SYNTAX_PROBLEM, canonical, total
from kubestow.errors import InvalidQuantity


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0Ki", "0"),
        ("0.1", "100m"),
        ("1000m", "1"),
        ("1.1n", "2n"),
        ("1500", "1500"),
        ("1E", "1E"),
        ("-2000k", "-2M"),
        # Binary notation, for whole numbers from 1024 on.
        ("1Ki", "1Ki"),
        ("-1Ki", "-1Ki"),
        ("1024Ki", "1Mi"),
        ("0.5Mi", "512Ki"),
        ("1025Ki", "1025Ki"),
        ("0.5Ki", "512"),
        ("0.0001Ki", "102400u"),
        # Exponents are multiples of three.
        ("1000e0", "1e3"),
        ("12e1", "120"),
        ("1.5E3", "1500"),
        ("2E3", "2e3"),
        ("1000000e-9", "1e-3"),
    ],
)
def test_a_quantity_has_the_largest_suffix_without_a_fraction(text: str, expected: str) -> None:
    assert canonical(text) == expected


def test_what_is_no_quantity_has_the_message_of_the_api_server() -> None:
    with pytest.raises(InvalidQuantity) as error:
        canonical("1 Gi")
    assert str(error.value) == SYNTAX_PROBLEM


@pytest.mark.parametrize(
    ("quantities", "expected"),
    [
        ([], "0"),
        (["0Ki", "0"], "0"),
        (["0Ki", "500m", "1Ki"], "1024500m"),
        (["1Ki", "1024"], "2Ki"),
        (["1e3", 2000], "3e3"),
        ([1, "1Ki"], "1025"),
    ],
)
def test_a_sum_has_the_notation_of_its_first_part(quantities: list[str | int], expected: str) -> None:
    assert total(quantities) == expected
