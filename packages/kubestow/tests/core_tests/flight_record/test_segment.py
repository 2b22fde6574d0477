"""The file format: what is written is read again, and every damage is one error with file and offset."""

from __future__ import annotations

import math
from array import array
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from core_tests.flight_record.records import small_record
from kubestow.errors import InputError
from kubestow.flight_record import segment as file_format
from kubestow.flight_record.entries import AttemptEnded, End, Entry, Header
from kubestow.flight_record.exact_replay import replay
from kubestow.flight_record.segment import Chunk, Segment, SegmentEncoder

HEADER = Header(kubestow="1", python="3", began="2026-01-01T00:00:00+00:00", monotonic=5.0)


def chunk(number: int) -> Chunk:
    entries: list[Entry] = [AttemptEnded(f"uid-{number}", number, "scheduled")]
    return Chunk(entries, array("d", [1.5, 1.25 + number, 0.0]), array("q", [7, -3]), array("q", [1, 2, 9, 4]))


def content(chunks: int = 3) -> bytes:
    encoder = SegmentEncoder()
    return b"".join(
        (encoder.beginning(HEADER), *(encoder.chunk(chunk(n)) for n in range(chunks)), encoder.end(End(reason="full")))
    )


def read(path: Path, data: bytes) -> tuple[Segment, list[Chunk]]:
    path.write_bytes(data)
    segment = Segment(path)
    return segment, list(segment.chunks())


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    segment, chunks = read(tmp_path / "f", content())
    assert (segment.header, segment.end) == (HEADER, End(reason="full"))
    assert chunks == [chunk(number) for number in range(3)]


def test_a_file_cut_off_anywhere_is_an_error_with_its_offset(tmp_path: Path) -> None:
    path, whole = tmp_path / "f", content()
    for length in range(len(whole)):
        with pytest.raises(InputError) as caught:
            read(path, whole[:length])
        assert str(caught.value).startswith(f"{path}: offset ")
        assert "\n" not in str(caught.value)


def test_a_flipped_bit_anywhere_is_an_error_with_its_offset(tmp_path: Path) -> None:
    path, whole = tmp_path / "f", content()
    for position in range(len(whole)):
        data = bytearray(whole)
        data[position] ^= 1 << position % 8
        with pytest.raises(InputError) as caught:
            read(path, bytes(data))
        assert str(caught.value).startswith(f"{path}: offset ")


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "offset 0: not a flight record: expected it to begin with KUBESTOW-FLIGHT"),
        (b"{}", "offset 0: not a flight record: expected it to begin with KUBESTOW-FLIGHT"),
        (b"KUBESTOW-FLIGHT\n\x07\x00", "offset 16: flight record of format version 7; this kubestow reads 2"),
        (content() + b"more", f"offset {len(content())}: 4 bytes after the end of the record"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, data: bytes, problem: str) -> None:
    with pytest.raises(InputError) as caught:
        read(tmp_path / "f", data)
    assert str(caught.value) == f"{tmp_path / 'f'}: {problem}"


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"began": "20f6-01-01"}, "Invalid isoformat string"),
        ({"began": "2026-01-01T00:00:00"}, "expected a time in UTC"),
        ({"began": "9999-12-31T00:00:00+00:00"}, "expected a time in UTC"),
        ({"monotonic": math.nan}, "expected seconds"),
        ({"monotonic": 1e300}, "expected seconds"),
        ({"random": [3, [1], None]}, "not the state of a random source"),
        ({"random": [3, [-1] * 625, None]}, "not the state of a random source"),
        ({"random": [3]}, "not the state of a random source"),
    ],
)
def test_a_header_that_cannot_be_used_is_refused(tmp_path: Path, changes: dict[str, Any], problem: str) -> None:
    header = {"kubestow": "1", "python": "3", "began": "2026-01-01T00:00:00+00:00", "monotonic": 0.0, **changes}
    beginning = file_format._MAGIC + file_format._VERSION.pack(file_format.FORMAT_VERSION)
    path = tmp_path / "f"
    path.write_bytes(beginning + file_format._frame(file_format._HEADER, msgspec.msgpack.encode(header)))
    with pytest.raises(InputError, match=f"offset 18: malformed header: .*{problem}"):
        Segment(path)


@pytest.mark.parametrize(
    ("damaged", "problem"),
    [
        (Chunk(monotonic=array("d", [1.0, math.nan])), "monotonic clock"),
        (Chunk(monotonic=array("d", [1e300])), "monotonic clock"),
        (Chunk(wall=array("q", [2**62])), "date and time"),
        (Chunk(wall=array("q", [-(2**62)])), "date and time"),
    ],
)
def test_clock_readings_that_are_no_times_are_damage(tmp_path: Path, damaged: Chunk, problem: str) -> None:
    encoder = SegmentEncoder()
    header = Header(kubestow="1", python="3", began="2026-01-01T00:00:00+00:00", monotonic=0.0)
    with pytest.raises(InputError, match=f"malformed chunk: a reading of the {problem} is out of range"):
        read(tmp_path / "f", encoder.beginning(header) + encoder.chunk(damaged) + encoder.end(End()))


def test_a_damaged_record_is_replayed_up_to_the_damage(tmp_path: Path) -> None:
    path, sink = tmp_path / "f", small_record()
    whole = sink.content()
    random = Random(1)
    for _ in range(20):
        position = random.randrange(1, len(whole))
        path.write_bytes(whole[:position])
        try:
            segment = Segment(path)
        except InputError as error:
            assert error.place.startswith("offset ")
            continue
        result = replay(segment)
        assert result.divergence is None
        assert result.damage is not None
    path.write_bytes(sink.content(end=False))
    result = replay(Segment(path))
    assert (result.divergence, result.decisions > 10) == (None, True)
    assert result.damage is not None
    assert "no end" in result.damage.problem
