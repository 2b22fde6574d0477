"""What was read of the input, and its problems, on standard error."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from kubestow.engine.input.cluster import InputSummary

__all__ = ["print_input"]

#: At most this many problems of the input are printed; all of them are counted.
_PROBLEMS_SHOWN = 20


def print_input(title: str, summary: InputSummary) -> None:
    """Print what was read, and the problems, on standard error."""
    for line in summary.lines():
        click.echo(f"{title}: {line}", err=True)
    for problem in summary.problems[:_PROBLEMS_SHOWN]:
        click.echo(f"  {problem}", err=True)
    if len(summary.problems) > _PROBLEMS_SHOWN:
        click.echo(f"  … {len(summary.problems) - _PROBLEMS_SHOWN} more problems", err=True)
