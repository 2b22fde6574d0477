"""Scheduling decisions on a static cluster, for the tests of a plugin.

The harness holds nodes and pods, builds one profile with the plugin under test, and is the handle of all its plugins.
It runs scheduling cycles only: there is no queue, no API server and no binding cycle, and its time changes only when a
test sets it. For a running scheduler see :mod:`kubestow.testing.scheduler_harness`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from random import Random
from typing import Any

import numpy as np

from kubestow import config
from kubestow.api.core import Node, Pod
from kubestow.api.resource import ResourceClaim
from kubestow.cluster.cache import Cluster
from kubestow.cluster.changes.catalog import KubernetesObject
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.pod_groups import PodGroupAPI
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.engine.cluster_api.resource_claims import InMemoryResourceClaims
from kubestow.errors import APIError
from kubestow.framework.interface import Plugin, Waiting
from kubestow.framework.profile import Registry, build_profile
from kubestow.plugins import in_tree_registry
from kubestow.rules.minors import DEFAULT_MINOR, Minor
from kubestow.scheduling.decision.node_selection import FirstByName
from kubestow.scheduling.decision.pipeline import DecisionPipeline, run_synchronously
from kubestow.scheduling.decision.result import Decision, Scheduled
from kubestow.scheduling.scheduler.handle import BaseHandle


class PluginHarness(BaseHandle):
    """Nodes, pods and one scheduling profile. Of the nodes with the highest score the first by name is chosen.

    ``profile`` is a KubeSchedulerProfile in its API spelling, ``plugins`` are the out-of-tree plugins to register,
    ``gates`` are feature gates of the ``minor`` version, and ``pod_group_apis`` those of other projects whose pod
    groups count. Raises ConfigurationError for an invalid profile and PluginError when the constructor of a plugin
    fails.
    """

    def __init__(
        self,
        nodes: Iterable[Node] = (),
        pods: Iterable[Pod] = (),
        *,
        profile: Mapping[str, Any] | None = None,
        plugins: Iterable[type[Plugin]] = (),
        gates: Mapping[str, bool] | None = None,
        pod_group_apis: Iterable[PodGroupAPI] = (),
        minor: Minor = DEFAULT_MINOR,
    ) -> None:
        enabled = config.FeatureGates(gates, minor=minor)
        super().__init__(Cluster(pod_group_apis, gates=enabled), enabled, Random(0))
        #: UIDs of the pods whose victims are still being evicted.
        self.preempting: set[str] = set()
        self.resource_claims = InMemoryResourceClaims(self.cluster.catalog(ResourceClaim))
        self.time = datetime(2026, 1, 1, tzinfo=UTC)
        #: Events that plugins recorded, as (namespace/name of the pod, reason).
        self.events: list[tuple[str, str]] = []
        #: Finished waits for device binding conditions, as (driver, outcome).
        self.device_waits: list[tuple[str, str]] = []
        #: Pods that wait on Permit plugins.
        self.waiting: list[Waiting] = []
        #: Pods in the scheduling queue.
        self.pending: list[PodInfo] = []
        #: What plugins run periodically.
        self.periodic_work: list[Callable[[], Awaitable[None]]] = []
        #: Pods that plugins activated.
        self.activated: list[PodInfo] = []
        registry: Registry = in_tree_registry(minor) | {plugin.name: plugin for plugin in plugins}
        profiles = [{"schedulerName": "default-scheduler", **(profile or {})}]
        document = {"apiVersion": config.API_VERSION, "kind": config.KIND, "profiles": profiles}
        configuration = config.load(document, subject="profile", gates=self._gates)
        self.profiles = {p.scheduler_name: build_profile(p, registry, self) for p in configuration.profiles}
        self.pipeline = DecisionPipeline(self.cluster, self.profiles, FirstByName())
        for node in nodes:
            self.cluster.add_node(node)
        for pod in pods:
            self.cluster.put_pod(self.info(pod))

    # -- the handle of the plugins ---------------------------------------------------------------------------------

    def is_preempting(self, uid: str) -> bool:
        """Whether a pod is in :attr:`preempting`."""
        return uid in self.preempting

    def waiting_pods(self) -> Sequence[Waiting]:
        """The pods in :attr:`waiting`."""
        return self.waiting

    async def request(self, method: str, path: str, body: Any = None) -> Any:
        """Raises APIError: there is no API server."""
        raise APIError(404, "NotFound", f"{method} {path}: a harness has no API server")

    def pending_pods(self) -> Sequence[PodInfo]:
        """The pods in :attr:`pending`."""
        return self.pending

    def activate(self, pods: Iterable[PodInfo]) -> None:
        """Add pods to :attr:`activated`."""
        self.activated += pods

    async def bind(self, pod: PodInfo, node_name: str) -> None:
        """Do nothing; :meth:`schedule` binds."""

    def now(self) -> datetime:
        """:attr:`time`, in UTC."""
        return self.time

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine to its end. It must not wait for anything."""
        run_synchronously(work)

    def run_periodically(self, seconds: float, work: Callable[[], Awaitable[None]]) -> None:
        """Add the work to :attr:`periodic_work`; a test awaits it when it likes."""
        self.periodic_work.append(work)

    def record(self, pod: PodInfo, *, reason: str, action: str, note: str, event_type: str = "Normal") -> None:
        """Add an event to :attr:`events`."""
        self.events.append((pod.key, reason))

    def device_wait_ended(self, pod: PodInfo, driver: str, outcome: str, seconds: float) -> None:
        """Add a wait to :attr:`device_waits`."""
        self.device_waits.append((driver, outcome))

    async def patch(self, obj: KubernetesObject, changes: Mapping[str, Any], *, subresource: str = "") -> str:
        """Write nothing, and return the object's current resourceVersion."""
        return obj.metadata.resource_version

    # -- decisions -------------------------------------------------------------------------------------------------

    def info(self, pod: Pod) -> PodInfo:
        """The PodInfo of a pod."""
        return self.cluster.shapes.info(pod)

    def decide(self, pod: Pod) -> Decision:
        """The result of a scheduling cycle for a pod. The cluster does not change."""
        return self.pipeline.decide_by_plugins(self.info(pod))

    def schedule(self, pod: Pod) -> Decision:
        """Run a scheduling cycle for a pod, and assume it on the chosen node if there is one."""
        decision = self.decide(pod)
        if decision.node_name is not None:
            self.cluster.assume(decision.pod, decision.node_name)
        return decision

    def feasible(self, pod: Pod) -> set[str]:
        """The names of the feasible nodes of a pod."""
        decision = self.decide(pod)
        if not isinstance(decision, Scheduled):
            return set()
        return set(Nodes(self.cluster.nodes, decision.candidates).names)

    def rejections(self, pod: Pod) -> dict[str, tuple[str, tuple[str, ...]]]:
        """The plugin that rejected each infeasible node, and its reasons, by the node's name."""
        found = self.decide(pod).feasibility
        if found is None:
            return {}
        diagnosis = found.diagnose()
        rejected = ((int(row), diagnosis.status(int(row))) for row in np.flatnonzero(diagnosis.rejected))
        return {self.cluster.nodes.names[row]: (status.plugin, status.reasons) for row, status in rejected}

    def scores(self, pod: Pod, plugin: str) -> dict[str, int]:
        """A plugin's weighted scores of the feasible nodes, by the nodes' names.

        Empty if no node is feasible or the plugin's PreScore returns Skip.
        """
        decision = self.decide(pod)
        if not isinstance(decision, Scheduled):
            return {}
        names = Nodes(self.cluster.nodes, decision.candidates).names
        results = decision.evaluation.score_by_plugin(decision.pod, decision.candidates)
        scores = next((result.weighted for result in results if result.plugin == plugin), None)
        return {} if scores is None else dict(zip(names, scores.tolist(), strict=True))
