"""Decoding of API objects."""

from __future__ import annotations

import pytest

from kubestow.api.core import Node, Pod
from kubestow.api.meta import convert, decode
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
