"""The forms of results: a table or text for people, JSON and YAML for programs, on standard output or in files."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import click

from kubestow.errors import InputError

if TYPE_CHECKING:
    from kubestow.engine.input.cluster_objects import InputSummary
    from kubestow.rules.minors import Minor

_Command = TypeVar("_Command", bound=Callable[..., Any])


def output_option(*formats: str) -> Callable[[_Command], _Command]:
    """Add ``-o``/``--output``, which the command gets as ``output``; the first of ``formats`` is the default."""
    choice = click.Choice(formats)
    return click.option("-o", "--output", type=choice, default=formats[0], show_default=True, help="Output format.")


def print_data(data: Any, output: str) -> None:
    """Print plain data in the format "json" or "yaml"."""
    from kubestow.reports import text

    click.echo(text.as_json(data) if output == "json" else text.as_yaml(data).removesuffix("\n"))


class OutputForms(click.ParamType):  # type: ignore[type-arg]
    """A form of output and its target, as ``(form, target)``; the target is empty for standard output.

    ``texts`` are printed, or written to a file with ``form=FILE``; ``files`` and ``folders`` need a target.
    """

    name = "form"

    def __init__(self, *texts: str, files: tuple[str, ...] = (), folders: tuple[str, ...] = ()) -> None:
        self._texts, self._files, self._folders = texts, files, folders

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        form, equals, target = value.partition("=")
        known = form in self._texts or (target and form in (*self._files, *self._folders))
        if not known or bool(equals) != bool(target):
            targets = (*(f"{name}=FILE" for name in self._files), *(f"{name}=FOLDER" for name in self._folders))
            self.fail(f"{value!r} is not one of {', '.join((*self._texts, *targets))}", param, ctx)
        return form, target


def emit(text: str, target: str) -> None:
    """Write a text to the file ``target``, or to standard output if that is empty. Raises InputError."""
    if not target:
        click.echo(text, nl=not text.endswith("\n"))
        return
    try:
        Path(target).write_text(text if text.endswith("\n") else f"{text}\n", encoding="utf-8")
    except OSError as error:
        raise InputError(target, f"cannot be written: {error.strerror}") from None
    report_written([Path(target)])


def report_written(paths: list[Path]) -> None:
    """Name the written files on standard error."""
    click.echo(f"wrote {', '.join(map(str, paths))}", err=True)


OUTPUTS = ("table", "json", "yaml")

#: The least and the greatest width without a terminal. Lines there are for programs such as grep, so few are wrapped.
_LEAST_WIDTH, _GREATEST_WIDTH = 130, 10_000


def with_versions(
    document: Callable[[], Mapping[str, Any]], minor: Minor, server_version: str
) -> Callable[[], dict[str, Any]]:
    """A document that names the minor version of Kubernetes to decide as, and the API server's if it is known."""

    def named() -> dict[str, Any]:
        data = dict(document())
        kind = {"kind": data["kind"]} if "kind" in data else {}
        server = {"serverVersion": server_version} if server_version else {}
        return kind | {"emulatedVersion": str(minor)} | server | data

    return named


def print_result(document: Callable[[], Mapping[str, Any]], table: Any, output: str, target: str = "") -> None:
    """Print plain data as JSON or YAML, or else a text or what rich can print. The data is made only if it is printed.

    With ``target``, write it to that file instead. Raises InputError for a file that cannot be written.
    """
    from kubestow.reports import text

    if output == "json":
        emit(text.as_json(document()), target)
    elif output == "yaml":
        emit(text.as_yaml(document()), target)
    elif isinstance(table, str):
        emit(text.printable(table), target)
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


#: Characters of a message about the input, which can quote it.
MAX_MESSAGE = 2000
#: At most this many problems of the input are printed; all of them are counted.
_PROBLEMS_SHOWN = 20


def print_input(title: str, summary: InputSummary) -> None:
    """Print what was read, and the problems, on standard error."""
    from kubestow.reports.model import counted
    from kubestow.reports.text import printable

    for line in summary.lines():
        click.echo(printable(f"{title}: {line}"), err=True)
    for problem in summary.problems[:_PROBLEMS_SHOWN]:
        click.echo(printable(f"  {problem}")[:MAX_MESSAGE], err=True)
    if len(summary.problems) > _PROBLEMS_SHOWN:
        click.echo("  … " + counted(len(summary.problems) - _PROBLEMS_SHOWN, "more problem"), err=True)


class ShowProgress(Protocol):
    """Shows how much is done, of a total that may not be known."""

    def __call__(self, done: int, total: int | None = None) -> None: ...


@contextmanager
def progress_bar(title: str, unit: str) -> Iterator[ShowProgress]:
    """A progress bar on standard error, if that is a terminal; ``unit`` is the plural of what is counted."""
    if not sys.stderr.isatty():  # rich takes a while to import
        yield lambda done, total=None: None
        return
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
