"""Decoding of API objects."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kubestow.api.core import Node, Pod
from kubestow.api.meta import convert, decode, decode_partly
from kubestow.errors import InvalidObject


def test_null_decodes_as_the_zero_value() -> None:
    pod = decode(Pod, b'{"metadata": {"name": "a", "labels": null}, "spec": {"containers": null, "nodeName": null}}')
    assert (pod.metadata.labels, pod.spec.containers, pod.spec.node_name) == ({}, [], "")


def test_unknown_fields_are_skipped() -> None:
    assert decode(Pod, b'{"spec": {"future": [1, {"x": 2}], "nodeName": "n"}}').spec.node_name == "n"


def test_acronyms_are_spelled_as_in_the_api() -> None:
    pod = convert(Pod, {"spec": {"containers": [{"ports": [{"hostIP": "10.0.0.1", "hostPort": 80}]}]}})
    assert pod.spec.containers[0].ports[0].host_ip == "10.0.0.1"


def test_a_type_error_has_the_path_of_the_field() -> None:
    with pytest.raises(InvalidObject, match=r"spec\.taints\[0\]\.key: Expected `str`"):
        convert(Node, {"spec": {"taints": [{"key": 7}]}})


def test_a_time_without_a_time_zone_is_an_error() -> None:
    assert convert(Pod, {"status": {"startTime": "2026-01-01T00:00:00+02:00"}}).status.start_time is not None
    with pytest.raises(InvalidObject, match=r"status\.startTime: Expected `datetime` with a timezone component"):
        convert(Pod, {"status": {"startTime": "2026-01-01T00:00:00"}})


@pytest.mark.parametrize("data", [b"{", b"", b"\xff", b'{"metadata": '])
def test_invalid_json_is_reported(data: bytes) -> None:
    with pytest.raises(InvalidObject, match="invalid JSON"):
        decode(Pod, data)


_CONTAINER = {"name": "c", "resources": {"requests": {"cpu": "1"}}}
_TERM = {"matchExpressions": [{"key": "k", "operator": "Exists"}]}
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


@pytest.mark.parametrize(
    ("spec", "kept", "problems"),
    [
        ({"nodeName": "n", "future": 7}, {"nodeName": "n"}, {}),
        ({"nodeName": "n", "priority": None}, {"nodeName": "n"}, {}),
        ({"nodeName": 7, "priority": 5}, {"priority": 5}, {"spec.nodeName": "Expected `str`, got `int`"}),
        (
            {"nodeName": "n", "containers": [_CONTAINER, 7, {"name": 7, "image": "i"}]},
            {"nodeName": "n", "containers": [_CONTAINER, {"image": "i"}]},
            {
                "spec.containers[1]": "Expected `object`, got `int`",
                "spec.containers[2].name": "Expected `str`, got `int`",
            },
        ),
        (
            {"nodeName": "n", "nodeSelector": {"a": "b", "c": 7}},
            {"nodeName": "n", "nodeSelector": {"a": "b"}},
            {"spec.nodeSelector[c]": "Expected `str`, got `int`"},
        ),
        (
            {"affinity": {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": [_TERM, {"matchFields": {}}]}}}},
            {"affinity": {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": [_TERM, {}]}}}},
            {
                f"spec.affinity.nodeAffinity.{_REQUIRED}.nodeSelectorTerms[1].matchFields": (
                    "Expected `array`, got `object`"
                )
            },
        ),
        ({"affinity": 7, "nodeName": "n"}, {"nodeName": "n"}, {"spec.affinity": "Expected `object`, got `int`"}),
        (
            {"nodeSelector": [], "containers": {}, "nodeName": "n"},
            {"nodeName": "n"},
            {
                "spec.nodeSelector": "Expected `object`, got `array`",
                "spec.containers": "Expected `array`, got `object`",
            },
        ),
    ],
)
def test_the_readable_part_of_an_object_is_kept(
    spec: dict[str, Any], kept: dict[str, Any], problems: dict[str, str]
) -> None:
    pod, found = decode_partly(Pod, json.dumps({"metadata": {"name": "a"}, "spec": spec}).encode())
    assert pod == convert(Pod, {"metadata": {"name": "a"}, "spec": kept})
    assert {one.path: one.problem.partition(" | null")[0] for one in found} == problems


@pytest.mark.parametrize(("data", "problem"), [(b"7", "Expected `object`, got `int`"), (b"{", "invalid JSON")])
def test_nothing_is_kept_of_what_is_no_object(data: bytes, problem: str) -> None:
    with pytest.raises(InvalidObject, match=problem):
        decode_partly(Pod, data)
