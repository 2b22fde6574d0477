"""Semantic versions: parsing and order."""

from __future__ import annotations

import pytest

from kubestow.plugins.dynamic_resources.cel import Version

ORDERED = [
    "0.9.0",
    "1.0.0-alpha",
    "1.0.0-alpha.1",
    "1.0.0-alpha.beta",
    "1.0.0-beta.2",
    "1.0.0-beta.11",
    "1.0.0-rc.1",
    "1.0.0",
    "1.2.0",
    "1.10.0",
]


def test_versions_are_ordered_by_precedence() -> None:
    assert sorted(sorted(ORDERED), key=lambda text: Version.parse(text).sort_key) == ORDERED


def test_build_metadata_is_ignored() -> None:
    assert Version.parse("1.0.0+a") == Version.parse("1.0.0+b")


@pytest.mark.parametrize("text", ["1.2", "v1.2.3", "01.2.3", "1.2.3-", "1.2.3-01", "", "1.2.3.4", f"1.2.{2**64}"])
def test_an_incomplete_version_is_invalid(text: str) -> None:
    with pytest.raises(ValueError, match="is not a semantic version"):
        Version.parse(text)


@pytest.mark.parametrize(
    ("text", "normalized"),
    [("v1.2", "1.2.0"), ("01.002.3", "1.2.3"), ("1", "1.0.0"), ("v1.2-rc.1+b", "1.2.0-rc.1"), ("1.2+b-1", "1.2.0")],
)
def test_versions_are_normalized(text: str, normalized: str) -> None:
    assert Version.parse_normalized(text) == Version.parse(normalized)


@pytest.mark.parametrize("text", ["1.2.3.4", "a.b.c", ""])
def test_a_version_that_cannot_be_normalized_is_invalid(text: str) -> None:
    with pytest.raises(ValueError, match="is not a semantic version"):
        Version.parse_normalized(text)
