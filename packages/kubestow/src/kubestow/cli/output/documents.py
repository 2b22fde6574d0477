"""Results as a table, JSON or YAML, on standard output or in a file."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from typing import Any

from kubestow.cli.output.forms import emit

__all__ = ["OUTPUTS", "print_result"]

OUTPUTS = ("table", "json", "yaml")

#: The least and the greatest width without a terminal. Lines there are for programs such as grep, so few are wrapped.
_LEAST_WIDTH, _GREATEST_WIDTH = 130, 10_000


def print_result(document: Callable[[], Mapping[str, Any]], table: Any, output: str, target: str = "") -> None:
    """Print plain data as JSON or YAML, or else a text or what rich can print. The data is made only if it is printed.

    With ``target``, write it to that file instead. Raises InputError for a file that cannot be written.
    """
    import msgspec

    if output == "json":
        emit(msgspec.json.format(msgspec.json.encode(document()), indent=2).decode(), target)
    elif output == "yaml":
        import yaml

        dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
        emit(yaml.dump(msgspec.to_builtins(document()), Dumper=dumper, sort_keys=False, width=120), target)
    elif isinstance(table, str):
        emit(table, target)
    else:
        _print_table(table, target)


def _print_table(table: Any, target: str) -> None:
    from rich.console import Console

    console = Console(highlight=False, markup=False, file=io.StringIO() if target else None, record=bool(target))
    if not console.is_terminal:
        unlimited = console.options.update(width=_GREATEST_WIDTH)
        console.width = max(_LEAST_WIDTH, console.measure(table, options=unlimited).maximum)
    console.print(table)
    if target:
        emit(console.export_text(), target)
