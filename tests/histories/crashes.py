"""What a crash leaves of a database: after a kill all that was written, after a loss of power less.

SQLite appends a transaction to its log as frames, each a header and a page, and then waits for the disk. If the power
fails before, any part of those frames can be there. What was acknowledged is not among them. The file that records the
last acknowledged write is not synchronised, and can be one from before.
"""

from __future__ import annotations

import shutil
import sqlite3
import struct
import zlib
from pathlib import Path
from random import Random

FILE, LOG, ACKNOWLEDGED = "kubestow.db", "kubestow.db-wal", "kubestow.db-acknowledged"
_LOG_HEADER, _FRAME_HEADER = 32, 24


def copy_files(source: Path, target: Path) -> None:
    """The files of a running server, as a kill leaves them. There must be no write in progress."""
    target.mkdir(parents=True)
    for name in (FILE, LOG, ACKNOWLEDGED):
        if (source / name).exists():
            shutil.copyfile(source / name, target / name)


def tear_log(directory: Path, random: Random, *, seen: int) -> None:
    """Tear the log of a server that has ended, as a loss of power in a write would.

    ``seen`` is the largest resourceVersion that a client has seen; all writes up to it stay.
    """
    log = directory / LOG
    content = bytearray(log.read_bytes()) if log.exists() else bytearray()
    if len(content) < _LOG_HEADER:
        return
    ends, commits = _frames(content)
    end = ends[-1] if ends else _LOG_HEADER
    recorded = _recorded_version(directory)
    if random.random() < 0.5 and commits and _version_at(directory, commits[-1]) > max(seen, recorded):
        # The last transaction was not acknowledged: nothing of it, or a part, has reached the disk.
        start = commits[-2] if len(commits) > 1 else _LOG_HEADER
        del content[random.randrange(start, commits[-1]) :]
    else:
        torn = _torn_frame(content, random)
        content[end : end + len(torn)] = torn
    log.write_bytes(content)
    if random.random() < 0.3:
        _take_back_record(directory, recorded, random)


def _frames(log: bytes | bytearray) -> tuple[list[int], list[int]]:
    """The ends of the frames since the log was last reset, and of those that end a transaction."""
    page_size = struct.unpack_from(">I", log, 8)[0]
    salts = log[16:24]
    ends, commits = [], []
    start = _LOG_HEADER
    while (end := start + _FRAME_HEADER + page_size) <= len(log) and log[start + 8 : start + 16] == salts:
        ends.append(end)
        if struct.unpack_from(">I", log, start + 4)[0]:
            commits.append(end)
        start = end
    return ends, commits


def _torn_frame(log: bytes | bytearray, random: Random) -> bytes:
    """The beginning of a frame as SQLite would write it, and something else for the rest of its page."""
    page_size = struct.unpack_from(">I", log, 8)[0]
    header = struct.pack(">II", random.randrange(1, 20), random.choice((0, 20))) + log[16:24] + random.randbytes(8)
    frame = bytes(header) + random.choice((bytes(page_size), random.randbytes(page_size)))
    return frame[: random.randrange(1, len(frame) + 1)]


def _version_at(directory: Path, end: int) -> int:
    """The resourceVersion of the database if its log ended there."""
    copy = directory / "copy"
    copy.mkdir()
    try:
        shutil.copyfile(directory / FILE, copy / FILE)
        (copy / LOG).write_bytes((directory / LOG).read_bytes()[:end])
        connection = sqlite3.connect(copy / FILE)
        try:
            version: int = connection.execute("SELECT version FROM state").fetchone()[0]
        finally:
            connection.close()
        return version
    finally:
        shutil.rmtree(copy)


def _recorded_version(directory: Path) -> int:
    record = (directory / ACKNOWLEDGED).read_bytes()
    return int(record[:20]) if record else 0


def _take_back_record(directory: Path, recorded: int, random: Random) -> None:
    """Put an older record of the last acknowledged write in place, or an empty file."""
    older = f"{random.randint(0, recorded):020d}"
    record = f"{older} {zlib.crc32(older.encode()):08x}\n" if random.random() < 0.7 else ""
    (directory / ACKNOWLEDGED).write_bytes(record.encode())
