"""A click command that takes flags as kube-scheduler does, and groups them in ``--help``.

pflag's spellings are brought into click's: ``--flag`` of a boolean means true and never takes the next word,
``--a_b`` is ``--a-b``, ``-v=2`` and ``-v2`` are ``--v=2``. What cannot be understood ends the process with status 1, as
kube-scheduler's does, before anything is started.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

from kubestow.cli.flags.catalog import BY_NAME, SECTIONS, Flag
from kubestow.cli.flags.values import BOOL
from kubestow.errors import ConfigurationError, InputError

__all__ = ["FlagCommand", "Flags"]


@dataclass(frozen=True, slots=True)
class Flags:
    """The value of every flag; ``given`` are the names of those that somebody set."""

    values: Mapping[str, Any]
    given: frozenset[str]

    @classmethod
    def read(cls, texts: Mapping[str, Sequence[str]]) -> Flags:
        """From the texts that were given for each flag. Raises InputError for the first that cannot be read."""
        values = {name: flag.default for name, flag in BY_NAME.items()}
        for name, given in texts.items():
            values[name] = _read(BY_NAME[name], given)
        return cls(values, frozenset(texts))

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def written(self) -> dict[str, str]:
        """Every flag as text, by name."""
        return {name: BY_NAME[name].kind.write(value) for name, value in self.values.items()}


def _read(flag: Flag, texts: Sequence[str]) -> Any:
    try:
        return flag.kind.read(texts)
    except ValueError as error:
        problem = f"invalid argument {_quoted(texts[-1])}: expected {error}"
        raise InputError(f"--{flag.name}", problem) from None


class FlagCommand(click.Command):
    """Calls its function with :class:`Flags`; a mistake in them, or later in what they name, is status 1."""

    def __init__(self, name: str | None = None, **options: Any) -> None:
        settings = {"allow_extra_args": True, "help_option_names": ["-h", "--help"]}
        super().__init__(name, context_settings=settings, **options)
        self.params += [_option(flag) for flag in BY_NAME.values()]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            rest = super().parse_args(ctx, [_as_click_has_it(argument) for argument in args])
        except click.UsageError as refused:
            raise _Refused(refused.format_message()) from None
        if ctx.args:
            given = " ".join(map(_quoted, ctx.args))
            raise _Refused(f'"{ctx.command_path}" does not take any arguments, got [{given}]')
        return rest

    def invoke(self, ctx: click.Context) -> Any:
        texts = {flag.name: given for flag in BY_NAME.values() if (given := ctx.params.pop(_parameter(flag)))}
        try:
            ctx.params["flags"] = Flags.read(texts)
            return super().invoke(ctx)
        except ConfigurationError:
            raise  # every mistake gets a line of its own
        except InputError as error:
            raise _Refused(str(error)) from None

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for section, flags in SECTIONS.items():
            with formatter.section(f"{section} flags"):
                formatter.write_dl([_help(flag) for flag in flags])
        with formatter.section("Global flags"):
            formatter.write_dl([("-h, --help", "Show this message and exit.")])


class _Refused(click.ClickException):
    """One line, status 1."""

    exit_code = 1

    def show(self, file: Any = None) -> None:
        click.echo(f"kubestow: {self.message}", err=True)


def _option(flag: Flag) -> click.Option:
    spellings = [f"--{flag.name}", *([f"-{flag.short}"] if flag.short and flag.short != flag.name else [])]
    return click.Option([*spellings, _parameter(flag)], multiple=True)


def _parameter(flag: Flag) -> str:
    return "flag_" + flag.name.replace("-", "_")


def _help(flag: Flag) -> tuple[str, str]:
    spelled = f"-{flag.short}, --{flag.name}" if flag.short else f"--{flag.name}"
    default = flag.kind.write(flag.default)
    told = f"{flag.help} (default {default})" if default not in ("", "[]", "0", "false") else flag.help
    return f"{spelled} {flag.kind.name}".rstrip(), told


def _as_click_has_it(argument: str) -> str:
    if argument.startswith("--"):
        name, equals, value = argument[2:].partition("=")
        name = name.replace("_", "-")
        flag = BY_NAME.get(name)
        if flag is not None and flag.kind is BOOL and not equals:
            return f"--{name}=true"
        return f"--{name}{equals}{value}"
    if argument.startswith("-v"):
        return f"--v={argument[2:].removeprefix('=')}" if argument != "-v" else "--v"
    return argument


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
