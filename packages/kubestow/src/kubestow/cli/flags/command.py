"""A click command that parses flags as Kubernetes' components do and groups them in ``--help``.

pflag's syntax is translated to click's: a boolean ``--flag`` means true and never consumes the next argument, ``--a_b``
is ``--a-b``, ``-v=2`` and ``-v2`` are ``--v=2``. As in these, invalid flags end the process with status 1
before anything is started.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

from kubestow.cli.command_group import usage_error_text, version_option
from kubestow.cli.flags.scheduler import RUN, Flag, FlagCatalog
from kubestow.cli.flags.values import BOOL
from kubestow.errors import ConfigurationError, InputError


@dataclass(frozen=True, slots=True)
class Flags:
    """The value of every flag; ``changed`` are the names of the flags on the command line."""

    values: Mapping[str, Any]
    changed: frozenset[str]
    catalog: FlagCatalog = RUN

    @classmethod
    def parse(cls, arguments: Mapping[str, Sequence[str]], catalog: FlagCatalog = RUN) -> Flags:
        """Parse the arguments of each flag. Raises InputError for the first invalid one."""
        by_name = catalog.by_name
        values = {name: flag.default for name, flag in by_name.items()}
        for name, texts in arguments.items():
            try:
                values[name] = by_name[name].type.parse(texts)
            except ValueError as error:
                problem = f"invalid argument {_quoted(texts[-1])}: expected {error}"
                raise InputError(f"--{name}", problem) from None
        return cls(values, frozenset(arguments), catalog)

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def as_text(self) -> dict[str, str]:
        """The value of every flag as text, by name."""
        return {name: self.catalog.by_name[name].type.format(value) for name, value in self.values.items()}


class FlagCommand(click.Command):
    """Calls its function with :class:`Flags`; invalid flags, and invalid files that they name, exit with status 1."""

    def __init__(self, name: str | None = None, *, catalog: FlagCatalog = RUN, **options: Any) -> None:
        self._catalog = catalog
        settings = {"allow_extra_args": True, "help_option_names": ["-h", "--help"]}
        super().__init__(name, context_settings=settings, **options)
        for flag in catalog.by_name.values():
            short = [f"-{flag.short}"] if flag.short and flag.short != flag.name else []
            self.params.append(click.Option([f"--{flag.name}", *short, _parameter(flag)], multiple=True))
        self.params.append(version_option())

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            rest = super().parse_args(ctx, [_to_click_syntax(argument, self._catalog) for argument in args])
        except click.NoSuchOption as error:
            name, instead = error.option_name, self._catalog.removed.get(error.option_name.removeprefix("--"))
            removed = f"{name}: {self._catalog.program} no longer has this flag: {instead}"
            raise FlagError(usage_error_text(error) if instead is None else removed) from None
        except click.UsageError as error:
            raise FlagError(usage_error_text(error)) from None
        if ctx.args:
            extra = " ".join(map(_quoted, ctx.args))
            raise FlagError(f'"{ctx.command_path}" does not take any arguments, got [{extra}]')
        return rest

    def invoke(self, ctx: click.Context) -> Any:
        try:
            ctx.params["flags"] = _flags(ctx, self._catalog)
            return super().invoke(ctx)
        except ConfigurationError:
            raise  # printed with one line per error
        except InputError as error:
            raise FlagError(str(error)) from None

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for section, flags in self._catalog.sections.items():
            with formatter.section(f"{section} flags"):
                formatter.write_dl([_help(flag) for flag in flags])
        with formatter.section("Global flags"):
            names = {_parameter(flag) for flag in self._catalog.by_name.values()}
            others = [parameter for parameter in self.get_params(ctx) if parameter.name not in names]
            formatter.write_dl([record for option in others if (record := option.get_help_record(ctx))])


def parse_flags(arguments: Sequence[str]) -> Flags:
    """Parse flags as on the command line. Raises InputError; ``--help`` prints the help and raises SystemExit."""
    try:
        return _flags(FlagCommand("run").make_context("kubestow run", list(arguments)), RUN)
    except FlagError as error:
        raise InputError("flags", error.message) from None
    except click.exceptions.Exit as done:
        raise SystemExit(done.exit_code) from None


def _flags(ctx: click.Context, catalog: FlagCatalog) -> Flags:
    given = ((flag.name, ctx.params.pop(_parameter(flag))) for flag in catalog.by_name.values())
    return Flags.parse({name: texts for name, texts in given if texts}, catalog)


class FlagError(click.ClickException):
    """Invalid flags: one line on standard error, status 1."""

    exit_code = 1


def _parameter(flag: Flag) -> str:
    return "flag_" + flag.name.replace("-", "_")


def _help(flag: Flag) -> tuple[str, str]:
    names = f"-{flag.short}, --{flag.name}" if flag.short else f"--{flag.name}"
    default = flag.type.format(flag.default)
    help_text = f"{flag.help} (default {default})" if default not in ("", "[]", "0", "false") else flag.help
    return f"{names} {flag.type.name}".rstrip(), help_text


def _to_click_syntax(argument: str, catalog: FlagCatalog) -> str:
    if argument.startswith("--"):
        name, equals, value = argument[2:].partition("=")
        name = name.replace("_", "-")
        flag = catalog.by_name.get(name)
        if flag is not None and flag.type is BOOL and not equals:
            return f"--{name}=true"
        return f"--{name}{equals}{value}"
    if argument.startswith("-v"):
        return f"--v={argument[2:].removeprefix('=')}" if argument != "-v" else "--v"
    return argument


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
