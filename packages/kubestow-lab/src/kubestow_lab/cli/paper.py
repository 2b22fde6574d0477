"""``kubestow paper``: the tables of papers, measured again."""

from __future__ import annotations

import shutil
import tempfile
import textwrap
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kubestow.cli.output import OutputForms, emit, print_result, progress_bar

if TYPE_CHECKING:
    from kubestow_lab.papers.paper import Paper

#: The greatest width of the list, and the column in which the text of each paper begins.
_WIDTH, _TEXT = 120, 11


@click.command()
@click.argument("name", required=False)
@click.option("--list", "show_list", is_flag=True, help="List the papers.")
@click.option("--data", type=click.Path(path_type=Path), help="Folder of the published trace.")
@click.option("--workload", "workloads", multiple=True, help="Rows of this workload; can be repeated.")
@click.option("--seeds", type=click.IntRange(min=1), help="Seeds for each number; by default as many as in the paper.")
@click.option("-d", "--directory", type=click.Path(path_type=Path), help="Keep the results there, and go on with them.")
@click.option("--processes", type=click.IntRange(min=1), help="Processes; by default one for each core.")
@click.option(
    "-o",
    "--output",
    type=OutputForms("table", "json", "yaml", "markdown"),
    default="table",
    help="table, json, yaml or markdown, to a file with FORM=FILE.",
)
def paper(
    name: str | None,
    show_list: bool,
    data: Path | None,
    workloads: tuple[str, ...],
    seeds: int | None,
    directory: Path | None,
    processes: int | None,
    output: tuple[str, str],
) -> int:
    """Measure the table of the paper NAME again, beside the published numbers.

    The exit status is 1 if a number differs by more than the paper's tolerance.
    """
    from kubestow.reports.model import Table
    from kubestow.reports.text import as_markdown
    from kubestow_lab.papers.paper import PAPERS, find_paper, reproduce

    if show_list == (name is not None):
        raise click.UsageError("expected either the name of a paper or --list")
    form, target = output
    if name is None:
        if form == "markdown":
            table = Table("paper", "title", "workloads", "data", right=())
            for each in PAPERS.values():
                table.add(each.name, each.title, ", ".join(each.workloads), each.download)
            emit(as_markdown([table]), target)
            return 0
        listed = [
            {"name": each.name, "title": each.title, "workloads": list(each.workloads)} for each in PAPERS.values()
        ]
        width = min(_WIDTH, shutil.get_terminal_size((_WIDTH, 0)).columns)
        text = "\n".join(_lines(PAPERS.values(), width))
        print_result(lambda: {"kind": "PaperList", "papers": listed}, text, form, target)
        return 0
    found = find_paper(name)
    kept = nullcontext(str(directory)) if directory else tempfile.TemporaryDirectory(prefix="kubestow-paper-")
    with kept as folder, progress_bar("measuring", "runs") as show:
        result = reproduce(
            found,
            data or Path(found.data),
            Path(folder),
            workloads=workloads,
            seeds=found.seed_range(seeds),
            processes=processes,
            progress=show,
        )
    if form == "markdown":
        emit(as_markdown(result.blocks()), target)
    else:
        print_result(result.as_json, result, form, target)
    return int(not result.is_within)


def _lines(papers: Iterable[Paper], width: int) -> Iterator[str]:
    """What people see of the list, in lines of at most ``width`` characters but for long words."""
    for each in papers:
        texts = each.title, f"Workloads: {', '.join(each.workloads)}", f"Data: {each.download}"
        lines = [
            line
            for text in texts
            for line in textwrap.wrap(text, max(width - _TEXT, 1), break_long_words=False, break_on_hyphens=False)
        ]
        yield f"{each.name:{_TEXT}}{lines[0]}"
        yield from (f"{'':{_TEXT}}{line}" for line in lines[1:])
