"""The plugin interface: one small base class per extension point, and the handle that plugins get.

A plugin is a class with a ``name`` that derives from the base classes of the extension points it implements. Their
order and meaning are kube-scheduler's (semantics 4.2):

    PreEnqueue, QueueSort, PreFilter, Filter, PostFilter, PreScore, Score, Reserve, Permit, PreBind, Bind, PostBind

Filter and Score plugins are called for many nodes at once: they get a :class:`~kubestow.cluster.nodes.views.Nodes` view
and return an array with one entry per row. To write a plugin for one node at a time, subclass :class:`NodeFilterPlugin`
or :class:`NodeScorePlugin`. Filters and scores only read.

The results of PreFilter, Filter and Score are cached for plugins with a :meth:`Plugin.signature`, the part of the pod
that the results depend on. :attr:`Plugin.events_to_register` names the events that invalidate them. A plugin without a
signature is called in every scheduling cycle. :mod:`.runtime` calls the plugins.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Coroutine, Hashable, Mapping, Sequence
from dataclasses import dataclass
from operator import index
from typing import Any, ClassVar, Protocol, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.changes.events import ClusterEvent
from kubestow.cluster.changes.journal import InvalidationMask
from kubestow.cluster.nodes.node_info import NodeInfo, NodeInfos
from kubestow.cluster.nodes.views import NodeRow, NodeRows, Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.config import ExtensionPoint
from kubestow.errors import PluginError
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.diagnosis import Diagnosis, Rejection
from kubestow.framework.event_registration import EVERYTHING, EventRegistration, HintKeys
from kubestow.framework.handle import Handle, Waiting
from kubestow.framework.status import SUCCESS, Code, Status, Verdict
from kubestow.reports.model import PluginReport

__all__ = [
    "MAX_SCORE",
    "BindPlugin",
    "ExtenderCandidates",
    "FilterPlugin",
    "FilterRunner",
    "Handle",
    "NodeFilterPlugin",
    "NodeScorePlugin",
    "Permission",
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
    "Queued",
    "ReportingPlugin",
    "ReservePlugin",
    "ScorePlugin",
    "Scores",
    "SubqueueOrder",
    "Victims",
    "Waiting",
    "normalized",
]

MAX_SCORE = 100
"""The highest normalized score of a node; the lowest is 0."""

Scores = NDArray[np.int64]

T = TypeVar("T")


class Plugin(ABC):
    """The base of all plugins. Constructed once per profile, with its args and a handle.

    If a plugin declares ``Args``, its ``pluginConfig`` is strictly decoded into that struct. Otherwise ``args`` is the
    configuration as plain data, None without configuration.
    """

    name: ClassVar[str]
    Args: ClassVar[type[msgspec.Struct] | None] = None
    #: Seconds after which a coroutine of this plugin is cancelled, which counts as an error; None for no limit.
    time_limit: float | None = 15 * 60.0
    #: The events that can make a rejected pod schedulable, or that invalidate cached results.
    events_to_register: Sequence[EventRegistration] = EVERYTHING
    #: The events that can change :meth:`applies_to`, :meth:`label_keys_for` or :meth:`signature`; none when they
    #: depend on the shape of the pod alone.
    applicability_events: Sequence[ClusterEvent] = ()
    #: The keys of the pod labels that the results depend on, see :meth:`label_keys_for`; None: it may be any label.
    label_keys: Collection[str] | None = None
    #: Whether :meth:`applies_to`, :meth:`label_keys_for` and :meth:`signature` depend on the pod's requests and limits.
    #: If not, they are not called again for pods that differ in these only.
    reads_requests: ClassVar[bool] = True
    #: The same of ``spec.volumes``.
    reads_volumes: ClassVar[bool] = True
    #: Further extension points that configurations enable the plugin at, because the plugin of the same name in Go
    #: needs them; there is nothing to do at them, so the plugin is not called there.
    inert_at: ClassVar[Collection[ExtensionPoint]] = ()
    #: Kinds of objects that are only watched when a plugin names them, here or in a registration.
    kinds: Sequence[type[Any]] = ()

    def __init__(self, args: Any, handle: Handle) -> None:
        self.args = args
        self.handle = handle

    def watched_kinds(self) -> set[type[Any]]:
        """:attr:`kinds`, and the custom kinds of the registered events."""
        registered = (registration.kind for registration in self.events_to_register)
        return {*self.kinds, *(kind for kind in registered if kind is not None)}

    def applies_to(self, pod: PodInfo) -> bool:
        """Whether this plugin filters or scores pods of this *shape*; its results for the others are not computed.

        Called once per shape, and again after :attr:`applicability_events`.
        """
        return True

    def label_keys_for(self, pod: PodInfo) -> Collection[str] | None:
        """The keys of the labels on which results for pods of this *family* depend; by default :attr:`label_keys`.

        A family is a shape without its labels. Pods of one family that differ in other labels only (for all plugins)
        are treated as copies of each other. Called once per family, and again after :attr:`applicability_events`.
        """
        return self.label_keys

    def signature(self, pod: PodInfo) -> Hashable | None:
        """What of the pod's *shape* the results depend on; pods with equal signatures share cached results.

        None disables caching. Called once per shape, and again after :attr:`applicability_events`.
        """
        return None

    def hint_signature(self, pod: PodInfo) -> Hashable | None:
        """What of the pod the queueing hints of this plugin depend on; rejected pods with equal signatures share calls.

        A hint may depend on two more things: the event, and whether the pod itself is the event's object, because that
        pod gets a call of its own. None, the default, calls the hints for every pod. Called whenever a pod that this
        plugin rejected begins to wait.
        """
        return None

    def hint_keys(self, pod: PodInfo) -> HintKeys | None:
        """What a pod waits for that this plugin rejected: only events with one of the keys can help it.

        Counts for events that are registered with ``hint_keys``, which then have a key in common with every pod that
        their hint can requeue; see :data:`kubestow.framework.event_registration.HintKeys` for amounts. None means that
        every event may help the pod. Pods with equal hint signatures have equal keys. The keys must not depend on
        anything that changes while the pod waits; their number should be in proportion to the size of the pod.
        """
        return None


class ReportingPlugin(Plugin):
    """A plugin with a part of its own in the reports of simulations, and a page of its own on the dashboard."""

    #: What the page on the dashboard is called.
    report_title: ClassVar[str]

    @abstractmethod
    def report(self, *, from_now: bool = False) -> PluginReport:
        """What the plugin has seen and decided, called at the end of a simulation and when the dashboard shows it.

        With ``from_now``, as on the dashboard, times are relative to the present.
        """


class PreEnqueuePlugin(Plugin):
    """Gates pods: only admitted pods enter the active queue."""

    #: Whether the plugin gates a pod exactly while its preemption is in progress (:meth:`Handle.is_preempting`). Then
    #: it is not called for other pods, and not again for a gated pod before its preemption has ended.
    gates_during_preemption: ClassVar[bool] = False

    def may_gate(self, pod: PodInfo) -> bool:
        """Whether the plugin can reject this pod at all; if not, :meth:`pre_enqueue` is not called for it.

        Called when the pod is queued and whenever it is updated, so the result may depend on nothing but the pod.
        """
        return True

    @abstractmethod
    def pre_enqueue(self, pod: PodInfo) -> Status:
        """SUCCESS admits the pod; any other status keeps it gated."""


class Queued(Protocol):
    """A pod in the scheduling queue, as QueueSort sees it."""

    @property
    def info(self) -> PodInfo:
        """The pod."""

    @property
    def timestamp(self) -> float:
        """When it was last added to the queue, in seconds of the injected clock."""


class SubqueueOrder(ABC):
    """The order of an active queue in subqueues, where it changes while pods wait.

    The plugin selects the next subqueue at every pop. The pods of a subqueue are in the order of their sort keys.
    """

    @abstractmethod
    def subqueue_of(self, pod: PodInfo) -> Hashable:
        """The subqueue of a pod that enters the active queue."""

    @abstractmethod
    def opened(self, subqueue: Hashable) -> None:
        """A subqueue has a pod now, and had none before."""

    @abstractmethod
    def first(self, subqueues: Collection[Hashable]) -> Hashable:
        """The subqueue whose first pod is popped next, of all ``subqueues`` that have pods (at least one)."""


class QueueSortPlugin(Plugin):
    """Orders the active queue; a profile has exactly one such plugin."""

    #: Groups of pods whose order changes while they wait. None: sort keys alone decide, as they were when pods came.
    subqueues: SubqueueOrder | None = None

    @abstractmethod
    def sort_key(self, queued: Queued) -> Any:
        """A comparable key; the smallest is scheduled first."""


@dataclass(frozen=True, slots=True)
class PreFilterResult:
    """A success that narrows the nodes to those of these names."""

    node_names: frozenset[str]


class PreFilterPlugin(Plugin):
    """Runs once per cycle before the nodes are filtered: prepares state, narrows the nodes, or rejects the pod."""

    @abstractmethod
    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Status | PreFilterResult | None:
        """``nodes`` are all nodes. None is a success; a skip disables the plugin's Filter for this cycle."""


