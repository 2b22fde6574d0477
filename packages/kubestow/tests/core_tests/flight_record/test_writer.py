"""The writer: bounded in memory and on disk, and a failing disk never fails the scheduler."""

from __future__ import annotations

import os
import queue
import stat
import threading
from pathlib import Path

import pytest

from kubestow.errors import InputError
from kubestow.flight_record import writer as writer_module
from kubestow.flight_record.entries import AttemptEnded, Called, Changed, Decided, End, Entry, Header, Listed
from kubestow.flight_record.journal import Journal
from kubestow.flight_record.segment import Chunk, Segment
from kubestow.flight_record.writer import SegmentWriter, _SegmentFile, parse_size, segment_paths
from kubestow.testing.builders import node, pod

HEADER = Header(kubestow="1", python="3", began="2026-01-01T00:00:00+00:00", monotonic=5.0)
MIB = 2**20


def entries(segment: Segment) -> int:
    return sum(len(chunk.entries) for chunk in segment.chunks())


def noise(size: int) -> Chunk:
    """A chunk that does not compress."""
    return Chunk([Decided(os.urandom(size).hex(), "", "", "", 0, "", [])])


def test_a_record_is_private_and_complete(tmp_path: Path) -> None:
    writer = SegmentWriter.in_folder(tmp_path / "flights", MIB)
    writer.begin_segment(HEADER)
    journal = Journal(writer)
    for number in range(5000):
        journal.append(AttemptEnded(f"uid-{number}", 1, "scheduled"))
    journal.close()
    writer.close(journal.dropped)
    [path] = segment_paths(tmp_path / "flights")
    assert path == writer.path
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    segment = Segment(path)
    assert entries(segment) == 5000
    assert segment.end == End()


def test_a_record_that_reaches_its_limit_ends_there_and_says_so(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path / "record.bin", MIB)
    writer.begin_segment(HEADER)
    accepted = [writer.accept(noise(100_000)) for _ in range(20)]
    writer.close(dropped=accepted.count(False))
    segment = Segment(tmp_path / "record.bin")
    recorded = entries(segment)
    assert 0 < recorded < 20
    assert segment.end == End(reason=f"it has reached the limit of {MIB:,} bytes", dropped=20 - recorded)
    assert (tmp_path / "record.bin").stat().st_size <= MIB
    assert not writer.accept(noise(1))


def test_the_oldest_files_are_deleted_to_make_space(tmp_path: Path) -> None:
    (tmp_path / "other.bin").write_bytes(b"\0" * MIB)
    paths = []
    for _ in range(5):
        writer = SegmentWriter.in_folder(tmp_path, MIB)
        writer.begin_segment(HEADER)
        writer.accept(noise(200_000))
        writer.close()
        paths.append(writer.path)
    kept = segment_paths(tmp_path)
    assert kept == paths[-len(kept) :]
    assert 1 < len(kept) < 5
    assert sum(path.stat().st_size for path in kept) <= MIB
    assert (tmp_path / "other.bin").exists()


def test_a_full_disk_ends_the_record_and_not_the_scheduler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = SegmentWriter(tmp_path / "record.bin", MIB)
    writer.begin_segment(HEADER)
    writer.accept(noise(1000))
    append, calls = _SegmentFile.append, iter(range(100))

    def failing(file: _SegmentFile, data: bytes) -> None:
        if len(data) > 10_000 and next(calls) == 0:
            raise OSError(28, os.strerror(28))
        append(file, data)

    monkeypatch.setattr(_SegmentFile, "append", failing)
    writer.accept(noise(20_000))
    writer.close(dropped=1)
    segment = Segment(tmp_path / "record.bin")
    assert entries(segment) == 1
    assert segment.end == End(reason="No space left on device", dropped=2), "one in the writer, one before it"


def test_the_record_of_a_long_run_goes_on_when_the_disk_has_space_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "_RETRY_SECONDS", 0.0)
    append, is_full = _SegmentFile.append, threading.Event()

    def limited(file: _SegmentFile, data: bytes) -> None:
        if is_full.is_set():
            raise OSError(28, os.strerror(28))
        append(file, data)

    monkeypatch.setattr(_SegmentFile, "append", limited)
    writer = SegmentWriter.in_folder(tmp_path, MIB)
    written = _chunks_written(writer, monkeypatch)
    writer.begin_segment(HEADER)

    def record(*recorded: Entry) -> None:
        assert writer.accept(Chunk([*recorded]))
        written.get()

    record(Called(1, "subscribe", [("/api/v1", "pods", "Pod")]), Listed(0, 0, 6.0, 0, [pod("old")]))
    is_full.set()
    record(Changed(0, 0, 7.0, 0, "ADDED", pod("meanwhile")), Changed(0, 0, 7.5, 0, "DELETED", pod("old")))
    record(AttemptEnded("uid-meanwhile", 1, "scheduled"))
    assert len(segment_paths(tmp_path)) == 1, "an attempt that fails leaves no file behind"
    is_full.clear()
    record(Changed(0, 0, 8.0, 0, "ADDED", pod("new")))
    writer.close()
    first, second = map(Segment, segment_paths(tmp_path))
    assert entries(first) == 2
    assert first.end == End(reason="No space left on device", dropped=3, next_file=second.path.name)
    recorded = [entry for chunk in second.chunks() for entry in chunk.entries]
    names = [entry.object["metadata"]["name"] for entry in recorded if isinstance(entry, Changed)]
    assert (names, second.header.snapshot, second.end) == (["meanwhile", "new"], 1, End())


