"""The framework runtime: the only code that calls plugins.

There is one :class:`FrameworkRuntime` per profile. It calls the plugins of an extension point in order, validates what
they return (:mod:`.validation`), measures each call and reports it to the :class:`PluginObserver`. An exception, or a
result that breaks the contract, becomes a :class:`~kubestow.errors.PluginError`; where the extension point returns a
status, the error is logged and becomes an ERROR status. Either way it costs one pod one attempt.

Up to Permit the runtime is synchronous, so a slow plugin cannot be interrupted, only logged. PreBind, Bind and PostBind
plugins may be coroutines, which are cancelled after their time limit. What follows from a result (assuming a pod,
requeueing it, evicting others) is decided by the scheduler. The results of PreFilter, Filter and Score are cached, so
those plugins are called one at a time by :mod:`.evaluation`.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import logging
from collections.abc import Awaitable, Callable, Collection, Generator, Hashable, Iterable, Sequence, Set
from operator import index
from random import Random
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.events import ClusterEvent
from kubestow.cluster.nodes.views import NodeRow, Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import PluginError
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.diagnosis import Diagnosis
from kubestow.framework.event_registration import EventRegistration
from kubestow.framework.gang import Evictable, Gang, GangOutcome, GangPlugin
from kubestow.framework.interface import (
    FilterPlugin,
    FilterRunner,
    Permission,
    Plugin,
    PostFilterResult,
    PreBindPlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    PreFilterResult,
    PreScorePlugin,
    Queued,
    ScorePlugin,
    SubqueueOrder,
)
from kubestow.framework.observer import PluginObserver
from kubestow.framework.placement import Placement, PlacementGeneratePlugin, PlacementScorePlugin, Proposal
from kubestow.framework.profile_plugins import ProfilePlugins
from kubestow.framework.status import SUCCESS, Code, Status, Verdict
from kubestow.framework.validation import (
    as_gang,
    as_number,
    as_permission,
    as_placement,
    as_post_filter_result,
    as_scores,
    as_status,
    as_verdict,
    in_range,
    unexpected,
)
from kubestow.log_fields import fields

__all__ = ["FrameworkRuntime", "PermitResult", "PreFlight"]

_log = logging.getLogger(__name__)

T = TypeVar("T")
U = TypeVar("U")
H = TypeVar("H", bound=Hashable)

#: What a synchronous call of a plugin may raise. None of it may end the scheduler, not even ``sys.exit()``; and where
#: nothing is awaited, a CancelledError is no cancellation.
_FAILURES = (Exception, SystemExit, asyncio.CancelledError)
#: A synchronous call that takes longer than this, in seconds, is logged.
_SLOW_CALL = 1.0
#: How long cancelled PreBind plugins may take to end, in seconds.
_CANCELLATION_GRACE = 1.0
_NO_PLACEMENTS = Status.unschedulable("no feasible placements found")

Scores = NDArray[np.int64]


class PermitResult(NamedTuple):
    """The result of Permit. With a SUCCESS, ``timeouts`` names the plugins that delay the pod, with their seconds."""

    status: Status
    timeouts: dict[str, float]


class PreFlight(NamedTuple):
    """The result of PreBindPreFlight: the PreBind plugins that have work to do; the status is SKIP without any."""

    status: Status
    plugins: Sequence[PreBindPlugin]


def _no_clock() -> float:
    return 0.0


class FrameworkRuntime:
    """Calls the plugins of one profile.

    ``monotonic`` is the clock, in seconds; without one all calls take no time. Calls are reported to the ``observer``.
    """

    def __init__(
        self,
        plugins: ProfilePlugins,
        *,
        monotonic: Callable[[], float] | None = None,
        observer: PluginObserver | None = None,
    ) -> None:
        self.plugins = plugins
        self._monotonic = monotonic or _no_clock
        self._observer = observer

    # -- one call --------------------------------------------------------------------------------------------------

    def call(self, plugin: Plugin, extension_point: str, method: Callable[..., T], *arguments: Any) -> T:
        """Call a method of a plugin without validating the result. Raises PluginError for whatever it raises."""
        began = self._monotonic()
        try:
            result = method(*arguments)
        except _FAILURES as error:
            if not isinstance(error, PluginError):
                wrapped = PluginError(plugin.name, extension_point, f"{type(error).__name__}: {error}")
                self._report(plugin, extension_point, wrapped, began)
                raise wrapped from error
            self._report(plugin, extension_point, error, began)
            raise
        seconds = self._monotonic() - began
        if seconds > _SLOW_CALL:
            _log.warning(
                "plugin %s took %.1f s at %s; nothing else is scheduled meanwhile",
                plugin.name,
                seconds,
                extension_point,
                extra=fields(plugin=plugin.name, extensionPoint=extension_point, seconds=round(seconds, 1)),
            )
        if self._observer is not None:
            self._observer.plugin_called(plugin.name, extension_point, result, seconds)
        return result

    def _report(self, plugin: Plugin, extension_point: str, result: Any, began: float) -> None:
        if self._observer is not None:
            self._observer.plugin_called(plugin.name, extension_point, result, self._monotonic() - began)

    def _call_for_status(
        self, plugin: Plugin, extension_point: str, method: Callable[..., Status | None], *arguments: Any
    ) -> Status:
        """Call a method that returns a status; an ERROR when the plugin breaks its contract."""
        try:
            return as_status(plugin, extension_point, self.call(plugin, extension_point, method, *arguments))
        except PluginError as error:
            return _logged_error(error)

    # -- extension points as a whole -------------------------------------------------------------------------------

    def now(self) -> float:
        """The time of the clock in seconds."""
        return self._monotonic()

    def extension_point_ended(self, extension_point: str, code: Code, began: float) -> None:
        """Report the end of an extension point whose plugins are called one at a time."""
        if self._observer is not None:
            self._observer.extension_point_ended(extension_point, code, self._monotonic() - began)

    # -- the queue -------------------------------------------------------------------------------------------------

    def gates_of(self, pod: PodInfo) -> tuple[PreEnqueuePlugin, ...]:
        """The PreEnqueue plugins that can gate a pod, in order; one that fails to say so can."""
        return tuple(plugin for plugin in self.plugins.pre_enqueue if self._may_gate(plugin, pod))

    @staticmethod
    def _may_gate(plugin: PreEnqueuePlugin, pod: PodInfo) -> bool:
        return _unless_it_fails(True, plugin.name, "may_gate", lambda: bool(plugin.may_gate(pod)), pod=pod.key)

    def run_pre_enqueue_plugins(self, pod: PodInfo, plugins: Iterable[PreEnqueuePlugin] | None = None) -> Status:
        """SUCCESS if no plugin gates the pod, else the first failure; ``plugin`` names its plugin.

        ``plugins`` are those to call, all that can gate the pod by default.
        """
        with _ExtensionPointTimer(self, "PreEnqueue") as timer:
            for plugin in self.gates_of(pod) if plugins is None else plugins:
                status = self._call_for_status(plugin, "PreEnqueue", plugin.pre_enqueue, pod)
                if not status.ok:
                    return timer.ended_with(status.by(plugin.name))
            return SUCCESS

    def sort_key(self, queued: Queued) -> Any:
        """What the active queue compares: the QueueSort plugin's key. Pods without a key sort last, oldest first."""
        plugin = self.plugins.queue_sort
        last = 1, queued.timestamp
        return _unless_it_fails(
            last, plugin.name, "QueueSort", lambda: (0, plugin.sort_key(queued)), pod=queued.info.key
        )

    @property
    def has_subqueues(self) -> bool:
        """Whether the QueueSort plugin orders subqueues of pods."""
        return self.plugins.queue_sort.subqueues is not None

    def subqueue_of(self, pod: PodInfo) -> Hashable:
        """The subqueue of a pod; None if the plugin fails."""

        return self._call_subqueue_order(lambda order: _hashable(order.subqueue_of(pod)), None)

    def subqueue_opened(self, subqueue: Hashable) -> None:
        """A subqueue has a pod now, and had none before."""
        self._call_subqueue_order(lambda order: order.opened(subqueue), None)

    def first_subqueue(self, subqueues: Collection[Hashable]) -> Hashable:
        """The subqueue that is next, of some; the one that was opened first if the plugin fails or names another."""
        oldest = next(iter(subqueues))

        def first(order: SubqueueOrder) -> Hashable:
            found = order.first(subqueues)
            return found if found in subqueues else oldest

        return self._call_subqueue_order(first, oldest)

    def _call_subqueue_order(self, call: Callable[[SubqueueOrder], T], otherwise: T) -> T:
        plugin = self.plugins.queue_sort
        order = plugin.subqueues
        assert order is not None
        return _unless_it_fails(otherwise, plugin.name, "the order of subqueues", lambda: call(order))

    def run_queueing_hint(
        self, plugin: str, registration: EventRegistration, pod: PodInfo, old: Any, new: Any, *, event: ClusterEvent
    ) -> bool:
        """Whether an event is worth another attempt at a pod that the named plugin rejected; True if the hint fails."""
        hint = registration.hint
        if hint is None:
            return True
        began = self._monotonic()
        queues = _unless_it_fails(
            None, plugin, "queueing hint", lambda: bool(hint(pod, old, new)), pod=pod.key, event=event.label
        )
        if self._observer is not None:
            result = "Error" if queues is None else "Queue" if queues else "QueueSkip"
            self._observer.queueing_hint_called(plugin, event.label, result, self._monotonic() - began)
        return queues is not False  # a broken hint must not leave a pod in the queue for ever

    def hint_signature(self, plugin: Plugin, pod: PodInfo) -> Hashable | None:
        """What of the pod the plugin's queueing hints depend on; None, for calls of its own, if that fails."""
        return _unless_it_fails(
            None, plugin.name, "hint_signature", lambda: _hashable(plugin.hint_signature(pod)), pod=pod.key
        )

    def hint_keys(self, plugin: Plugin, pod: PodInfo) -> frozenset[Hashable] | None:
        """The keys of a pod that the plugin rejected; None, for all, if that fails."""
        return _unless_it_fails(None, plugin.name, "hint_keys", lambda: frozenset(plugin.hint_keys(pod)), pod=pod.key)

    def run_hint_key(self, plugin: str, registration: EventRegistration, old: Any, new: Any) -> Hashable | None:
        """The key of the pods that an event can help; None, for all, without one or if that fails."""
        hint_key = registration.hint_key
        if hint_key is None:
            return None
        return _unless_it_fails(
            None, plugin, "hint_key", lambda: _hashable(hint_key(old, new)), event=registration.event.label
        )

    def run_event_filter(self, plugin: str, registration: EventRegistration, old: Any, new: Any) -> bool:
        """Whether an event can help any pod that the named plugin rejected; True if the filter fails."""
        passes = registration.event_filter
        if passes is None:
            return True
        return _unless_it_fails(
            True, plugin, "event filter", lambda: bool(passes(old, new)), event=registration.event.label
        )

    # -- once per shape of pod -------------------------------------------------------------------------------------

    def plugin_applies_to(self, plugin: Plugin, pod: PodInfo) -> bool:
        """Whether the plugin filters or scores pods of this shape. Raises PluginError."""
        return self.call(plugin, "applies_to", _truth, plugin.applies_to, pod)

    def plugin_label_keys(self, plugin: Plugin, pod: PodInfo) -> frozenset[str] | None:
        """The label keys on which results for pods of this family depend; None: any. Raises PluginError."""
        return self.call(plugin, "label_keys_for", _label_keys, plugin, pod)

    def plugin_signature(self, plugin: Plugin, pod: PodInfo) -> Hashable | None:
        """What of the pod the plugin's results depend on; None when they must not be cached. Raises PluginError."""
        return self.call(plugin, "signature", _hashable_signature, plugin, pod)

    # -- filtering and scoring, one plugin at a time ---------------------------------------------------------------

    def run_pre_filter_plugin(
        self, plugin: PreFilterPlugin, state: CycleState, pod: PodInfo, nodes: Nodes
    ) -> Status | PreFilterResult:
        """A status, or the nodes that are left; ``nodes`` are all nodes. Raises PluginError."""
        result = self.call(plugin, "PreFilter", plugin.pre_filter, state, pod, nodes)
        if isinstance(result, PreFilterResult):
            if not isinstance(result.node_names, Set):
                raise unexpected(plugin, "PreFilter", result.node_names, expected="a frozenset of node names")
            return result
        return as_status(plugin, "PreFilter", result, expected="a Status, a PreFilterResult or None")

    def run_filter_plugin(self, plugin: FilterPlugin, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict | None:
        """A verdict with a key per node, None when all pass; the caller may write to its array. Raises PluginError."""
        return as_verdict(plugin, self.call(plugin, "Filter", plugin.filter, state, pod, nodes), len(nodes))

    def run_filter_plugin_on_row(self, plugin: FilterPlugin, state: CycleState, pod: PodInfo, node: NodeRow) -> int:
        """The key of a single node. Raises PluginError."""
        return as_number(plugin, "Filter", self.call(plugin, "Filter", plugin.filter_row, state, pod, node))

    def run_pre_score_plugin(self, plugin: PreScorePlugin, state: CycleState, pod: PodInfo, nodes: Nodes) -> Status:
        """SUCCESS, or SKIP to leave the plugin's Score out. Raises PluginError."""
        status = as_status(plugin, "PreScore", self.call(plugin, "PreScore", plugin.pre_score, state, pod, nodes))
        if not status.ok and status.code is not Code.SKIP:
            message = f'running PreScore plugin "{plugin.name}": {status.message}'
            raise PluginError(plugin.name, "PreScore", status.message, message=message)
        return status

    def run_score_plugin(self, plugin: ScorePlugin, state: CycleState, pod: PodInfo, nodes: Nodes) -> Scores:
        """Raw scores (int64, one per node); the caller may write to the array. Raises PluginError."""
        scores = as_scores(plugin, "Score", self.call(plugin, "Score", plugin.score, state, pod, nodes), len(nodes))
        return scores if scores.flags.owndata else scores.copy()

    def run_score_plugin_on_row(self, plugin: ScorePlugin, state: CycleState, pod: PodInfo, node: NodeRow) -> int:
        """The raw score of a single node. Raises PluginError."""
        return as_number(plugin, "Score", self.call(plugin, "Score", plugin.score_row, state, pod, node))

    def run_normalize_score_plugin(
        self, plugin: ScorePlugin, state: CycleState, pod: PodInfo, scores: Scores, nodes: Nodes
    ) -> Scores:
        """The raw scores of the feasible nodes normalized to 0 .. MAX_SCORE. Raises PluginError."""
        given = scores.view()
        given.flags.writeable = False
        normalized = self.call(plugin, "NormalizeScore", plugin.normalize, state, pod, given, nodes)
        return in_range(plugin, "NormalizeScore", as_scores(plugin, "NormalizeScore", normalized, len(nodes)))

    # -- PostFilter ------------------------------------------------------------------------------------------------

    def run_post_filter_plugins(
        self, state: CycleState, pod: PodInfo, diagnosis: Diagnosis, filters: FilterRunner
    ) -> Generator[PostFilterResult, None, None]:
        """Call one PostFilter plugin per step of the iteration, so that the caller decides when to stop.

        The extension point ends, with the code of the last result, when the generator does: close it after stopping
        early. Raises PluginError.
        """
        if not self.plugins.post_filter:
            return
        with _ExtensionPointTimer(self, "PostFilter") as timer:
            for plugin in self.plugins.post_filter:
                result = self.call(plugin, "PostFilter", plugin.post_filter, state, pod, diagnosis, filters)
                timer.ended_with(as_post_filter_result(plugin, result).status)
                yield result

    # -- Reserve and Permit ----------------------------------------------------------------------------------------

    def run_reserve_plugins(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """SUCCESS, or the first failure, after which no further plugin is called."""
        with _ExtensionPointTimer(self, "Reserve") as timer:
            for plugin in self.plugins.reserve:
                status = self._call_for_status(plugin, "Reserve", plugin.reserve, state, pod, node_name)
                if not status.ok:
                    return timer.ended_with(_failure(plugin, "Reserve", status))
            return SUCCESS

    def run_unreserve_plugins(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Call Unreserve of all Reserve plugins in reverse order, also of those whose Reserve never ran."""
        with _ExtensionPointTimer(self, "Unreserve"):
            for plugin in reversed(self.plugins.reserve):
                self._call_for_status(plugin, "Unreserve", plugin.unreserve, state, pod, node_name)

    def run_permit_plugins(self, state: CycleState, pod: PodInfo, node_name: str) -> PermitResult:
        """SUCCESS with the plugins that delay the pod, or the first failure."""
        timeouts: dict[str, float] = {}
        with _ExtensionPointTimer(self, "Permit") as timer:
            for plugin in self.plugins.permit:
                try:
                    result = self.call(plugin, "Permit", plugin.permit, state, pod, node_name)
                    permission = as_permission(plugin, result)
                except PluginError as error:
                    permission = Permission(_logged_error(error))
                if permission.status.code is Code.WAIT:
                    timeouts[plugin.name] = permission.timeout
                elif not permission.status.ok:
                    return PermitResult(timer.ended_with(_failure(plugin, "Permit", permission.status)), {})
            timer.ended_with(Status(Code.WAIT) if timeouts else SUCCESS)
            return PermitResult(SUCCESS, timeouts)

    # -- the binding cycle -----------------------------------------------------------------------------------------

    def run_pre_bind_pre_flights(self, state: CycleState, pod: PodInfo, node_name: str) -> PreFlight:
        """Find the PreBind plugins that have work to do for a pod."""
        working: list[PreBindPlugin] = []
        point = "PreBindPreFlight"
        with _ExtensionPointTimer(self, point) as timer:
            for plugin in self.plugins.pre_bind:
                status = self._call_for_status(plugin, point, plugin.pre_bind_pre_flight, state, pod, node_name)
                if status.ok:
                    working.append(plugin)
                elif status.code is not Code.SKIP:
                    return PreFlight(timer.ended_with(_pre_flight_failure(plugin, status)), ())
            return PreFlight(timer.ended_with(SUCCESS if working else Status.skip()), working)

    async def run_pre_bind_plugins(
        self,
        plugins: Sequence[PreBindPlugin],
        state: CycleState,
        pod: PodInfo,
        node_name: str,
        cancellation: asyncio.Future[str],
    ) -> Status:
        """Call PreBind of some plugins in order; neighbours that are ``parallel`` run at the same time.

        The first failure cancels the plugins that are still running. So does the ``cancellation``: its result becomes
        the message of an ERROR.
        """
        serial = itertools.count()
        with _ExtensionPointTimer(self, "PreBind") as timer:
            for _, group in itertools.groupby(plugins, lambda plugin: -1 if plugin.parallel else next(serial)):
                status = await self._run_in_parallel(list(group), state, pod, node_name, cancellation)
                if not status.ok:
                    return timer.ended_with(status)
            return SUCCESS

    async def _run_in_parallel(
        self,
        plugins: Sequence[PreBindPlugin],
        state: CycleState,
        pod: PodInfo,
        node_name: str,
        cancellation: asyncio.Future[str],
    ) -> Status:
        calls = (self._call_async(plugin, "PreBind", plugin.pre_bind, state, pod, node_name) for plugin in plugins)
        running = {asyncio.create_task(call): plugin for call, plugin in zip(calls, plugins, strict=True)}
        try:
            while running:
                pending: list[asyncio.Future[Any]] = [*running, cancellation]
                await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                if cancellation.done():
                    return _failure(next(iter(running.values())), "PreBind", Status.error(cancellation.result()))
                for task in [task for task in running if task.done()]:
                    plugin = running.pop(task)
                    status = Status.error("cancelled") if task.cancelled() else task.result()
                    if not status.ok:
                        return _failure(plugin, "PreBind", status)
        finally:
            for task in running:
                task.cancel()
            if running:
                await asyncio.wait(running, timeout=_CANCELLATION_GRACE)
        return SUCCESS

    async def run_bind_plugins(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Call the Bind plugins in order until one does not skip the pod; its status."""
        with _ExtensionPointTimer(self, "Bind") as timer:
            for plugin in self.plugins.bind:
                status = await self._call_async(plugin, "Bind", plugin.bind, state, pod, node_name)
                if status.code is not Code.SKIP:
                    return timer.ended_with(status if status.ok else _failure(plugin, "Bind", status))
            return timer.ended_with(Status.error("every Bind plugin skipped the pod"))

    async def run_post_bind_plugins(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Call the PostBind plugins; a failure is only logged, since the pod is bound."""
        with _ExtensionPointTimer(self, "PostBind"):
            for plugin in self.plugins.post_bind:
                status = await self._call_async(plugin, "PostBind", plugin.post_bind, state, pod, node_name)
                if not status.ok and not status.plugin:  # a broken contract has been logged with its plugin
                    extra = fields(pod=pod.key, node=node_name, plugin=plugin.name, err=status.message)
                    _log.error("pod %s: %s", pod.key, status.message, extra=extra)

    async def _call_async(
        self,
        plugin: Plugin,
        extension_point: str,
        method: Callable[..., Any],
        state: CycleState,
        pod: PodInfo,
        node_name: str,
    ) -> Status:
        """Call a method that returns a status or an awaitable of one; an ERROR when the plugin breaks its contract."""
        began = self._monotonic()
        try:
            result = self.call(plugin, extension_point, method, state, pod, node_name)
            if not inspect.isawaitable(result):
                return as_status(plugin, extension_point, result)
        except PluginError as error:
            return _logged_error(error)
        try:
            result = await _within_time_limit(plugin, extension_point, result)
            status = as_status(plugin, extension_point, result)
        except PluginError as error:
            status = _logged_error(error)
        self._report(plugin, extension_point, status, began)
        return status

    # -- gangs -----------------------------------------------------------------------------------------------------

    def gang_of(self, pod: PodInfo) -> Gang | None:
        """The gang of a pod, None for a pod that is scheduled by itself. Raises PluginError."""
        plugin = self.plugins.gang_source
        if plugin is None:
            return None
        return as_gang(plugin, self.call(plugin, "GangOf", plugin.gang_of, pod))

    def gang_admission(self, pod: PodInfo) -> Status:
        """What PreEnqueue of the gang plugin returns for a pod now; SUCCESS in a profile without one."""
        plugin = self.plugins.gang_source
        if not isinstance(plugin, GangPlugin) or not self._may_gate(plugin, pod):
            return SUCCESS
        return self._call_for_status(plugin, "PreEnqueue", plugin.pre_enqueue, pod).by(plugin.name)

    def gang_attempt_ended(
        self, gang: Gang, outcome: GangOutcome, message: str, *, began: float, decided: float | None
    ) -> None:
        """Report the end of an attempt at a gang to the observer and to the plugin that defines the gang.

        ``began`` and ``decided`` are times of the clock; ``decided`` is None when no placement has been tried.
        """
        if self._observer is not None:
            deciding = None if decided is None else decided - began
            self._observer.gang_attempt_ended(outcome.value, self._monotonic() - began, deciding=deciding)
        plugin = self.plugins.gang_source
        if plugin is not None:
            self._call_for_status(plugin, "Concluded", plugin.attempt_ended, gang, outcome, message)

    def preempts_as_a_whole(self, gang: Gang) -> bool:
        """Whether pods are evicted for the gang as a whole; False without a plugin for that, or when it fails."""
        plugin = self.plugins.gang_preemption
        if plugin is None:
            return False
        try:
            return self.call(plugin, "PreemptsFor", _truth, plugin.preempts_as_a_whole, gang)
        except PluginError as error:
            _logged_error(error)
            return False

    def evictable_units(self, gang: Gang, pods: Sequence[PodInfo]) -> Evictable | Status:
        """The pods that may be evicted for a gang as a whole, or the reason why none. Raises PluginError.

        ``pods`` are the members without a node. Only for gangs that :meth:`preempts_as_a_whole` is true of.
        """
        plugin = self.plugins.gang_preemption
        assert plugin is not None
        units = self.call(plugin, "PodGroupPostFilter", plugin.evictable_units, gang, pods)
        if isinstance(units, Evictable):
            return units
        if not isinstance(units, Status):
            raise unexpected(plugin, "PodGroupPostFilter", units, expected="Evictable or a Status")
        return as_status(plugin, "PodGroupPostFilter", units)

    # -- placements of a gang --------------------------------------------------------------------------------------

    def generate_placements(
        self, gang: Gang, pods: Sequence[PodInfo], nodes: Nodes
    ) -> Sequence[Placement] | Status | None:
        """The placements to try, at least one; a status when there are none, None when the gang may use all nodes.

        Raises PluginError.
        """
        plugin = self.plugins.placement_generate
        if plugin is None:
            return None
        found = self.call(plugin, "PlacementGenerate", _listed_placements, plugin, gang, pods, nodes)
        if found is None:
            return None
        if isinstance(found, Status):
            status = as_status(plugin, "PlacementGenerate", found)
            return None if status.ok else status.by(plugin.name)
        placements = [placement for placement in found if len(as_placement(plugin, placement).nodes)]
        return placements or _NO_PLACEMENTS.by(plugin.name)

    def best_placement(self, gang: Gang, proposals: Sequence[Proposal], random: Random) -> int:
        """The position of the proposal with the highest score, a random one of several. Raises PluginError."""
        totals = np.zeros(len(proposals), np.int64)
        for plugin, weight in self.plugins.placement_score:
            totals += self._score_placements(plugin, gang, proposals) * weight
        best = np.flatnonzero(totals == totals.max())
        return int(best[0]) if len(best) == 1 else int(best[random.randrange(len(best))])

    def _score_placements(self, plugin: PlacementScorePlugin, gang: Gang, proposals: Sequence[Proposal]) -> Scores:
        raw = np.zeros(len(proposals), np.int64)
        for position, proposal in enumerate(proposals):
            raw[position] = self.call(plugin, "PlacementScore", _whole_score, plugin, gang, proposal)
        raw.flags.writeable = False
        point = "NormalizePlacementScore"
        normalized = self.call(plugin, point, plugin.normalize_placements, gang, raw)
        return in_range(plugin, point, as_scores(plugin, point, normalized, len(proposals)))


class _ExtensionPointTimer:
    """Reports how long an extension point takes and its code: SUCCESS unless set, ERROR after a PluginError."""

    __slots__ = ("_began", "_code", "_extension_point", "_runtime")

    def __init__(self, runtime: FrameworkRuntime, extension_point: str) -> None:
        self._runtime, self._extension_point = runtime, extension_point
        self._began, self._code = runtime.now(), Code.SUCCESS

    def __enter__(self) -> Self:
        return self

    def ended_with(self, status: Status) -> Status:
        """Report this status, which is returned."""
        self._code = status.code
        return status

    def __exit__(self, kind: type[BaseException] | None, *raised: object) -> None:
        code = Code.ERROR if kind is PluginError else self._code
        self._runtime.extension_point_ended(self._extension_point, code, self._began)


async def _within_time_limit(plugin: Plugin, extension_point: str, work: Awaitable[Any]) -> Any:
    """The result of a plugin's work. Raises PluginError, also when the work takes too long or is cancelled."""
    limit = asyncio.timeout(plugin.time_limit)
    try:
        if plugin.time_limit is None:
            return await work
        async with limit:
            return await work
    except TimeoutError as error:
        if not limit.expired():
            raise PluginError(plugin.name, extension_point, f"TimeoutError: {error}") from error
        problem = f"cancelled after its time limit of {plugin.time_limit:g} s"
        raise PluginError(plugin.name, extension_point, problem) from None
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise PluginError(plugin.name, extension_point, "a task that it awaited was cancelled") from error
    except (Exception, SystemExit) as error:
        raise PluginError(plugin.name, extension_point, f"{type(error).__name__}: {error}") from error


def _unless_it_fails(otherwise: U, plugin: str, called: str, call: Callable[[], T], **subject: str) -> T | U:
    """The result of a call that orders or moves pods in the queue; ``otherwise`` if the plugin fails, which is logged.

    ``subject`` are the pod and the event in question.
    """
    try:
        return call()
    except _FAILURES:
        what = ", ".join(f"{kind} {name}" for kind, name in subject.items())
        extra = fields(plugin=plugin, call=called, **subject)
        _log.exception("plugin %s failed at %s%s", plugin, called, f" for {what}" if what else "", extra=extra)
        return otherwise


def _logged_error(error: PluginError) -> Status:
    """The ERROR status for a broken contract, which the log has in full."""
    extra = fields(plugin=error.plugin, extensionPoint=error.extension_point, err=error.problem)
    _log.error("%s", error, exc_info=error.__cause__, extra=extra)
    return Status(Code.ERROR, (error.problem,), error.plugin)


def _failure(plugin: Plugin, extension_point: str, status: Status) -> Status:
    """A failure with its plugin; the message of an error also names the extension point (semantics 4.6, 4.7)."""
    if status.code.is_rejection:
        return status.by(plugin.name)
    return Status(Code.ERROR, (f'running {extension_point} plugin "{plugin.name}": {status.message}',), plugin.name)


def _pre_flight_failure(plugin: Plugin, status: Status) -> Status:
    """The error of PreBindPreFlight (semantics 4.7), where a rejection is not supported."""
    if status.code is Code.ERROR:
        text = f'running PreBindPreFlight "{plugin.name}": {status.message}'
    else:
        supported = "It is supposed to return Success, Skip, or Error status"
        text = f'PreBindPreFlight {plugin.name} returned "{status.code.value}", which is unsupported. {supported}'
    return Status(Code.ERROR, (text,), plugin.name)


def _truth(method: Callable[..., Any], argument: Any) -> bool:
    return bool(method(argument))


def _hashable(value: H) -> H:
    """The value itself. Raises TypeError if it cannot be a key of a dictionary."""
    hash(value)
    return value


def _hashable_signature(plugin: Plugin, pod: PodInfo) -> Hashable | None:
    return _hashable(plugin.signature(pod))


def _label_keys(plugin: Plugin, pod: PodInfo) -> frozenset[str] | None:
    keys = plugin.label_keys_for(pod)
    return None if keys is None else frozenset(keys)


def _listed_placements(
    plugin: PlacementGeneratePlugin, gang: Gang, pods: Sequence[PodInfo], nodes: Nodes
) -> list[Placement] | Status | None:
    """The placements of a generator, which may be lazy."""
    placements = plugin.placements(gang, pods, nodes)
    return placements if placements is None or isinstance(placements, Status) else list(placements)


def _whole_score(plugin: PlacementScorePlugin, gang: Gang, proposal: Proposal) -> int:
    return index(plugin.score_placement(gang, proposal))
