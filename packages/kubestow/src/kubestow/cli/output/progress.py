"""Progress on standard error, if that is a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

__all__ = ["ShowProgress", "progress_bar"]


class ShowProgress(Protocol):
    """Shows how much is done, of a total that may not be known."""

    def __call__(self, done: int, total: int | None = None) -> None: ...


@contextmanager
def progress_bar(title: str, unit: str) -> Iterator[ShowProgress]:
    """A progress bar on standard error, if that is a terminal; ``unit`` is the plural of what is counted."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda done, total=None: None
        return
    columns = (TextColumn(title), BarColumn(), MofNCompleteColumn(), TextColumn(unit), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total=None: bar.update(task, completed=done, total=total)
