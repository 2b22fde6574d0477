"""``kubestow evaluate``: what a policy that a program wrote is worth."""

from __future__ import annotations

import click

from kubestow.cli.output import OUTPUTS, output_option, print_result
from kubestow.errors import InputError, InvalidQuantity


@click.command()
@click.argument("policy", metavar="FILE:NAME")
@click.option("--suite", default="openb-small", show_default=True, help="The problems: openb-small, openb-full.")
@click.option(
    "--timeout",
    default="60s",
    show_default=True,
    help="Wall clock of the policy's process, its start included, for all seeds together, such as 90s or 2m.",
)
@click.option("--memory", default="2Gi", show_default=True, help="Address space of the policy's process.")
@click.option("--held-out", is_flag=True, help="Use the seeds for publication, not those for search.")
@output_option(*OUTPUTS)
def evaluate(policy: str, suite: str, timeout: str, memory: str, held_out: bool, output: str) -> int:
    """Evaluate the function or plugin NAME in the Python file FILE.

    A function gets a pod and the nodes on which it fits, and returns a number for each node; the pod goes to the node
    with the highest. It runs in a process without network, with limits on CPU, memory and files. Whatever goes wrong in
    it is part of the result; then the exit status is 1.
    """
    from kubestow.api.formats.duration import Duration
    from kubestow.api.formats.quantity import units
    from kubestow_lab.evaluation.evaluation import Limits
    from kubestow_lab.evaluation.evaluation import evaluate as evaluated

    try:
        seconds = Duration.parse(timeout).seconds
    except ValueError as error:
        raise InputError("--timeout", str(error)) from None
    try:
        size = units(memory)
    except InvalidQuantity as error:
        raise InputError("--memory", str(error)) from None
    found = evaluated(policy, suite, limits=Limits(seconds, size), held_out=held_out)
    print_result(found.as_json, found, output)
    return int(not found.is_ok)
