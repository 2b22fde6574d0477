"""What the scheduler offers its plugins: the cluster, pods, the API, and work in the background.

Plugins get a :class:`Handle`. Those that choose nodes for many pods at once get a
:class:`~kubestow.framework.profile.BatchHandle`: such a plugin gates pods at PreEnqueue, decides about them together
from time to time, suggests a node for each, and activates them. Each then has a scheduling cycle of its own, in which
the suggested node is tried first.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from random import Random
from typing import Any, Protocol, TypeVar

from kubestow.api.core import PodExtendedResourceClaimStatus
from kubestow.api.resource import ResourceClaim
from kubestow.cluster.cache import Cluster
from kubestow.cluster.changes.catalog import KubernetesObject
from kubestow.cluster.changes.events import ClusterEvent
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.config import Extender
from kubestow.rules.minors import Behaviour

T = TypeVar("T")


class Waiting(Protocol):
    """A pod that waits at Permit."""

    @property
    def info(self) -> PodInfo:
        """The pod."""

    @property
    def pending_plugins(self) -> Sequence[str]:
        """The names of the plugins that have not allowed it yet."""

    def allow(self, plugin: str) -> None:
        """Allow the pod on behalf of a plugin; once all pending plugins have, it is bound."""

    def reject(self, plugin: str, message: str) -> bool:
        """Reject the pod on behalf of a plugin; False when it has been decided already."""


class ResourceClaimWriter(Protocol):
    """Writes resource.k8s.io/v1 ResourceClaims. Every method raises APIError or Unreachable.

    A live scheduler writes to its API server, a simulation to its own memory. Claims are decoded in part only, so all
    changes are strategic merge patches with the claim's uid as precondition, and its resourceVersion where the write
    could race with another.
    """

    async def read(self, namespace: str, name: str) -> ResourceClaim:
        """GET a claim."""

    async def create(self, namespace: str, manifest: Mapping[str, Any]) -> ResourceClaim:
        """POST a claim, given as JSON-like data; returns it as created, with its name and uid."""

    async def patch(self, claim: ResourceClaim, patch: Mapping[str, Any], *, subresource: str = "") -> ResourceClaim:
        """PATCH a claim, or its ``status``, once, with a strategic merge patch; returns the patched claim."""

    async def delete(self, claim: ResourceClaim) -> None:
        """DELETE a claim with its uid as precondition; a claim that does not exist any more is no error."""

    async def report_extended(self, pod: PodInfo, status: PodExtendedResourceClaimStatus) -> None:
        """PATCH ``status.extendedResourceClaimStatus`` of a pod."""


class APIAccess(Protocol):
    """Reads and writes of plugins through the scheduler's API client."""

    async def bind(self, pod: PodInfo, node_name: str) -> None:
        """Bind a pod through the API server. Raises APIError or Unreachable."""

    async def patch(self, obj: KubernetesObject, changes: Mapping[str, Any], *, subresource: str = "") -> str:
        """Merge-patch a cached object, or its ``status``, with its resourceVersion as precondition.

        Returns the new resourceVersion. Writes to one object are serialized. Raises APIError (a conflict when the
        object has changed) or Unreachable.
        """

    async def request(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request to the API server, with the scheduler's credentials; objects are plain data.

        ``path`` includes the query. A PATCH is a JSON merge patch. For reads and for writes of objects of the plugin's
        own: the scheduler does not order it with its other writes, and its cache does not wait for it. Raises APIError
        or Unreachable; a write that raises may have taken effect.
        """

    @property
    def resource_claims(self) -> ResourceClaimWriter:
        """Writes to ResourceClaims."""

    async def pause_after_conflict(self) -> None:
        """Wait before a write that conflicted is computed and sent again: about 10 ms, with jitter."""

    def record(self, pod: PodInfo, *, reason: str, action: str, note: str, event_type: str = "Normal") -> None:
        """Record an event of a pod, Normal or Warning; it is written asynchronously."""


class BackgroundWork(Protocol):
    """Time, waiting, and work beside the scheduling cycles."""

    def now(self) -> datetime:
        """The time of the injected clock, in UTC."""

    async def wait_for(self, condition: Callable[[], T | None], seconds: float) -> T | None:
        """The first result of a condition that is not None, tried after every change; None after so many seconds."""

    async def retry_until_answered(self, subject: str, read: Callable[[], Awaitable[T]]) -> T:
        """Retry a read while the API server is unreachable. Raises APIError when it rejects the request."""

    def lock(self) -> AbstractAsyncContextManager[Any]:
        """A new lock for coroutines, held by ``async with``; those that wait get it in order."""

    async def shield(self, work: Coroutine[Any, Any, T]) -> T:
        """Await work that runs to its end even if the waiting task is cancelled, such as a write in progress."""

    async def compute(self, computation: Callable[[], T]) -> T:
        """The result of a long computation, which runs in a thread while the scheduler goes on.

        It must depend only on what it was given, and on nothing that changes meanwhile, such as the cluster. Where no
        scheduler runs it runs at once.
        """

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run work in the background; an exception is logged."""

    def run_periodically(self, seconds: float, work: Callable[[], Awaitable[None]]) -> None:
        """Run work in the background while the scheduler runs: at its start, and so many seconds after each end of it.

        For plugins that read data from elsewhere. An exception is logged, and the work goes on. Where no scheduler
        runs, as in an offline explanation, the work never runs.
        """

    def device_wait_ended(self, pod: PodInfo, driver: str, outcome: str, seconds: float) -> None:
        """Report the end of a pod's wait for a driver's devices: ``success``, ``failure``, ``timeout`` or ``error``."""


class Handle(APIAccess, BackgroundWork, Protocol):
    """What the scheduler offers its plugins; passed to the constructor of each."""

    @property
    def cluster(self) -> Cluster:
        """The scheduler's cache of the cluster.

        Plugins must not change nodes, pods or nominations. At Reserve, Unreserve and PreBind they may record their own
        reservations: VolumeBinding assumes volumes and claims in their catalogs, DynamicResources assumes device
        allocations in the ledger of claims.
        """

    @property
    def random(self) -> Random:
        """The random source; plugins use no other."""

    def feature_enabled(self, gate: str) -> bool:
        """Whether a feature gate is enabled."""

    def emulates(self, behaviour: Behaviour) -> bool:
        """Whether the emulated minor version of Kubernetes has a behaviour."""

    def is_preempting(self, uid: str) -> bool:
        """Whether evictions on behalf of a pending pod are still in progress."""

    def waiting_pods(self) -> Sequence[Waiting]:
        """The pods that wait at Permit, the longest waiting first."""

    def waiting_pod(self, uid: str) -> Waiting | None:
        """The pod of this uid if it waits at Permit."""

    def pending_pods(self) -> Sequence[PodInfo]:
        """The pods in all parts of the scheduling queue, without those in a scheduling or binding cycle."""

    def activate(self, pods: Iterable[PodInfo]) -> None:
        """Move pods to the active queue, whatever rejected them and whatever their backoff.

        PreEnqueue applies as usual. A pod in a scheduling cycle is moved if its attempt fails. To activate pods at the
        end of a cycle, see :class:`kubestow.framework.cycle_state.PodsToActivate`.
        """

    def report_change(self, event: ClusterEvent, node_name: str | None = None) -> None:
        """Report that data of the plugin's own has changed, as an event that plugins register for by its name.

        Invalidates cached results and requeues rejected pods according to the registrations; the results of one node
        only if it is named and the event is registered for a row. Not for use within a scheduling cycle.
        """

    @property
    def extenders(self) -> Sequence[Extender]:
        """The settings of the configured extenders, such as their managed resources."""
