"""A Lease of the simulated server, with optimistic concurrency."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from kubestow.errors import APIError


class SimulatedLease:
    """``on_change`` is called when the holder changes."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self._object: dict[str, Any] | None = None
        self._version = 0
        #: How often a candidate has become the holder.
        self.acquisitions = 0

    @property
    def holder(self) -> str:
        """The holderIdentity, "" without a holder."""
        return "" if self._object is None else str(self._object["spec"].get("holderIdentity", ""))

    def respond(self, method: str, body: bytes | None) -> bytes:
        """Handle a request. Raises APIError."""
        if method != "POST" and self._object is None:
            raise APIError(404, "NotFound", "lease not found")
        if method == "POST" and self._object is not None:
            raise APIError(409, "AlreadyExists", "lease already exists")
        if body is not None:
            self._write(msgspec.json.decode(body))
        return msgspec.json.encode(self._object)

    def _write(self, lease: dict[str, Any]) -> None:
        if self._object is not None and lease["metadata"]["resourceVersion"] != str(self._version):
            raise APIError(409, "Conflict", "the lease has been modified")
        before = self.holder
        self._version += 1
        self._object = lease | {"metadata": lease["metadata"] | {"resourceVersion": str(self._version)}}
        if self.holder != before:
            self.acquisitions += bool(self.holder)
            self._on_change()