class FilterPlugin(Plugin):
    """Rejects the nodes that cannot run the pod."""

    #: Whether to call the filter in every cycle, and only for the nodes that passed the plugins before it.
    uncached: ClassVar[bool] = False
    #: The error of the filter in a profile that disables the plugin's PreFilter; None if it works without.
    missing_pre_filter_error: str | None = None

    @abstractmethod
    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict | None:
        """A verdict over the rows of ``nodes``; None when all pass."""

    def filter_row(self, state: CycleState, pod: PodInfo, node: NodeRow) -> int:
        """The key that :meth:`filter` has for a node. Optional: called when a few nodes only have changed.

        The keys must be those of the verdicts of :meth:`filter`, and none may stand for an ERROR.
        """
        raise NotImplementedError

    def filter_rows(self, state: CycleState, pod: PodInfo, nodes: NodeRows) -> list[int]:
        """The same for a few nodes, up to 32, instead of :meth:`filter_row`. Optional: spares calls."""
        return [self.filter_row(state, pod, node) for node in nodes]


class NodeFilterPlugin(FilterPlugin):
    """A Filter plugin for one node at a time."""

    uncached: ClassVar[bool] = True

    @abstractmethod
    def filter_node(self, state: CycleState, pod: PodInfo, node_info: NodeInfo) -> Status | None:
        """Whether one node can run the pod. None is a success."""

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict:
        """Call :meth:`filter_node` for each row."""
        keys = np.zeros(len(nodes), np.int32)
        statuses: dict[int, Status] = {}
        for position, node_info in enumerate(NodeInfos(nodes)):
            status = self.filter_node(state, pod, node_info)
            if status is None:
                continue
            if not isinstance(status, Status):
                problem = f"returned {type(status).__name__} for node {node_info.name}, expected a Status or None"
                raise PluginError(self.name, "Filter", problem)
            if not status.ok:
                keys[position] = position + 1
                statuses[position + 1] = status
        return Verdict.of(keys, statuses)


