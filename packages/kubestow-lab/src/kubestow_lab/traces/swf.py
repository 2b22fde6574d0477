"""The Standard Workload Format of the Parallel Workloads Archive: one job per line, 18 fields, comments after ``;``.

https://www.cs.huji.ac.il/labs/parallel/workload/swf.html has the format. A job on p processors becomes as many pods as
nodes are needed for p cores, with equal shares; they start together in the log.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kubestow.errors import InputError
from kubestow_lab.traces.tables import Row, read_text
from kubestow_lab.traces.trace import (
    Assumptions,
    ClusterTrace,
    PodTemplate,
    Task,
    assumed_nodes,
    assumption,
)
from kubestow_lab.workloads.gpu import NodeShape, PodShape

_FIELDS = (
    "job number",
    "submit time",
    "wait time",
    "run time",
    "allocated processors",
    "average CPU time used",
    "used memory",
    "requested processors",
    "requested time",
    "requested memory",
    "status",
    "user",
    "group",
    "executable",
    "queue",
    "partition",
    "preceding job",
    "think time",
)
_HEADER = re.compile(r";\s*(?P<name>MaxNodes|MaxProcs|Computer)\s*:\s*(?P<value>.*\S)")
_FIRST_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class SwfAssumptions(Assumptions):
    """What the format does not say."""

    nodes: int = assumption(0, "number of nodes; 0 is the header's MaxNodes, or else what the log needs at its peak")
    cpu_per_node: int = assumption(0, "cores of a node; 0 is the header's MaxProcs / MaxNodes, or else 1")
    memory_per_node: float = assumption(1024.0, "memory of a node, GiB")
    headroom: float = assumption(1.0, "nodes per node that the peak needs, without MaxNodes")


def read(path: Path, assumed: SwfAssumptions) -> ClusterTrace:
    """Read a log. Raises InputError with file, line and field."""
    header: dict[str, str] = {}
    jobs = list(_jobs(path, header))
    if not jobs:
        raise InputError(str(path), "has no jobs, expected lines of 18 numbers")
    nodes, processors = _number(header, "MaxNodes"), _number(header, "MaxProcs")
    cores = assumed.cpu_per_node or (max(1, processors // nodes) if nodes and processors else 1)
    left_out: Counter[str] = Counter()
    tasks = []
    for job in jobs:
        wanted = job.number("requested processors", least=-1)
        width = int(wanted) if wanted > 0 else int(job.number("allocated processors", least=-1))
        run_time = job.number("run time", least=-1)
        if width <= 0 or run_time < 0:
            left_out["job without processors" if width <= 0 else "job without a run time"] += 1
            continue
        tasks.append(_task(job, width, run_time, cores))
    shape = NodeShape(1000 * cores, int(1024 * assumed.memory_per_node), 0, "")
    machines = assumed_nodes(tasks, shape, count=assumed.nodes or nodes, headroom=assumed.headroom)
    computer = header.get("Computer", path.name)
    attribution = f"Parallel Workloads Archive (SWF): {computer}"
    return ClusterTrace(attribution, machines, tasks, left_out)


def _task(job: Row, width: int, run_time: float, cores: int) -> Task:
    pods = math.ceil(width / cores)
    # Processors that do not divide evenly are rounded up in each pod, by less than a thousandth of a core.
    cpu_milli = math.ceil(1000 * width / pods)
    kibibytes = job.number("requested memory", default=-1, least=-1)
    memory = math.ceil(kibibytes * width / pods / 1024) if kibibytes > 0 else 0
    template = PodTemplate(PodShape(cpu_milli, memory, 0, 0, "Burstable"))
    queue = job.text("queue") if job.number("queue", default=-1, least=-1) >= 0 else ""
    created = job.number("submit time")
    requested = job.number("requested time", default=-1, least=-1)
    return Task(
        f"job-{job.text('job number')}",
        template,
        created,
        run_time,
        pods,
        queue,
        is_gang=pods > 1,
        requested_time=requested if requested > 0 else None,
    )


def _jobs(path: Path, header: dict[str, str]) -> Iterator[Row]:
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        if line.lstrip().startswith(";"):
            if match := _HEADER.match(line.lstrip()):
                header.setdefault(match["name"], match["value"])
            continue
        cells = line.split()
        if not cells:
            continue
        if len(cells) != len(_FIELDS):
            problem = f"expected {len(_FIELDS)} fields, got {len(cells)}"
            raise InputError(str(path), problem, place=f"line {number}")
        yield Row(path, number, dict(zip(_FIELDS, cells, strict=True)))


def _number(header: dict[str, str], name: str) -> int:
    """A number of the header, 0 if it has none."""
    match = _FIRST_NUMBER.search(header.get(name, ""))
    return int(match[0]) if match else 0
