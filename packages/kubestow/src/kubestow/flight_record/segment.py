"""The files of a flight record: their format, their reader and encoder, and what they leave out.

A file consists of frames of compressed data, each with a checksum:

    magic           16 bytes
    format version  2 bytes
    frames          each: kind (1 byte), length of the payload (4), checksum of kind, length and payload (4), payload

All numbers are little-endian. The first frame is the header. Each further one is a chunk: entries, readings of the
clocks and the order of the scheduler's steps, compressed with zlib. The last frame is the end, which is missing if the
process was killed. Each frame is written as a whole, so a truncated file is readable up to its last complete frame.

A record contains the fields of objects that scheduling reads. Objects are decoded before, so environment variables,
commands, probes, the data of config maps and secrets and all other fields that scheduling does not read are already
dropped. The annotations that scheduling reads are kept. All others are replaced by one digest, because a change of a
node's annotations is an event. The digest is keyed with random bytes that are not stored, so it reveals that an
annotation changed, but not its value.
"""

from __future__ import annotations

import secrets
import struct
import zlib
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from kubestow.api.resource import EXTENDED_RESOURCE_CLAIM
from kubestow.api.storage import BETA_STORAGE_CLASS, BIND_COMPLETED, BOUND_BY_CONTROLLER, SELECTED_NODE
from kubestow.errors import InputError
from kubestow.files import MAX_DUMP, read_file
from kubestow.flight_record.entries import MAX_SECONDS, Answered, Changed, End, Entry, Header, Listed

_MAGIC = b"KUBESTOW-FLIGHT\n"
FORMAT_VERSION = 2
_VERSION = struct.Struct("<H")
_FRAME = struct.Struct("<BII")
_HEADER, _CHUNK, _END = 1, 2, 3
_LEVEL = 1
#: Bytes of a frame's payload, and of what it decompresses to, beyond which the file is damaged.
_MAX_PAYLOAD = 1 << 30

_encode = msgspec.msgpack.Encoder().encode
_encode_annotations = msgspec.json.Encoder(order="deterministic").encode
_decode_entries = msgspec.msgpack.Decoder(list[Entry]).decode
_decode_header = msgspec.msgpack.Decoder(Header).decode
_decode_end = msgspec.msgpack.Decoder(End).decode

DIGEST = "kubestow.flight-record/other-annotations"
"""The annotation with the digest of those that are left out."""

KEPT_ANNOTATIONS = frozenset(
    {
        BETA_STORAGE_CLASS,
        BIND_COMPLETED,
        BOUND_BY_CONTROLLER,
        EXTENDED_RESOURCE_CLAIM,
        SELECTED_NODE,
        "scheduling.k8s.io/group-name",
        "storage.alpha.kubernetes.io/migrated-plugins",
    }
)


@dataclass(slots=True)
class Chunk:
    """A part of the record: its entries, and since the last chunk the clock readings and the order of steps.

    ``monotonic`` are seconds, ``wall`` microseconds since the epoch; ``order`` has the number of each step's callback.
    """

    entries: list[Entry] = field(default_factory=list)
    monotonic: array[float] = field(default_factory=lambda: array("d"))
    wall: array[int] = field(default_factory=lambda: array("q"))
    order: array[int] = field(default_factory=lambda: array("q"))


def _decode_chunk(payload: bytes) -> Chunk:
    content = zlib.decompressobj().decompress(payload, _MAX_PAYLOAD)
    entries, *numbers = msgspec.msgpack.decode(content, type=tuple[bytes, bytes, bytes, bytes])
    chunk = Chunk(entries=_decode_entries(entries))
    streams: tuple[array[Any], ...] = (chunk.monotonic, chunk.wall, chunk.order)
    for stream, differences in zip(streams, numbers, strict=True):
        stream.frombytes(np.cumsum(np.frombuffer(differences, np.int64)).tobytes())
    if not (np.abs(np.frombuffer(chunk.monotonic)) < MAX_SECONDS).all():  # false for NaN
        raise ValueError("a reading of the monotonic clock is out of range")
    wall = np.frombuffer(chunk.wall, np.int64)
    limit = MAX_SECONDS * 1_000_000
    if not ((-limit < wall) & (wall < limit)).all():
        raise ValueError("a reading of the date and time is out of range")
    return chunk


