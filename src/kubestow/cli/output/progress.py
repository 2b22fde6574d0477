"""Progress on standard error, if that is a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kubestow.simulation.simulation import Progress

__all__ = ["progress_bar"]


@contextmanager
def progress_bar(title: str) -> Iterator[Callable[[Progress], None]]:
    """A progress bar on standard error, if that is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as ProgressBar

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda progress: None
        return
    columns = (TextColumn(title), BarColumn(), MofNCompleteColumn(), TextColumn("pods"), TimeElapsedColumn())
    with ProgressBar(*columns, console=console, transient=True) as bar:
        task = bar.add_task(title)
        yield lambda progress: bar.update(task, completed=progress.pods, total=progress.total)
