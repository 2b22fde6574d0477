"""The interface of a section of the stream, and sections that are sent as a whole."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Protocol

__all__ = ["Section", "WholeSection"]


class Section(Protocol):
    """One part of what all viewers see, as plain data under its ``name``."""

    name: str

    def refresh(self) -> Any | None:
        """Read the scheduler; what viewers of the former content have to be sent, None if nothing has changed."""

    def content(self) -> Any:
        """Everything as of the last refresh, for a new viewer."""


class WholeSection(ABC):
    """Implements :class:`Section` for content of which viewers are sent all when any of it has changed."""

    def __init__(self) -> None:
        self._content: dict[str, Any] = {}

    def refresh(self) -> dict[str, Any] | None:
        former, self._content = self._content, self._read()
        return None if former == self._content else self._content

    def content(self) -> dict[str, Any]:
        return self._content

    @abstractmethod
    def _read(self) -> dict[str, Any]:
        """The content as it is now, bounded."""
