"""The interface of a section of the stream."""

from __future__ import annotations

from typing import Any, Protocol

__all__ = ["Section"]


class Section(Protocol):
    """One part of what all viewers see, as plain data under its ``name``."""

    name: str

    def refresh(self) -> Any | None:
        """Read the scheduler; what viewers of the former content have to be sent, None if nothing has changed."""

    def content(self) -> Any:
        """Everything as of the last refresh, for a new viewer."""
