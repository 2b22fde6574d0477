"""Running a coroutine that has nothing to await, such as a decision without extenders, as an ordinary call."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["run_synchronously"]

T = TypeVar("T")


def run_synchronously(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never suspends. Raises what it raises, and RuntimeError if it suspends."""
    try:
        work.send(None)
    except StopIteration as finished:
        result: T = finished.value
        return result
    work.close()
    raise RuntimeError(f"{work!r} suspended, expected it to run to its end")
