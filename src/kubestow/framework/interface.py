"""The contract with plugins: one small base class per extension point.

A plugin is a class with a ``name`` that derives from the base classes of the points it extends, in the reference's
order and with the reference's meanings (4.2):

    PreEnqueue, QueueSort, PreFilter, Filter, PostFilter, PreScore, Score, Reserve, Permit, PreBind, Bind, PostBind

Filters and scores are asked about many nodes at once: they get a :class:`~kubestow.cluster.nodes.views.Nodes` and answer with
an array, one entry per row of it. Who would rather think of one node at a time derives from :class:`NodeFilterPlugin`
or :class:`NodeScorePlugin`. Filters and scores read; they never write.

The runtime remembers answers. A plugin that wants that says by :meth:`Plugin.signature` what of a pod its answers
depend on, and by :attr:`Plugin.events_to_register` which events make them stale; without a signature it is asked afresh in every
cycle, which is always right.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import index
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from kubestow.api.core import Node
from kubestow.cluster.cache import Cluster
from kubestow.cluster.catalog import NamedObject
from kubestow.cluster.events import ClusterEvent
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.claim_writer import ResourceClaimWriter
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.event_registration import EVERYTHING, EventRegistration
from kubestow.framework.status import SUCCESS, Code, Status, Verdict

if TYPE_CHECKING:
    from kubestow.framework.diagnosis import Diagnosis
    from kubestow.framework.filters import Filters

__all__ = [
    "MAX_SCORE",
    "BindPlugin",
    "ExtenderCandidates",
    "FilterPlugin",
    "Handle",
    "NodeFilterPlugin",
    "NodeScorePlugin",
    "PermitPlugin",
    "Plugin",
    "PostBindPlugin",
    "PostFilterPlugin",
    "PostFilterResult",
    "PreBindPlugin",
    "PreEnqueuePlugin",
    "PreFilterPlugin",
    "PreFilterResult",
    "PreScorePlugin",
    "QueueSortPlugin",
    "ReservePlugin",
    "ScorePlugin",
    "Victims",
    "Waiting",
    "normalized",
]

#: The highest score a plugin may give a node; the lowest is 0.
MAX_SCORE = 100

Scores = NDArray[np.int64]

T = TypeVar("T")


class Waiting(Protocol):
    """A placed pod that Permit plugins hold back."""

    @property
    def info(self) -> PodInfo:
        """The pod."""

    @property
    def pending_plugins(self) -> Sequence[str]:
        """The names of the plugins that have not allowed it yet."""

    def allow(self, plugin: str) -> None:
        """A plugin lets go; when all have, the pod is bound."""

    def reject(self, plugin: str, message: str) -> bool:
        """A plugin refuses the pod after all; False when it was decided already."""


class Handle(Protocol):
    """What a plugin may use of the scheduler it lives in, given to it when it is made."""

    @property
    def cluster(self) -> Cluster:
        """The cluster's state; plugins only read it."""

    @property
    def random(self) -> Random:
        """The source of everything that is left to chance."""

    def feature_enabled(self, gate: str) -> bool:
        """Whether a feature gate is on."""

    def is_preempting(self, uid: str) -> bool:
        """Whether evictions that a pending pod caused are still being carried out."""

    def waiting_pods(self) -> Sequence[Waiting]:
        """The pods that Permit plugins hold back, the longest waiting first."""

    def pending_pods(self) -> Sequence[PodInfo]:
        """The pods in the queue, wherever in it; the one that is being scheduled, and those on their way to be bound,
        are not among them."""

    def activate(self, pods: Iterable[PodInfo]) -> None:
        """Have pods tried again at once, whatever refused them and however long their backoff.

        PreEnqueue plugins are asked as always. A pod that is being scheduled comes back after its attempt if that
        fails. To wait for the end of a cycle, see :class:`kubestow.framework.pods_to_activate.PodsToActivate`.
        """

    async def bind(self, pod: PodInfo, node_name: str) -> None:
        """Bind a pod through the cluster API. Raises APIError or Unreachable."""

    async def patch(self, obj: NamedObject, changes: Mapping[str, Any], *, subresource: str = "") -> str:
        """Merge-patch an object of one of the cluster's catalogs (or its ``status``), if it is still as it was read.

        The new resourceVersion is returned. Writes to one object go out one by one. Raises APIError (a conflict when
        the object has changed) or Unreachable.
        """

    async def wait_for(self, answer: Callable[[], T | None], seconds: float) -> T | None:
        """Ask again after every change of the cluster until there is an answer; None when it takes too long."""

    async def retry_until_answered(self, subject: str, read: Callable[[], Awaitable[T]]) -> T:
        """Read something from the API server, again and again until it answers. Raises APIError for a refusal."""

    async def shield(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for work that goes on to its end even if the wait is cancelled, such as a write that may take effect."""

    @property
    def resource_claims(self) -> ResourceClaimWriter:
        """Writes to the API's claims on devices."""

    def now(self) -> datetime:
        """The present moment, in UTC."""

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Have something done in the background; what it raises is logged."""

    def record(self, pod: PodInfo, *, reason: str, action: str, note: str) -> None:
        """Write a Normal event about a pod some time soon."""

    def device_wait_ended(self, pod: PodInfo, driver: str, outcome: str, seconds: float) -> None:
        """Tell whoever watches that a pod has waited for devices of a driver to be made ready.

        The outcome is ``success``, ``failure``, ``timeout`` or ``error``.
        """


class Plugin(ABC):
    """The base of all plugins. Made once per profile, with its args and a handle.

    With ``Args`` the plugin's ``pluginConfig`` is read into that struct, strictly; without it, ``args`` is what the
    configuration says, as plain data, None where it says nothing.
    """

    name: ClassVar[str]
    Args: ClassVar[type[msgspec.Struct] | None] = None
    #: Seconds that an ``async def`` of this plugin may take; then it is cancelled, which counts as an error. None for a
    #: plugin that keeps time itself.
    time_limit: float | None = 15 * 60.0
    #: Events that can change this plugin's mind.
    events_to_register: Sequence[EventRegistration] = EVERYTHING
    #: Events that can change what :meth:`applies_to` says; none where that depends on the shape alone.
    applicability_events: Sequence[ClusterEvent] = ()
    #: Kinds of objects that are watched only where some plugin names them, here or as an interest.
    kinds: Sequence[type[Any]] = ()

    def __init__(self, args: Any, handle: Handle) -> None:
        self.args = args
        self.handle = handle

    def watched_kinds(self) -> set[type[Any]]:
        """:attr:`kinds`, and those of a plugin's own that it is interested in."""
        return {*self.kinds, *(interest.kind for interest in self.events_to_register if interest.kind is not None)}

    def applies_to(self, pod: PodInfo) -> bool:
        """Whether this plugin has anything to say of pods of this *shape*; False skips its filter and score.

        Asked once per shape, and again after :attr:`applicability_events`.
        """
        return True

    def signature(self, pod: PodInfo) -> Hashable | None:
        """What of the pod's *shape* the answers depend on; pods with equal signatures share them.

        None means that answers must not be remembered.
        """
        return None


class PreEnqueuePlugin(Plugin):
    """Decides whether a pod may enter the active queue at all."""

    @abstractmethod
    def pre_enqueue(self, pod: PodInfo) -> Status:
        """SUCCESS admits the pod; anything else keeps it gated."""


class Queued(Protocol):
    """A pod in the queue, as QueueSort sees it. ``timestamp`` is in seconds."""

    @property
    def info(self) -> PodInfo:
        """The pod."""

    @property
    def timestamp(self) -> float:
        """When it entered the queue, in seconds of the injected clock."""


class QueueSortPlugin(Plugin):
    """Orders the active queue; a profile has exactly one."""

    @abstractmethod
    def sort_key(self, queued: Queued) -> Any:
        """A comparable key; the smallest is scheduled first."""


@dataclass(frozen=True, slots=True)
class PreFilterResult:
    """A success that narrows the nodes to those of the given names."""

    node_names: frozenset[str]


class PreFilterPlugin(Plugin):
    """Looks at the pod once, before any node: prepares state, narrows the nodes, or ends the cycle."""

    @abstractmethod
    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Status | PreFilterResult | None:
        """``nodes`` are all nodes. None is success; a skip leaves the plugin's filter out of this cycle."""


class FilterPlugin(Plugin):
    """Says which nodes cannot take the pod."""

    #: Asked only about nodes that the plugins before it left over, and never from memory.
    uncached: ClassVar[bool] = False
    #: What goes wrong when a profile disables this plugin's PreFilter; None when the filter can do without.
    missing_pre_filter_error: ClassVar[str | None] = None

    @abstractmethod
    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict | None:
        """A verdict over the rows of ``nodes``; None means that all pass."""


class NodeFilterPlugin(FilterPlugin):
    """A filter written for one node at a time."""

    uncached: ClassVar[bool] = True

    @abstractmethod
    def filter_node(self, state: CycleState, pod: PodInfo, node: Node, pods: Sequence[PodInfo]) -> Status | None:
        """Whether one node, with the pods on it, can take the pod. None is success."""

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict:
        """Ask :meth:`filter_node` about each row."""
        keys = np.zeros(len(nodes), np.int32)
        statuses: dict[int, Status] = {}
        for position in range(len(nodes)):
            status = self.filter_node(state, pod, nodes.node(position), nodes.pods(position))
            if status is not None and not status.ok:
                keys[position] = position + 1
                statuses[position + 1] = status
        return Verdict.of(keys, statuses)


@dataclass(frozen=True, slots=True)
class Victims:
    """Whom a preemption on a node would evict, the most important first; ``violations`` of them a budget protects."""

    pods: tuple[PodInfo, ...]
    violations: int = 0


class ExtenderCandidates(Protocol):
    """The nodes that a preemption chose from, for others to have a say before the choice is final."""

    def victims_by_node(self) -> Mapping[str, Victims]:
        """The candidates by name. To be asked for before anything in the cluster changes."""

    def select(self, victims_by_node: Mapping[str, Victims]) -> PostFilterResult:
        """The outcome with the candidates that are left, perhaps with other victims."""


@dataclass(frozen=True, slots=True)
class PostFilterResult:
    """What PostFilter achieved. ``nominated_node_name`` None leaves the pod's nomination alone, ``""`` clears it.

    ``victims`` are the pods to be evicted from that node, the most important first (among them may be pods that are
    being deleted already, or that wait on Permit and need not be deleted). ``lower_priority_nominated`` are the pods that had been
    promised that node and lose their nomination. ``action`` is what else has to be done in the API, such as taking back
    a claim's devices: whoever acts on decisions runs it, whoever only asks does not. What it raises (APIError,
    Unreachable) is logged; the pod is tried again anyway.
    """

    status: Status
    nominated_node_name: str | None = None
    victims: tuple[PodInfo, ...] = ()
    lower_priority_nominated: tuple[PodInfo, ...] = ()
    action: Callable[[], Coroutine[Any, Any, None]] | None = None
    #: What extenders may narrow down before the nomination holds; None when they have no say in it.
    extender_candidates: ExtenderCandidates | None = None
    #: How many of the victims a disruption budget protects.
    violations: int = 0


class PostFilterPlugin(Plugin):
    """Called when no node fits, to make room."""

    #: Whether its answer holds for the copies of a pod, too; otherwise every pod of a gang is asked about.
    applies_to_identical_pods: ClassVar[bool] = False

    @abstractmethod
    def post_filter(self, state: CycleState, pod: PodInfo, diagnosis: Diagnosis, filters: Filters) -> PostFilterResult:
        """Success ends the search with a nomination; a refusal lets the next plugin try.

        ``filters`` answer what the profile's filters would say of this pod if the nodes were different.
        """


class PreScorePlugin(Plugin):
    """Prepares scoring, once it is known which nodes are feasible."""

    @abstractmethod
    def pre_score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Status | None:
        """``nodes`` are the feasible ones. None is success; a skip leaves the plugin's score out of this cycle."""


class ScorePlugin(Plugin):
    """Ranks feasible nodes."""

    #: Whether scores depend on which nodes are feasible, and not only on the pod and the node itself.
    scores_feasible_set: ClassVar[bool] = False
    #: What goes wrong when a profile disables this plugin's PreScore; None when the score can do without.
    missing_pre_score_error: ClassVar[str | None] = None

    @abstractmethod
    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Scores:
        """A raw score per row of ``nodes``, int64."""

    def normalize(self, state: CycleState, pod: PodInfo, scores: Scores, nodes: Nodes) -> Scores:
        """Raw scores of the feasible ``nodes`` to 0 .. MAX_SCORE; by default they are that already.

        Unless ``scores_feasible_set``, equal raw scores must become equal scores.
        """
        return scores


class NodeScorePlugin(ScorePlugin):
    """A score written for one node at a time."""

    scores_feasible_set: ClassVar[bool] = True

    @abstractmethod
    def score_node(self, state: CycleState, pod: PodInfo, node: Node, pods: Sequence[PodInfo]) -> int:
        """The score of one node with the pods on it, a whole number."""

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Scores:
        """Ask :meth:`score_node` about each row."""
        scores = (index(self.score_node(state, pod, nodes.node(i), nodes.pods(i))) for i in range(len(nodes)))
        return np.fromiter(scores, np.int64, len(nodes))


class ReservePlugin(Plugin):
    """Keeps its own books of what a placed pod takes, until the pod is bound or given up."""

    @abstractmethod
    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """The pod has been placed on a node. None is success."""

    @abstractmethod
    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """The placement failed later on; also called when this plugin's reserve never ran."""


@dataclass(frozen=True, slots=True)
class Permission:
    """What Permit says: a status, and with WAIT how many seconds it may take (900 at most)."""

    status: Status = SUCCESS
    timeout: float = 0.0

    @classmethod
    def wait(cls, seconds: float) -> Permission:
        """Hold the pod back until somebody allows it, at most so many seconds; then it is refused."""
        return cls(Status(Code.WAIT), seconds)


class PermitPlugin(Plugin):
    """Allows, refuses or delays the binding of a placed pod."""

    @abstractmethod
    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Permission | Status | None:
        """Asked at the end of the scheduling cycle. None is success."""


class PreBindPlugin(Plugin):
    """Work that must be done before a pod is bound, such as binding its volumes. May be ``async def``.

    It is cancelled when a pod of higher priority takes the pod's place.
    """

    #: Whether :meth:`pre_bind` may run at the same time as that of neighbours in the order which allow it too.
    parallel: ClassVar[bool] = False

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """SUCCESS: there is work to do; SKIP: there is none."""
        return SUCCESS

    @abstractmethod
    def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | Awaitable[Status | None] | None:
        """Do the work. None is success."""


class BindPlugin(Plugin):
    """Binds the pod. May be ``async def``."""

    @abstractmethod
    def bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | Awaitable[Status | None] | None:
        """None is success; a skip leaves the pod to the next plugin."""


class PostBindPlugin(Plugin):
    """Told of every pod that was bound. May be ``async def``."""

    @abstractmethod
    def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Awaitable[None] | None:
        """The pod is bound."""


def normalized(scores: Scores, *, reverse: bool = False) -> Scores:
    """The usual normalisation (semantics 4.5): the highest becomes MAX_SCORE; reversed, the highest becomes 0."""
    highest = int(scores.max(initial=0))
    if highest == 0:
        return np.full_like(scores, MAX_SCORE) if reverse else scores
    scaled = scores * MAX_SCORE // highest
    return MAX_SCORE - scaled if reverse else scaled
