"""The binding cycle: what happens to a pod after it has been placed (semantics 4.6, 4.7).

One asyncio task per pod, many at once. The placement has been assumed, reserved and permitted by the scheduling cycle;
here its volumes and devices are made ready, and it is bound. This module asks the plugins; what follows from their
answers (undoing a placement, sending a pod back to the queue) is the scheduler's.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import PluginError
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.interface import Permission, Plugin, PreBindPlugin
from kubestow.framework.profile import Profile
from kubestow.framework.runtime import Asking, as_status
from kubestow.framework.status import SUCCESS, Code, Status
from kubestow.scheduling.gangs.barrier import GangBarrier
from kubestow.scheduling.queue.queued_pod import QueuedPod

__all__ = ["BindingContext", "BindingCycle", "permit", "reserve", "unreserve"]

_log = logging.getLogger(__name__)

#: How long a plugin that was cancelled may take to end, in seconds.
_LAST_WORDS = 1.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class BindingContext:
    """A placed pod on its way to be bound.

    ``waits`` names the plugins that hold it back, with the seconds each may take; at the ``barrier`` it waits for the
    rest of its gang before it is bound.
    """

    queued: QueuedPod
    info: PodInfo
    node_name: str
    state: CycleState
    profile: Profile
    waits: Mapping[str, float]
    barrier: GangBarrier | None = None
    #: The node that it had been promised, where nobody has been told yet that this is over.
    promised: str | None = None


def reserve(profile: Profile, state: CycleState, info: PodInfo, node_name: str) -> Status:
    """Run Reserve plugins in order up to the first failure."""
    with _Passage(profile.asking, "Reserve") as over:
        for plugin in profile.reserve:
            status = ask(profile, plugin, "Reserve", plugin.reserve, state, info, node_name)
            if not status.ok:
                return over(_said(plugin, "Reserve", status))
        return over(SUCCESS)


def unreserve(profile: Profile, state: CycleState, info: PodInfo, node_name: str) -> None:
    """Run every Unreserve in reverse order, also of plugins whose Reserve never ran."""
    with _Passage(profile.asking, "Unreserve"):
        for plugin in reversed(profile.reserve):
            ask(profile, plugin, "Unreserve", plugin.unreserve, state, info, node_name)


def permit(profile: Profile, state: CycleState, info: PodInfo, node_name: str) -> tuple[Status, dict[str, float]]:
    """Ask Permit plugins: a status, and with success the plugins that want the pod to wait."""
    waits: dict[str, float] = {}
    with _Passage(profile.asking, "Permit") as over:
        for plugin in profile.permit:
            permission = _permission(plugin, _guarded(profile, plugin, "Permit", plugin.permit, state, info, node_name))
            status = permission.status
            if status.code is Code.WAIT:
                waits[plugin.name] = permission.timeout
            elif not status.ok:
                return over(_said(plugin, "Permit", status)), {}
        over(Status(Code.WAIT) if waits else SUCCESS)
    return SUCCESS, waits


class _Passage:
    """One pass through an extension point, told of to whoever watches. Called with a status, it ends with that."""

    def __init__(self, asking: Asking, extension_point: str) -> None:
        self._asking, self._extension_point = asking, extension_point
        self._began, self._code = asking.now(), Code.SUCCESS

    def __enter__(self) -> Self:
        return self

    def __call__(self, status: Status) -> Status:
        self._code = status.code
        return status

    def __exit__(self, *raised: object) -> None:
        self._asking.passed(self._extension_point, self._code, self._began)


class BindingCycle:
    """The steps of one pod's binding cycle that plugins take part in."""

    def __init__(self, reserved: BindingContext) -> None:
        self._reserved = reserved
        self._asking = reserved.profile.asking
        self._working: list[PreBindPlugin] = []
        self._tasks: list[asyncio.Task[Status]] = []
        self._taken_back = ""

    def pre_flight(self) -> Status:
        """Which PreBind plugins have work to do; a skip when none has."""
        with _Passage(self._asking, "PreBindPreFlight") as over:
            for plugin in self._reserved.profile.pre_bind:
                status = _checked(
                    plugin, "PreBindPreFlight", self._ask(plugin, "PreBindPreFlight", plugin.pre_bind_pre_flight)
                )
                if status.ok:
                    self._working.append(plugin)
                elif status.code is not Code.SKIP:
                    return over(_said(plugin, "PreBindPreFlight", status))
            return over(SUCCESS if self._working else Status.skip())

    async def pre_bind(self) -> Status:
        """Run the PreBind plugins that have work to do, in order; neighbours that allow it at the same time."""
        alone = itertools.count()
        with _Passage(self._asking, "PreBind") as over:
            for _, group in itertools.groupby(self._working, lambda plugin: -1 if plugin.parallel else next(alone)):
                status = await self._together(list(group))
                if not status.ok:
                    return over(status)
            return over(SUCCESS)

    def cancel_binding(self, why: str) -> bool:
        """End PreBind with an error, so that the pod is tried again; False when there is nothing to end any more."""
        if not self._tasks or self._taken_back:
            return False
        self._taken_back = why
        for task in self._tasks:
            task.cancel()
        return True

    async def _together(self, plugins: Sequence[PreBindPlugin]) -> Status:
        """Run PreBind plugins at the same time; the first failure ends the others."""
        self._tasks = [asyncio.create_task(self._prepared(plugin)) for plugin in plugins]
        by_task = dict(zip(self._tasks, plugins, strict=True))
        try:
            while self._tasks:
                await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
                ended = [task for task in self._tasks if task.done()]
                self._tasks = [task for task in self._tasks if not task.done()]
                for task in ended:
                    why = self._taken_back or ("cancelled" if task.cancelled() else "")
                    status = Status.error(why) if why else task.result()
                    if not status.ok:
                        return _said(by_task[task], "PreBind", status)
        finally:
            left, self._tasks = self._tasks, []
            for task in left:
                task.cancel()
            if left:
                await asyncio.wait(left, timeout=_LAST_WORDS)
        return SUCCESS

    async def _prepared(self, plugin: PreBindPlugin) -> Status:
        return await self._answer(plugin, "PreBind", plugin.pre_bind)

    async def bind(self) -> Status:
        """Ask the Bind plugins until one does not skip."""
        with _Passage(self._asking, "Bind") as over:
            for plugin in self._reserved.profile.bind:
                status = await self._answer(plugin, "Bind", plugin.bind)
                if status.code is not Code.SKIP:
                    return over(status if status.ok else _said(plugin, "Bind", status))
            return over(Status.error("every Bind plugin skipped the pod"))

    async def post_bind(self) -> None:
        """Tell the PostBind plugins; the pod is bound whatever they make of it."""
        with _Passage(self._asking, "PostBind"):
            for plugin in self._reserved.profile.post_bind:
                status = await self._answer(plugin, "PostBind", plugin.post_bind)
                if not status.ok:
                    _log.error("pod %s: %s", self._reserved.info.key, status.message)

    async def _answer(self, plugin: Plugin, point: str, method: Callable[..., Any]) -> Status:
        """What a plugin answers in the end, whether at once or later."""
        began = self._asking.now()
        answer = self._ask(plugin, point, method)
        if not inspect.isawaitable(answer):
            return _checked(plugin, point, answer)
        status = await _awaited(plugin, point, answer)
        self._asking.answered(plugin, point, status, began)
        return status

    def _ask(self, plugin: Plugin, point: str, method: Callable[..., T]) -> T | Status:
        reserved = self._reserved
        return _guarded(reserved.profile, plugin, point, method, reserved.state, reserved.info, reserved.node_name)


