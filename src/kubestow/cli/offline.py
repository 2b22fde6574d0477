"""What the offline commands share: options, reading of input, the exit status of bad input, and progress.

Results go to standard output, progress and remarks to standard error. The exit status is 0 when the work is done, 1 for
bad input and for a threshold that was crossed, 2 for wrong usage.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec

import click

from kubestow.errors import ConfigurationError, InputError

if TYPE_CHECKING:
    from kubestow.framework.interface import Plugin
    from kubestow.simulation.input.arrivals import Arrivals
    from kubestow.simulation.input.cluster import Cluster, InputSummary
    from kubestow.simulation.simulation import Progress

__all__ = [
    "DropIn",
    "bad_input_is_status_1",
    "plugin_classes",
    "print_input",
    "progress_bar",
    "read_input",
    "scheduler_options",
    "simulation_options",
    "workload_options",
]

P = ParamSpec("P")

#: At most this many problems of the input are printed; all of them are counted.
_PROBLEMS_SHOWN = 20


def workload_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say which cluster and workload are simulated."""
    for option in (
        click.option("--strict", is_flag=True, help="Refuse input with any problem."),
        click.option("--node-list", default="gpu_node", show_default=True, help="Node list of the trace."),
        click.option("--pod-list", default="default", show_default=True, help="Pod list of the trace."),
        click.option("--trace", type=click.Path(path_type=Path), help="Folder with Alibaba's openb trace."),
        click.option("--workload", "workloads", multiple=True, help="Manifests of the pods to schedule."),
        click.option("--cluster", "clusters", multiple=True, help="Dump or folder with the cluster; - is stdin."),
    ):
        command = option(command)
    return command


def simulation_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say how a simulation is run."""
    for option in (
        click.option("--until", type=click.FloatRange(min=0), help="End of the simulation, in virtual seconds."),
        click.option("--departures/--no-departures", default=True, show_default=True, help="Whether pods end."),
        click.option(
            "--ties",
            type=click.Choice(["random", "name"]),
            default="random",
            show_default=True,
            help="Among nodes with equal scores, choose at random or the first by name.",
        ),
        click.option("--seed", default=0, show_default=True, help="Seed of all random choices."),
    ):
        command = option(command)
    return command


def scheduler_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that configure the scheduler."""
    for option in (
        click.option("--feature-gates", "feature_gates", default="", help="Feature gates: Name=true,Other=false."),
        click.option("--plugin", "plugins", multiple=True, help="A plugin, as module:Class or file.py:Class."),
        click.option("--config", type=click.Path(path_type=Path, dir_okay=False), help="KubeSchedulerConfiguration."),
    ):
        command = option(command)
    return command


class DropIn:
    """The context object of a console script that follows the conventions of the program that it replaces."""


def bad_input_is_status_1(command: Callable[P, int]) -> Callable[P, int]:
    """Print an error of the input on standard error and return 1; a drop-in script handles its errors itself."""

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> int:
        try:
            return command(*args, **kwargs)
        except ConfigurationError:
            raise  # printed with one line per problem; its status is 1
        except InputError as error:
            if isinstance(click.get_current_context().obj, DropIn):
                raise
            click.echo(f"kubestow: {error}", err=True)
            return 1

    return wrapped


def plugin_classes(references: tuple[str, ...]) -> list[type[Plugin]]:
    """The plugin classes named ``module:Class`` or ``file.py:Class``. Raises InputError."""
    from kubestow.plugins.registry import referenced_plugins

    return referenced_plugins(references)


def read_input(
    clusters: tuple[str, ...], workloads: tuple[str, ...], trace: Path | None, lists: tuple[str, str], strict: bool
) -> tuple[Cluster, Arrivals]:
    """The cluster and the workload that the options name; ``lists`` are those of the trace. Raises InputError."""
    from kubestow.simulation.input.arrivals import Arrivals
    from kubestow.simulation.input.cluster import Cluster

    if (trace is None) == (not clusters) or (trace is not None and workloads):
        raise click.UsageError("expected either --cluster, with or without --workload, or --trace")
    if trace is not None:
        from kubestow.simulation.input.trace import load_trace

        cluster, arrivals = load_trace(trace, pods=lists[0], nodes=lists[1])
    else:
        cluster = Cluster.load(*clusters, strict=strict)
        arrivals = Arrivals.load(*workloads, cluster=cluster, strict=strict) if workloads else Arrivals()
    print_input("cluster", cluster.summary)
    if workloads or trace:
        print_input("workload", arrivals.summary)
    return cluster, arrivals


def print_input(title: str, summary: InputSummary) -> None:
    """Print what was read, and the problems, on standard error."""
    for line in summary.lines():
        click.echo(f"{title}: {line}", err=True)
    for problem in summary.problems[:_PROBLEMS_SHOWN]:
        click.echo(f"  {problem}", err=True)
    if len(summary.problems) > _PROBLEMS_SHOWN:
        click.echo(f"  … {len(summary.problems) - _PROBLEMS_SHOWN} more problems", err=True)


@contextmanager
def progress_bar(title: str) -> Iterator[Callable[[Progress], None]]:
    """A progress bar on standard error, if that is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as ProgressBar

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda progress: None
        return
    columns = (TextColumn(title), BarColumn(), MofNCompleteColumn(), TextColumn("pods"), TimeElapsedColumn())
    with ProgressBar(*columns, console=console, transient=True) as bar:
        task = bar.add_task(title)
        yield lambda progress: bar.update(task, completed=progress.pods, total=progress.total)
