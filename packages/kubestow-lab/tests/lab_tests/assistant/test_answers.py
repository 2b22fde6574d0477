"""Answers are bounded, and what comes from a cluster stays data in them."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubestow_lab.assistant.answers import Answer, bounded, visible

VALUES = st.recursive(
    st.text(max_size=2_000) | st.integers() | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=60) | st.dictionaries(st.sampled_from(["a", "b", "c"]), inner, max_size=3),
    max_leaves=200,
)


@settings(max_examples=50)
@given(st.dictionaries(st.sampled_from(["x", "y"]), VALUES), st.integers(min_value=200, max_value=5_000))
def test_evidence_never_has_more_bytes_than_allowed(evidence: dict[str, Any], most: int) -> None:
    found = bounded(evidence, most)
    assert len(msgspec.json.encode(found)) <= most
    if len(msgspec.json.encode(evidence)) < 200 and "\\" not in json.dumps(evidence):
        assert found == evidence


def test_a_cut_list_says_how_many_entries_are_missing() -> None:
    found = bounded({"nodes": [f"node-{number}" for number in range(5_000)], "n": 5_000})
    assert found["n"] == 5_000
    assert len(found["nodes"]) + found["omitted"]["nodes"] == 5_000
    assert found["nodes"][0] == "node-0"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain name", "plain name"),
        ("two\nlines", r"two\nlines"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("turned\u202etxet", r"turned\u202etxet"),
        ("x" * 30, "x" * 20 + "…"),
    ],
)
def test_characters_that_cannot_be_seen_are_escaped(text: str, shown: str) -> None:
    assert visible(text, 20) == shown


def test_a_command_line_can_be_pasted() -> None:
    answer = Answer("Yes.", {}, ["kubestow", "why", "a b", "--cluster", "$(x)"], {"f": "it"})
    assert answer.document()["command"] == "kubestow why 'a b' --cluster '$(x)'"
    assert answer.document()["files"] == {"f": "it"}
