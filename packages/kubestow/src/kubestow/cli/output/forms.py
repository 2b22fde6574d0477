"""The option ``--output`` of commands with many forms of output: on standard output, in a file, or in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import click

from kubestow.errors import InputError

__all__ = ["OutputForms", "emit", "report_written"]


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
            self._refuse(value, param, ctx)
        return form, target

    def _refuse(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> NoReturn:
        targets = (*(f"{name}=FILE" for name in self._files), *(f"{name}=FOLDER" for name in self._folders))
        self.fail(f"{value!r} is not one of {', '.join((*self._texts, *targets))}", param, ctx)


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
