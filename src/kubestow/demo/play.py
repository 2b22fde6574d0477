"""Playing a workload: server, scheduler and submission together, until nothing moves any more."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random

from kubestow import config
from kubestow.client.cluster_client import ClusterClient
from kubestow.client.rest.credentials import load_credentials
from kubestow.client.rest.transport import Transport
from kubestow.demo.server import running_server
from kubestow.demo.submission import Submission, all_objects
from kubestow.plugins import in_tree_registry
from kubestow.scheduling.decision.result import Decision
from kubestow.scheduling.environment import Environment
from kubestow.scheduling.observer import Observer
from kubestow.scheduling.queued_pod import Place, QueuedPod
from kubestow.scheduling.scheduler import Scheduler
from kubestow.wall_clock import WallClock
from kubestow.workloads.report import Summary, summarise
from kubestow.workloads.workload import Workload

__all__ = ["Outcome", "Progress", "play"]

_LOOK_EVERY = 0.1
#: Nothing may move for this long before the run counts as settled, in seconds.
_SETTLED_AFTER = 1.5


@dataclass(slots=True)
class Progress:
    """Where a run stands; updated in place. ``elapsed`` is in seconds since the first pod was submitted."""

    nodes: int = 0
    pods: int = 0
    submitted: int = 0
    bound: int = 0
    attempts: int = 0
    waiting: Counter[Place] = field(default_factory=Counter)
    elapsed: float = 0.0
    latencies: list[float] = field(default_factory=list)
    utilisation: dict[str, float] = field(default_factory=dict)
    nodes_used: int = 0

    # -- the scheduler's observer -----------------------------------------------------------------------------------

    def decision_made(self, decision: Decision, seconds: float) -> None:
        """Count a scheduling cycle."""
        self.attempts += 1

    def bound_pod(self, seconds: float) -> None:
        """Count a pod that was bound so many seconds after it could first be tried."""
        self.bound += 1
        self.latencies.append(seconds)


class _Observer(Observer):
    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def decision_made(self, decision: Decision, seconds: float) -> None:
        self._progress.decision_made(decision, seconds)

    def pod_bound(self, queued: QueuedPod, node_name: str, seconds: float) -> None:
        self._progress.bound_pod(seconds)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a run: ``seconds`` from the first submission until the last pod was bound, and the summary.

    ``evicted`` pods made room for others; ``settled`` is False when the time was up while pods were still moving.
    """

    summary: Summary
    seconds: float
    settled: bool
    evicted: int


async def play(workload: Workload, *, show: Callable[[Progress], None], limit: float, seed: int) -> Outcome:
    """Play a workload on an embedded API server, at most ``limit`` seconds, and sum it up.

    ``show`` is called a few times a second with where things stand.
    """
    progress = Progress(nodes=len(workload.nodes), pods=len(workload.pods))
    clock = WallClock()
    random = Random(seed)
    async with running_server() as url:
        credentials = await load_credentials(master=url)
        async with (
            ClusterClient(credentials, clock=clock, random=random) as cluster,
            Transport(credentials, clock=clock) as transport,
        ):
            submission = Submission(transport, workload)
            await submission.nodes()
            scheduler = Scheduler(
                config.default_configuration(),
                registry=in_tree_registry(),
                environment=Environment(cluster, clock, random, _Observer(progress)),
            )
            async with _running(scheduler):
                seconds, settled = await _run(scheduler, submission, progress, show, limit)
            nodes = await all_objects(transport, "/api/v1/nodes")
            pods = await all_objects(transport, "/api/v1/pods")
    evicted = progress.submitted - len(pods)
    return Outcome(summarise(nodes, pods, progress.latencies), seconds, settled, evicted)


@asynccontextmanager
async def _running(scheduler: Scheduler) -> AsyncIterator[None]:
    running = asyncio.create_task(scheduler.run())
    try:
        await scheduler.synced.wait()
        yield
    finally:
        running.cancel()
        await asyncio.wait((running,))
        if not running.cancelled():
            running.result()


async def _run(
    scheduler: Scheduler,
    submission: Submission,
    progress: Progress,
    show: Callable[[Progress], None],
    limit: float,
) -> tuple[float, bool]:
    """Submit and watch until all is quiet. Seconds until the last change, and whether it got quiet in time."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    submitting = asyncio.create_task(submission.pods())
    last_change, last_bound = began, -1
    try:
        while loop.time() - began < limit:
            await asyncio.sleep(_LOOK_EVERY)
            progress.elapsed = loop.time() - began
            _look(scheduler, submission, progress)
            show(progress)
            if submitting.done():
                submitting.result()
            if progress.bound != last_bound or not submitting.done() or _moving(progress):
                last_change, last_bound = loop.time(), progress.bound
            elif loop.time() - last_change > _SETTLED_AFTER:
                return last_change - began, True
        return loop.time() - began, False
    finally:
        submitting.cancel()


def _look(scheduler: Scheduler, submission: Submission, progress: Progress) -> None:
    progress.submitted = submission.submitted
    progress.waiting = Counter(scheduler.queue.counts())
    nodes = scheduler.cluster.all_nodes()
    progress.nodes_used = int((nodes.pod_count > 0).sum())
    for resource in ("cpu", "memory", "nvidia.com/gpu", "kubestow.dev/gpu-milli"):
        allocatable = int(nodes.allocatable(resource).sum())
        if allocatable:
            progress.utilisation[resource] = int(nodes.requested(resource).sum()) / allocatable


def _moving(progress: Progress) -> bool:
    """Whether some pod is being tried or will be without anything further happening."""
    on_the_move = (Place.ACTIVE, Place.BACKOFF, Place.ERROR_BACKOFF, Place.IN_FLIGHT)
    return any(progress.waiting[place] for place in on_the_move) or progress.submitted > progress.bound + sum(
        progress.waiting.values()
    )
