"""Semantic versions: what is one, and how they are ordered."""

from __future__ import annotations

import pytest

from kubestow.plugins.dynamic_resources.inventory.semver import Version

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


def test_versions_are_ordered_as_the_standard_says() -> None:
    assert sorted(sorted(ORDERED), key=lambda text: Version.parse(text).sort_key) == ORDERED


def test_build_metadata_does_not_tell_versions_apart() -> None:
    assert Version.parse("1.0.0+a") == Version.parse("1.0.0+b")


@pytest.mark.parametrize("text", ["1.2", "v1.2.3", "01.2.3", "1.2.3-", "1.2.3-01", "", "1.2.3.4", f"1.2.{2**64}"])
def test_anything_but_a_complete_version_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a semantic version"):
        Version.parse(text)


@pytest.mark.parametrize(
    ("text", "meant"), [("v1.2", "1.2.0"), ("01.002.3", "1.2.3"), ("1", "1.0.0"), ("v1.2-rc.1+b", "1.2.0-rc.1")]
)
def test_a_loosely_written_version_is_mended(text: str, meant: str) -> None:
    assert Version.parse_normalized(text) == Version.parse(meant)


@pytest.mark.parametrize("text", ["1.2.3.4", "a.b.c", ""])
def test_what_cannot_be_mended_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a semantic version"):
        Version.parse_normalized(text)
