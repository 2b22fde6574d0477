"""What all commands have in common: ``--version``, ``-v``, help, usage errors, completion, and options as one value."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem, get_completion_class

from kubestow.version import KUBERNETES_VERSION, VERSION

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])

_VERSION_TEXT = f"kubestow {VERSION} (Kubernetes {KUBERNETES_VERSION})"


class CommandGroup(click.Group):
    """A group whose listing shows the whole first sentence of each command's help."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        names = self.list_commands(ctx)
        if args[0] in names or args[0].startswith("-") or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        near = difflib.get_close_matches(args[0], names)
        raise click.UsageError(f"No such command '{args[0]}'.{_did_you_mean(near)}", ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(self.summaries(ctx))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The commands with their whole summaries, and the options."""
        commands = (item for item in self.summaries(ctx) if item[0].startswith(incomplete))
        options = click.Command.shell_complete(self, ctx, incomplete)
        return [*(CompletionItem(name, help=summary) for name, summary in commands), *options]

    def summaries(self, ctx: click.Context) -> list[tuple[str, str]]:
        """The names and summaries of the commands."""
        commands = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        return [(name, command.get_short_help_str(limit=1000)) for name, command in commands if command is not None]


def usage_error_text(error: click.ClickException) -> str:
    """The message of an error; if the usage is wrong, with the command that explains it."""
    message = " ".join(error.format_message().split())
    if isinstance(error, click.NoSuchOption):
        message = f"No such option '{error.option_name}'.{_did_you_mean(error.possibilities or ())}"
    if not isinstance(error, click.UsageError) or error.ctx is None:
        return message
    return f"{message}{'' if message.endswith(('.', '?')) else '.'} See '{error.ctx.command_path} --help'."


def _did_you_mean(near: Iterable[str]) -> str:
    names = " or ".join(f"'{name}'" for name in near)
    return f" Did you mean {names}?" if names else ""


def version_option() -> click.Option:
    """``--version``: print the version, and that of the Kubernetes release that kubestow reproduces."""

    def show(ctx: click.Context, option: click.Parameter, given: bool) -> None:
        if given and not ctx.resilient_parsing:
            click.echo(_VERSION_TEXT)
            ctx.exit()

    return click.Option(
        ["--version"],
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=show,
        help="Show the version and the Kubernetes version, and exit.",
    )


def with_common_options(command: click.Command) -> click.Command:
    """Add the common options that a command, or a command of a group, does not have yet."""
    for option in (_verbosity_option, version_option):
        added = option()
        if not isinstance(command, click.Group) and not _names(command) & {*added.opts}:
            command.params.append(added)
    if isinstance(command, click.Group):
        if "--version" not in _names(command):
            command.params.append(version_option())
        for nested in command.commands.values():
            with_common_options(nested)
    return command


def _names(command: click.Command) -> set[str]:
    return {name for parameter in command.params for name in parameter.opts}


def _verbosity(text: str) -> int:
    """An integer; ``-v=2`` means ``-v 2``, as in Kubernetes' commands."""
    digits = text.removeprefix("=")
    if not digits.isdigit():
        raise click.BadParameter(f"{digits!r} is not a valid verbosity, expected 0 or a larger integer")
    return int(digits)


def _verbosity_option() -> click.Option:
    def set_up(ctx: click.Context, option: click.Parameter, verbosity: int | None) -> None:
        if verbosity is not None and not ctx.resilient_parsing:
            from kubestow.observability import logs

            logs.set_up(verbosity=verbosity, json_format=False)

    return click.Option(
        ["-v", "--v", "common_verbosity"],
        type=_verbosity,
        metavar="INTEGER",
        expose_value=False,
        callback=set_up,
        help="Log verbosity: 0 for operators, 2 with the result of each pod, 4 with all details.",
    )


_VARIABLE = "_KUBESTOW_COMPLETE"


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    \b
    bash: source <(kubestow completion bash)                     # also in ~/.bashrc
    zsh:  source <(kubestow completion zsh)                      # also in ~/.zshrc, after compinit
    fish: kubestow completion fish > ~/.config/fish/completions/kubestow.fish
    """
    script = get_completion_class(shell)
    assert script is not None
    source = script(ctx.find_root().command, {}, "kubestow", _VARIABLE).source()
    # click's script for fish cuts descriptions at their first comma.
    click.echo(source.replace('string split ","', 'string split --max 1 ","'))


def grouped_options(
    name: str, group: type[Any], options: Sequence[Callable[[_Decorated], _Decorated]]
) -> Callable[[_Decorated], _Decorated]:
    """Add click options to a command, which gets their values as one ``group``, a dataclass, in its argument ``name``.

    The options have the names of the dataclass's fields.
    """

    def decorate(command: _Decorated) -> _Decorated:
        @functools.wraps(command)
        def wrapper(**arguments: Any) -> Any:
            values = {field.name: arguments.pop(field.name) for field in fields(group)}
            return command(**{name: group(**values)}, **arguments)

        decorated: Any = wrapper
        for option in reversed(options):
            decorated = option(decorated)
        return decorated  # type: ignore[no-any-return]

    return decorate
