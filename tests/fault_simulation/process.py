"""A scheduler process: started, stopped in good order, killed at any instant, started again.

Every task that a process starts belongs to it, so that it can be killed with all it does, and so that a process that
has stopped can be asked whether it left anything running.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextvars import Context, ContextVar, copy_context
from random import Random
from typing import Any

from kubestow import config
from kubestow.api.core import Pod
from kubestow.client.leader_election import LeaderElector, LeaseTimings
from kubestow.client.lease_lock import LeaseLock
from kubestow.framework.profile import implements
from kubestow.plugins import in_tree_registry
from kubestow.scheduling.decision.result import Decision
from kubestow.scheduling.environment import Environment
from kubestow.scheduling.observer import Observer
from kubestow.scheduling.queued_pod import QueuedPod
from kubestow.scheduling.scheduler import Scheduler
from kubestow.testing.virtual_time import VirtualClock
from tests.fault_simulation.clocks import UnsteadyClock
from tests.fault_simulation.connection import Connection
from tests.fault_simulation.extender import WaywardExtender
from tests.fault_simulation.faults import Faults
from tests.fault_simulation.interference import NAME, Books, meddling
from tests.fault_simulation.second_opinion import Opinion
from tests.fault_simulation.server import Server
from tests.fault_simulation.sight import Glimpse, Sight
from tests.fault_simulation.storage import volume_objections
from tests.fault_simulation.trace import Trace
from tests.scheduling.gangs.groups import GATES

__all__ = ["Process", "own_tasks"]

#: Longest time a process may take to stop in good order, in seconds: requests under way have to end.
_GRACE = 30.0

#: In the order in which they were started: sets of tasks have an order that no seed decides.
Tasks = dict[asyncio.Task[Any], None]

_owner: ContextVar[Tasks | None] = ContextVar("owner", default=None)


def own_tasks(loop: asyncio.AbstractEventLoop) -> None:
    """Have every task of a loop belong to the process that started it."""

    def start(
        loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], *, context: Context | None = None
    ) -> asyncio.Task[Any]:
        task = asyncio.Task(coroutine, loop=loop, context=context)
        owner = _owner.get()
        if owner is not None:
            owner[task] = None
            task.add_done_callback(lambda done: owner.pop(done, None))
        return task

    loop.set_task_factory(start)  # type: ignore[arg-type]  # the type of factories knows no context


class Process(Observer):
    """One scheduler process and its successors; ``name`` is what it is to the server.

    ``before_bind`` is called with this process and the uid of a pod when it asks the server to bind it, ``after_bind``
    with the name of the node too when the server has, ``complain`` with what is wrong with a decision.
    """

    def __init__(
        self,
        name: str,
        scheduler_names: Sequence[str],
        *,
        server: Server,
        clock: VirtualClock,
        faults: Faults,
        trace: Trace,
        meddled: bool,
        extended: bool,
        elected: bool,
        wired: bool,
        before_bind: Callable[[Process, str], None],
        after_bind: Callable[[Process, str, str], None],
        complain: Callable[[str], None],
    ) -> None:
        self.name, self.scheduler_names = name, scheduler_names
        self._server, self._faults, self._trace = server, faults, trace
        self.clock = UnsteadyClock(clock, Random(f"{name} clock"))
        self._meddled, self._elected, self._wired, self._extended = meddled, elected, wired, extended
        self._before_bind, self._after_bind, self._complain = before_bind, after_bind, complain
        self._opinion = Opinion()
        self._starts = 0
        self._tasks: Tasks = {}
        self.start()

    # -- its life ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """A new process, that knows nothing of an older one."""
        self._starts += 1
        self._trace.note(self.name, "starts")
        self.books = Books()
        self.sight = Sight(self.name, self._trace)
        self.glimpses: dict[str, Glimpse] = {}
        #: The times at which it has asked the server to bind each pod.
        self.asked: dict[str, list[float]] = {}
        connection = Connection(
            self.name,
            self._server,
            faults=self._faults,
            trace=self._trace,
            sight=self.sight,
            before_bind=self._asks_to_bind,
            after_bind=lambda uid, node_name: self._after_bind(self, uid, node_name),
            clock=self.clock,
            random=Random(f"{self.name} {self._starts} client"),
            wired=self._wired,
        )
        self.scheduler = self._scheduler(connection)
        self._tasks = {}
        context = copy_context()
        context.run(_owner.set, self._tasks)
        self.running: asyncio.Task[None] = context.run(asyncio.create_task, self.scheduler.run())

    def _asks_to_bind(self, uid: str) -> None:
        self.asked.setdefault(uid, []).append(self.clock.monotonic())
        self._before_bind(self, uid)

    def _scheduler(self, connection: Connection) -> Scheduler:
        plugins = [meddling(self._faults, self.books)] if self._meddled else []
        registry = in_tree_registry() | {plugin.name: plugin for plugin in plugins}
        names = ["GangScheduling", NAME] if self._meddled else ["GangScheduling"]
        enabled = {"plugins": {"multiPoint": {"enabled": [{"name": name} for name in names]}}}
        document = {
            "apiVersion": config.API_VERSION,
            "kind": config.KIND,
            "profiles": [{"schedulerName": name, **enabled} for name in self.scheduler_names],
        }
        more = ("TopologyAwareWorkloadScheduling", "WorkloadAwarePreemption")
        gates = config.FeatureGates(GATES | dict.fromkeys(more, True))
        return Scheduler(
            config.load(document, subject=self.name, gates=gates, implements=implements(registry)),
            registry=registry,
            gates=gates,
            environment=Environment(connection, self.clock, Random(f"{self.name} {self._starts}"), self),
            extenders=self._extenders(connection),
            leadership=self._candidacy(connection) if self._elected else None,
        )

    def _extenders(self, connection: Connection) -> list[WaywardExtender]:
        if not self._extended:
            return []
        random = Random(f"{self.name} extender")
        ignorable, binds = random.random() < 0.5, random.random() < 0.5
        return [WaywardExtender(connection, self._faults, ignorable=ignorable, binds=binds)]

    def _candidacy(self, connection: Connection) -> LeaderElector:
        timings = LeaseTimings()
        transport = connection.wire(patience=timings.renew_deadline / 2)
        lock = LeaseLock(transport, identity=self.identity, record=connection.record)
        return LeaderElector(lock, clock=self.clock, timings=timings)

    @property
    def identity(self) -> str:
        """What the present process calls itself where leaders are elected."""
        return f"{self.name}/{self._starts}"

    @property
    def leads(self) -> bool:
        """Whether it would schedule."""
        return self.scheduler.leadership.is_leader

    @property
    def may_act(self) -> bool:
        """Whether nobody else leads by what the server says."""
        return not self._elected or self._server.lease.holder == self.identity

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return not self.running.done()

    async def stop(self) -> list[str]:
        """Stop in good order; what it left running."""
        self._trace.note(self.name, "stops")
        self.running.cancel()
        return await self.reap()

    async def reap(self) -> list[str]:
        """Wait for its end, for so long as that may take; what it left running."""
        await asyncio.wait([self.running], timeout=_GRACE)
        await asyncio.sleep(1.0)
        left = sorted(str(task.get_coro().__qualname__) for task in self._tasks)  # type: ignore[union-attr]
        await self.kill()
        return left

    async def kill(self) -> None:
        """End everything it does, at once."""
        self._trace.note(self.name, "is killed")
        while self._tasks:
            tasks = list(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    # -- the observer's interface ----------------------------------------------------------------------------------

    def decision_made(self, decision: Decision, seconds: float) -> None:
        uid, node_name = decision.pod.uid, decision.node_name
        self._trace.note(self.name, "decides", decision.pod.key, node_name or decision.message)
        if not self.may_act:
            self._complain(f"{self.identity} decides while {self._server.lease.holder or 'nobody'} leads")
        if node_name is not None:
            self.glimpses[uid] = self.sight.glimpse(node_name)
            self._judge(decision.pod.pod, node_name)

    def _judge(self, pod: Pod, node_name: str) -> None:
        """By what has been told, and by the placements that nobody has been told of yet."""
        placed = {told.metadata.uid: (told, told.spec.node_name) for told in self.sight.pods.values()}
        for placed_pod in self.scheduler.cluster.assumed():
            placed[placed_pod.info.uid] = placed_pod.info.pod, placed_pod.node_name
        nodes = {there.metadata.name for there in self.sight.nodes.values()}
        on_nodes = [(there, where) for there, where in placed.values() if where in nodes]
        for objection in (
            *self._opinion.objections(pod, node_name, nodes=self.sight.nodes.values(), placed=on_nodes),
            *volume_objections(
                pod,
                node_name,
                placed=on_nodes,
                claims=self.sight.claims.values(),
                volumes=self.sight.volumes.values(),
            ),
        ):
            self._complain(f"{self.name}: {objection}")

    def pod_bound(self, queued: QueuedPod, node_name: str, seconds: float) -> None:
        self._trace.note(self.name, "knows bound", queued.info.key, node_name)
