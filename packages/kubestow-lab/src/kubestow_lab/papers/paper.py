"""A table of a paper: published and measured numbers row by row, and the papers by name.

Where a paper gives a number, its row has a difference; where it only says which of two policies is better, the row has
that trend, and the difference is the one between the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubestow.errors import InputError
from kubestow.reports.model import Block, Paragraph, Span, Table, counted
from kubestow.reports.text import Displayed
from kubestow_lab.metrics.intervals import Estimate
from kubestow_lab.papers import cp_sat, fgd, firmament, gavel, kant, power_fgd, tiresias
from kubestow_lab.papers.openb_experiments import DATA, DOWNLOAD
from kubestow_lab.papers.published import Published, Tolerance, Trend


@dataclass(frozen=True, slots=True)
class Paper:
    """A paper: where its numbers are from, what is measured, and in which unit.

    ``measure`` takes the folder of the data, the workloads, the seeds, the folder of the results, the number of
    processes, and what is called with the runs that have ended and their number; it returns the estimate of each
    (workload, policy). ``tolerance`` is the greatest difference to a published number that needs no explanation, None
    where the paper's inputs are not at hand and a difference says nothing. ``data`` is empty for a paper without any.
    What is measured and not published is what trends are relative to. ``seeds`` are the first seed, and how many are
    used by default.
    """

    name: str
    title: str
    source: str
    quantity: str
    data: str
    download: str
    tolerance: Tolerance | None
    published: Callable[[], Published]
    workloads: tuple[str, ...]
    default_workloads: tuple[str, ...]
    measure: Callable[..., dict[tuple[str, str], Estimate]]
    notes: tuple[str, ...] = ()
    seeds: tuple[int, int] = (42, 10)

    def seed_range(self, count: int | None = None) -> range:
        """The seeds of the paper's numbers: ``count`` of them, or as many as are used by default."""
        first, default = self.seeds
        return range(first, first + (count or default))


