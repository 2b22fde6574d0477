"""The framework runtime: calls the plugins of a profile in the scheduling cycle and in the binding cycle.

There is one :class:`FrameworkRuntime` per profile. It calls the plugins of an extension point in order and validates
their results (:mod:`.validation`); :mod:`.plugin_caller` handles failures. The plugins of the queue are called by
:mod:`.queueing_runtime`, those of gangs by :mod:`.gang_runtime`.

Up to Permit the runtime is synchronous, so a slow plugin cannot be interrupted, only logged. PreBind, Bind and PostBind
plugins may be coroutines, which are cancelled after their time limit. The scheduler acts on the results (it assumes and
requeues pods and evicts others). The results of PreFilter, Filter and Score are cached: :mod:`.evaluation` goes through
those plugins in order, and :mod:`.result_cache` calls each one through the runtime where its results are outdated.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import logging
from collections.abc import Awaitable, Callable, Generator, Hashable, Sequence, Set
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.nodes.views import NodeRows, Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import PluginError
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.diagnosis import Diagnosis
from kubestow.framework.interface import (
    FilterPlugin,
    FilterRunner,
    Permission,
    Plugin,
    PostFilterResult,
    PreBindPlugin,
    PreFilterPlugin,
    PreFilterResult,
    PreScorePlugin,
    ScorePlugin,
)
from kubestow.framework.runtime.plugin_caller import ExtensionPointTimer, PluginCaller, hashable, logged_error, truth
from kubestow.framework.runtime.validation import (
    as_permission,
    as_post_filter_result,
    as_scores,
    as_status,
    as_verdict,
    in_range,
    unexpected,
)
from kubestow.framework.status import SUCCESS, Code, Status, Verdict
from kubestow.log_fields import fields

_log = logging.getLogger(__name__)

#: How long cancelled PreBind plugins may take to end, in seconds.
_CANCELLATION_GRACE = 1.0

Scores = NDArray[np.int64]


class PermitResult(NamedTuple):
    """The result of Permit. With a SUCCESS, ``timeouts`` names the plugins that delay the pod, with their seconds."""

    status: Status
    timeouts: dict[str, float]


class PreFlight(NamedTuple):
    """The result of PreBindPreFlight: the PreBind plugins that have work to do; the status is SKIP without any."""

    status: Status
    plugins: Sequence[PreBindPlugin]


class FrameworkRuntime(PluginCaller):
    """Calls the plugins of one profile for the pod of a cycle."""

    # -- once per shape of pod -------------------------------------------------------------------------------------

    def plugin_applies_to(self, plugin: Plugin, pod: PodInfo) -> bool:
        """Whether the plugin filters or scores pods of this shape. Raises PluginError."""
        return self.call(plugin, "applies_to", truth, plugin.applies_to, pod)

    def plugin_label_keys(self, plugin: Plugin, pod: PodInfo) -> frozenset[str] | None:
        """The label keys on which results for pods of this family depend; None: any. Raises PluginError."""
        return self.call(plugin, "label_keys_for", _label_keys, plugin, pod)

    def plugin_signature(self, plugin: Plugin, pod: PodInfo) -> Hashable | None:
        """What of the pod the plugin's results depend on; None when they must not be cached. Raises PluginError."""
        return self.call(plugin, "signature", lambda: hashable(plugin.signature(pod)))

    # -- filtering and scoring, one plugin at a time ---------------------------------------------------------------

    def run_pre_filter_plugin(
        self, plugin: PreFilterPlugin, state: CycleState, pod: PodInfo, nodes: Nodes
    ) -> Status | PreFilterResult:
        """A status, or the nodes that are left; ``nodes`` are all nodes. Raises PluginError."""
        result = self.call(plugin, "PreFilter", plugin.pre_filter, state, pod, nodes)
        if isinstance(result, PreFilterResult):
            names = result.node_names
            if not isinstance(names, Set):
                raise unexpected(plugin, "PreFilter", names, expected="a frozenset of node names")
            if (stranger := next((name for name in names if not isinstance(name, str)), None)) is not None:
                found = f"a set with {type(stranger).__name__}"
                raise PluginError(plugin.name, "PreFilter", f"returned {found}, expected a frozenset of node names")
            return result
        return as_status(plugin, "PreFilter", result, expected="a Status, a PreFilterResult or None")

    def run_filter_plugin(self, plugin: FilterPlugin, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict | None:
        """A verdict with a key per node, None when all pass; the caller may write to its array. Raises PluginError."""
        return as_verdict(plugin, self.call(plugin, "Filter", plugin.filter, state, pod, nodes), len(nodes))

    def run_filter_plugin_on_rows(
        self, plugin: FilterPlugin, state: CycleState, pod: PodInfo, nodes: NodeRows
    ) -> list[int]:
        """The keys of a few nodes, by the plugin's form for rows. Raises PluginError."""
        return self.call_on_rows(plugin, "Filter", plugin.filter_rows, state, pod, nodes)

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

    def run_score_plugin_on_rows(
        self, plugin: ScorePlugin, state: CycleState, pod: PodInfo, nodes: NodeRows
    ) -> list[int]:
        """The raw scores of a few nodes, by the plugin's form for rows. Raises PluginError."""
        return self.call_on_rows(plugin, "Score", plugin.score_rows, state, pod, nodes)

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
        with ExtensionPointTimer(self, "PostFilter") as timer:
            for plugin in self.plugins.post_filter:
                result = self.call(plugin, "PostFilter", plugin.post_filter, state, pod, diagnosis, filters)
                timer.ended_with(as_post_filter_result(plugin, result).status)
                yield result

    # -- Reserve and Permit ----------------------------------------------------------------------------------------

    def run_reserve_plugins(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """SUCCESS, or the first failure, after which no further plugin is called."""
        with ExtensionPointTimer(self, "Reserve") as timer:
            for plugin in self.plugins.reserve:
                status = timer.call_for_status(plugin, plugin.reserve, state, pod, node_name)
                if not status.ok:
                    return timer.ended_with(_failure(plugin, "Reserve", status))
            return SUCCESS

    def run_unreserve_plugins(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Call Unreserve of all Reserve plugins in reverse order, also of those whose Reserve never ran."""
        with ExtensionPointTimer(self, "Unreserve") as timer:
            for plugin in reversed(self.plugins.reserve):
                timer.call_for_status(plugin, plugin.unreserve, state, pod, node_name)

    def run_permit_plugins(self, state: CycleState, pod: PodInfo, node_name: str) -> PermitResult:
        """SUCCESS with the plugins that delay the pod, or the first failure."""
        timeouts: dict[str, float] = {}
        with self.timer("Permit") as timer:
            for plugin in self.plugins.permit:
                try:
                    result = self.call(plugin, "Permit", plugin.permit, state, pod, node_name)
                    permission = as_permission(plugin, result)
                except PluginError as error:
                    permission = Permission(logged_error(error))
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
        with ExtensionPointTimer(self, "PreBindPreFlight") as timer:
            for plugin in self.plugins.pre_bind:
                status = timer.call_for_status(plugin, plugin.pre_bind_pre_flight, state, pod, node_name)
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
        *,
        in_parallel: bool = True,
    ) -> Status:
        """Call PreBind of some plugins in order; neighbours that are ``parallel`` run at the same time, if allowed.

        The first failure cancels the plugins that are still running. So does the ``cancellation``: its result becomes
        the message of an ERROR.
        """
        serial = itertools.count()
        with ExtensionPointTimer(self, "PreBind") as timer:
            for _, group in itertools.groupby(
                plugins, lambda plugin: -1 if in_parallel and plugin.parallel else next(serial)
            ):
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
        with ExtensionPointTimer(self, "Bind") as timer:
            began: float | None = timer.last_reading
            for plugin in self.plugins.bind:
                status = await self._call_async(plugin, "Bind", plugin.bind, state, pod, node_name, began=began)
                began = None
                if status.code is not Code.SKIP:
                    return timer.ended_with(status if status.ok else _failure(plugin, "Bind", status))
            return timer.ended_with(Status.error("every Bind plugin skipped the pod"))

    async def run_post_bind_plugins(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Call the PostBind plugins; a failure is only logged, since the pod is bound."""
        with ExtensionPointTimer(self, "PostBind"):
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
        *,
        began: float | None = None,
    ) -> Status:
        """Call a method that returns a status or an awaitable of one; an ERROR when the plugin breaks its contract."""
        began = self.now() if began is None else began
        try:
            result = self.call(plugin, extension_point, method, state, pod, node_name, began=began)
            if not inspect.isawaitable(result):
                return as_status(plugin, extension_point, result)
        except PluginError as error:
            return logged_error(error)
        try:
            result = await _within_time_limit(plugin, extension_point, result)
            status = as_status(plugin, extension_point, result)
        except PluginError as error:
            status = logged_error(error)
        if self.observer is not None:
            self.observer.plugin_called(plugin.name, extension_point, status, self.now() - began)
        return status


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


def _label_keys(plugin: Plugin, pod: PodInfo) -> frozenset[str] | None:
    keys = plugin.label_keys_for(pod)
    return None if keys is None else frozenset(keys)