def ask(profile: Profile, plugin: Plugin, point: str, method: Callable[..., Status | None], *arguments: Any) -> Status:
    """A plugin's status; an ERROR when it breaks its contract, which the log has in full."""
    return _checked(plugin, point, _guarded(profile, plugin, point, method, *arguments))


def _guarded(profile: Profile, plugin: Plugin, point: str, method: Callable[..., T], *arguments: Any) -> T | Status:
    """Call a plugin; what it raises becomes an ERROR status."""
    try:
        return profile.asking(plugin, point, method, *arguments)
    except PluginError as error:
        return _broken(error)


def _checked(plugin: Plugin, point: str, answer: Any) -> Status:
    try:
        return as_status(plugin, point, answer)
    except PluginError as error:
        return _broken(error)


def _permission(plugin: Plugin, answer: Any) -> Permission:
    if not isinstance(answer, Permission):
        return Permission(_checked(plugin, "Permit", answer))
    if not isinstance(answer.timeout, (int, float)):
        found = type(answer.timeout).__name__
        return Permission(_broken(PluginError(plugin.name, "Permit", f"timeout is {found}, expected seconds")))
    return Permission(_checked(plugin, "Permit", answer.status), answer.timeout)


async def _awaited(plugin: Plugin, point: str, answer: Awaitable[Any]) -> Status:
    """What a plugin answers later, but within its time limit. Work of its own that is cancelled is its failure."""
    try:
        async with asyncio.timeout(plugin.time_limit) as limit:
            status = await answer
    except TimeoutError as error:
        if not limit.expired():
            return _broken(PluginError(plugin.name, point, f"TimeoutError: {error}"), error)
        return _broken(PluginError(plugin.name, point, f"cancelled after {plugin.time_limit:g} s without an answer"))
    except asyncio.CancelledError as error:
        asked = asyncio.current_task()
        if asked is not None and asked.cancelling():
            raise
        return _broken(PluginError(plugin.name, point, "what it waited for was cancelled"), error)
    except Exception as error:
        return _broken(PluginError(plugin.name, point, f"{type(error).__name__}: {error}"), error)
    return _checked(plugin, point, status)


def _broken(error: PluginError, cause: BaseException | None = None) -> Status:
    _log.error("%s", error, exc_info=cause or error.__cause__)
    return Status(Code.ERROR, (error.problem,), error.plugin)


def _said(plugin: Plugin, point: str, status: Status) -> Status:
    """A failure with its plugin; an error also says where it happened (semantics 4.6, 4.7)."""
    if status.code.is_rejection:
        return status.by(plugin.name)
    return Status(Code.ERROR, (f'running {point} plugin "{plugin.name}": {status.message}',), plugin.name)