PAPERS = {
    "fgd": Paper(
        "fgd",
        "Weng et al., Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent,"
        " USENIX ATC 2023",
        "experiments/analysis/expected_results of github.com/hkust-adsl/kubernetes-scheduler-simulator, 8f3d641",
        "GPUs allocated when 130 % of them have been requested, in percent",
        DATA,
        DOWNLOAD,
        Tolerance(0.3),
        fgd.published,
        fgd.WORKLOADS,
        ("default", "cpu250", "gpushare100", "gpuspec33"),
        fgd.measure,
        (
            "The authors' random generator is another one, so the orders of pods and nodes are not theirs.",
            "Nodes get random numbers before their names, as in the authors' program: FGD's scores have many ties, and"
            " these go to the first name. With the nodes in the order of the list, cpu250 is 1.6 points lower.",
        ),
    ),
    "cp-sat": Paper(
        "cp-sat",
        "Christensen et al., Priority Matters: Optimising Kubernetes Clusters Usage with Constraint-Based Pod Packing,"
        " arXiv 2511.08373",
        "the abstract, which says that each share is over so much",
        "scenarios by what CP-SAT finds where the default scheduler leaves pods pending, in percent",
        "",
        "nothing to download",
        None,
        cp_sat.published,
        tuple(cp_sat.WINDOWS),
        ("1 s",),
        cp_sat.measure,
        (
            "The paper's instances are not at hand: these are 48 a seed, of 4 and 8 nodes with 4 and 8 pods each, with"
            " 1, 2 and 4 priorities, whose requests are 90 to 105 % of the cluster.",
            "Windows are the solver's deterministic seconds; a search ends at the same point on every machine.",
        ),
    ),
    "power-fgd": Paper(
        "power-fgd",
        "Lettich et al., Power- and Fragmentation-aware Online Scheduling for GPU Datacenters, CCGrid 2025",
        "read from the figures on pages 16 and 24 of the authors' slides, to 0.2 points: CCGrid_2025 of"
        " github.com/Fr4nz83/PWR-plugin-kubernetes, 3bfd53f",
        "power saved compared with FGD, in percent",
        DATA,
        DOWNLOAD,
        Tolerance(1.0),
        power_fgd.published,
        power_fgd.WORKLOADS,
        ("default",),
        power_fgd.measure,
        (
            "Power by the authors' model: a CPU package or GPU draws its maximum as soon as a part of it is requested.",
            "The authors' random generator is another one, so the orders of pods and nodes are not theirs.",
        ),
    ),
    "kant": Paper(
        "kant",
        "Zeng et al., Kant: An Efficient Unified Scheduling System for Large-Scale AI Clusters, arXiv 2510.01256",
        "the abstract, which says what improves and not by how much",
        "allocation (GAR, SOR), partly allocated nodes (GFR), waits by size (JWTD), groups of nodes of a job (JTTED)",
        "",
        "nothing to download",
        None,
        kant.published,
        kant.WORKLOADS,
        kant.WORKLOADS,
        kant.measure,
        (
            "The paper's jobs are not at hand: these are 600 a seed of 1 to 64 GPUs, log-normal run times, on 64 nodes"
            " of 8 GPUs in 8 groups, requesting 80 % (placement) and 110 % (queueing) of the GPU time.",
            "Run times are known to the queue, which the backfill plans with. JTTED is what placement decides of it.",
        ),
        (42, 3),
    ),
    "gavel": Paper(
        "gavel",
        "Narayanan et al., Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning Workloads, OSDI 2020",
        "the outputs of the authors' notebooks, scheduler/notebooks/figures/evaluation of"
        " github.com/stanford-futuredata/gavel, c4fa400",
        "mean completion time of the jobs from 4,000 to 5,000, or makespan of static traces, in hours",
        gavel.DATA,
        gavel.DOWNLOAD,
        Tolerance(10.0, "% of the number", relative=True),
        gavel.published,
        gavel.WORKLOADS,
        ("single 4.4",),
        gavel.measure,
        (
            "Jobs on one GPU are the authors' own. Those of multiple and static traces are not, since the published"
            " ones have other run times than their generator draws today.",
            "A program often has many best solutions, of which the authors' interior-point solver finds a middle one.",
        ),
        (0, 1),
    ),
    "tiresias": Paper(
        "tiresias",
        "Gu et al., Tiresias: A GPU Cluster Manager for Distributed Deep Learning, NSDI 2019",
        "the abstract: faster than a resource manager based on YARN, and comparable to perfect knowledge",
        "completion times of jobs",
        "",
        "nothing to download",
        None,
        tiresias.published,
        tiresias.WORKLOADS,
        tiresias.WORKLOADS,
        tiresias.measure,
        (
            "The paper's trace is not at hand: these are 480 jobs a seed by the distribution of Philly's jobs that"
            " Gavel's authors published, on 60 GPUs as in the paper's testbed.",
            "Nodes are not simulated, and preemption costs nothing.",
        ),
    ),
    "firmament": Paper(
        "firmament",
        "Gog et al., Firmament: Fast, Centralized Cluster Scheduling at Scale, OSDI 2016",
        "the abstract: better placements than four schedulers; its evaluation has Kubernetes' as one of them",
        "quality of placements by the measure that a policy is for",
        "",
        "nothing to download",
        None,
        firmament.published,
        firmament.WORKLOADS,
        firmament.WORKLOADS,
        firmament.measure,
        ("The paper measures response times on a cluster. Here are pods and data sets drawn for placement alone.",),
    ),
}
"""The papers by name."""


@dataclass(frozen=True, slots=True)
class Row:
    """What a paper says and what was measured; ``reference`` is the estimate that a trend is relative to."""

    workload: str
    policy: str
    published: float | Trend | None
    measured: Estimate
    tolerance: Tolerance | None
    reference: Estimate | None = None

    @property
    def difference(self) -> float | None:
        """The measured mean minus the published number, or minus that of the policy that a trend names."""
        if self.reference is not None:
            return self.measured.mean - self.reference.mean
        return self.measured.mean - self.published if isinstance(self.published, float) else None

    @property
    def is_within(self) -> bool:
        """Whether the difference is at most the tolerance, if there is one, or has the sign of the trend."""
        if self.difference is None:
            return True
        if isinstance(self.published, Trend):
            return self.published.is_followed_by(self.difference)
        return self.tolerance is None or self.tolerance.allows(self.difference, self.published or 0.0)

    def verdict(self) -> str | Span:
        """``ok``, what is wrong, or why there is no verdict."""
        if self.published is None:
            return ""
        if isinstance(self.published, Trend):
            return Span("ok", "passed") if self.is_within else Span("other trend", "failed")
        if self.tolerance is None:
            return "other inputs"
        return Span("ok", "passed") if self.is_within else Span(f"more than {self.tolerance}", "failed")


