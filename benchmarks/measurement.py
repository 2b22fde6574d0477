"""What is measured: CPU time, elapsed time and memory of this process and of others."""

from __future__ import annotations

import cProfile
import os
import pstats
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any


@dataclass(slots=True)
class Spent:
    """CPU seconds of this process, and elapsed seconds."""

    cpu: float = 0.0
    elapsed: float = 0.0

    def rates(self, count: int, what: str = "pods") -> dict[str, float]:
        """What was spent on so many of something."""
        return {f"{what}/s": count / self.elapsed, "µs each": self.elapsed / count * 1e6}


@contextmanager
def measured() -> Iterator[Spent]:
    """What the body spends, known at its end."""
    spent = Spent()
    elapsed, cpu = time.perf_counter(), time.process_time()
    yield spent
    spent.elapsed, spent.cpu = time.perf_counter() - elapsed, time.process_time() - cpu


def median_cpu(rounds: int, work: Callable[[], Any]) -> float:
    """The median CPU seconds of some calls."""
    times = []
    for _ in range(rounds):
        with measured() as spent:
            work()
        times.append(spent.cpu)
    return median(times)


def cpu_seconds(pid: int) -> float:
    """CPU time of a process so far, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident(pid: int | str = "self") -> int:
    """Resident memory of a process, in bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def resident_mb(pid: int | str = "self") -> float:
    """Resident memory of a process, in MiB."""
    return resident(pid) / 2**20


def descriptors() -> int:
    """How many files and sockets this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


def peak_mb(pid: int | str = "self") -> float:
    """Peak resident memory of a process, in MiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) / 1024


def isolated(call: Callable[..., Any], *arguments: Any) -> Any:
    """The result of a call in a new process, so that no memory is used that another call has freed."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as processes:
        return processes.submit(call, *arguments).result()


def print_profile(profiler: cProfile.Profile) -> None:
    """Where the time went."""
    pstats.Stats(profiler).sort_stats("tottime").print_stats(30)
