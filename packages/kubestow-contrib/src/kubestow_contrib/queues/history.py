"""What queues and jobs have used, over time: for reports, in bounded memory.

The shares of queues are sampled in rounds of planning; once there are too many samples, every other one is dropped, so
that those left reach back to the beginning at half the resolution. Of the runs of jobs the latest are kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

#: So many samples of shares are kept, and runs with so many nodes together.
_MOST_SAMPLES, _MOST_NODES = 512, 100_000


@dataclass(frozen=True, slots=True)
class PodsOnNodes:
    """Pods of a job that are alike: what each requests by resource, and the most that were on each node at a time."""

    requests: Mapping[str, int]
    counts: dict[str, int]


@dataclass(frozen=True, slots=True)
class JobRun:
    """A job on nodes, from its start until its last pod has ended, in seconds since the Unix epoch.

    An evicted one may run again later.
    """

    name: str
    queue: str
    pods: Sequence[PodsOnNodes]
    started: float
    ended: float
    is_evicted: bool = False

    @property
    def nodes(self) -> set[str]:
        """The names of its nodes."""
        return {node for each in self.pods for node in each.counts}


@dataclass(frozen=True, slots=True)
class ShareSample:
    """What each queue used and its fair share from a time on: float32, queues by resources, in the order of names."""

    time: float
    used: NDArray[np.float32]
    fair: NDArray[np.float32]


class History:
    """The shares of queues over time, and the runs of jobs that are over."""

    def __init__(self, queues: Sequence[str]) -> None:
        self._queues = queues
        #: The resources that nodes have had, in the order of the columns of samples; earlier samples may lack the last.
        self.resources: list[str] = []
        self.samples: list[ShareSample] = []
        self.runs: deque[JobRun] = deque()
        self._nodes_of_runs = 0
        #: At least so many seconds are between two samples.
        self._pause = 0.0

    def sample(
        self,
        time: float,
        total: Mapping[str, float],
        used: Mapping[str, Mapping[str, float]],
        fair: Mapping[str, Mapping[str, float]],
    ) -> None:
        """Note what queues use and their fair shares, by name and resource, of what there is in ``total``."""
        self.resources += [name for name, amount in total.items() if amount > 0 and name not in self.resources]
        if self.samples and time - self.samples[-1].time < self._pause:
            time = self.samples.pop().time
        self.samples.append(ShareSample(time, self._table(used), self._table(fair)))
        if len(self.samples) > _MOST_SAMPLES:
            del self.samples[1::2]
            self._pause = 2 * (time - self.samples[0].time) / _MOST_SAMPLES

    def add(self, run: JobRun) -> None:
        """Note a run that is over."""
        self.runs.append(run)
        self._nodes_of_runs += sum(len(each.counts) for each in run.pods)
        while self._nodes_of_runs > _MOST_NODES and len(self.runs) > 1:
            self._nodes_of_runs -= sum(len(each.counts) for each in self.runs.popleft().pods)

    def _table(self, amounts: Mapping[str, Mapping[str, float]]) -> NDArray[np.float32]:
        rows = [[amounts[name].get(resource, 0.0) for resource in self.resources] for name in self._queues]
        return np.array(rows, np.float32).reshape(len(self._queues), len(self.resources))


@dataclass(frozen=True, slots=True)
class NodeUse:
    """Amounts of a resource in use on a group of nodes by one queue, from when to when (seconds)."""

    group: int
    queue: int
    start: float
    end: float
    amount: float


def averages(uses: Iterator[NodeUse], groups: int, queues: int, edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """What is in use on average between each two of ``edges`` (equally spaced, n + 1): float64, groups by queues by n.

    Exact: a use counts in an interval for the part of it that it covers.
    """
    columns = len(edges) - 1
    steps = np.zeros((groups, queues, columns + 2), np.float64)
    found = [(use.group, use.queue, use.start, use.end, use.amount) for use in uses]
    if not found or not columns:
        return np.zeros((groups, queues, columns), np.float64)
    table = np.array(found, np.float64)
    group, queue = table[:, 0].astype(np.intp), table[:, 1].astype(np.intp)
    width = edges[1] - edges[0]
    for column, sign in ((2, +1.0), (3, -1.0)):
        at = np.clip((table[:, column] - edges[0]) / width, 0.0, columns)
        interval = at.astype(np.intp)
        rest = 1.0 - (at - interval)
        amount = sign * table[:, 4]
        np.add.at(steps, (group, queue, interval), amount * rest)
        np.add.at(steps, (group, queue, interval + 1), amount * (1.0 - rest))
    in_use: NDArray[np.float64] = steps.cumsum(axis=2)[:, :, :columns]
    return in_use