@dataclass(frozen=True, slots=True)
class Victims:
    """The pods to evict from a node, the most important first; evicting ``violations`` of them violates a budget."""

    pods: tuple[PodInfo, ...]
    violations: int = 0


class ExtenderCandidates(Protocol):
    """The candidates of a preemption, which extenders may narrow down before it is carried out."""

    def victims_by_node(self) -> Mapping[str, Victims]:
        """The candidates by node name. Call it before anything in the cluster changes."""

    def select(self, victims_by_node: Mapping[str, Victims]) -> PostFilterResult:
        """The result for the candidates that extenders have left, with the victims they have left."""


@dataclass(frozen=True, slots=True)
class PostFilterResult:
    """The result of PostFilter.

    ``nominated_node_name`` None leaves the pod's nomination as it is, ``""`` clears it. ``victims`` are the pods to
    evict from that node, the most important first; some may be terminating already, or wait at Permit, where they are
    rejected and not deleted. ``lower_priority_nominated`` are the pods whose nomination to that node is cleared.
    ``action`` is a further request to the API server, such as deallocating a claim, which is not sent in a dry run. If
    it raises APIError or Unreachable, the error is logged, and the pod is retried in any case.
    """

    status: Status
    nominated_node_name: str | None = None
    victims: tuple[PodInfo, ...] = ()
    lower_priority_nominated: tuple[PodInfo, ...] = ()
    action: Callable[[], Coroutine[Any, Any, None]] | None = None
    #: The candidates for extenders to narrow down; None when there is nothing to narrow down.
    extender_candidates: ExtenderCandidates | None = None
    #: The number of victims whose eviction violates a disruption budget.
    violations: int = 0


