"""``kubestow completion``: completion of commands and options in shells."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

__all__ = ["completion"]

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
