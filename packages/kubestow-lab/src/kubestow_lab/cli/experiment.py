"""``kubestow experiment``: policies on traces with several seeds, from one file into one folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kubestow.cli.command_group import CommandGroup
from kubestow.cli.output import OutputForms, emit, print_result, progress_bar, report_written
from kubestow.reports.model import counted

if TYPE_CHECKING:
    from kubestow_lab.experiments.runs import RunRecord


@click.group(cls=CommandGroup)
def experiment() -> None:
    """Compare policies on clusters and traces, with several seeds and confidence intervals."""


@experiment.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "-d", "--directory", type=click.Path(path_type=Path), help="Folder of the results; by default FILE's name."
)
@click.option("--resume", is_flag=True, help="Go on with an experiment: run what the folder does not have yet.")
@click.option("--processes", type=click.IntRange(min=1), help="Processes; by default one for each core.")
def run(file: Path, directory: Path | None, resume: bool, processes: int | None) -> int:
    """Run the experiment that FILE describes.

    Each run is a simulation of one policy on one trace with one seed. A run's folder appears when the run is complete,
    so that --resume repeats at most what was under way. The exit status is 1 if a run failed.
    """
    from kubestow_lab.experiments.experiment_file import Experiment
    from kubestow_lab.experiments.runs import run_experiment

    found = Experiment.load(file)
    folder = directory or file.with_suffix("")
    with progress_bar("running", "runs") as show:

        def ended(record: RunRecord, done: int, total: int) -> None:
            if record.error:
                click.echo(f"kubestow: run {record.run.name}: {record.error}", err=True)
            show(done, total)

        records = run_experiment(found, folder, resume=resume, processes=processes, ended=ended)
    failed = sum(1 for record in records if record.error)
    for remark in dict.fromkeys(remark for record in records for remark in record.remarks):
        click.echo(f"remark: {remark}", err=True)
    click.echo(f"{counted(len(records), 'run')} in {folder}" + (f", {failed} of which failed" if failed else ""))
    return int(failed > 0)


@experiment.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "-o",
    "--output",
    "outputs",
    multiple=True,
    type=OutputForms("table", "json", "yaml", "markdown", files=("html", "pdf", "svg")),
    default=["table"],
    help="table, json, yaml or markdown, to a file with FORM=FILE; html=FILE; plots as pdf=FILE or svg=FILE."
    " Can be repeated.",
)
def report(folder: Path, outputs: tuple[tuple[str, str], ...]) -> int:
    """Report what the experiment in FOLDER found, also while it runs.

    For each metric and policy: the mean over the seeds with its confidence interval, and the difference to the first
    policy, seed by seed.
    """
    from kubestow.reports.text import as_markdown
    from kubestow_lab.experiments.plots import write_plots
    from kubestow_lab.experiments.report import ExperimentReport

    found = ExperimentReport.read(folder)
    for form, target in outputs:
        match form:
            case "html":
                emit(found.page(), target)
            case "markdown":
                emit(as_markdown(found.blocks()), target)
            case "pdf" | "svg":
                path = Path(target)
                if path.suffix != f".{form}":
                    raise click.UsageError(f"expected a file that ends in .{form}, got {target}")
                write_plots(found, path)
                report_written([path])
            case _:
                print_result(found.as_json, found, form, target)
    return 0
