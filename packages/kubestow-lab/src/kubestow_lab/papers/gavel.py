"""Gavel's policies on its own workload (Narayanan et al., OSDI 2020), with the published throughputs of its jobs.

The jobs are the authors': their generator and its seeds are Python's. A job has a model and batch size, runs on 1 to 8
GPUs of one type, and makes the steps that take its drawn run time on V100s. Continuous traces have Poisson arrivals,
and the mean completion time of the jobs from the 4,000th to the 5,000th counts; static ones have all jobs at the start,
and the time to the last end counts. 36 GPUs of each of three types; rounds of six minutes.
"""

from __future__ import annotations

import ast
import csv
import json
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random

import numpy as np

from kubestow.errors import InputError
from kubestow.version import VERSION
from kubestow_lab.metrics.intervals import Estimate, estimate
from kubestow_lab.papers.measured_runs import measure_runs
from kubestow_lab.training.jobs import TrainingJobs
from kubestow_lab.training.rounds import completion_times
from kubestow_lab.training.share_policies import FifoShares, FinishTimeFairness, Makespan, MaxMinFairness
from kubestow_lab.training.time_shares import SharePolicy, TimeShares

DATA = "gavel/scheduler"
DOWNLOAD = "git clone https://github.com/stanford-futuredata/gavel"
THROUGHPUTS = "simulation_throughputs.json"
TYPES = ("v100", "p100", "k80")
GPUS_PER_TYPE = 36
ROUND, RESET = 360.0, 1920.0
#: The jobs whose completion times count.
WATCHED = range(4000, 5001)
#: Further jobs arrive for so many hours after the last of these, so that it does not end on an empty cluster.
_HOURS_AFTER = 600
#: The models in the authors' order, on which draws depend: their batch sizes, and whether they run on several GPUs.
_BATCHES = {
    "ResNet-18": ((16, 32, 64, 128, 256), True),
    "ResNet-50": ((16, 32, 64, 128), True),
    "Transformer": ((16, 32, 64, 128, 256), True),
    "LM": ((5, 10, 20, 40, 80), True),
    "Recommendation": ((512, 1024, 2048, 4096, 8192), False),
}
MODELS = (
    *((f"{model} (batch size {size})", several) for model, (sizes, several) in _BATCHES.items() for size in sizes),
    ("A3C", False),
    ("CycleGAN", False),
)
POLICIES: dict[str, Callable[[], SharePolicy]] = {
    "FIFO": lambda: FifoShares(aware=False),
    "FIFO, aware": lambda: FifoShares(aware=True),
    "LAS": lambda: MaxMinFairness(aware=False),
    "LAS, aware": lambda: MaxMinFairness(aware=True),
    "FTF": lambda: FinishTimeFairness(aware=False),
    "FTF, aware": lambda: FinishTimeFairness(aware=True),
    "makespan, aware": Makespan,
}
_PUBLISHED = Path(__file__).with_name("gavel_published.csv")


def _published_rows() -> list[dict[str, str]]:
    with _PUBLISHED.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def published() -> dict[tuple[str, str], float]:
    """The hours of the authors' notebooks, by workload and policy."""
    return {(row["workload"], row["policy"]): float(row["hours"]) for row in _published_rows()}


WORKLOADS = tuple(dict.fromkeys(row["workload"] for row in _published_rows()))
"""``single`` or ``multiple`` with the jobs an hour, or ``static`` with the number of jobs."""


# -- jobs --------------------------------------------------------------------------------------------------------------


Throughputs = dict[tuple[str, int], tuple[float, ...]]


def read_throughputs(folder: Path) -> Throughputs:
    """The steps per second on each of :data:`TYPES`, by model and GPUs. Raises InputError."""
    path = folder / THROUGHPUTS
    try:
        document = json.loads(path.read_bytes())
        keys = {ast.literal_eval(key) for key in document[TYPES[0]]}
        return {key: tuple(float(document[kind][str(key)]["null"]) for kind in TYPES) for key in keys}
    except OSError as error:
        raise InputError(str(path), f"{error.strerror}, expected the data of the paper: {DOWNLOAD}") from None
    except (ValueError, SyntaxError, KeyError, TypeError) as error:
        raise InputError(str(path), f"expected throughputs by type, model and GPUs: {error}") from None


