"""Responses: a body that is sent at once or in chunks, or the stream of a watch."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field

import msgspec

from kubestow_devcluster.apiserver import statuses
from kubestow_devcluster.apiserver.serialization.negotiation import JSON

__all__ = ["Response", "WatchStream"]


@dataclass(slots=True)
class Response:
    """A finite response. A ``body`` that is an iterator is encoded chunk by chunk while it is sent."""

    status: int
    body: bytes | Iterator[bytes]
    content_type: str = JSON
    headers: dict[str, str] = field(default_factory=dict)

    @classmethod
    def json(cls, value: object, status: int = 200) -> Response:
        return cls(status, msgspec.json.encode(value) + b"\n")

    @classmethod
    def text(cls, text: str, status: int = 200) -> Response:
        return cls(status, text.encode(), "text/plain; charset=utf-8", {"X-Content-Type-Options": "nosniff"})

    @classmethod
    def error(cls, error: statuses.StatusError) -> Response:
        headers = {} if error.retry_after is None else {"Retry-After": str(int(error.retry_after))}
        return cls(error.code, error.encode(), headers=headers)


@dataclass(slots=True)
class WatchStream:
    """The response of a watch. ``events`` yields one or more encoded events at a time."""

    events: AsyncIterator[bytes]
    content_type: str = JSON
