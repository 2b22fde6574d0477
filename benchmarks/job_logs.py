"""Logs of batch jobs in the formats in which clusters have published theirs, with their published statistics.

The logs of Philly, Helios and Acme are too large to ship. What is published about them is enough for logs like them:
how many GPUs jobs have, how long they run, the GPU time of jobs of each size, which virtual clusters or types of work
they belong to, and at which hours they are submitted. Each writer here makes such a log in the published format, for
the reader of that format in :mod:`kubestow_lab.traces`.

What is published, and where, is in ``published_jobs.toml``. Jobs of a parallel computer, for the Standard Workload
Format, are those of the model of U. Lublin and D. Feitelson (The workload on parallel supercomputers, JPDC 63, 2003),
with requested times as A. Mu'alem and D. Feitelson model them (IEEE TPDS 12, 2001).

What is not published is assumed: jobs of a virtual cluster come some at a time (``_SESSION``), and so many that each
gets the part of all jobs that it has of the nodes. A cluster of eight nodes stands for the whole one: larger jobs
than half of it are left out, and run times are cut at a day, so that a log of a week is long beside them.
The load is chosen, and so is the number of jobs; the time in which they come follows.
"""

from __future__ import annotations

import csv
import json
import math
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow_lab.simulation.arrivals import Arrivals
from kubestow_lab.traces.loading import load_trace
from kubestow_lab.traces.tables import object_name

GPUS_OF_NODE = 8
_DAY = 86_400
_LONGEST = _DAY
#: So many jobs of a queue come one after the other, on average.
_SESSION = 10


@dataclass(frozen=True, slots=True)
class LoggedJob:
    """A job of a log: when it was submitted and how long it ran, in whole seconds, on so many processors or GPUs.

    ``requested_time`` is the run time that its user asked for, which only the Standard Workload Format has.
    """

    number: int
    submitted: int
    processors: int
    run_time: int
    requested_time: int
    queue: str
    state: str = ""