def _chunks_written(writer: SegmentWriter, monkeypatch: pytest.MonkeyPatch) -> queue.Queue[Chunk]:
    """Gets each chunk once the thread has handled it."""
    written: queue.Queue[Chunk] = queue.Queue()
    write = writer._write_chunk

    def reported(chunk: Chunk) -> None:
        try:
            write(chunk)
        finally:
            written.put(chunk)

    monkeypatch.setattr(writer, "_write_chunk", reported)
    return written


def test_a_slow_disk_drops_chunks_and_counts_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "_QUEUED_CHUNKS", 4)
    writer = SegmentWriter(tmp_path / "record.bin", MIB)
    released, write = threading.Event(), writer._write

    def slow(item: object) -> None:
        released.wait()
        write(item)  # type: ignore[arg-type]

    monkeypatch.setattr(writer, "_write", slow)
    writer.begin_segment(HEADER)
    journal = Journal(writer)
    for number in range(512 * 20):
        journal.append(AttemptEnded(f"uid-{number}", 1, "scheduled"))
    journal.close()
    assert journal.dropped > 0
    released.set()
    writer.close(journal.dropped)
    segment = Segment(tmp_path / "record.bin")
    recorded = entries(segment)
    assert segment.end is not None
    assert (segment.end.reason, segment.end.dropped) == ("the disk is too slow", journal.dropped)
    assert recorded + journal.dropped == 512 * 20


def test_a_long_run_goes_on_in_further_files_that_begin_with_the_objects_that_exist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "_QUEUED_CHUNKS", 1000)  # however slow the disk is
    writer = SegmentWriter.in_folder(tmp_path, MIB)
    writer.begin_segment(HEADER)
    resources = [("/api/v1", "nodes", "Node"), ("/api/v1", "pods", "Pod")]
    writer.accept(Chunk([Called(1, "subscribe", [*resources]), Listed(0, 0, 6.0, 0, [node("node-0"), node("node-1")])]))
    for number in range(100):
        seen = pod(f"pod-{number}", labels={"noise": os.urandom(20_000).hex()})
        writer.accept(Chunk([Changed(0, 0, 7.0 + number, 1, "ADDED", seen)]))
        if number:
            writer.accept(Chunk([Changed(0, 0, 7.0 + number, 1, "DELETED", pod(f"pod-{number - 1}"))]))
        writer.accept(Chunk([AttemptEnded(f"uid-{number}", 1, "scheduled")]))
    writer.close()
    paths = segment_paths(tmp_path)
    assert len(paths) > 2
    assert sum(path.stat().st_size for path in paths) <= MIB
    attempts: list[str] = []
    for path, following in zip(paths, [*paths[1:], None], strict=True):
        segment = Segment(path)
        recorded = [entry for chunk in segment.chunks() for entry in chunk.entries]
        snapshot = recorded[: segment.header.snapshot]
        assert [tuple(resource) for resource in segment.header.resources] == resources
        assert {(entry.resource, entry.type) for entry in snapshot if isinstance(entry, Changed)} == {
            (0, "ADDED"),
            (1, "ADDED"),
        }
        assert segment.header.monotonic == max(entry.time for entry in snapshot if isinstance(entry, Changed))
        assert 3 <= len(snapshot) <= 4, "two nodes, and the pods that have not been deleted"
        attempts += [entry.uid for entry in recorded if isinstance(entry, AttemptEnded)]
        assert segment.end == End(next_file=following.name if following else "")
    assert attempts == [f"uid-{number}" for number in range(100 - len(attempts), 100)], "the newest, without a gap"


@pytest.mark.parametrize("text", ["", "x", "1", "-1Gi", "1000Ki"])
def test_a_limit_is_a_quantity_of_at_least_a_mebibyte(text: str) -> None:
    with pytest.raises(InputError, match="expected a quantity of at least 1Mi"):
        parse_size(text, "--max-size")
    assert parse_size("256Mi", "--max-size") == 256 * MIB
