"""The history of performance on main: what each recorded commit costs beside the one before.

    python -m tools.performance.history record [REVISION ...] [--rounds 3]
    python -m tools.performance.history page

``record`` measures commits of main, HEAD by default, each in rounds in turn with its base: the commit recorded last
before it. It appends them to ``benchmarks/history.jsonl`` and writes the page. What counts is the ratio within a round,
and of the rounds the median, since seconds mean little on a machine whose speed changes from one hour to the next. The
first commit of all has no base. ``page`` writes docs/performance-history.md and its picture from the records.
"""

from __future__ import annotations

import argparse
import signal
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import msgspec
from tools.performance.checkouts import ROOT, git, worktree
from tools.performance.measures import UNITS, Costs, measure, median_ratios

RECORDS = ROOT / "benchmarks" / "history.jsonl"
PAGE = ROOT / "docs" / "performance-history.md"
_PICTURE = ROOT / "docs" / "pictures" / "performance-history.svg"
#: A ratio beyond it is marked on the page; what is within it is noise on a machine with other work.
_NOTABLE = 0.05

_PREFACE = """# Performance by commit

What commits of main cost beside the recorded commit before them: 1.00 is the same, 0.90 a tenth less. Both are measured
in turn on one machine with the same workloads, several rounds each, and the median of the ratios counts. A change of
more than 5 % is bold; a few per cent are noise. The levels of the picture are the products of the ratios, relative to
the first commit.

| Measure | What it is | {oldest} | {newest} |
|---|---|---|---|
{costs}

The costs in the last two columns are of the first and the newest commit, each on the machine that measured it: they say
how large a measure is, and the ratios how it has changed.

![The levels since the first recorded commit](pictures/performance-history.svg)

"""
_EPILOGUE = """
`python -m tools.performance.history record` measures HEAD beside the commit recorded last, appends it to
`benchmarks/history.jsonl`, and writes this page. `make benchmark-guard` compares a change with its merge base before
it is proposed.
"""
_MEANINGS: Mapping[str, str] = {
    **dict.fromkeys(UNITS, "scheduler_perf's workload on the engine alone, CPU time per pod"),
    "end to end": "SchedulingBasic/500Nodes on the embedded API server, CPU time of the scheduler per pod",
    "simulation": "`kubestow simulate` of 8,000 pods of ten Deployments on 2,000 nodes, CPU time in all",
    "start": "`kubestow config check`, CPU time in all",
    "memory": "the same simulation, resident memory at its peak",
}


class Record(msgspec.Struct, frozen=True):
    """One commit: when it was made, the costs (see :data:`UNITS`), and their ratios to those of its base.

    ``base`` is "" and there are no ratios for the first commit of a history.
    """

    commit: str
    date: str
    subject: str
    base: str
    rounds: int
    costs: Mapping[str, float]
    ratios: Mapping[str, float]


def read_records(path: Path = RECORDS) -> list[Record]:
    """The recorded commits, the oldest first; none if nothing is recorded."""
    return [msgspec.json.decode(line, type=Record) for line in path.read_bytes().splitlines()] if path.exists() else []


def record_commits(revisions: Sequence[str], last: Record | None, rounds: int) -> list[Record]:
    """Measure commits in the order of their descent, each beside the one before, the first beside ``last``.

    Every round measures each commit once, so that the two of a pair are at most a few minutes apart. Exits with a
    message if one of them does not descend from the one before.
    """
    commits = [git("rev-parse", "--verify", f"{revision}^{{commit}}") for revision in revisions]
    chain = commits if last is None else [git("rev-parse", last.commit), *commits]
    for before, after in pairwise(chain):
        if before == after or git("merge-base", before, after) != before:
            sys.exit(f"{after[:10]} does not descend from {before[:10]}: a history follows main")
    measured: list[list[Costs]] = []
    with ExitStack() as stack:
        checkouts = [stack.enter_context(worktree(commit)) for commit in chain]
        for number in range(rounds):
            print(f"round {number + 1} of {rounds}", file=sys.stderr)  # noqa: T201
            measured.append([measure(checkout) for checkout in checkouts])
    return [
        _record(commit, chain[place - 1] if place else "", measured, place)
        for place, commit in enumerate(chain)
        if commit in commits
    ]


