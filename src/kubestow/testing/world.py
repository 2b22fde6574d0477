"""A cluster to decide on, without a server: nodes, pods, a profile, and questions in the domain's words."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from random import Random
from typing import Any, TypeVar

import numpy as np

from kubestow import config
from kubestow.api.core import Node, Pod
from kubestow.api.resource import ResourceClaim
from kubestow.cluster.cache import Cluster
from kubestow.cluster.catalog import Described
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.interface import Plugin, Waiting
from kubestow.framework.profile import Registry, build_profile
from kubestow.plugins import in_tree_registry
from kubestow.scheduling.decision.pipeline import DecisionPipeline
from kubestow.scheduling.decision.result import Decision, Scheduled
from kubestow.scheduling.decision.ties import FirstByName
from kubestow.simulation.resource_claims import InMemoryResourceClaims, run_synchronously

__all__ = ["World"]

T = TypeVar("T")


class World:
    """Nodes and pods under one configuration; ties go to the first node by name.

    ``profile`` is a profile of a KubeSchedulerConfiguration as the API spells it; ``plugins`` are plugin classes beside
    the in-tree ones, ``gates`` feature gates.
    """

    def __init__(
        self,
        nodes: Iterable[Node] = (),
        pods: Iterable[Pod] = (),
        *,
        profile: Mapping[str, Any] | None = None,
        plugins: Iterable[type[Plugin]] = (),
        gates: Mapping[str, bool] | None = None,
    ) -> None:
        self.cluster = Cluster()
        self.random = Random(0)
        #: Pods whose evictions are still being carried out, by uid.
        self.preempting: set[str] = set()
        self.resource_claims = InMemoryResourceClaims(self.cluster.catalog(ResourceClaim))
        self.time = datetime(2026, 1, 1, tzinfo=UTC)
        self.events: list[tuple[str, str]] = []
        #: Drivers whose devices were waited for, and how that ended.
        self.awaited: list[tuple[str, str]] = []
        #: Pods that Permit plugins hold back.
        self.waiting: list[Waiting] = []
        #: Pods in the queue, and those that plugins want tried again.
        self.pending: list[PodInfo] = []
        self.activated: list[PodInfo] = []
        self._gates = config.FeatureGates(gates)
        registry: Registry = in_tree_registry() | {plugin.name: plugin for plugin in plugins}
        document = {
            "apiVersion": config.API_VERSION,
            "kind": config.KIND,
            "profiles": [{"schedulerName": "default-scheduler", **(profile or {})}],
        }
        configuration = config.load(document, subject="profile", gates=self._gates)
        self.profiles = {p.scheduler_name: build_profile(p, registry, self) for p in configuration.profiles}
        self.pipeline = DecisionPipeline(self.cluster, self.profiles, FirstByName())
        for node in nodes:
            self.cluster.add_node(node)
        for pod in pods:
            self.cluster.put_pod(self.info(pod))

    # -- the handle that plugins get -------------------------------------------------------------------------------

    def feature_enabled(self, gate: str) -> bool:
        """Whether a feature gate is on."""
        return self._gates.enabled(gate)

    def is_preempting(self, uid: str) -> bool:
        """Whether a pod is among those in :attr:`preempting`."""
        return uid in self.preempting

    def waiting_pods(self) -> Sequence[Waiting]:
        """The pods in :attr:`waiting`."""
        return self.waiting

    def pending_pods(self) -> Sequence[PodInfo]:
        """The pods in :attr:`pending`."""
        return self.pending

    def activate(self, pods: Iterable[PodInfo]) -> None:
        """Keep them in :attr:`activated`."""
        self.activated += pods

    async def bind(self, pod: PodInfo, node_name: str) -> None:
        """Nothing is bound outside this world."""

    def now(self) -> datetime:
        """The time in this world."""
        return self.time

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Done at once."""
        run_synchronously(work)

    def record(self, pod: PodInfo, *, reason: str, action: str, note: str) -> None:
        """Keep an event, as (pod, reason)."""
        self.events.append((pod.key, reason))

    def device_wait_ended(self, pod: PodInfo, driver: str, outcome: str, seconds: float) -> None:
        """Keep it, as (driver, outcome)."""
        self.awaited.append((driver, outcome))

    async def patch(self, obj: Described, changes: Mapping[str, Any], *, subresource: str = "") -> str:
        """Nothing is written outside this world."""
        return obj.metadata.resource_version

    async def wait_for(self, answer: Callable[[], T | None], seconds: float) -> T | None:
        """There is no time here to wait for news in."""
        return answer()

    async def retry_until_answered(self, subject: str, read: Callable[[], Awaitable[T]]) -> T:
        """It answers at once."""
        return await read()

    async def shield(self, work: Coroutine[Any, Any, T]) -> T:
        """Nothing takes any time."""
        return await work

    # -- asking ----------------------------------------------------------------------------------------------------

    def info(self, pod: Pod) -> PodInfo:
        """The pod with what scheduling derives from it."""
        return self.cluster.shapes.info(pod)

    def decide(self, pod: Pod) -> Decision:
        """What would become of a pod; nothing changes."""
        return self.pipeline.decide(self.info(pod))

    def schedule(self, pod: Pod) -> Decision:
        """Decide about a pod, and put it where it goes."""
        decision = self.decide(pod)
        if decision.node_name is not None:
            self.cluster.assume(decision.pod, decision.node_name)
        return decision

    def feasible(self, pod: Pod) -> set[str]:
        """The names of the nodes that can take a pod."""
        decision = self.decide(pod)
        if not isinstance(decision, Scheduled):
            return set()
        return set(Nodes(self.cluster.nodes, decision.candidates).names)

    def refusals(self, pod: Pod) -> dict[str, tuple[str, tuple[str, ...]]]:
        """For each node that refuses a pod, the plugin that does and its reasons."""
        found = self.decide(pod).feasibility
        if found is None:
            return {}
        diagnosis = found.diagnose()
        refused = ((int(row), diagnosis.status(int(row))) for row in np.flatnonzero(diagnosis.refused))
        return {self.cluster.nodes.names[row]: (status.plugin, status.reasons) for row, status in refused}

    def scores(self, pod: Pod, plugin: str) -> dict[str, int]:
        """A plugin's weighted scores of the feasible nodes; empty when it skips the pod."""
        decision = self.decide(pod)
        if not isinstance(decision, Scheduled):
            return {}
        names = Nodes(self.cluster.nodes, decision.candidates).names
        weighted = dict(decision.evaluation.scores(self.cluster, decision.pod, decision.candidates))
        scores = weighted.get(plugin)
        return {} if scores is None else dict(zip(names, scores.tolist(), strict=True))