class FilterRunner(Protocol):
    """Runs the profile's Filter plugins for the pod of a cycle on nodes as they are, or as they would be."""

    @property
    def active(self) -> Sequence[object]:
        """One object per filter whose PreFilter did not return a skip.

        Results of this runner may be kept for another pod of the same shape as long as these are the same objects.
        """

    @property
    def invalidation_mask(self) -> InvalidationMask | None:
        """What invalidates kept results; None when they are valid for this cycle only."""

    def rejections(self, nodes: Nodes) -> list[Rejection]:
        """The rejections of some nodes, which have to pass twice: with the pods nominated to them, and without.

        Raises PluginError.
        """

    def still_pass(self, nodes: Nodes) -> NDArray[np.bool_]:
        """Which nodes pass (bool, one per node), given that they passed before and only their pods have changed.

        Raises PluginError.
        """


class PostFilterPlugin(Plugin):
    """Called when no node is feasible, typically to preempt other pods."""

    #: Whether the result holds for copies of the pod, too; otherwise PostFilter runs for every pod of a gang.
    applies_to_identical_pods: ClassVar[bool] = False

    @abstractmethod
    def post_filter(
        self, state: CycleState, pod: PodInfo, diagnosis: Diagnosis, filters: FilterRunner
    ) -> PostFilterResult:
        """A success nominates a node and ends PostFilter; after Unschedulable the next plugin is called."""


class PreScorePlugin(Plugin):
    """Prepares scoring of the feasible nodes."""

    @abstractmethod
    def pre_score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Status | None:
        """``nodes`` are the feasible ones. None is a success; a skip disables the plugin's Score for this cycle."""


class ScorePlugin(Plugin):
    """Scores feasible nodes."""

    #: Whether the raw score of a node depends on which other nodes are feasible.
    scores_feasible_set: ClassVar[bool] = False
    #: Whether the raw scores of hypothetical nodes are those that the nodes would have after their changes, as the
    #: verdicts of Filter always are.
    scores_hypothetical_nodes: ClassVar[bool] = False
    #: The error of the score in a profile that disables the plugin's PreScore; None if it works without.
    missing_pre_score_error: ClassVar[str | None] = None

    @abstractmethod
    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Scores:
        """The raw scores, int64, one per row of ``nodes``."""

    def score_row(self, state: CycleState, pod: PodInfo, node: NodeRow) -> int:
        """The raw score that :meth:`score` has for a node. Optional: called when a few nodes only have changed."""
        raise NotImplementedError

    def score_rows(self, state: CycleState, pod: PodInfo, nodes: NodeRows) -> list[int]:
        """The same for a few nodes, up to 32, instead of :meth:`score_row`. Optional: spares calls."""
        return [self.score_row(state, pod, node) for node in nodes]

    def normalize(self, state: CycleState, pod: PodInfo, scores: Scores, nodes: Nodes) -> Scores:
        """Normalize the raw scores of the feasible ``nodes`` to 0 .. MAX_SCORE, where they are by default.

        Unless ``scores_feasible_set``, equal raw scores must be normalized to equal scores.
        """
        return scores


