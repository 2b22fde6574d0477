"""A progress bar on standard error: one line per workload, with the operation that is being executed."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as RichProgress

__all__ = ["ProgressBar"]


class ProgressBar:
    """Implements :class:`kubestow_lab.scheduler_perf.execution.session.Progress`. Use as ``with``.

    Shows nothing where standard error is not a terminal.
    """

    def __init__(self, workloads: int) -> None:
        console = Console(stderr=True)
        self._bar = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("", total=None)
        self._workloads, self._number, self._name = workloads, 0, ""

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._bar.stop()

    def workload(self, name: str) -> None:
        """The next workload begins."""
        self._number, self._name = self._number + 1, name
        self._bar.update(self._task, description=f"[{self._number}/{self._workloads}] {name}: starting")

    def operation(self, number: int, total: int, name: str) -> None:
        self._bar.reset(self._task, description=f"[{self._number}/{self._workloads}] {self._name}: {name}")

    def advanced(self, done: int, total: int) -> None:
        self._bar.update(self._task, completed=done, total=total)
