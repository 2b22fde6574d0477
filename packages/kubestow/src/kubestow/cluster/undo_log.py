"""The undo log: how to undo what has been changed since the start of the active simulations.

While a simulation is active every writer of pods and nominations appends a call that undoes its change exactly, order
included. The calls run latest first, so each finds the cluster as its change has left it.
"""

from __future__ import annotations

from collections.abc import Callable

from kubestow.errors import KubestowError

__all__ = ["UndoLog"]


class UndoLog:
    """A stack of calls, with a mark for each active simulation."""

    def __init__(self) -> None:
        self._calls: list[Callable[[], None]] = []
        self._marks: list[int] = []
        #: Whether changes have to be appended.
        self.active = False

    def append(self, undo: Callable[[], None]) -> None:
        """Add the call that undoes a change."""
        self._calls.append(undo)

    def begin(self) -> int:
        """Begin a simulation inside those that are active already; its depth is returned: 1 for the outermost."""
        self._marks.append(len(self._calls))
        self.active = True
        return len(self._marks)

    def roll_back(self, depth: int) -> None:
        """Undo everything since the simulation of this depth began, and end it.

        Raises KubestowError when it is not the innermost: its block was left while one inside it was suspended.
        """
        is_innermost = depth == len(self._marks)
        if depth <= len(self._marks):
            mark = self._marks[depth - 1]
            del self._marks[depth - 1 :]
            self.active = False  # what the calls do must not be undone in turn
            while len(self._calls) > mark:
                self._calls.pop()()
            self.active = bool(self._marks)
        if not is_innermost:
            raise KubestowError("simulations overlap: a simulate() block must not be suspended by an await")
