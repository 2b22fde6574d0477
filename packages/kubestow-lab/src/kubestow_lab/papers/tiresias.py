"""Tiresias' queueing policies against first come, first served (Gu et al., NSDI 2019).

480 jobs arrive at 60 GPUs, as in the paper's testbed. Its trace is not at hand: GPUs and run times are drawn by the
distribution of Microsoft's Philly cluster that Gavel's authors published (:func:`.gavel.drawn_jobs`), and twice as
much GPU time is requested as there is until the last arrival. Which nodes a job gets is not simulated, and preemption
costs nothing, so the paper's speedup, up to 5.5 of the mean completion time, has no row; which policy is faster has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from random import Random

import numpy as np

from kubestow.version import VERSION
from kubestow_lab.metrics.intervals import Estimate, estimate
from kubestow_lab.papers.gavel import drawn_jobs
from kubestow_lab.papers.measured_runs import measure_runs
from kubestow_lab.papers.published import Trend, below
from kubestow_lab.training.job_orders import (
    FirstInFirstOut,
    GittinsIndex,
    LeastAttainedService,
    ShortestRemainingService,
    ShortestRemainingTime,
)
from kubestow_lab.training.jobs import Floats, TrainingJobs
from kubestow_lab.training.rounds import Policy, completion_times

GPUS, JOBS, LOAD, ROUND = 60, 480, 2.0, 300.0
#: GPU-seconds at which a job leaves the first queue: two queues, as the paper recommends.
THRESHOLDS = (16 * 3600.0,)
#: Earlier jobs, by whose service the Gittins index is computed: so many of a seed that no experiment has.
_HISTORY, _OTHER_SEED = 1_000, 10_000
FIFO, LAS, GITTINS = "YARN-CS (FIFO)", "Tiresias-L (2D-LAS)", "Tiresias-G (2D-Gittins)"
SRTF, SRSF = "SRTF, run times known", "SRSF, run times known"
MEAN, MEDIAN, P95 = "mean JCT, h", "median JCT, h", "95 % JCT, h"
WORKLOADS = ("480 jobs",)


def jobs(seed: int, count: int = JOBS) -> TrainingJobs:
    """Jobs that request :data:`LOAD` of the GPU time until the last of them arrives."""
    gpus, run_times = _drawn(seed, count)
    random = Random(f"tiresias {seed}")
    pause = float((gpus * run_times).sum()) / (LOAD * GPUS) / count
    arrived = np.cumsum([random.expovariate(1 / pause) for _ in range(count)])
    return TrainingJobs.of_run_times(arrived, gpus.astype(np.int64), run_times)


def _drawn(seed: int, count: int) -> tuple[Floats, Floats]:
    drawn = list(islice(drawn_jobs(seed, multiple=True), count))
    return np.array([float(gpus) for _, gpus, _ in drawn]), np.array([run_time for _, _, run_time in drawn])


def policies() -> Iterator[tuple[str, Policy]]:
    """The policies by name."""
    gpus, run_times = _drawn(_OTHER_SEED, _HISTORY)
    yield FIFO, FirstInFirstOut()
    yield LAS, LeastAttainedService(THRESHOLDS)
    yield GITTINS, GittinsIndex(THRESHOLDS, gpus * run_times)
    yield SRTF, ShortestRemainingTime()
    yield SRSF, ShortestRemainingService()


def published() -> dict[tuple[str, str], Trend]:
    """That both discretized orders have shorter completion times than the queue of YARN."""
    return {(measured, policy): below(FIFO) for measured in (MEAN, MEDIAN) for policy in (LAS, GITTINS)}


def measure(
    data: Path,
    workloads: Sequence[str],
    seeds: Sequence[int],
    folder: Path,
    processes: int | None,
    progress: Callable[[int, int], None],
) -> dict[tuple[str, str], Estimate]:
    """The completion times under each policy, in hours."""
    names = [name for name, _ in policies()]
    runs = {f"{VERSION}.{number}.{seed}": (number, seed) for number in range(len(names)) for seed in seeds}
    found = measure_runs(runs, hours, folder, processes, progress)
    values: dict[tuple[int, int], list[float]] = {runs[name]: result for name, result in found.items()}
    return {
        (measured, policy): estimate([values[number, seed][column] for seed in seeds])
        for column, measured in enumerate((MEAN, MEDIAN, P95))
        for number, policy in enumerate(names)
    }


def hours(number: int, seed: int, count: int = JOBS) -> list[float]:
    """The mean, the median and the 95 % quantile of the completion times under a policy, by its number."""
    policy = list(policies())[number][1]
    capacity = np.array([GPUS], np.int64)
    times = completion_times(jobs(seed, count), capacity, policy, round_seconds=ROUND) / 3600
    return [float(times.mean()), float(np.median(times)), float(np.percentile(times, 95))]
