"""The command line: parsing, wiring and printing.

Each command is a module of a package below and is imported only when it is called, so that ``kubestow --help`` is
fast. An error of the :mod:`kubestow.errors` tree or of the usage ends a command with one line on standard error, an
invalid configuration with one line per error. docs/cli.md lists the exit codes.
"""

from __future__ import annotations

import errno
import importlib
import sys
from typing import Any

import click

from kubestow import gc_tuning
from kubestow.cli.command_group import CommandGroup, usage_error_text, version_option, with_common_options
from kubestow.errors import ConfigurationError, InputError, KubestowError

__all__ = ["commands", "main"]

#: command name -> (module of this package, attribute, one line of help)
COMMANDS: dict[str, tuple[str, str, str]] = {
    "run": ("scheduler.run", "run", "Schedule the pods of a cluster."),
    "up": ("devcluster.up", "up", "Run a development cluster: API server, controllers, nodes and scheduler."),
    "demo": ("devcluster.demo", "demo", "Schedule a GPU workload on a simulated cluster."),
    "apiserver": ("devcluster.apiserver", "apiserver", "Run the embedded API server with simulated nodes."),
    "extend": ("scheduler.extend", "extend", "Serve plugins as a scheduler extender."),
    "node": ("devcluster.node", "node", "Stop and start simulated nodes."),
    "config": ("scheduler.config", "config", "Check, show and convert scheduler configurations."),
    "simulate": ("offline.simulate", "simulate", "Schedule a workload on a cluster read from files."),
    "compare": ("offline.compare", "compare", "Compare two configurations or plugins on the same workload."),
    "capacity": ("offline.capacity", "capacity", "Count how many more pods of a template fit."),
    "what-if": ("offline.what_if", "what_if", "Ask what would happen if nodes were drained, lost or added."),
    "tune": ("offline.tune", "tune", "Search plugin weights and arguments that suit a workload."),
    "deschedule": ("scheduler.deschedule", "deschedule", "Evict pods by a descheduler policy, or try it offline."),
    "explain": ("offline.explain", "explain", "Explain why a pod is on its node or on none, and what would help."),
    "trace": ("offline.trace", "trace", "List the calls of one pod at every extension point."),
    "why": ("live.why", "why", "Say in a few lines why a pod of a live cluster is pending."),
    "snapshot": ("live.snapshot", "snapshot", "Save a live cluster for the offline commands."),
    "record": ("live.record", "record", "Record what happens on a live cluster, for replay."),
    "replay": ("offline.replay", "replay", "Replay the decisions of a flight record."),
    "genpod": ("offline.genpod", "genpod", "Print the largest pod that a namespace's limits allow."),
    "bench": ("bench", "bench", "Run benchmark workloads, and compare results."),
    "completion": ("completion", "completion", "Print the completion script of a shell."),
    "verify": ("offline.verify", "verify", "Replay recorded decisions and compare the results."),
}

#: What a write to standard output fails with on a full disk. Other files are written by functions that name them.
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


class _LazyGroup(CommandGroup):
    """A command group that imports a command when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, attribute, _ = COMMANDS[cmd_name]
        command = getattr(importlib.import_module(f"{__name__}.{module}"), attribute)
        assert isinstance(command, click.Command)
        return with_common_options(command)

    def summaries(self, ctx: click.Context) -> list[tuple[str, str]]:
        return [(name, summary) for name, (_, _, summary) in COMMANDS.items()]


@click.group(
    cls=_LazyGroup,
    params=[version_option()],
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)
def commands() -> None:
    """A Kubernetes scheduler in Python."""


def main(arguments: list[str] | None = None) -> Any:
    """Run one command and exit the process with its status."""
    gc_tuning.raise_thresholds()  # before the imports, which allocate much that is never freed
    try:
        status = commands.main(args=arguments, prog_name="kubestow", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        sys.exit(0)
    except click.ClickException as error:
        click.echo(f"kubestow: {usage_error_text(error)}", err=True)
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except OSError as error:
        if error.errno not in _NO_SPACE or error.filename is not None:
            raise
        click.echo(f"kubestow: standard output: cannot be written: {error.strerror}", err=True)
        sys.exit(1)
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