def drawn_jobs(seed: int, *, multiple: bool) -> Iterator[tuple[str, int, float]]:
    """Model, GPUs and run time on V100s in seconds of job after job, as the authors draw them."""
    random = Random(seed + 2)
    while True:
        drawn = random.uniform(0, 1)
        gpus = 1 if drawn < 0.7 or not multiple else 2 if drawn <= 0.8 else 4 if drawn <= 0.95 else 8
        exponents = (3, 4) if random.random() >= 0.8 else (1.5, 3)
        run_time = 60 * 10 ** random.uniform(*exponents)
        while True:
            model, several = random.choice(MODELS)
            if gpus == 1 or several:
                break
        yield model, gpus, run_time


def training_jobs(throughputs: Throughputs, seed: int, count: int, rate: float, *, multiple: bool) -> TrainingJobs:
    """The first jobs of a seed, arriving at a rate in jobs an hour; all at once with a rate of 0."""
    random = Random(seed + 3)
    arrived, time = [], 0.0
    for _ in range(count):
        arrived.append(time)
        if rate:
            time -= math.log(1.0 - random.random()) * 3600 / rate
    drawn = [job for job, _ in zip(drawn_jobs(seed, multiple=multiple), range(count), strict=False)]
    speeds = np.array([throughputs[model, gpus] for model, gpus, _ in drawn])
    run_times = np.array([run_time for _, _, run_time in drawn])
    gpus = np.array([gpus for _, gpus, _ in drawn], np.int64)
    return TrainingJobs(np.array(arrived), gpus, run_times * speeds[:, 0], speeds)


# -- the table ---------------------------------------------------------------------------------------------------------


def measure(
    data: Path,
    workloads: Sequence[str],
    seeds: Sequence[int],
    folder: Path,
    processes: int | None,
    progress: Callable[[int, int], None],
) -> dict[tuple[str, str], Estimate]:
    """The hours of each policy with published ones. Raises InputError for data that is missing or wrong."""
    throughputs = read_throughputs(data)
    rows = [(workload, policy) for workload, policy in published() if workload in workloads]
    runs = {
        f"{VERSION}.{workload}.{policy}.{seed}".replace(" ", "-"): (throughputs, workload, policy, seed)
        for workload, policy in rows
        for seed in seeds
    }
    found = measure_runs(runs, hours, folder, processes, progress)
    values: dict[tuple[str, str, int], float] = {runs[name][1:]: result for name, result in found.items()}
    return {row: estimate([values[*row, seed] for seed in seeds]) for row in rows}


def hours(throughputs: Throughputs, workload: str, policy: str, seed: int) -> float:
    """The mean completion time of the jobs that count, or the time to the last end, in hours."""
    kind, number = workload.split()[:2]
    rate = 0.0 if kind == "static" else float(number)
    count = int(number) if kind == "static" else WATCHED.stop + math.ceil(_HOURS_AFTER * rate)
    seed += kind == "static"  # the authors' notebooks have results of seed 0, and of seed 1 for static traces
    jobs = training_jobs(throughputs, seed, count, rate, multiple=kind != "single")
    capacity = np.full(len(TYPES), GPUS_PER_TYPE, np.int64)
    shuffle = None if policy.endswith("aware") else Random(seed + 5)
    shares = TimeShares(POLICIES[policy](), round_seconds=ROUND, reset_seconds=RESET, shuffle=shuffle)
    watched = np.arange(count) if kind == "static" else np.arange(WATCHED.start, WATCHED.stop)
    times = completion_times(jobs, capacity, shares, round_seconds=ROUND, watched=watched)
    return float((times.max() if kind == "static" else times[watched].mean()) / 3600)