@dataclass(frozen=True, slots=True, repr=False)
class PaperTable(Displayed):
    """The table of a paper."""

    paper: Paper
    rows: tuple[Row, ...]
    seeds: tuple[int, ...]

    @property
    def is_within(self) -> bool:
        """Whether all differences are at most the tolerance."""
        return all(row.is_within for row in self.rows)

    def as_json(self) -> dict[str, Any]:
        """The table as data for JSON."""
        paper = self.paper
        return {
            "kind": "PaperTable",
            "paper": paper.name,
            "title": paper.title,
            "source": paper.source,
            "quantity": paper.quantity,
            "tolerance": None if paper.tolerance is None else str(paper.tolerance),
            "seeds": list(self.seeds),
            "notes": list(paper.notes),
            "rows": [
                {
                    "workload": row.workload,
                    "policy": row.policy,
                    "published": str(row.published) if isinstance(row.published, Trend) else row.published,
                    "measured": row.measured.as_json(),
                    "difference": row.difference,
                    "withinTolerance": row.is_within,
                }
                for row in self.rows
            ],
        }

    def blocks(self) -> Iterator[Block]:
        """The paper, its rows, and what deviates."""
        paper = self.paper
        yield Paragraph(f"{paper.title}\n{paper.quantity}; {counted(len(self.seeds), 'seed')}")
        numbers = ("published", "measured", "95% interval", "difference")
        table = Table("workload", "policy", *numbers, "", right=numbers)
        for row in self.rows:
            found = row.measured
            interval = f"{found.low:.2f} to {found.high:.2f}" if found.count > 1 else "-"
            difference = row.difference
            values = (
                f"{row.published:.2f}" if isinstance(row.published, float) else str(row.published or ""),
                f"{found.mean:.2f}",
                interval,
                "" if difference is None else f"{difference:+.2f}",
            )
            table.add(row.workload, row.policy, *values, row.verdict())
        yield table
        yield Paragraph(f"published: {paper.source}", note=True)
        for note in paper.notes:
            yield Paragraph(note, note=True)


def find_paper(name: str) -> Paper:
    """The paper with a name. Raises InputError."""
    if name not in PAPERS:
        raise InputError("paper", f"no paper {name!r}, expected one of {', '.join(PAPERS)}")
    return PAPERS[name]


def reproduce(
    paper: Paper,
    data: Path,
    folder: Path,
    *,
    workloads: Sequence[str] = (),
    seeds: Sequence[int] | None = None,
    processes: int | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> PaperTable:
    """Measure the rows of some workloads, and compare them with the published numbers.

    ``data`` is the folder of the trace, ``folder`` gets the results; what it has already is not run again. Raises
    InputError for an unknown workload, and for data that is missing.
    """
    chosen, seeds = tuple(workloads) or paper.default_workloads, paper.seed_range() if seeds is None else seeds
    for workload in chosen:
        if workload not in paper.workloads:
            raise InputError("workload", f"no workload {workload!r}, expected one of {', '.join(paper.workloads)}")
    if paper.data and not data.is_dir():
        raise InputError(str(data), f"no such directory, expected the data of the paper: {paper.download}")
    published = paper.published()
    measured = paper.measure(data, chosen, tuple(seeds), folder, processes, progress)
    rows = []
    for (workload, policy), found in measured.items():
        claim = published.get((workload, policy))
        reference = measured[workload, claim.policy] if isinstance(claim, Trend) else None
        rows.append(Row(workload, policy, claim, found, paper.tolerance, reference))
    return PaperTable(paper, tuple(rows), tuple(seeds))
