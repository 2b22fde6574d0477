"""The encoder: the bytes of a file, from what was recorded in memory, without what a record leaves out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from kubestow.flight_record.entries import Answered, Changed, End, Entry, Header, Listed
from kubestow.flight_record.files.redaction import Redaction
from kubestow.flight_record.files.segment import CHUNK, END, HEADER, Chunk, encode_chunk, frame, preamble

__all__ = ["SegmentEncoder"]


class SegmentEncoder:
    """Encodes one record."""

    def __init__(self) -> None:
        self._redaction = Redaction()
        self._encode = msgspec.msgpack.Encoder(enc_hook=_plain).encode

    def beginning(self, header: Header) -> bytes:
        """The beginning of a file, with the header."""
        return preamble() + frame(HEADER, self._encode(header))

    def chunk(self, chunk: Chunk) -> bytes:
        """The frame of a chunk."""
        entries = self._encode([self._redacted(entry) for entry in chunk.entries])
        return frame(CHUNK, encode_chunk(entries, chunk))

    def end(self, end: End) -> bytes:
        """The end of a file."""
        return frame(END, self._encode(end))

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
