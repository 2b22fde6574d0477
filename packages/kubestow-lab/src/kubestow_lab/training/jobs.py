"""Training jobs as columns: each runs on a number of accelerators of one type at a time until it has made its steps."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Rows = NDArray[np.intp]


@dataclass(frozen=True)
class TrainingJobs:
    """Jobs in order of arrival; ``arrived`` in seconds, ``gpus`` and ``steps`` have shape (jobs,).

    ``throughputs`` has shape (jobs, types): the steps per second of the whole job on its GPUs, 0 on a type on which it
    cannot run. With one type and a throughput of 1, the steps are the run time in seconds.
    """

    arrived: Floats
    gpus: Integers
    steps: Floats
    throughputs: Floats

    def __len__(self) -> int:
        return len(self.arrived)

    @cached_property
    def kinds(self) -> Rows:
        """A number for each job, shape (jobs,): equal for jobs with equal GPUs and throughputs."""
        columns = np.column_stack((self.gpus, self.throughputs))
        _, kinds = np.unique(columns, axis=0, return_inverse=True)
        return kinds.reshape(-1).astype(np.intp)

    @classmethod
    def of_run_times(cls, arrived: Floats, gpus: Integers, run_times: Floats) -> TrainingJobs:
        """Jobs on accelerators of one type, with their run times in seconds."""
        return cls(arrived, gpus, run_times, np.ones((len(arrived), 1)))