class NodeScorePlugin(ScorePlugin):
    """A Score plugin for one node at a time."""

    scores_feasible_set: ClassVar[bool] = True

    @abstractmethod
    def score_node(self, state: CycleState, pod: PodInfo, node_info: NodeInfo) -> int:
        """The score of one node as a whole number."""

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Scores:
        """Call :meth:`score_node` for each row."""
        scores = (self._whole(self.score_node(state, pod, node_info), node_info) for node_info in NodeInfos(nodes))
        return np.fromiter(scores, np.int64, len(nodes))

    def _whole(self, score: Any, node_info: NodeInfo) -> int:
        try:
            return index(score)
        except TypeError:
            problem = f"returned {type(score).__name__} for node {node_info.name}, expected a whole number"
            raise PluginError(self.name, "Score", problem) from None


class ReservePlugin(Plugin):
    """Reserves resources for a pod between the choice of its node and its binding."""

    #: Whether Reserve can fail or have an effect only for pods that the plugin filters too: never for those that it
    #: does not apply to, or whose PreFilter returns a skip.
    reserves_only_for_filtered_pods: ClassVar[bool] = False

    @abstractmethod
    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Reserve what the pod needs on its node. None is a success."""

    @abstractmethod
    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Release it, since the attempt has failed; also called when Reserve of this plugin never ran."""


@dataclass(frozen=True, slots=True)
class Permission:
    """The result of Permit: a status, and with WAIT the timeout in seconds (900 at most)."""

    status: Status = SUCCESS
    timeout: float = 0.0

    @classmethod
    def wait(cls, seconds: float) -> Permission:
        """Delay the binding until the pod is allowed; after so many seconds it is rejected."""
        return cls(Status(Code.WAIT), seconds)


class PermitPlugin(Plugin):
    """Allows, rejects or delays the binding of a pod."""

    @abstractmethod
    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Permission | Status | None:
        """Called at the end of the scheduling cycle. None is a success."""


class PreBindPlugin(Plugin):
    """Does work before a pod is bound, such as binding its volumes. May be ``async def``.

    It is cancelled when a pod of higher priority preempts the pod.
    """

    #: Whether :meth:`pre_bind` may run concurrently with adjacent plugins that allow it, too.
    parallel: ClassVar[bool] = False
    #: Whether there is work only for pods that the plugin filters too: never for those that it does not apply to, or
    #: whose PreFilter returns a skip.
    pre_binds_only_filtered_pods: ClassVar[bool] = False

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """SUCCESS when there is work to do, SKIP when there is none."""
        return SUCCESS

    @abstractmethod
    def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | Awaitable[Status | None] | None:
        """Do the work. None is a success."""


class BindPlugin(Plugin):
    """Binds the pod. May be ``async def``."""

    @abstractmethod
    def bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | Awaitable[Status | None] | None:
        """Bind the pod. None is a success; a skip leaves the pod to the next plugin."""


class PostBindPlugin(Plugin):
    """Called after a pod has been bound. May be ``async def``."""

    @abstractmethod
    def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Awaitable[None] | None:
        """Follow up on the binding; a failure is only logged."""


def normalized(scores: Scores, *, reverse: bool = False) -> Scores:
    """The default normalization (semantics 4.5): the highest score becomes MAX_SCORE, or 0 with ``reverse``."""
    highest = int(scores.max(initial=0))
    if highest == 0:
        return np.full_like(scores, MAX_SCORE) if reverse else scores
    scaled = scores * MAX_SCORE // highest
    return MAX_SCORE - scaled if reverse else scaled
