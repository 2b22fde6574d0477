"""Validation of names: one message per broken rule, in Kubernetes' wording."""

from __future__ import annotations

import pytest

from kubestow.api.formats import names

LONG = "must be no more than 63 bytes"


@pytest.mark.parametrize("name", ["a", "0", "a.b-c.d", "a" * 253])
def test_good_subdomains(name: str) -> None:
    assert names.dns1123_subdomain_errors(name) == ()


@pytest.mark.parametrize("name", ["", "A", "a.", ".a", "a..b", "-a", "a_b", "a\n", "é"])
def test_bad_subdomains(name: str) -> None:
    (message,) = names.dns1123_subdomain_errors(name)
    assert message == (
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start"
        " and end with an alphanumeric character (e.g. 'example.com', regex used for validation is"
        r" '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
    )


def test_each_broken_rule_has_its_message() -> None:
    assert names.dns1123_subdomain_errors("a" * 254) == ("must be no more than 253 bytes",)
    assert [message[:20] for message in names.dns1123_subdomain_errors("A" * 254)] == [
        "must be no more than",
        "a lowercase RFC 1123",
    ]
    assert len(names.qualified_name_errors(f"{'-' * 254}/{'-' * 64}")) == 4


def test_lengths_are_counted_in_bytes() -> None:
    assert LONG in names.label_value_errors("é" * 32)
    assert LONG not in names.label_value_errors("é" * 31)


def test_dns1123_labels_have_no_dots() -> None:
    assert names.dns1123_label_errors("a-1") == ()
    assert names.dns1123_label_errors("a.b") == ("must not contain dots",)
    assert names.dns1123_label_errors("a" * 64) == (LONG,)
    assert names.dns1123_label_errors("a_b")[0].startswith("a lowercase RFC 1123 label must consist of")


def test_dns1035_labels_start_with_a_letter() -> None:
    assert names.dns1035_label_errors("a1") == ()
    assert names.dns1035_label_errors("1a")[0].startswith("a DNS-1035 label must consist of")


def test_path_segments_allow_all_but_slash_percent_and_dots() -> None:
    assert names.path_segment_name_errors("system:node: a b") == ()
    assert names.path_segment_name_errors(".") == ("may not be '.'",)
    assert names.path_segment_name_errors("..") == ("may not be '..'",)
    assert names.path_segment_name_errors("...") == names.path_segment_name_errors("a.") == ()
    assert names.path_segment_name_errors("a/b%") == ("may not contain '/'", "may not contain '%'")


@pytest.mark.parametrize("name", ["cpu", "My.Name_1", "example.com/Gpu", "x/" + "a" * 63])
def test_good_qualified_names(name: str) -> None:
    assert names.qualified_name_errors(name) == ()


@pytest.mark.parametrize(
    ("name", "beginnings"),
    [
        ("", ["name part must be non-empty", "name part must consist of"]),
        ("a b", ["name part must consist of"]),
        ("/x", ["prefix part must be non-empty"]),
        ("X/x", ["prefix part a lowercase RFC 1123 subdomain"]),
        ("a/b/c", ["a valid label key must consist of"]),
        ("x/" + "a" * 64, [f"name part {LONG}"]),
    ],
)
def test_bad_qualified_names(name: str, beginnings: list[str]) -> None:
    errors = names.qualified_name_errors(name)
    assert len(errors) == len(beginnings)
    assert all(message.startswith(beginning) for message, beginning in zip(errors, beginnings, strict=True))


@pytest.mark.parametrize(
    ("name", "extended"),
    [
        ("example.com/gpu", True),
        ("cpu", False),
        ("kubernetes.io/gpu", False),
        ("requests.example.com/gpu", False),
        ("a/b/c", False),
        # Its quota would be called by a name that is too long.
        (f"{'a' * 250}/gpu", False),
    ],
)
def test_extended_resources_have_a_vendor_prefix(name: str, extended: bool) -> None:
    assert names.is_extended_resource(name) is extended
