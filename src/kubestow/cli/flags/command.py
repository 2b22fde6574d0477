"""A click command that parses flags as kube-scheduler does and groups them in ``--help``.

pflag's syntax is translated to click's: a boolean ``--flag`` means true and never consumes the next argument, ``--a_b``
is ``--a-b``, ``-v=2`` and ``-v2`` are ``--v=2``. As in kube-scheduler, invalid flags end the process with status 1
before anything is started.
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
    """The value of every flag; ``changed`` are the names of the flags on the command line."""

    values: Mapping[str, Any]
    changed: frozenset[str]

    @classmethod
    def parse(cls, arguments: Mapping[str, Sequence[str]]) -> Flags:
        """Parse the arguments of each flag. Raises InputError for the first invalid one."""
        values = {name: flag.default for name, flag in BY_NAME.items()}
        for name, texts in arguments.items():
            values[name] = _parse(BY_NAME[name], texts)
        return cls(values, frozenset(arguments))

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def as_text(self) -> dict[str, str]:
        """The value of every flag as text, by name."""
        return {name: BY_NAME[name].type.format(value) for name, value in self.values.items()}


def _parse(flag: Flag, texts: Sequence[str]) -> Any:
    try:
        return flag.type.parse(texts)
    except ValueError as error:
        raise InputError(f"--{flag.name}", f"invalid argument {_quoted(texts[-1])}: expected {error}") from None


class FlagCommand(click.Command):
    """Calls its function with :class:`Flags`; invalid flags, and invalid files that they name, exit with status 1."""

    def __init__(self, name: str | None = None, **options: Any) -> None:
        settings = {"allow_extra_args": True, "help_option_names": ["-h", "--help"]}
        super().__init__(name, context_settings=settings, **options)
        self.params += [_option(flag) for flag in BY_NAME.values()]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            rest = super().parse_args(ctx, [_to_click_syntax(argument) for argument in args])
        except click.UsageError as error:
            raise FlagError(error.format_message()) from None
        if ctx.args:
            extra = " ".join(map(_quoted, ctx.args))
            raise FlagError(f'"{ctx.command_path}" does not take any arguments, got [{extra}]')
        return rest

    def invoke(self, ctx: click.Context) -> Any:
        arguments = {flag.name: texts for flag in BY_NAME.values() if (texts := ctx.params.pop(_parameter(flag)))}
        try:
            ctx.params["flags"] = Flags.parse(arguments)
            return super().invoke(ctx)
        except ConfigurationError:
            raise  # printed with one line per error
        except InputError as error:
            raise FlagError(str(error)) from None

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for section, flags in SECTIONS.items():
            with formatter.section(f"{section} flags"):
                formatter.write_dl([_help(flag) for flag in flags])
        with formatter.section("Global flags"):
            formatter.write_dl([("-h, --help", "Show this message and exit.")])


class FlagError(click.ClickException):
    """Invalid flags: one line on standard error, status 1."""

    exit_code = 1

    def show(self, file: Any = None) -> None:
        click.echo(f"kubestow: {self.message}", err=True)


def _option(flag: Flag) -> click.Option:
    names = [f"--{flag.name}", *([f"-{flag.short}"] if flag.short and flag.short != flag.name else [])]
    return click.Option([*names, _parameter(flag)], multiple=True)


def _parameter(flag: Flag) -> str:
    return "flag_" + flag.name.replace("-", "_")


def _help(flag: Flag) -> tuple[str, str]:
    names = f"-{flag.short}, --{flag.name}" if flag.short else f"--{flag.name}"
    default = flag.type.format(flag.default)
    help_text = f"{flag.help} (default {default})" if default not in ("", "[]", "0", "false") else flag.help
    return f"{names} {flag.type.name}".rstrip(), help_text


def _to_click_syntax(argument: str) -> str:
    if argument.startswith("--"):
        name, equals, value = argument[2:].partition("=")
        name = name.replace("_", "-")
        flag = BY_NAME.get(name)
        if flag is not None and flag.type is BOOL and not equals:
            return f"--{name}=true"
        return f"--{name}{equals}{value}"
    if argument.startswith("-v"):
        return f"--v={argument[2:].removeprefix('=')}" if argument != "-v" else "--v"
    return argument


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
