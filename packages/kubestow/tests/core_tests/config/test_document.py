"""Parsing YAML and JSON text: values, line numbers, syntax errors."""

from __future__ import annotations

import pytest

from core_tests.config.builders import field_errors
from kubestow import config
from kubestow.config.document import parse_document
from kubestow.errors import ConfigurationError

_HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


def test_yaml_and_json_load_to_the_same_configuration() -> None:
    yaml_text = f"{_HEAD}parallelism: 4\nprofiles:\n- schedulerName: a\n"
    json_text = (
        '{"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",\n'
        '\t"parallelism": 4, "profiles": [{"schedulerName": "a"}]}'
    )
    expected = config.load(yaml_text)
    assert expected.parallelism == 4
    assert config.load(json_text) == config.load(json_text.encode()) == expected


def test_an_error_has_its_path_and_line() -> None:
    text = f"{_HEAD}# a comment\nprofiles:\n- schedulerName: a\n  percentageOfNodesToScore: 200\nparallelism: 0\n"
    with pytest.raises(ConfigurationError) as raised:
        config.load(text, subject="scheduler.yaml")
    assert raised.value.problems == [
        ("parallelism", "Invalid value: 0: should be an integer value greater than zero (line 7)"),
        ("profiles[0].percentageOfNodesToScore", "Invalid value: 200: not in valid range [0-100] (line 6)"),
    ]
    assert str(raised.value).startswith("scheduler.yaml: parallelism: Invalid value: 0")


def test_a_missing_field_has_the_line_of_its_parent() -> None:
    text = f"{_HEAD}profiles:\n- schedulerName: a\n- percentageOfNodesToScore: 5\n"
    assert field_errors(text) == ["profiles[1].schedulerName: Required value (line 5)"]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (f"{_HEAD}parallelism: [1", "invalid YAML: expected ',' or ']', but got '<stream end>' (line 3)"),
        ('{"kind": "x",\n "a": ]', "invalid JSON: Expecting value (column 7) (line 2)"),
        ('{"kind": NaN, "\\x": 1}', "invalid JSON: NaN is not a number"),
        ("[" * 5000, "invalid YAML: nested more than 200 levels deep (line 1)"),
        ('{"a":' * 100_000, "invalid JSON: nested too deeply"),
        ("? [a]\n: b", "invalid YAML: a mapping key must be a scalar (line 1)"),
        (b"kind: \xff", "invalid UTF-8: invalid start byte at byte 6"),
        ("a: &a [*a]", "invalid YAML: anchor a contains itself (line 1)"),
        ('a: "\\UFFFFFFFF"', "invalid YAML: an escape is not a Unicode character (line 1)"),
        ('\n"\\U00110000": a', "invalid YAML: an escape is not a Unicode character (line 2)"),
        ('a: "\\ud800"', "invalid YAML: an escape is half of a surrogate pair (line 1)"),
        ('a: 1\n"\\udc00": a', "invalid YAML: an escape is half of a surrogate pair (line 2)"),
        ("a: {<<: 5}", "invalid YAML: a merge key takes a mapping or a list of mappings (line 1)"),
    ],
)
def test_an_unparsable_text_is_one_error(text: str | bytes, error: str) -> None:
    assert field_errors(text) == [error]


def test_half_a_surrogate_pair_in_json_is_a_replacement_character_as_in_go() -> None:
    assert parse_document('{"a\\ud800": "\\ud83d\\ude00\\udc00"}').data == {"a\ufffd": "\U0001f600\ufffd"}


def test_exponentially_growing_aliases_are_rejected() -> None:
    levels = ["a0: &a0 [1,1,1,1,1,1,1,1,1,1]"]
    levels += [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    assert "aliases stand for more than" in field_errors("\n".join(levels))[0]


def test_a_duplicate_field_is_an_error_in_yaml() -> None:
    text = f"{_HEAD}leaderElection:\n  leaderElect: true\n  leaderElect: false\n"
    assert field_errors(text) == ["leaderElection.leaderElect: duplicate field (line 5)"]


def test_a_duplicate_field_is_an_error_in_json() -> None:
    text = '{"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",'
    text += ' "profiles": [{"schedulerName": "a", "schedulerName": "b"}]}'
    assert field_errors(text) == ["profiles[0].schedulerName: duplicate field (line 1)"]


def test_anchors_and_merge_keys_are_resolved() -> None:
    text = f"{_HEAD}profiles:\n- &base {{schedulerName: a, percentageOfNodesToScore: 5}}\n"
    text += "- {<<: *base, schedulerName: b}\n- {<<: [{schedulerName: c}, *base]}\n"
    profiles = config.load(text).profiles
    assert [(p.scheduler_name, p.percentage_of_nodes_to_score) for p in profiles] == [("a", 5), ("b", 5), ("c", 5)]


@pytest.mark.parametrize(
    ("scalar", "number"),
    [("16", 16), ("0x10", 16), ("020", 16), ("0b10000", 16), ("1_6", 16), ("16.0", 16), ("1.6e1", 16)],
)
def test_numbers_are_parsed_as_in_kubernetes(scalar: str, number: int) -> None:
    assert config.load(f"{_HEAD}parallelism: {scalar}\n").parallelism == number


@pytest.mark.parametrize(
    ("scalar", "number"), [("1.5", 1.5), ("-0.25", -0.25), ("1e300", 1e300), (".inf", float("inf"))]
)
def test_a_number_with_a_fraction_or_beyond_exact_integers_stays_one(scalar: str, number: float) -> None:
    (parsed,) = parse_document(f"qps: {scalar}").data.values()
    assert (type(parsed), parsed) == (float, number)


def test_keys_that_are_booleans_are_true_and_false() -> None:
    assert parse_document("{yes: 1, off: 2}").data == {"true": 1, "false": 2}


@pytest.mark.parametrize("scalar", ["y", "Yes", "on", "TRUE"])
def test_booleans_are_parsed_as_in_kubernetes(scalar: str) -> None:
    assert config.load(f"{_HEAD}delayCacheUntilActive: {scalar}\n").delay_cache_until_active


@pytest.mark.parametrize("name", ["2001-01-01", "1:30", "1.2.3", "~x", "'15'"])
def test_dates_and_times_are_strings(name: str) -> None:
    text = f"{_HEAD}profiles:\n- schedulerName: {name}\n"
    assert config.load(text).profiles[0].scheduler_name == name.strip("'")


def test_only_the_first_document_of_a_stream_is_read() -> None:
    assert config.load(f"---\n{_HEAD}parallelism: 3\n---\nparallelism: 0\n").parallelism == 3
