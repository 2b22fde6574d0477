"""The command line: parsing, wiring and printing.

Each command is a module of this package and is imported only when it is called, so that ``kubestow --help`` is fast. An
error of the :mod:`kubestow.errors` tree ends a command with one line on standard error, an invalid configuration with
one line per error. The exit status is 2 for invalid usage, 1 for an invalid configuration and for failures at run time.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

import click

from kubestow.errors import ConfigurationError, InputError, KubestowError
from kubestow.version import VERSION

__all__ = ["main"]

#: command name -> (module, attribute, one line of help)
COMMANDS: dict[str, tuple[str, str, str]] = {
    "run": ("kubestow.cli.run", "run", "Schedule the pods of a cluster."),
    "up": ("kubestow.cli.up", "up", "Run a development cluster: API server, controllers, nodes and scheduler."),
    "demo": ("kubestow.cli.demo", "demo", "Schedule a GPU workload on a simulated cluster."),
    "apiserver": ("kubestow.cli.apiserver", "apiserver", "Run the embedded API server with simulated nodes."),
    "extend": ("kubestow.cli.extend", "extend", "Serve plugins as a scheduler extender."),
    "node": ("kubestow.cli.node", "node", "Stop and start simulated nodes."),
    "config": ("kubestow.cli.config", "config", "Check, show and convert scheduler configurations."),
    "verify": ("kubestow.cli.verify", "verify", "Replay recorded decisions and compare the results."),
}


class _LazyGroup(click.Group):
    """A command group that imports a command when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, attribute, _ = COMMANDS[cmd_name]
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, _, summary) in COMMANDS.items()])


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, prog_name="kubestow")
def _commands() -> None:
    """A Kubernetes scheduler in Python."""


def main(arguments: list[str] | None = None) -> Any:
    """Run one command and exit the process with its status."""
    try:
        status = _commands.main(args=arguments, prog_name="kubestow", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except (KubestowError, ExceptionGroup) as error:
        cause = _first_cause(error)
        for line in _error_lines(cause):
            click.echo(f"kubestow: {line}", err=True)
        sys.exit(2 if isinstance(cause, InputError) and not isinstance(cause, ConfigurationError) else 1)
    sys.exit(status if isinstance(status, int) else 0)


def _error_lines(error: Exception) -> list[str]:
    if not isinstance(error, ConfigurationError):
        return [str(error)]
    return [f"{error.subject}: {path}: {text}" if path else f"{error.subject}: {text}" for path, text in error.problems]


def _first_cause(error: Exception) -> Exception:
    """The first error of a group. Exceptions outside the KubestowError tree are bugs and propagate."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    if not isinstance(error, KubestowError):
        raise error
    return error
