"""The option ``--output`` of commands that print data: a table or text for people, JSON and YAML for programs."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

import click

__all__ = ["output_option", "print_data"]

_Command = TypeVar("_Command", bound=Callable[..., Any])


def output_option(*formats: str) -> Callable[[_Command], _Command]:
    """Add ``-o``/``--output``, which the command gets as ``output``; the first of ``formats`` is the default."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(formats),
        default=formats[0],
        show_default=True,
        help="Output format.",
    )


def print_data(data: Any, output: str) -> None:
    """Print plain data in the format "json" or "yaml"."""
    import yaml

    if output == "json":
        click.echo(json.dumps(data, indent=2, ensure_ascii=False))
    else:
        click.echo(yaml.safe_dump(data, sort_keys=False, allow_unicode=True), nl=False)
