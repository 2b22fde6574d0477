"""kubestow's commands as plugins of kubectl, and the completion of their arguments.

kubectl runs an executable ``kubectl-NAME`` in the PATH as ``kubectl NAME``, with underscores for the dashes of the
name, and ``kubectl_complete-NAME`` to complete arguments. The entry points of the distributions install both for some
commands. The name of the executable, maybe a link, says which command it is.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from kubestow.cli import main, root_command

_PLUGIN, _COMPLETION = "kubectl-", "kubectl_complete-"
#: The commands of plugins with other names: kubectl has an ``explain``, which no plugin can replace.
COMMAND_NAMES = {"explain-pod": "explain"}
#: What completion answers with after the last proposal: what the shell is to do, as the numbers of Cobra's directives.
_DEFAULT, _NO_FILES = 0, 4


def run() -> None:
    """The entry point of every plugin: run the command of the executable's name, and exit with its status."""
    name = _plugin_name(_PLUGIN)
    command = root_command.get_command(click.Context(root_command), COMMAND_NAMES.get(name, name))
    if command is None:
        sys.exit(f"kubestow: {sys.argv[0]}: no command has the name {name}, which follows from that of the executable")
    main(sys.argv[1:], command, f"kubectl {name}")


def complete() -> None:
    """The entry point of every completion: print proposals for the last argument, one a line, and a directive."""
    name = _plugin_name(_COMPLETION)
    *arguments, incomplete = sys.argv[1:] or [""]
    proposals, may_be_file = completions([COMMAND_NAMES.get(name, name), *arguments], incomplete)
    for value, summary in proposals:
        click.echo(f"{value}\t{summary}" if summary else value)
    click.echo(f":{_DEFAULT if may_be_file else _NO_FILES}")


def _plugin_name(prefix: str) -> str:
    return Path(sys.argv[0]).name.removeprefix(prefix).replace("_", "-")


def completions(arguments: Sequence[str], incomplete: str) -> tuple[list[tuple[str, str]], bool]:
    """The values for an incomplete argument, each with a summary, and whether it may also be the name of a file.

    The arguments before it begin with the command. They are completed as by the completion of a shell.
    """
    from click.shell_completion import ShellComplete

    found = ShellComplete(root_command, {}, "kubestow", "").get_completions(list(arguments), incomplete)
    values = [(str(item.value), item.help or "") for item in found if item.type == "plain"]
    return values, not values and any(item.type in ("file", "dir") for item in found)
