"""The execution of a defragmentation plan on a live cluster, step by step.

Before each step the cluster is listed and the rest of the plan is rehearsed on it; a plan that no longer holds ends
there. Then the pods of the step are evicted, and the next step begins when they are gone and their replacements have
nodes. Nothing is remembered between two executions: the cluster says which moves are done. No pod is evicted that is
not in the plan.

Nodes are changed only if that is asked for (``cordons``): those that are to be free are cordoned and stay so, those
that pods of a step leave are cordoned until their replacements have nodes, which an annotation says.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from enum import StrEnum
from random import Random
from typing import Any
from urllib.parse import quote

import msgspec

from kubestow.api.core import Pod
from kubestow.api.meta import decode
from kubestow.client.cluster_client import ClusterClient
from kubestow.client.object_requests import list_pages
from kubestow.client.rest.credentials import load_credentials
from kubestow.client.rest.transport import MERGE_PATCH, UNLIMITED, RateLimit, TokenBucketRateLimiter, Transport
from kubestow.descheduling.cluster_state import ClusterState
from kubestow.descheduling.defragmentation.plan import DefragmentationPlan, PlannedMove
from kubestow.descheduling.defragmentation.progress import PlanProgress, progress_of, replaces
from kubestow.descheduling.dry_run.loop_report import read_snapshot
from kubestow.descheduling.eviction import Eviction, EvictionObserver, Refusal, RefusedBy
from kubestow.descheduling.program.api_requests import (
    emulating_server,
    eviction_request,
    find_scheduling_resources,
    list_cluster,
)
from kubestow.descheduling.program.observers import EvictionEvents, EvictionLog
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.engine.input.documents import Problems
from kubestow.engine.pipeline.offline_scheduler import SchedulerOptions
from kubestow.errors import APIError
from kubestow.log_fields import fields
from kubestow.process import WallClock
from kubestow.reports.model import Block, Paragraph, Table, counted
from kubestow.reports.text import Displayed
from kubestow.rules.disruption import EvictionBudgets
from kubestow.scheduling.interfaces import Clock, Resource

_log = logging.getLogger(__name__)

CORDONED = "kubestow.dev/cordoned-for"
"""The annotation of nodes that an execution has cordoned."""

_PURPOSE = "defragmentation"
#: Seconds between two looks at the pods of a step, and between two requests for an eviction that a budget refuses.
_POLL_PERIOD, _RETRY_PERIOD = 1.0, 5.0
#: Seconds between cordons and evictions: the scheduler, which learns of cordons by its watch, has to know them by then.
CORDON_PERIOD = 2.0
_NOT_FOUND, _CONFLICT, _TOO_MANY_REQUESTS = 404, 409, 429


class MoveState(StrEnum):
    """What has become of a move."""

    #: It was done before this execution.
    DONE_BEFORE = "DoneBefore"
    #: The replacement has the node ``node``.
    MOVED = "Moved"
    #: The pod was evicted, and its replacement has no node yet.
    EVICTED = "Evicted"
    #: It is not done; ``node`` is where the replacement would go.
    REMAINS = "Remains"


@dataclass(frozen=True, slots=True)
class MoveOutcome:
    """A move, what has become of it, and the node of the replacement ``pod``, if they are known."""

    move: PlannedMove
    state: MoveState
    node: str = ""
    pod: str = ""


@dataclass(frozen=True, slots=True, repr=False)
class PlanExecution(Displayed):
    """What an execution has done. ``problem`` says why it stopped, and is empty if it did not."""

    plan: DefragmentationPlan
    outcomes: tuple[MoveOutcome, ...]
    problem: str = ""
    dry_run: bool = False
    server_version: str = ""

    def count(self, state: MoveState) -> int:
        """How many moves are in a state."""
        return sum(outcome.state is state for outcome in self.outcomes)

    @property
    def is_complete(self) -> bool:
        """Whether all moves are done."""
        return not self.problem and not self.count(MoveState.REMAINS)

    def document(self) -> dict[str, Any]:
        """The execution as data for JSON and YAML."""
        server = {"serverVersion": self.server_version} if self.server_version else {}
        return server | {
            "kind": "DefragmentationExecution",
            "dryRun": self.dry_run,
            "complete": self.is_complete,
            "problem": self.problem,
            "cordon": list(self.plan.cordoned),
            "moves": [
                {
                    "step": outcome.move.step,
                    "pod": outcome.move.pod,
                    "from": outcome.move.source,
                    "to": outcome.move.target,
                    "state": outcome.state.value,
                    "replacement": outcome.pod,
                    "node": outcome.node,
                }
                for outcome in self.outcomes
            ],
        }

    def blocks(self) -> Iterator[Block]:
        """How many moves are done, each of them, and what to do next."""
        subject, counts = self.plan.subject, {state: self.count(state) for state in MoveState}
        done = counts[MoveState.DONE_BEFORE] + counts[MoveState.MOVED]
        yield Paragraph(f"{subject}: {done:,} of {counted(len(self.outcomes), 'move')} done")
        if self.problem:
            yield Paragraph(f"stopped: {self.problem}")
        elif self.is_complete:
            then = ", and create the gang" if self.plan.name else ""
            yield Paragraph(f"uncordon {' '.join(self.plan.cordoned)}{then}")
        elif self.dry_run:
            yield Paragraph("the rest of the plan holds; nothing was evicted")
        if self.outcomes:
            table = Table("step", "pod", "from", "to", "state", "replacement on", right=("step",))
            for outcome in self.outcomes:
                move = outcome.move
                table.add(str(move.step), move.pod, move.source, move.target, outcome.state.value, outcome.node)
            yield table


def rehearsal_of(plan: DefragmentationPlan, progress: PlanProgress, *, server_version: str = "") -> PlanExecution:
    """The report of a dry run: what is done, what remains, and whether that holds."""
    outcomes = [
        MoveOutcome(move, MoveState.REMAINS, progress.predictions.get(move, ""))
        if move in progress.remaining
        else MoveOutcome(move, MoveState.DONE_BEFORE)
        for move in plan.moves
    ]
    return PlanExecution(plan, tuple(outcomes), progress.problem, dry_run=True, server_version=server_version)


@dataclass(frozen=True, slots=True)
class ExecutionOptions:
    """How a plan is carried out.

    A ``dry_run`` changes nothing. ``cordons``: nodes are cordoned. ``move_timeout`` is how long an eviction that a
    budget refuses is tried again, and how long replacements may be without a node, in seconds.
    """

    dry_run: bool = False
    cordons: bool = False
    move_timeout: float = 300.0
    scheduler: SchedulerOptions = field(default_factory=SchedulerOptions)
    rate_limit: RateLimit = UNLIMITED


class _Stopped(Exception):
    """The execution cannot go on, for the reason that is its text."""


@dataclass(frozen=True, slots=True)
class _Listed:
    """The cluster at one moment: its objects, and its pods as evictions need them, by uid."""

    cluster: ClusterObjects
    evictable: dict[str, Any]


class PlanExecutor:
    """A plan that is not being carried out yet."""

    def __init__(self, plan: DefragmentationPlan, options: ExecutionOptions, *, clock: Clock | None = None) -> None:
        self._plan, self._options, self._clock = plan, options, clock or WallClock()
        self._scheduler = options.scheduler
        self._outcomes: dict[PlannedMove, MoveOutcome] = {}
        self._for_scheduling: list[Resource] = []
        self._observers: list[EvictionObserver] = []

    async def run(
        self, *, kubeconfig: str, master: str = "", context: str = "", on_end: Callable[[PlanExecution], None]
    ) -> None:
        """Carry the plan out until it is done or cannot go on; ``on_end`` gets the report, also when cancelled.

        Raises InputError, APIError, Unreachable and PluginError.
        """
        async with AsyncExitStack() as stack:
            credentials = await load_credentials(kubeconfig, context=context, master=master)
            client = await stack.enter_async_context(ClusterClient(credentials, clock=self._clock, random=Random()))
            limit = self._options.rate_limit
            limiter = TokenBucketRateLimiter(limit, clock=self._clock) if limit.qps > 0 else None
            transport = await stack.enter_async_context(Transport(credentials, clock=self._clock, rate_limiter=limiter))
            self._for_scheduling = await find_scheduling_resources(client)
            self._scheduler = await emulating_server(self._scheduler, client)
            self._observers = [EvictionLog(dry_run=False), EvictionEvents(client.record, failures=True)]
            problem = "cancelled"
            try:
                problem = await self._carry_out(transport)
            finally:
                outcomes = tuple(self._outcomes.get(m, MoveOutcome(m, MoveState.REMAINS)) for m in self._plan.moves)
                on_end(PlanExecution(self._plan, outcomes, problem, self._options.dry_run))

    async def _carry_out(self, transport: Transport) -> str:
        """Go on until nothing remains; why it stopped, if it did."""
        while True:
            listed = await self._list(transport)
            cluster, cordons = listed.cluster, self._options.cordons
            progress = await asyncio.to_thread(progress_of, self._plan, cluster, self._scheduler, cordons=cordons)
            self._note(progress)
            if self._options.dry_run:
                return progress.problem
            try:
                if progress.waiting:
                    await self._wait_for_nodes(transport, progress)
                    continue
                if await self._uncordon(transport, cluster):
                    continue
                if progress.problem or not progress.remaining:
                    return progress.problem
                await self._carry_out_step(transport, listed, next(progress.steps()))
            except _Stopped as stopped:
                await self._uncordon(transport, (await self._list(transport)).cluster)
                return str(stopped)

    async def _list(self, transport: Transport) -> _Listed:
        problems = Problems()
        sources = await list_cluster(transport, for_scheduling=self._for_scheduling, metrics=False, problems=problems)
        snapshot, usable = read_snapshot(sources, problems)
        cluster = ClusterObjects.of_sources(usable, problems, subject="the cluster")
        state = ClusterState(snapshot, now=self._clock.now())
        return _Listed(cluster, {pod.uid: pod for pod in state.pods()})

    def _note(self, progress: PlanProgress) -> None:
        for move in progress.done:
            self._outcomes.setdefault(move, MoveOutcome(move, MoveState.DONE_BEFORE))
        for move in progress.remaining:
            self._outcomes[move] = MoveOutcome(move, MoveState.REMAINS, progress.predictions.get(move, ""))

    # -- one step ------------------------------------------------------------------------------------------------------

    async def _carry_out_step(self, transport: Transport, listed: _Listed, step: Sequence[PlannedMove]) -> None:
        known = {pod.metadata.uid for pod in listed.cluster.pods}
        pods = {move: next(pod for pod in listed.cluster.pods if move.is_of(pod)) for move in step}
        if self._options.cordons:
            await self._cordon(transport, listed.cluster, (*self._plan.cordoned, *(move.source for move in step)))
        _log.info("Step of the plan", extra=fields(step=step[0].step, pods=[move.pod for move in step]))
        budgets = EvictionBudgets(listed.cluster.objects)
        for move, pod in pods.items():
            assigned = listed.evictable[pod.metadata.uid]
            eviction = Eviction(assigned, "plan", "Defragmentation", self._plan.reason)
            await self._evict(transport, eviction, budgets, pod)
            self._outcomes[move] = MoveOutcome(move, MoveState.EVICTED)
        await self._wait_for_replacements(transport, {move: pods[move].metadata.uid for move in step}, known)

    async def _evict(self, transport: Transport, eviction: Eviction, budgets: EvictionBudgets, pod: Pod) -> None:
        """Evict a pod, as soon as its budget allows that within the timeout. Raises _Stopped."""
        until = self._clock.monotonic() + self._options.move_timeout
        while True:
            try:
                await transport.request("POST", *eviction_request(eviction), retries=0)
            except APIError as error:
                if error.code in (_NOT_FOUND, _CONFLICT):
                    return  # it has gone since
                if error.code == _TOO_MANY_REQUESTS and self._clock.monotonic() < until:
                    await self._clock.sleep(_RETRY_PERIOD)
                    continue
                refused = replace(eviction, refusal=Refusal(RefusedBy.API_SERVER, str(error)))
                for observer in self._observers:
                    observer.refused(refused)
                names = ", ".join(budget.metadata.name for budget in budgets.covering(pod))
                by = f" (PodDisruptionBudget {names})" if names else ""
                raise _Stopped(f"the API server does not evict {pod.key}: {error}{by}") from None
            for observer in self._observers:
                observer.evicted(eviction)
            return

    async def _wait_for_replacements(
        self, transport: Transport, evicted: dict[PlannedMove, str], known: set[str]
    ) -> None:
        """Return when the evicted pods (uids by move) are gone and as many new ones have nodes. Raises _Stopped.

        ``known`` are the pods that existed before.
        """
        until = self._clock.monotonic() + self._options.move_timeout
        while True:
            pods = await self._pods(transport, {move.namespace for move in evicted})
            uids = {pod.metadata.uid for pod in pods}
            new = [pod for pod in pods if pod.metadata.uid not in known and pod.metadata.deletion_timestamp is None]
            missing: list[str] = []
            for move, uid in evicted.items():
                pod = next((pod for pod in new if replaces(pod, move) and pod.spec.node_name), None)
                if pod is not None:
                    new.remove(pod)
                    self._outcomes[move] = MoveOutcome(move, MoveState.MOVED, pod.spec.node_name, pod.key)
                    if pod.spec.node_name in self._plan.cordoned:
                        raise _Stopped(f"{pod.key} came to {pod.spec.node_name}, which is to be free")
                elif pending := next((pod for pod in new if replaces(pod, move)), None):
                    missing.append(f"{pending.key}, the replacement of {move.pod}, has no node{_why_pending(pending)}")
                else:
                    missing.append(f"{move.controller} has not replaced {move.pod}")
                if uid in uids:
                    missing.append(f"{move.pod} is still terminating")
            if not missing:
                return
            await self._wait(until, missing[0])

    async def _wait_for_nodes(self, transport: Transport, progress: PlanProgress) -> None:
        """Return when the pods that wait for a node have one, or are gone. Raises _Stopped."""
        waiting = {pod.metadata.uid for pod in progress.waiting}
        until = self._clock.monotonic() + self._options.move_timeout
        while True:
            pods = await self._pods(transport, {pod.metadata.namespace for pod in progress.waiting})
            left = [pod for pod in pods if pod.metadata.uid in waiting and not pod.spec.node_name]
            if not left:
                return
            await self._wait(until, f"{left[0].key} of a controller whose pod was moved has no node")

    async def _wait(self, until: float, problem: str) -> None:
        if self._clock.monotonic() >= until:
            raise _Stopped(f"{problem} after {self._options.move_timeout:g} s")
        await self._clock.sleep(_POLL_PERIOD)

    async def _pods(self, transport: Transport, namespaces: Iterable[str]) -> list[Pod]:
        found: list[Pod] = []
        for namespace in sorted(namespaces):
            pages, _ = await list_pages(transport, f"/api/v1/namespaces/{quote(namespace)}/pods")
            found += [pod for page in pages for pod in decode(_PodList, page).items]
        return found

    # -- cordons -------------------------------------------------------------------------------------------------------

    async def _cordon(self, transport: Transport, cluster: ClusterObjects, names: Iterable[str]) -> None:
        """Cordon nodes that are not, and let the scheduler see that."""
        cordoned = {node.metadata.name for node in cluster.nodes if node.spec.unschedulable}
        missing = [name for name in dict.fromkeys(names) if name not in cordoned]
        for name in missing:
            await self._patch_node(transport, name, unschedulable=True, purpose=_PURPOSE)
        if missing:
            await self._clock.sleep(CORDON_PERIOD)

    async def _uncordon(self, transport: Transport, cluster: ClusterObjects) -> bool:
        """Uncordon the nodes that were cordoned here and are not to be free; whether there were any."""
        names = [
            node.metadata.name
            for node in cluster.nodes
            if node.spec.unschedulable
            and node.metadata.annotations.get(CORDONED) == _PURPOSE
            and node.metadata.name not in self._plan.cordoned
        ]
        for name in names:
            await self._patch_node(transport, name, unschedulable=False, purpose=None)
        return bool(names)

    async def _patch_node(self, transport: Transport, name: str, *, unschedulable: bool, purpose: str | None) -> None:
        changes = {"metadata": {"annotations": {CORDONED: purpose}}, "spec": {"unschedulable": unschedulable}}
        body = msgspec.json.encode(changes)
        await transport.request("PATCH", f"/api/v1/nodes/{quote(name)}", body, content_type=MERGE_PATCH)
        _log.info("Cordoned" if unschedulable else "Uncordoned", extra=fields(node=name))


class _PodList(msgspec.Struct, frozen=True):
    items: list[Pod] = []


def _why_pending(pod: Pod) -> str:
    """What the scheduler says of a pending pod, after a colon."""
    messages = [one.message for one in pod.status.conditions if one.type == "PodScheduled" and one.status == "False"]
    return f" ({messages[0]})" if messages and messages[0] else ""
