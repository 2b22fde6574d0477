"""The command line: parsing, wiring and printing.

Each command is in a module of ``commands``, or an entry point of another distribution, and is imported only when it is
called, so that ``kubestow --help`` is fast. An error of the :mod:`kubestow.errors` tree or of the usage ends a command
with one line on standard error, an invalid configuration with one line per error. docs/cli.md lists the exit codes.
"""

from __future__ import annotations

import errno
import importlib
import sys
from importlib.metadata import entry_points
from typing import Any, NamedTuple

import click

from kubestow import gc_tuning
from kubestow.cli.command_group import CommandGroup, usage_error_text, version_option, with_common_options
from kubestow.cli.ending import flush_logs
from kubestow.errors import ConfigurationError, InputError, KubestowError

__all__ = ["COMMANDS", "main", "root_command"]

#: Other distributions register their commands here, under the name of the command.
_ENTRY_POINT_GROUP = "kubestow.commands"
_LAB, _DEVCLUSTER = "kubestow-lab", "kubestow-devcluster"


_CONTEXT_SETTINGS: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 120}


class _Command(NamedTuple):
    """A command: the module of this package that has it under its name, and one line of help.

    ``module`` is None for commands of other distributions.
    """

    module: str | None
    summary: str
    distribution: str = "kubestow"


#: All commands by name.
COMMANDS: dict[str, _Command] = {
    "run": _Command("commands.run", "Schedule the pods of a cluster."),
    "up": _Command(None, "Run a development cluster: API server, controllers, nodes and scheduler.", _DEVCLUSTER),
    "demo": _Command(None, "Schedule a GPU workload on a simulated cluster.", _LAB),
    "apiserver": _Command(None, "Run the embedded API server with simulated nodes.", _DEVCLUSTER),
    "extend": _Command("commands.extend", "Serve plugins as a scheduler extender."),
    "node": _Command(None, "Stop and start simulated nodes.", _DEVCLUSTER),
    "config": _Command("commands.config", "Check, show and convert scheduler configurations."),
    "simulate": _Command(None, "Schedule a workload on a cluster read from files.", _LAB),
    "compare": _Command(None, "Compare two configurations or plugins on the same workload.", _LAB),
    "capacity": _Command(None, "Count how many more pods of a template fit.", _LAB),
    "what-if": _Command(None, "Ask what would happen if nodes were drained, lost or added, or quotas changed.", _LAB),
    "expander": _Command(None, "Serve cluster-autoscaler's gRPC expander, and simulations.", _LAB),
    "tune": _Command(None, "Search plugin weights and arguments that suit a workload.", _LAB),
    "experiment": _Command(None, "Compare policies on traces with several seeds and confidence intervals.", _LAB),
    "evaluate": _Command(None, "Evaluate a policy that a program wrote, in a confined process.", _LAB),
    "paper": _Command(None, "Measure the tables of papers again, beside the published numbers.", _LAB),
    "deschedule": _Command("commands.deschedule", "Evict pods by a descheduler policy, or try it offline."),
    "explain": _Command("commands.explain", "Explain why a pod is on its node or on none, and what would help."),
    "trace": _Command(None, "List the calls of one pod at every extension point.", _LAB),
    "why": _Command("commands.why", "Say why a pod is pending, or all pending pods by cause, and what would help."),
    "when": _Command(None, "Say when a job will start, why not yet, and what would make it start now.", _LAB),
    "mcp": _Command(None, "Answer an assistant's questions about a cluster by the Model Context Protocol.", _LAB),
    "shadow": _Command("commands.shadow", "Compare the decisions of the scheduler that runs with those made here."),
    "snapshot": _Command("commands.live", "Save a live cluster for the offline commands."),
    "record": _Command("commands.live", "Record what happens on a live cluster, for replay."),
    "replay": _Command("commands.replay", "Replay the decisions of a flight record."),
    "genpod": _Command(None, "Print the largest pod that a namespace's limits allow.", _LAB),
    "bench": _Command(None, "Run benchmark workloads, and compare results.", _LAB),
    "completion": _Command("command_group", "Print the completion script of a shell."),
    "vopr": _Command(None, "Search for faults under which schedulers and plugins break, and shrink them.", _LAB),
    "verify": _Command(None, "Replay recorded decisions and compare the results.", _LAB),
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
        module, _, distribution = COMMANDS[cmd_name]
        if module is not None:
            loaded = getattr(importlib.import_module(f"{__name__}.{module}"), cmd_name)
        else:
            found = entry_points(group=_ENTRY_POINT_GROUP, name=cmd_name)
            if not found:
                return _missing_command(cmd_name, distribution)
            loaded = found[cmd_name].load()
        assert isinstance(loaded, click.Command)
        return with_common_options(loaded)

    def summaries(self, ctx: click.Context) -> list[tuple[str, str]]:
        return [(name, command.summary) for name, command in COMMANDS.items()]


def _missing_command(name: str, distribution: str) -> click.Command:
    """Stands for a command whose distribution is not installed, whatever its arguments."""

    @click.command(name, context_settings={"ignore_unknown_options": True}, add_help_option=False)
    @click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
    def missing(arguments: tuple[str, ...]) -> None:
        raise InputError(name, f"not installed; install it with: pip install {distribution}")

    return missing


@click.group(
    cls=_LazyGroup,
    params=[version_option()],
    context_settings=_CONTEXT_SETTINGS,
)
def root_command() -> None:
    """A Kubernetes scheduler in Python."""


def main(arguments: list[str] | None = None, command: click.Command = root_command, program: str = "kubestow") -> Any:
    """Run one command and exit the process with its status.

    A ``command`` by itself is known to its users as the ``program``.
    """
    gc_tuning.raise_thresholds()  # before the imports, which allocate much that is never freed
    try:
        status = _run_command(arguments, command, program)
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
        from kubestow.cli.output import MAX_MESSAGE
        from kubestow.reports.text import printable

        for line in _error_lines(_first_cause(error)):
            shown = printable(line)
            cut = "" if len(shown) <= MAX_MESSAGE else " …"
            click.echo(f"kubestow: {shown[:MAX_MESSAGE]}{cut}", err=True)
        sys.exit(1)
    sys.exit(status if isinstance(status, int) else 0)


def _run_command(arguments: list[str] | None, command: click.Command, program: str) -> Any:
    """Run one command and write its log, before what is printed about its end."""
    try:
        return command.main(args=arguments, prog_name=program, standalone_mode=False, **_CONTEXT_SETTINGS)
    finally:
        flush_logs()


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
