"""Reading the event stream: as it is, or compressed."""

from __future__ import annotations

import json
import zlib
from collections.abc import AsyncGenerator
from typing import Any, NamedTuple


class Event(NamedTuple):
    """An event, or a comment, whose name is empty."""

    name: str
    data: dict[str, Any]


class StreamReader:
    """Parses the bytes of one stream; each part may have any number of events."""

    def __init__(self, stream: AsyncGenerator[bytes, None], *, compressed: bool = False) -> None:
        self._stream = stream
        self._decompress = zlib.decompressobj(31).decompress if compressed else bytes
        self._pending = b""

    async def next(self) -> Event:
        """The next event. Raises StopAsyncIteration at the end."""
        while b"\n\n" not in self._pending:
            self._pending += self._decompress(await anext(self._stream))
        text, _, self._pending = self._pending.partition(b"\n\n")
        if text == b":":
            return Event("", {})
        name, data = text.split(b"\n")
        return Event(name.removeprefix(b"event: ").decode(), json.loads(data.removeprefix(b"data: ")))

    async def close(self) -> None:
        await self._stream.aclose()