def _record(commit: str, base: str, measured: Sequence[Sequence[Costs]], place: int) -> Record:
    """The record of the commit at a place of the chain that was ``measured``, by round and place."""
    date, subject = git("show", "--no-patch", "--format=%cs%n%s", commit).split("\n", 1)
    costs = {name: statistics.median(each[place][name] for each in measured) for name in UNITS}
    ratios = median_ratios([(each[place - 1], each[place]) for each in measured]) if base else {}
    rounded = {name: round(ratio, 4) for name, ratio in ratios.items()}
    return Record(commit[:10], date, subject, base[:10], len(measured), costs, rounded)


def levels(records: Sequence[Record]) -> list[dict[str, float]]:
    """The cost of each measure at each commit, as a multiple of that of the first commit."""
    found = [dict.fromkeys(UNITS, 1.0)]
    for each in records[1:]:
        found.append({name: level * each.ratios.get(name, 1.0) for name, level in found[-1].items()})
    return found[: len(records)]


def page(records: Sequence[Record]) -> str:
    """The text of the page, the newest commit first."""
    first, newest = records[0], records[-1]
    costs = "\n".join(
        f"| {name} | {_MEANINGS[name]} | {_cost(name, first)} | {_cost(name, newest)} |" for name in UNITS
    )
    preface = _PREFACE.format(oldest=first.date, newest=newest.date, costs=costs)
    return preface + "\n".join(_table(records)) + "\n" + _EPILOGUE


def _table(records: Sequence[Record]) -> Iterator[str]:
    names = [name.partition("/")[0] for name in UNITS]
    yield f"| Date | Commit | {' | '.join(names)} |"
    yield f"|---|---|{'---|' * len(names)}"
    for each in reversed(records[1:]):
        ratios = (_ratio(each.ratios.get(name)) for name in UNITS)
        yield f"| {each.date} | `{each.commit}` {each.subject.replace('|', '/')} | {' | '.join(ratios)} |"
    yield f"| {records[0].date} | `{records[0].commit}` {records[0].subject.replace('|', '/')} |{' – |' * len(names)}"


def _ratio(ratio: float | None) -> str:
    if ratio is None:
        return "–"
    return f"**{ratio:.2f}**" if abs(ratio - 1) > _NOTABLE else f"{ratio:.2f}"


def _cost(measure: str, record: Record) -> str:
    cost, unit = record.costs[measure], UNITS[measure]
    if unit == "bytes":
        return f"{cost / 1e6:.0f} MB"
    return f"{cost * 1e6:.0f} µs" if unit.endswith("per pod") else f"{cost:.2f} s"


def _draw(records: Sequence[Record], path: Path) -> None:
    """The level of each measure at each commit, as SVG."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    axes = figure.subplots()
    found = levels(records)
    for name in UNITS:
        axes.plot(range(len(records)), [each[name] for each in found], marker="o", markersize=3, label=name)
    axes.set_xticks(
        range(len(records)), [f"{each.date[5:]}\n{each.commit[:7]}" for each in records], fontsize="x-small"
    )
    axes.set_ylim(bottom=0)
    axes.set(title="cost, relative to the first commit")
    axes.legend(fontsize="x-small", loc="center left", bbox_to_anchor=(1, 0.5))
    with mpl.rc_context({"svg.hashsalt": "performance-history"}):  # the same records, the same file
        figure.savefig(path, metadata={"Date": None})


def write_page(records: Sequence[Record]) -> None:
    """Write the page and its picture."""
    PAGE.write_text(page(records))
    _draw(records, _PICTURE)


def main() -> None:
    """Record commits, or write the page."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("action", choices=("record", "page"))
    arguments.add_argument("revisions", nargs="*", default=["HEAD"], metavar="REVISION")
    arguments.add_argument("--rounds", type=int, default=3)
    options = arguments.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the worktrees are removed
    records = read_records()
    if options.action == "record":
        recorded = record_commits(options.revisions, records[-1] if records else None, options.rounds)
        with RECORDS.open("ab") as file:
            file.writelines(msgspec.json.encode(each) + b"\n" for each in recorded)
        records += recorded
    if not records:
        sys.exit(f"{RECORDS.name}: no commit is recorded: record one first")
    write_page(records)


if __name__ == "__main__":
    main()
