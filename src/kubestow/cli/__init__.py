"""The commands: nothing but parsing, wiring and printing.

Each command is a module of this room and is imported only when it is called, so that ``kubestow --help`` answers at
once. Errors of the :mod:`kubestow.errors` tree end a command with one line on standard error, a wrong configuration
with one line a mistake: status 2 for what was asked wrongly, 1 for what went wrong and for a wrong configuration.
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
    "up": ("kubestow.cli.up", "up", "Run a cluster to try things on: API, controllers, nodes and scheduler."),
    "demo": ("kubestow.cli.demo", "demo", "Watch the scheduler fill a simulated GPU cluster."),
    "apiserver": ("kubestow.cli.apiserver", "apiserver", "Serve the embedded Kubernetes API, with simulated nodes."),
    "extend": ("kubestow.cli.extend", "extend", "Serve plugins as an extender of another scheduler."),
    "node": ("kubestow.cli.node", "node", "Make simulated nodes fall silent, or come back."),
    "config": ("kubestow.cli.config", "config", "Check, show and convert scheduler configurations."),
    "verify": ("kubestow.cli.verify", "verify", "Replay recorded decisions and compare every figure."),
}


class _LazyGroup(click.Group):
    """A group that knows its commands by name and imports one when it is needed."""

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
    """A Kubernetes scheduler in Python: run it, try it, ask it why."""


def main(arguments: list[str] | None = None) -> Any:
    """Run one command and exit the process with its status."""
    try:
        status = _commands.main(args=arguments, prog_name="kubestow", standalone_mode=False)
    except click.ClickException as refused:
        refused.show()
        sys.exit(refused.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except (KubestowError, ExceptionGroup) as error:
        cause = _first_cause(error)
        for told in _told(cause):
            click.echo(f"kubestow: {told}", err=True)
        sys.exit(2 if isinstance(cause, InputError) and not isinstance(cause, ConfigurationError) else 1)
    sys.exit(status if isinstance(status, int) else 0)


def _told(error: Exception) -> list[str]:
    if not isinstance(error, ConfigurationError):
        return [str(error)]
    return [f"{error.subject}: {path}: {text}" if path else f"{error.subject}: {text}" for path, text in error.problems]


def _first_cause(error: Exception) -> Exception:
    """The one error to tell of several that tasks ended with. What is not of our tree is a defect and stays visible."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    if not isinstance(error, KubestowError):
        raise error
    return error
