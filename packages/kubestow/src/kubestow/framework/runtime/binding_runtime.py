"""The binding runtime: calls the plugins of a profile for a pod that has a node, from Reserve to PostBind.

Reserve and Permit end the scheduling cycle, and are synchronous as all extension points before them. PreBind, Bind and
PostBind plugins may be coroutines, which are cancelled after their time limit. Unreserve undoes Reserve after failures.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import PluginError
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.interface import Permission, Plugin, PreBindPlugin
from kubestow.framework.runtime.plugin_caller import ExtensionPointTimer, PluginCaller, logged_error
from kubestow.framework.runtime.validation import as_permission, as_status
from kubestow.framework.status import SUCCESS, Code, Status
from kubestow.log_fields import fields

_log = logging.getLogger(__name__)

#: How long cancelled PreBind plugins may take to end, in seconds.
_CANCELLATION_GRACE = 1.0


class PermitResult(NamedTuple):
    """The result of Permit. With a SUCCESS, ``timeouts`` names the plugins that delay the pod, with their seconds."""

    status: Status
    timeouts: dict[str, float]


class PreFlight(NamedTuple):
    """The result of PreBindPreFlight: the PreBind plugins that have work to do; the status is SKIP without any."""

    status: Status
    plugins: Sequence[PreBindPlugin]


class BindingRuntime(PluginCaller):
    """Calls the plugins of one profile for pods that have a node."""

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
