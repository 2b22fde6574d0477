"""The binding cycle: what happens to a pod after it has been placed (reference 4.6, 4.7).

One asyncio task per pod, many at once. The placement has been assumed, reserved and permitted by the scheduling cycle;
here its volumes and devices are made ready, and it is bound. This module asks the plugins; what follows from their
answers (undoing a placement, sending a pod back to the queue) is the scheduler's.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from kubestow.cluster.pods import PodInfo
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.plugin import Plugin, PreBindPlugin
from kubestow.framework.profile import Profile
from kubestow.framework.status import SUCCESS, Code, Status
from kubestow.scheduling.queue import QueuedPod

__all__ = ["BindingCycle", "Reserved", "permit", "reserve", "unreserve"]

_log = logging.getLogger(__name__)

T = TypeVar("T")
Answer = Status | None | Awaitable[Status | None]


@dataclass(frozen=True, slots=True)
class Reserved:
    """A placed pod on its way to be bound.

    ``waits`` names the plugins that hold it back, with the seconds each may take.
    """

    queued: QueuedPod
    info: PodInfo
    node_name: str
    state: CycleState
    profile: Profile
    waits: Mapping[str, float]


def reserve(profile: Profile, state: CycleState, info: PodInfo, node_name: str) -> Status:
    """Run Reserve plugins in order up to the first failure."""
    for plugin in profile.reserve:
        status = _guarded(plugin, "Reserve", plugin.reserve, state, info, node_name)
        if status is not None and not status.ok:
            return _said(plugin, "Reserve", status)
    return SUCCESS


def unreserve(profile: Profile, state: CycleState, info: PodInfo, node_name: str) -> None:
    """Run every Unreserve in reverse order, also of plugins whose Reserve never ran."""
    for plugin in reversed(profile.reserve):
        failed = _guarded(plugin, "Unreserve", plugin.unreserve, state, info, node_name)
        if failed is not None:
            _log.error("pod %s: %s", info.key, failed.message)


def permit(profile: Profile, state: CycleState, info: PodInfo, node_name: str) -> tuple[Status, dict[str, float]]:
    """Ask Permit plugins: a status, and with success the plugins that want the pod to wait."""
    waits: dict[str, float] = {}
    for plugin in profile.permit:
        permission = _guarded(plugin, "Permit", plugin.permit, state, info, node_name)
        status = permission if isinstance(permission, Status) else permission.status
        if status.code is Code.WAIT and not isinstance(permission, Status):
            waits[plugin.name] = permission.timeout
        elif not status.ok:
            return _said(plugin, "Permit", status), {}
    return SUCCESS, waits


class BindingCycle:
    """The steps of one pod's binding cycle that plugins take part in."""

    def __init__(self, reserved: Reserved) -> None:
        self._reserved = reserved
        self._working: list[PreBindPlugin] = []

    def pre_flight(self) -> Status:
        """Which PreBind plugins have work to do; a skip when none has."""
        for plugin in self._reserved.profile.pre_bind:
            status = self._ask(plugin, "PreBindPreFlight", plugin.pre_bind_pre_flight)
            if status.ok:
                self._working.append(plugin)
            elif status.code is not Code.SKIP:
                return _said(plugin, "PreBindPreFlight", status)
        return SUCCESS if self._working else Status.skip()

    async def pre_bind(self) -> Status:
        """Run the PreBind plugins that have work to do, in order."""
        for plugin in self._working:
            status = await _finished(plugin, "PreBind", self._ask(plugin, "PreBind", plugin.pre_bind))
            if not status.ok:
                return _said(plugin, "PreBind", status)
        return SUCCESS

    async def bind(self) -> Status:
        """Ask the Bind plugins until one does not skip."""
        for plugin in self._reserved.profile.bind:
            status = await _finished(plugin, "Bind", self._ask(plugin, "Bind", plugin.bind))
            if status.code is not Code.SKIP:
                return status if status.ok else _said(plugin, "Bind", status)
        return Status.error("every Bind plugin skipped the pod")

    async def post_bind(self) -> None:
        """Tell the PostBind plugins; the pod is bound whatever they make of it."""
        for plugin in self._reserved.profile.post_bind:
            status = await _finished(plugin, "PostBind", self._ask(plugin, "PostBind", plugin.post_bind))
            if not status.ok:
                _log.error("pod %s: %s", self._reserved.info.key, status.message)

    def _ask(self, plugin: Plugin, point: str, method: Callable[..., T]) -> T | Status:
        reserved = self._reserved
        return _guarded(plugin, point, method, reserved.state, reserved.info, reserved.node_name)


def _guarded(plugin: Plugin, point: str, method: Callable[..., T], *arguments: Any) -> T | Status:
    """Call a plugin; what it raises becomes an ERROR status."""
    try:
        return method(*arguments)
    except Exception as error:
        return _raised(plugin, point, error)


async def _finished(plugin: Plugin, point: str, answer: Answer) -> Status:
    """What a plugin answered in the end, whether at once or later."""
    try:
        status = await answer if inspect.isawaitable(answer) else answer
    except Exception as error:
        return _raised(plugin, point, error)
    return SUCCESS if status is None else status


def _raised(plugin: Plugin, point: str, error: Exception) -> Status:
    _log.exception("plugin %s raised at %s", plugin.name, point)
    return Status(Code.ERROR, (f"{type(error).__name__}: {error}",), plugin.name)


def _said(plugin: Plugin, point: str, status: Status) -> Status:
    """A failure with its plugin; an error also says where it happened (reference 4.6, 4.7)."""
    if status.code.is_rejection:
        return status.by(plugin.name)
    return Status(Code.ERROR, (f'running {point} plugin "{plugin.name}": {status.message}',), plugin.name)
