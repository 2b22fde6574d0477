"""Splitting chunks into lines, and decoding objects."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core_tests.client.subscribers import PODS, RESOURCE_CLAIMS, pod
from kubestow.api.json_text import UNDECODABLE
from kubestow.api.meta import ObjectMeta
from kubestow.client.watch_decoding import LineSplitter, ObjectDecoder, WatchLine

chunks = st.lists(st.text(alphabet="ab\n ", max_size=8).map(str.encode))


@given(chunks)
def test_lines_do_not_depend_on_chunk_boundaries(chunks: list[bytes]) -> None:
    splitter = LineSplitter()
    lines = [line for chunk in chunks for line in splitter.feed(chunk)]
    *complete, rest = b"".join(chunks).split(b"\n")
    assert lines == [line for line in complete if line.strip()]
    assert splitter.has_partial_line == bool(rest)


@pytest.mark.parametrize(
    "line", [b"{", b"5", b'{"type":"ADDED"}', b'{"type":1,"object":{}}', b"\xff", b'{"type":"\xff","object":{}}']
)
def test_a_line_that_is_not_a_watch_event_is_rejected(line: bytes) -> None:
    with pytest.raises(UNDECODABLE):
        WatchLine.parse(line)


@pytest.fixture
def reports() -> list[tuple[str, str]]:
    return []


@pytest.fixture
def decoder(reports: list[tuple[str, str]]) -> ObjectDecoder:
    return ObjectDecoder(PODS, lambda metadata, problem: reports.append((subject_of(metadata), problem)))


def subject_of(metadata: ObjectMeta) -> str:
    name = metadata.name or "(no name)"
    return f"{metadata.namespace}/{name}" if metadata.namespace else name


def raw(obj: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(obj))


@pytest.mark.parametrize(
    ("obj", "subject"),
    [
        (pod("a", priority="x"), "default/a"),
        ({"metadata": {"name": "a"}, "spec": 5}, "a"),
        ({"metadata": {"name": 5}}, "(no name)"),
        ([], "(no name)"),
    ],
)
def test_an_undecodable_object_is_reported_with_as_much_of_its_name_as_decodes(
    decoder: ObjectDecoder, reports: list[tuple[str, str]], obj: object, subject: str
) -> None:
    assert decoder.decode(raw(obj)) is None
    assert [reported for reported, _ in reports] == [subject]


def test_invalid_utf8_is_reported(decoder: ObjectDecoder, reports: list[tuple[str, str]]) -> None:
    assert decoder.decode(msgspec.Raw(b'{"spec":{"priority":"x","nodeName":"\xff"}}')) is None
    assert len(reports) == 1


def test_an_object_that_was_fixed_and_breaks_again_is_reported_again(
    decoder: ObjectDecoder, reports: list[tuple[str, str]]
) -> None:
    for obj in (pod("a", priority="x"), pod("a", priority="x"), pod("a", priority=1), pod("a", priority="x")):
        decoder.decode(raw(obj))
    assert len(reports) == 2


def test_another_problem_of_the_same_object_is_reported(decoder: ObjectDecoder, reports: list[tuple[str, str]]) -> None:
    decoder.decode(raw(pod("a", priority="x")))
    decoder.decode(raw(pod("a", nodeName=5)))
    assert len(reports) == 2


def test_the_deletion_of_an_object_without_a_name_is_only_reported(
    decoder: ObjectDecoder, reports: list[tuple[str, str]]
) -> None:
    assert decoder.decode_deleted(raw({"spec": 5})) is None
    assert len(reports) == 1


ASSIGNED: dict[str, Any] = {"nodeName": "n", "containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("priority", "high"),
        ("tolerations", 5),
        ("nodeSelector", {"a": 1, "b": "2"}),
        ("affinity", {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [5]}}),
        ("volumes", [{"name": "v"}, 7]),
    ],
)
def test_a_pod_on_a_node_counts_without_the_fields_that_do_not_decode(
    decoder: ObjectDecoder, reports: list[tuple[str, str]], field: str, value: object
) -> None:
    for _ in range(2):
        decoded = decoder.decode(raw(pod("a", **(ASSIGNED | {field: value}))))
        assert decoded is not None
        assert (decoded.spec.node_name, decoded.spec.containers[0].resources.requests) == ("n", {"cpu": "2"})
    ((subject, problem),) = reports
    assert subject == "default/a"
    assert problem.startswith(f"spec.{field}") and problem.endswith("the rest of it counts")


def test_only_the_values_that_do_not_decode_are_left_out(decoder: ObjectDecoder) -> None:
    containers = [{"name": "x", "image": 5, "resources": {"requests": {"cpu": "1", "memory": []}}}, "y", {"name": "z"}]
    decoded = decoder.decode(raw(pod("a", nodeName="n", containers=containers, nodeSelector={"a": 1, "b": "2"})))
    assert decoded is not None
    assert [container.name for container in decoded.spec.containers] == ["x", "z"]
    assert decoded.spec.containers[0].resources.requests == {"cpu": "1"}
    assert decoded.spec.node_selector == {"b": "2"}


def test_an_allocated_claim_is_never_dropped(reports: list[tuple[str, str]]) -> None:
    decoder = ObjectDecoder(RESOURCE_CLAIMS, lambda metadata, problem: reports.append((subject_of(metadata), problem)))
    allocation = {"devices": {"results": [{"request": "r", "driver": "d", "pool": "p", "device": "gpu-0"}]}}
    metadata = {"name": "c", "namespace": "n", "uid": "u"}
    claim = {"metadata": metadata, "spec": {"devices": 5}, "status": {"reservedFor": {}}}
    assert decoder.decode(raw(claim)) is None
    decoded = decoder.decode(raw(claim | {"status": {"allocation": allocation, "reservedFor": {}}}))
    assert decoded is not None
    assert decoded.status.allocation.devices.results[0].device == "gpu-0"
    assert [subject for subject, _ in reports] == ["n/c", "n/c"]


def test_pods_of_a_list_have_equal_fields_in_common() -> None:
    decoder = ObjectDecoder(PODS, lambda metadata, problem: None)
    spec = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}], "nodeName": "n"}
    others = {"containers": [{"name": "other"}]}
    texts = [
        msgspec.Raw(msgspec.json.encode({"metadata": {"name": f"p{number}", "labels": {"app": "a"}}, "spec": each}))
        for number, each in enumerate((spec, spec, others))
    ]
    decoder.begin_list()
    first, copy, other = decoded = [decoder.decode(text) for text in texts]
    assert first is not None and copy is not None and other is not None
    assert copy.spec.containers is first.spec.containers
    assert copy.metadata.labels is first.metadata.labels
    assert other.spec.containers is not first.spec.containers
    decoder.end_list()
    again = [decoder.decode(text) for text in texts]
    assert again == decoded
    assert again[0] is not None and again[0].spec.containers is not first.spec.containers