class JobKind(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Jobs of a type of work: their part of all jobs, and what is published about them, in percent.

    ``sizes`` are the jobs with so many GPUs, ``gpu_time`` is the GPU time of these; without it, how long a job runs
    does not depend on its size. ``run_times`` are the jobs that run at most 1, 2, 4, … seconds.
    """

    name: str = ""
    share: float = 100.0
    sizes: dict[int, float]
    run_times: list[float]
    gpu_time: dict[int, float] = {}

    def quantiles(self, parts: NDArray[np.float64]) -> NDArray[np.float64]:
        """The run times that these parts of the jobs do not exceed, in seconds."""
        exponents = np.interp(100 * parts, self.run_times, np.arange(len(self.run_times)))
        seconds: NDArray[np.float64] = np.exp2(exponents)
        return seconds

    def mean(self, tilt: float = 1.0) -> float:
        """The mean run time in seconds of the quantiles of u^(1 / tilt), u being uniform: above 1, jobs run longer."""
        middles = (np.arange(4000) + 0.5) / 4000
        return float(self.quantiles(middles ** (1 / tilt)).mean())

    def tilts(self) -> dict[int, float]:
        """The tilt of each size with which its jobs have their part of the GPU time on average."""
        if not self.gpu_time:
            return dict.fromkeys(self.sizes, 1.0)
        relative = {size: self.gpu_time[size] / (size * percent) for size, percent in self.sizes.items()}
        jobs = sum(self.sizes.values())
        scale = self.mean() * jobs / sum(relative[size] * percent for size, percent in self.sizes.items())
        return {size: self._tilt(scale * mean) for size, mean in relative.items()}

    def _tilt(self, mean: float) -> float:
        low, high = 0.01, 100.0
        for _ in range(40):
            middle = math.sqrt(low * high)
            low, high = (middle, high) if self.mean(middle) < mean else (low, middle)
        return low


class ClusterStatistics(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is published about a cluster that trains models.

    ``queues`` are its virtual clusters with their nodes or GPUs; without any, types of work are queues. ``hourly`` are
    the jobs submitted in each hour of a day, ``states`` the percent of jobs that end so, ``queueing`` is the median
    queueing delay in seconds.
    """

    kinds: list[JobKind]
    states: dict[str, float]
    queueing: int
    queues: dict[str, float] = {}
    hourly: tuple[float, ...] = (1.0,) * 24

    def draw(self, count: int, gpus: int, load: float, random: Random) -> list[LoggedJob]:
        """So many jobs, in the order of their submission, that request ``load`` times the GPU time of a cluster."""
        kinds = [_tilted(kind, gpus // 2) for kind in self.kinds]
        drawn: list[tuple[str, int, int]] = []
        for [kind, sizes, weights, tilts] in random.choices(kinds, [kind.share for kind, *_ in kinds], k=count):
            [size] = random.choices(sizes, weights)
            [run_time] = kind.quantiles(np.array([random.random() ** (1 / tilts[size])]))
            drawn.append((kind.name, size, max(1, min(_LONGEST, round(float(run_time))))))
        area = sum(size * run_time for _, size, run_time in drawn)
        times = self._times(count, area / (gpus * load), random)
        states, queue, jobs = list(self.states), "", list[LoggedJob]()
        for number, (time, (kind_name, size, run_time)) in enumerate(zip(times, drawn, strict=True), start=1):
            if self.queues and (not queue or random.random() < 1 / _SESSION):
                [queue] = random.choices(list(self.queues), list(self.queues.values()))
            [state] = random.choices(states, list(self.states.values()))
            jobs.append(LoggedJob(number, time, size, run_time, -1, queue or kind_name, state))
        return jobs

    def _times(self, count: int, span: float, random: Random) -> list[int]:
        """Times of a Poisson process whose rate changes with the hour of the day, given their number; from 0 on."""
        hours = math.ceil(span / 3600) + 1
        rates = [self.hourly[hour % 24] for hour in range(hours)]
        passed = np.concatenate(([0.0], np.cumsum(rates))) / 3600
        edges = 3600.0 * np.arange(hours + 1)
        most = float(np.interp(span, edges, passed))
        drawn = sorted(random.uniform(0, most) for _ in range(count))
        return [int(time) for time in np.interp(drawn, passed, edges)]


def _tilted(kind: JobKind, widest: int) -> tuple[JobKind, list[int], list[float], dict[int, float]]:
    """A kind with the sizes that are small enough, their weights, and the tilts of all sizes."""
    sizes = {size: percent for size, percent in kind.sizes.items() if size <= widest}
    return kind, list(sizes), list(sizes.values()), kind.tilts()


_PUBLISHED = msgspec.convert(
    tomllib.loads(Path(__file__).with_name("published_jobs.toml").read_text()),
    dict[str, ClusterStatistics],
    strict=False,  # sizes are keys, which are texts
)
PHILLY, HELIOS, ACME = _PUBLISHED["philly"], _PUBLISHED["helios"], _PUBLISHED["acme"]


def draw_parallel_jobs(count: int, processors: int, load: float, random: Random) -> list[LoggedJob]:
    """Jobs of a parallel computer by Lublin and Feitelson: a quarter serial, most others on powers of two.

    Widths have a two-stage uniform distribution; run times are hyper-gamma in their logarithm, and longer for wide
    jobs. Arrivals are exponential, and users ask for one to five times what their jobs run. The first of four queues
    has more than half of the jobs, in bursts.
    """
    widest = math.log2(processors)
    drawn = []
    for _ in range(count):
        width = 1
        if random.random() >= 0.24:
            low, high = (0.8, widest - 2.5) if random.random() < 0.86 else (widest - 2.5, widest)
            exponent = random.uniform(low, high)
            width = 2 ** round(exponent) if random.random() < 0.75 else round(2**exponent)
        width = max(1, min(processors, width))
        is_long = random.random() >= max(0.0, -0.0054 * width + 0.78)
        logarithm = random.gammavariate(312, 0.03) if is_long else random.gammavariate(4.2, 0.94)
        drawn.append((width, round(min(_LONGEST, max(10.0, math.exp(logarithm))))))
    pause = sum(width * run_time for width, run_time in drawn) / (processors * load) / count
    time, queue, jobs = 0.0, "2", list[LoggedJob]()
    for number, (width, run_time) in enumerate(drawn, start=1):
        time += random.expovariate(1 / pause)
        if number % 10 == 1 or queue != "1":
            queue = random.choice("1234")
        asked = min(4 * _DAY, math.ceil(run_time * random.uniform(1, 5)))
        jobs.append(LoggedJob(number, int(time), width, run_time, asked, queue, "1"))
    return jobs


# -- formats ---------------------------------------------------------------------------------------------------------


def write_philly(folder: Path, jobs: Sequence[LoggedJob], nodes: int) -> None:
    """``cluster_job_log`` and ``cluster_machine_list``: each job has one attempt, on whole servers and a rest."""
    machines = [f"m{number}" for number in range(1, nodes + 1)]
    listed = "".join(f"{name},{GPUS_OF_NODE}, 24GB\n" for name in machines)
    (folder / "cluster_machine_list").write_text(f"machineId, number of GPUs, single GPU mem\n{listed}")
    entries: list[dict[str, Any]] = []
    for job in jobs:
        submitted = datetime(2017, 10, 3, tzinfo=UTC) + timedelta(seconds=job.submitted)
        started = submitted + timedelta(seconds=PHILLY.queueing)
        detail = [
            {"ip": machines[(job.number + index) % nodes], "gpus": [f"gpu{gpu}" for gpu in range(gpus)]}
            for index, gpus in enumerate(_servers(job.processors))
        ]
        ended = started + timedelta(seconds=job.run_time)
        times = {"start_time": f"{started:%Y-%m-%d %H:%M:%S}", "end_time": f"{ended:%Y-%m-%d %H:%M:%S}"}
        entries.append(
            {
                "status": job.state,
                "vc": job.queue,
                "jobid": f"application_1506638472019_{job.number}",
                "attempts": [times | {"detail": detail}],
                "submitted_time": f"{submitted:%Y-%m-%d %H:%M:%S}",
                "user": f"{job.queue[::-1]}",
            }
        )
    (folder / "cluster_job_log").write_text(json.dumps(entries))


def write_helios(folder: Path, jobs: Sequence[LoggedJob], nodes: int) -> None:
    """``cluster_log.csv`` and ``cluster_gpu_number.csv``, with four CPUs for each GPU."""
    whole = sum(HELIOS.queues.values())
    gpus = [round(GPUS_OF_NODE * nodes * part / whole) for part in HELIOS.queues.values()]
    numbers = [["date", *HELIOS.queues, "total"], ["2020-09-01", *gpus, GPUS_OF_NODE * nodes]]
    _write_table(folder / "cluster_gpu_number.csv", numbers)
    columns = ["job_id", "user", "vc", "gpu_num", "cpu_num", "node_num", "state"]
    rows: list[list[Any]] = [[*columns, "submit_time", "start_time", "end_time", "duration", "queue"]]
    for job in jobs:
        times = _times(job, datetime(2020, 9, 1, tzinfo=UTC), HELIOS.queueing, "%Y-%m-%d %H:%M:%S")
        size = [job.processors, 4 * job.processors, len(_servers(job.processors))]
        user = f"u{job.queue[2:]}"
        rows.append([job.number, user, job.queue, *size, job.state, *times, job.run_time, HELIOS.queueing])
    _write_table(folder / "cluster_log.csv", rows)


def write_acme(folder: Path, jobs: Sequence[LoggedJob], nodes: int) -> None:
    """``trace_seren.csv``, with sixteen CPUs for each GPU; the number of nodes is not part of the log."""
    columns = ["job_id", "user", "node_num", "gpu_num", "cpu_num", "type", "state"]
    rows: list[list[Any]] = [[*columns, "submit_time", "start_time", "end_time", "duration", "queue", "gpu_time"]]
    began = datetime(2023, 3, 1, tzinfo=timezone(timedelta(hours=8)))
    for job in jobs:
        times = _times(job, began, ACME.queueing, "%Y-%m-%d %H:%M:%S+08:00")
        size = [len(_servers(job.processors)), job.processors, 16 * job.processors]
        gpu_time = float(job.processors * job.run_time)
        row = [5_778_431 + job.number, "u5907", *size, job.queue, job.state, *times, job.run_time, ACME.queueing]
        rows.append([*row, gpu_time])
    _write_table(folder / "trace_seren.csv", rows)


def write_swf(folder: Path, jobs: Sequence[LoggedJob], nodes: int) -> None:
    """``log.swf``: nodes of eight processors."""
    header = {"Version": "2.2", "Computer": "generated", "MaxNodes": nodes, "MaxProcs": GPUS_OF_NODE * nodes}
    lines = [f"; {name}: {value}" for name, value in header.items()]
    for job in jobs:
        fields = [job.number, job.submitted, -1, job.run_time, job.processors, -1, -1, job.processors]
        fields += [job.requested_time, -1, 1, 1, 1, -1, int(job.queue), -1, -1, -1]
        lines.append(" ".join(map(str, fields)))
    (folder / "log.swf").write_text("\n".join([*lines, ""]))


def _servers(gpus: int) -> list[int]:
    """The GPUs of a job on each of its servers."""
    whole, rest = divmod(gpus, GPUS_OF_NODE)
    return [GPUS_OF_NODE] * whole + ([rest] if rest else [])


def _times(job: LoggedJob, began: datetime, queueing: int, spelling: str) -> list[str]:
    """When a job was submitted, and started and ended."""
    submitted = began + timedelta(seconds=job.submitted)
    started = submitted + timedelta(seconds=queueing)
    ended = started + timedelta(seconds=job.run_time)
    return [time.strftime(spelling) for time in (submitted, started, ended)]


def _write_table(path: Path, rows: Sequence[Sequence[Any]]) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)


@dataclass(frozen=True, slots=True)
class LogFormat:
    """A format: how its jobs are drawn and written, the weights of its queues, and what is assumed when it is read.

    ``draw`` gets the number of jobs, of processors and the load; ``path`` is the file in the folder that is read, ""
    for the folder. ``nodes`` of eight processors or GPUs are enough for its jobs.
    """

    draw: Callable[[int, int, float, Random], list[LoggedJob]]
    write: Callable[[Path, Sequence[LoggedJob], int], None]
    weights: Mapping[str, float]
    path: str = ""
    assumes_nodes: bool = False
    nodes: int = 8


LOG_FORMATS = {
    "philly": LogFormat(PHILLY.draw, write_philly, PHILLY.queues),
    "helios": LogFormat(HELIOS.draw, write_helios, HELIOS.queues),
    "acme": LogFormat(ACME.draw, write_acme, {kind.name: 1 for kind in ACME.kinds}, assumes_nodes=True),
    "swf": LogFormat(draw_parallel_jobs, write_swf, dict.fromkeys("1234", 1), path="log.swf"),
}
"""The formats by the name that ``--trace`` gives them."""


def load_log(
    name: str, jobs: int, nodes: int, load: float, seed: int
) -> tuple[ClusterObjects, Arrivals, dict[str, float]]:
    """A log of a format, written and read: cluster, pods whose jobs are gangs, and weights of queues by namespace."""
    log_format = LOG_FORMATS[name]
    drawn = log_format.draw(jobs, GPUS_OF_NODE * nodes, load, Random(f"{name}/{seed}"))
    assumed = ["gangs=true", "namespaces=true", "joint-start=true"]
    with TemporaryDirectory() as folder:
        log_format.write(Path(folder), drawn, nodes)
        assumed += [f"nodes={nodes}"] if log_format.assumes_nodes else []
        cluster, arrivals = load_trace(f"{name}={Path(folder) / log_format.path}", assumed=assumed)
    return cluster, arrivals, {object_name(queue): weight for queue, weight in log_format.weights.items()}
