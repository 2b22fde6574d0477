"""Lines out of chunks, objects out of lines."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubestow.client.decoding import UNDECODABLE, LineSplitter, ObjectDecoder, WatchEvent
from tests.client.subscribers import PODS, pod

chunks = st.lists(st.text(alphabet="ab\n ", max_size=8).map(str.encode))


@given(chunks)
def test_lines_do_not_depend_on_where_chunks_end(chunks: list[bytes]) -> None:
    lines = LineSplitter()
    cut = [line for chunk in chunks for line in lines.feed(chunk)]
    *complete, rest = b"".join(chunks).split(b"\n")
    assert cut == [line for line in complete if line.strip()]
    assert lines.unfinished == bool(rest)


@pytest.mark.parametrize(
    "line", [b"{", b"5", b'{"type":"ADDED"}', b'{"type":1,"object":{}}', b"\xff", b'{"type":"\xff","object":{}}']
)
def test_a_line_that_is_no_event_is_refused(line: bytes) -> None:
    with pytest.raises(UNDECODABLE):
        WatchEvent.parse(line)


@pytest.fixture
def reports() -> list[tuple[str, str]]:
    return []


@pytest.fixture
def reader(reports: list[tuple[str, str]]) -> ObjectDecoder:
    return ObjectDecoder(PODS, lambda subject, problem: reports.append((subject, problem)))


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
def test_what_does_not_decode_is_named_as_far_as_it_can_be(
    reader: ObjectDecoder, reports: list[tuple[str, str]], obj: object, subject: str
) -> None:
    assert reader.read(raw(obj)) is None
    assert [named for named, _ in reports] == [subject]


def test_text_that_is_no_utf8_is_reported_like_any_other_fault(
    reader: ObjectDecoder, reports: list[tuple[str, str]]
) -> None:
    assert reader.read(msgspec.Raw(b'{"spec":{"priority":"x","nodeName":"\xff"}}')) is None
    assert len(reports) == 1


def test_an_object_that_was_mended_and_breaks_again_is_reported_again(
    reader: ObjectDecoder, reports: list[tuple[str, str]]
) -> None:
    for obj in (pod("a", priority="x"), pod("a", priority="x"), pod("a", priority=1), pod("a", priority="x")):
        reader.read(raw(obj))
    assert len(reports) == 2


def test_a_different_fault_of_the_same_object_is_reported(
    reader: ObjectDecoder, reports: list[tuple[str, str]]
) -> None:
    reader.read(raw(pod("a", priority="x")))
    reader.read(raw(pod("a", nodeName=5)))
    assert len(reports) == 2


def test_the_deletion_of_what_has_no_name_is_only_reported(
    reader: ObjectDecoder, reports: list[tuple[str, str]]
) -> None:
    assert reader.read_deleted(raw({"spec": 5})) is None
    assert len(reports) == 1