class Segment:
    """A file of a flight record. Its header is read at once, its chunks when :meth:`chunks` is iterated.

    Any defect of the file raises InputError with the file's name and the offset.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        #: The end of the record, once all chunks have been read.
        self.end: End | None = None
        self._content = read_file(path, limit=MAX_DUMP)
        if not self._content.startswith(_MAGIC):
            raise self._error(0, f"not a flight record: expected it to begin with {_MAGIC.decode().strip()}")
        offset = len(_MAGIC) + _VERSION.size
        if len(self._content) < offset:
            raise self._error(len(_MAGIC), "the file is cut off before the format version")
        (version,) = _VERSION.unpack_from(self._content, len(_MAGIC))
        if version != FORMAT_VERSION:
            raise self._error(
                len(_MAGIC), f"flight record of format version {version}; this kubestow reads {FORMAT_VERSION}"
            )
        kind, payload, self._first_chunk = self._frame(offset)
        if kind != _HEADER:
            raise self._error(offset, f"expected the header, got a frame of kind {kind}")
        self.header: Header = self._decoded(offset, "header", _decode_header, payload)

    def chunks(self) -> Iterator[Chunk]:
        """The chunks in order. Raises InputError after the last readable one if the file is damaged or cut off."""
        offset = self._first_chunk
        while True:
            if offset == len(self._content):
                raise self._error(
                    offset, "the record is cut off: it has no end, so the scheduler did not stop regularly"
                )
            kind, payload, following = self._frame(offset)
            if kind == _END:
                if following != len(self._content):
                    raise self._error(following, f"{len(self._content) - following} bytes after the end of the record")
                self.end = self._decoded(offset, "end", _decode_end, payload)
                return
            if kind != _CHUNK:
                raise self._error(offset, f"frame of unknown kind {kind}")
            chunk: Chunk = self._decoded(offset, "chunk", _decode_chunk, payload)
            yield chunk
            offset = following

    def _decoded(self, offset: int, what: str, decode: Callable[[bytes], Any], payload: bytes) -> Any:
        try:
            return decode(payload)
        except (zlib.error, msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
            raise self._error(offset, f"malformed {what}: {error}") from None

    def _frame(self, offset: int) -> tuple[int, bytes, int]:
        """The kind and payload of the frame at an offset, and the offset of the next one."""
        end = offset + _FRAME.size
        if end > len(self._content):
            raise self._error(offset, "the record is cut off in the middle of a frame")
        kind, length, checksum = _FRAME.unpack_from(self._content, offset)
        payload = self._content[end : end + length]
        head = self._content[offset : offset + 5]
        if len(payload) < length:
            available = len(self._content) - end
            problem = f"the record is cut off, or damaged: the frame has {available:,} of {length:,} bytes"
            raise self._error(offset, problem)
        if zlib.crc32(payload, zlib.crc32(head)) != checksum:
            raise self._error(offset, "the frame is damaged: its checksum does not match")
        return kind, payload, end + length

    def _error(self, offset: int, problem: str) -> InputError:
        return InputError(str(self.path), problem, place=f"offset {offset}")


class SegmentEncoder:
    """Encodes one record."""

    def __init__(self) -> None:
        self._redaction = Redaction()
        self._encode = msgspec.msgpack.Encoder(enc_hook=_plain).encode

    def beginning(self, header: Header) -> bytes:
        """The beginning of a file, with the header."""
        return _MAGIC + _VERSION.pack(FORMAT_VERSION) + _frame(_HEADER, self._encode(header))

    def chunk(self, chunk: Chunk) -> bytes:
        """The frame of a chunk."""
        entries = self._encode([self._redacted(entry) for entry in chunk.entries])
        # Each number as an integer of 64 bits, minus the one before it: these compress far better. Positive floats are
        # in the order of their bits, so differences of times are small as well.
        streams = (np.frombuffer(stream, np.int64) for stream in (chunk.monotonic, chunk.wall, chunk.order))
        numbers = [np.diff(stream, prepend=np.int64(0)).tobytes() for stream in streams]
        return _frame(_CHUNK, zlib.compress(_encode((entries, *numbers)), _LEVEL))

    def end(self, end: End) -> bytes:
        """The end of a file."""
        return _frame(_END, self._encode(end))

    def _redacted(self, entry: Entry) -> Entry:
        redacted = self._redaction.redacted
        if isinstance(entry, Changed):  # the most frequent one
            obj = redacted(entry.object)
            return entry if obj is entry.object else msgspec.structs.replace(entry, object=obj)
        if isinstance(entry, Listed):
            return msgspec.structs.replace(entry, objects=[redacted(obj) for obj in entry.objects])
        if isinstance(entry, Answered) and entry.value is not None:
            return msgspec.structs.replace(entry, value=redacted(entry.value))
        return entry


def _plain(value: Any) -> Any:
    """A value of a type that msgpack does not have, as plugins may pass to a call."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence):
        return list(value)
    return repr(value)


def _frame(kind: int, payload: bytes) -> bytes:
    head = struct.pack("<BI", kind, len(payload))
    return _FRAME.pack(kind, len(payload), zlib.crc32(payload, zlib.crc32(head))) + payload


class Redaction:
    """Redacts objects; equal annotations have equal digests within one record only."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)

    def redacted(self, obj: Any) -> Any:
        """The object as it is recorded."""
        metadata: Any = getattr(obj, "metadata", None)
        annotations = getattr(metadata, "annotations", None)
        if not annotations:
            return obj
        kept = {key: value for key, value in annotations.items() if key in KEPT_ANNOTATIONS}
        if len(kept) < len(annotations):
            others = {key: value for key, value in annotations.items() if key not in KEPT_ANNOTATIONS}
            kept[DIGEST] = blake2b(_encode_annotations(others), key=self._key, digest_size=8).hexdigest()
        return msgspec.structs.replace(obj, metadata=msgspec.structs.replace(metadata, annotations=kept))
