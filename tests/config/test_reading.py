"""Text in, plain data out: YAML and JSON, lines, what is not either."""

from __future__ import annotations

import pytest

from kubestow import config
from kubestow.errors import ConfigurationError
from tests.config.builders import problems

_HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


def test_yaml_and_json_and_parsed_data_say_the_same() -> None:
    yaml_text = f"{_HEAD}parallelism: 4\nprofiles:\n- schedulerName: a\n"
    json_text = (
        '{"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",\n'
        '\t"parallelism": 4, "profiles": [{"schedulerName": "a"}]}'
    )
    expected = config.load(yaml_text)
    assert expected.parallelism == 4
    assert config.load(json_text) == config.load(json_text.encode()) == expected


def test_a_mistake_is_told_with_its_path_and_line() -> None:
    text = f"{_HEAD}# a comment\nprofiles:\n- schedulerName: a\n  percentageOfNodesToScore: 200\nparallelism: 0\n"
    with pytest.raises(ConfigurationError) as refusal:
        config.load(text, subject="scheduler.yaml")
    assert refusal.value.problems == [
        ("parallelism", "Invalid value: 0: should be an integer value greater than zero (line 7)"),
        ("profiles[0].percentageOfNodesToScore", "Invalid value: 200: not in valid range [0-100] (line 6)"),
    ]
    assert str(refusal.value).startswith("scheduler.yaml: parallelism: Invalid value: 0")


def test_a_missing_field_has_the_line_of_what_lacks_it() -> None:
    text = f"{_HEAD}profiles:\n- schedulerName: a\n- percentageOfNodesToScore: 5\n"
    assert problems(text) == ["profiles[1].schedulerName: Required value (line 5)"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (f"{_HEAD}parallelism: [1", "not YAML: expected ',' or ']', but got '<stream end>' (line 3)"),
        ('{"kind": "x",\n "a": ]', "not JSON: Expecting value (column 7) (line 2)"),
        ('{"kind": NaN, "\\x": 1}', "not JSON: NaN is not a number"),
        ("[" * 5000, "not YAML that can be read: nested too deeply"),
        ('{"a":' * 5000, "not JSON that can be read: nested too deeply"),
        ("? [a]\n: b", "not YAML that can be read: a key must be a plain word (line 1)"),
        (b"kind: \xff", "not UTF-8 text: invalid start byte at byte 6"),
        ("a: &a [*a]", "a[0]: not YAML that can be read: an anchor contains itself (line 1)"),
        ("a: {<<: 5}", "not YAML: a merge key takes a mapping or a list of mappings (line 1)"),
    ],
)
def test_text_that_cannot_be_read_is_one_clear_problem(text: str | bytes, problem: str) -> None:
    assert problems(text) == [problem]


def test_aliases_that_multiply_without_end_are_refused() -> None:
    levels = ["a0: &a0 [1,1,1,1,1,1,1,1,1,1]"]
    levels += [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    assert "aliases make it too large" in problems("\n".join(levels))[0]


def test_a_field_given_twice_is_a_mistake_in_yaml() -> None:
    text = f"{_HEAD}leaderElection:\n  leaderElect: true\n  leaderElect: false\n"
    assert problems(text) == ["leaderElection.leaderElect: duplicate field (line 5)"]


def test_a_field_given_twice_is_a_mistake_in_json() -> None:
    text = '{"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",'
    text += ' "profiles": [{"schedulerName": "a", "schedulerName": "b"}]}'
    assert problems(text) == ["profiles[0].schedulerName: duplicate field"]


def test_anchors_and_merge_keys_are_resolved() -> None:
    text = f"{_HEAD}profiles:\n- &base {{schedulerName: a, percentageOfNodesToScore: 5}}\n"
    text += "- {<<: *base, schedulerName: b}\n- {<<: [{schedulerName: c}, *base]}\n"
    profiles = config.load(text).profiles
    assert [(p.scheduler_name, p.percentage_of_nodes_to_score) for p in profiles] == [("a", 5), ("b", 5), ("c", 5)]


@pytest.mark.parametrize(
    ("scalar", "number"),
    [("16", 16), ("0x10", 16), ("020", 16), ("0b10000", 16), ("1_6", 16), ("16.0", 16), ("1.6e1", 16)],
)
def test_numbers_are_those_of_kubernetes_yaml(scalar: str, number: int) -> None:
    assert config.load(f"{_HEAD}parallelism: {scalar}\n").parallelism == number


@pytest.mark.parametrize("scalar", ["y", "Yes", "on", "TRUE"])
def test_booleans_are_those_of_kubernetes_yaml(scalar: str) -> None:
    assert config.load(f"{_HEAD}delayCacheUntilActive: {scalar}\n").delay_cache_until_active


@pytest.mark.parametrize("name", ["2001-01-01", "1:30", "1.2.3", "~x", "'15'"])
def test_what_only_looks_like_a_date_or_time_is_text(name: str) -> None:
    text = f"{_HEAD}profiles:\n- schedulerName: {name}\n"
    assert config.load(text).profiles[0].scheduler_name == name.strip("'")


def test_only_the_first_document_of_a_stream_is_read() -> None:
    assert config.load(f"---\n{_HEAD}parallelism: 3\n---\nparallelism: 0\n").parallelism == 3
