"""Decoding of the extender protocol as in Go: case-insensitive keys, nulls as zero values, unknown keys ignored."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubestow.api.extender import FilterResult, HostPriority, PreemptionResult, name_of, read, uid_of
from kubestow.errors import InvalidObject

names = st.sampled_from(["a", "b", "Nodes", "nodenames", "error"])
reasons = st.dictionaries(names, st.sampled_from(["no", "", "Error"]), max_size=3)
filter_results = st.fixed_dictionaries(
    {
        "NodeNames": st.none() | st.lists(names, max_size=3),
        "FailedNodes": reasons,
        "FailedAndUnresolvableNodes": reasons,
        "Error": st.sampled_from(["", "out of order"]),
    }
)
preemption_results = st.fixed_dictionaries(
    {
        "NodeNameToMetaVictims": st.dictionaries(
            names,
            st.fixed_dictionaries(
                {
                    "Pods": st.lists(st.fixed_dictionaries({"UID": st.sampled_from(["u", "v"])}), max_size=2),
                    "NumPDBViolations": st.integers(0, 3),
                }
            ),
            max_size=2,
        )
    }
)
spellings = st.sampled_from([str.lower, str.upper, str.swapcase])


def with_keys_in_case(message: dict[str, Any], spell: Callable[[str], str]) -> dict[str, Any]:
    """The message with its keys in another case; the keys of maps are node names and stay."""
    changed: dict[str, Any] = {spell(key): value for key, value in message.items()} | {"Unknown": [None]}
    victims = changed.get(spell("NodeNameToMetaVictims"))
    if victims is not None:
        changed[spell("NodeNameToMetaVictims")] = {
            name: {spell("Pods"): [with_keys_in_case(pod, spell) for pod in one["Pods"]]}
            | {spell("NumPDBViolations"): one["NumPDBViolations"]}
            for name, one in victims.items()
        }
    return changed


def both(kind: type[Any], message: dict[str, Any], spell: Callable[[str], str]) -> tuple[Any, Any]:
    return read(kind, json.dumps(message).encode()), read(kind, json.dumps(with_keys_in_case(message, spell)).encode())


@given(filter_results, spellings)
def test_keys_of_a_filter_result_are_case_insensitive(message: dict[str, Any], spell: Callable[[str], str]) -> None:
    as_declared, otherwise = both(FilterResult, message, spell)
    assert as_declared == otherwise
    assert as_declared.failed_nodes == message["FailedNodes"]


@given(preemption_results, spellings)
def test_keys_of_a_preemption_result_are_case_insensitive(message: dict[str, Any], spell: Callable[[str], str]) -> None:
    as_declared, otherwise = both(PreemptionResult, message, spell)
    assert as_declared == otherwise
    assert as_declared.node_name_to_meta_victims.keys() == message["NodeNameToMetaVictims"].keys()


def test_null_decodes_as_the_zero_value() -> None:
    assert read(FilterResult, b'{"FailedNodes": null, "Error": null, "Nodes": {"items": null}}').nodes is not None
    assert read(PreemptionResult, b'{"NodeNameToMetaVictims": {"a": {"Pods": null}}}') == read(
        PreemptionResult, b'{"NodeNameToMetaVictims": {"a": {"Pods": []}}}'
    )


@pytest.mark.parametrize(
    ("kind", "data", "problem"),
    [
        (FilterResult, b"null", "Expected `object`, got `null`"),
        (FilterResult, b'{"NodeNames": {}}', "NodeNames: Expected `array | null`, got `object`"),
        (FilterResult, b'{"failednodes": {"a": 1}}', "FailedNodes[...]: Expected `str`, got `int`"),
        (list[HostPriority], b'[{"host": "a", "score": "5"}]', "[0].Score: Expected `int`, got `str`"),
        (list[HostPriority], b'[{"Host": "a", "Score": 9223372036854775808}]', "[0].Score: Expected `int` <= "),
        (FilterResult, b"{} {}", "invalid JSON"),
    ],
)
def test_an_error_has_the_path_of_the_field(kind: type[Any], data: bytes, problem: str) -> None:
    with pytest.raises(InvalidObject) as caught:
        read(kind, data)
    assert problem in str(caught.value)


def test_name_and_uid_are_read_from_the_metadata() -> None:
    read_back = read(FilterResult, b'{"Nodes": {"items": [{"metadata": {"name": "a", "uid": "u", "labels": {}}}, {}]}}')
    assert read_back.nodes is not None
    first, second = read_back.nodes.items
    assert (name_of(first), uid_of(first)) == ("a", "u")
    with pytest.raises(InvalidObject, match="required field `metadata`"):
        name_of(second)
