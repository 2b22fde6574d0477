"""Calls of plugins: one method at a time, measured, and with every failure turned into data.

An exception, or a result that breaks the contract (:mod:`.validation`), becomes a
:class:`~kubestow.errors.PluginError`; where the extension point returns a status, the error is logged and becomes an
ERROR status. Either way it costs one pod one attempt. Each call is reported to the :class:`PluginObserver`: the plugin,
the extension point, the result, and the time it took. Observers count and measure; they never influence a decision.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, NoReturn, Self, TypeVar

from kubestow.cluster.nodes.views import NodeRows
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import PluginError
from kubestow.framework.gang import (
    GangPlacementPlugin,
    GangPreemptionPlugin,
    GangSource,
    PlacementGeneratePlugin,
    PlacementScorePlugin,
)
from kubestow.framework.interface import (
    BindPlugin,
    FilterPlugin,
    PermitPlugin,
    Plugin,
    PostBindPlugin,
    PostFilterPlugin,
    PreBindPlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    PreScorePlugin,
    QueueSortPlugin,
    ReservePlugin,
    ScorePlugin,
)
from kubestow.framework.runtime.validation import as_status, unexpected
from kubestow.framework.status import SKIP, SUCCESS, Code, Status
from kubestow.log_fields import fields

_log = logging.getLogger(__name__)

T = TypeVar("T")
U = TypeVar("U")
H = TypeVar("H", bound=Hashable)

#: What a synchronous call of a plugin may raise. None of it may end the scheduler, not even ``sys.exit()``; and where
#: nothing is awaited, a CancelledError is no cancellation.
FAILURES = (Exception, SystemExit, asyncio.CancelledError)
#: What results for single rows have to be; True and False are none of these.
_INTS = frozenset({int})
#: A synchronous call that takes longer than this, in seconds, is logged.
_SLOW_CALL = 1.0
#: One that takes longer than this counts when the plugin is named that made an attempt slow.
_NOTED_CALL = 0.05


class PluginCaller:
    """Calls the plugins of one profile.

    ``monotonic`` is the clock, in seconds; without one all calls take no time. Calls are reported to the ``observer``.
    ``slow_calls`` receives the seconds of calls that took long, by plugin and extension point, until it is cleared.
    """

    def __init__(
        self,
        plugins: ProfilePlugins,
        *,
        monotonic: Callable[[], float] | None = None,
        observer: PluginObserver | None = None,
        slow_calls: dict[tuple[str, str], float] | None = None,
    ) -> None:
        self.plugins = plugins
        self.slow_calls = {} if slow_calls is None else slow_calls
        #: The time of the clock in seconds.
        self.now = monotonic or (lambda: 0.0)
        self.observer = observer
        self._idle_timer = _IdleTimer(self, "")

    def for_attempt(self, pod: PodInfo) -> Self:
        """The caller whose calls are observed as those of the pod's attempt in progress."""
        if self.observer is None or (observer := self.observer.for_attempt(pod)) is self.observer:
            return self
        caller = copy(self)
        caller.observer = observer
        return caller

    def timer(self, extension_point: str, *, began: float | None = None) -> ExtensionPointTimer:
        """A timer of an extension point whose plugins are not called by the timer; without an observer it is idle."""
        return self._idle_timer if self.observer is None else ExtensionPointTimer(self, extension_point, began=began)

    def call(
        self,
        plugin: Plugin,
        extension_point: str,
        method: Callable[..., T],
        *arguments: Any,
        began: float | None = None,
    ) -> T:
        """Call a method of a plugin without validating the result. Raises PluginError for whatever it raises.

        ``began`` is the time at which the call begins, if it has just been read.
        """
        began = self.now() if began is None else began
        try:
            result = method(*arguments)
        except FAILURES as error:
            self.raise_failure(plugin, extension_point, error, began)
        seconds = self.now() - began
        if seconds > _NOTED_CALL:
            self.note_slow_call(plugin, extension_point, seconds)
        if self.observer is not None:
            self.observer.plugin_called(plugin.name, extension_point, result, seconds)
        return result

    def call_on_rows(
        self,
        plugin: Plugin,
        extension_point: str,
        method: Callable[..., list[int]],
        state: Any,
        pod: PodInfo,
        nodes: NodeRows,
    ) -> list[int]:
        """Call a method of a plugin for a few rows of the node table: the keys or raw scores. Raises PluginError.

        Such calls are short and many, so they are timed only while the observer samples durations. It gets the result
        for the last row.
        """
        observer = self.observer
        began = self.now() if observer is not None and observer.is_sampling else None
        try:
            results = method(state, pod, nodes)
        except FAILURES as error:
            self.raise_failure(plugin, extension_point, error, self.now() if began is None else began)
        if observer is not None:
            seconds = 0.0 if began is None else self.now() - began
            if seconds > _NOTED_CALL:
                self.note_slow_call(plugin, extension_point, seconds)
            observer.plugin_called(plugin.name, extension_point, results[-1] if results else None, seconds)
        if type(results) is not list or len(results) != len(nodes):
            raise unexpected(plugin, extension_point, results, expected=f"a list with {len(nodes)} numbers")
        if not _INTS.issuperset(map(type, results)):
            row, result = next(each for each in zip(nodes.rows, results, strict=True) if type(each[1]) is not int)
            raise unexpected(plugin, extension_point, result, expected=f"an int for node {nodes.name(row)}")
        return results

    def raise_failure(self, plugin: Plugin, extension_point: str, error: BaseException, began: float) -> NoReturn:
        """Raise what a call raised as a PluginError, and report it to the observer."""
        failure = error
        if not isinstance(failure, PluginError):
            failure = PluginError(plugin.name, extension_point, f"{type(error).__name__}: {error}")
        seconds = self.now() - began
        if seconds > _NOTED_CALL:
            self.note_slow_call(plugin, extension_point, seconds)
        if self.observer is not None:
            self.observer.plugin_called(plugin.name, extension_point, failure, seconds)
        if failure is error:
            raise failure
        raise failure from error

    def note_slow_call(self, plugin: Plugin, extension_point: str, seconds: float) -> None:
        """Keep the time of a call that took long, and log it if that is a second."""
        called = plugin.name, extension_point
        self.slow_calls[called] = self.slow_calls.get(called, 0.0) + seconds
        if seconds > _SLOW_CALL:
            _log_slow_call(plugin, extension_point, seconds)


class ExtensionPointTimer:
    """Times an extension point: reports how long it takes and its code, SUCCESS unless set, ERROR after a PluginError.

    ``began`` is the time at which it begins, if that has just been read, as at the end of the extension point before.
    """

    __slots__ = ("_began", "_caller", "_code", "_extension_point", "last_reading")

    def __init__(self, caller: PluginCaller, extension_point: str, *, began: float | None = None) -> None:
        self._caller, self._extension_point, self._code = caller, extension_point, Code.SUCCESS
        #: The latest reading of the clock, in seconds: at the beginning, the end of a call, or the end.
        self._began = self.last_reading = caller.now() if began is None else began

    def __enter__(self) -> Self:
        return self

    def call_for_status(self, plugin: Plugin, method: Callable[..., Status | None], *arguments: Any) -> Status:
        """Call a method that returns a status; an ERROR when the plugin breaks its contract.

        A call begins when the one before it ends.
        """
        caller, began = self._caller, self.last_reading
        try:
            try:
                result = method(*arguments)
            except FAILURES as error:
                caller.raise_failure(plugin, self._extension_point, error, began)
            self.last_reading = caller.now()
            if self.last_reading - began > _NOTED_CALL:
                caller.note_slow_call(plugin, self._extension_point, self.last_reading - began)
            if caller.observer is not None:
                caller.observer.plugin_called(plugin.name, self._extension_point, result, self.last_reading - began)
            if result is None or result is SUCCESS or result is SKIP:
                return result or SUCCESS
            return as_status(plugin, self._extension_point, result)
        except PluginError as error:
            return logged_error(error)

    def ended_with(self, status: Status) -> Status:
        """Report this status, which is returned."""
        self._code = status.code
        return status

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: object) -> None:
        observer = self._caller.observer
        if observer is None:
            return
        if self.last_reading == self._began:  # else the extension point ends with its latest call
            self.last_reading = self._caller.now()
        extension_point, code = self._extension_point, self._code
        if isinstance(error, PluginError):
            code = Code.ERROR
            if error.extension_point == "PreScore":  # it runs together with Score
                extension_point = "PreScore"
        observer.extension_point_ended(extension_point, code, self.last_reading - self._began)


class _IdleTimer(ExtensionPointTimer):
    """The timer of extension points that are not observed."""

    __slots__ = ()

    def ended_with(self, status: Status) -> Status:
        return status

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: object) -> None:
        pass


def _log_slow_call(plugin: Plugin, extension_point: str, seconds: float) -> None:
    _log.warning(
        "plugin %s took %.1f s at %s; nothing else is scheduled meanwhile",
        plugin.name,
        seconds,
        extension_point,
        extra=fields(plugin=plugin.name, extensionPoint=extension_point, seconds=round(seconds, 1)),
    )


def unless_it_fails(otherwise: U, plugin: str, called: str, call: Callable[[], T], **subject: str) -> T | U:
    """The result of a call that orders or moves pods in the queue; ``otherwise`` if the plugin fails, which is logged.

    ``subject`` are the pod and the event in question.
    """
    try:
        return call()
    except FAILURES:
        log_failure(plugin, called, **subject)
        return otherwise


def log_failure(plugin: str, called: str, **subject: str) -> None:
    """Log the exception that a call which orders or moves pods in the queue has raised; ``subject`` as above."""
    what = ", ".join(f"{kind} {name}" for kind, name in subject.items())
    extra = fields(plugin=plugin, call=called, **subject)
    _log.exception("plugin %s failed at %s%s", plugin, called, f" for {what}" if what else "", extra=extra)


def logged_error(error: PluginError) -> Status:
    """The ERROR status for a broken contract, which the log has in full."""
    extra = fields(plugin=error.plugin, extensionPoint=error.extension_point, err=error.problem)
    _log.error("%s", error, exc_info=error.__cause__, extra=extra)
    return Status(Code.ERROR, (error.problem,), error.plugin)


def may_gate(plugin: PreEnqueuePlugin, pod: PodInfo) -> bool:
    """Whether a PreEnqueue plugin can gate a pod; one that fails to say so can."""
    try:
        return bool(plugin.may_gate(pod))
    except FAILURES:
        log_failure(plugin.name, "may_gate", pod=pod.key)
        return True


def truth(method: Callable[..., Any], argument: Any) -> bool:
    """The truth value of what a method returns, part of the call so that what it raises is the plugin's error."""
    return bool(method(argument))


def hashable(value: H) -> H:
    """The value itself. Raises TypeError if it cannot be a key of a dictionary."""
    hash(value)
    return value


class PluginObserver:
    """Does nothing; subclass it to observe one profile. No method may block or raise: most are called for every pod.

    Extension points are spelled as in kube-scheduler (``PreFilter``); seconds are those of the injected clock.
    """

    #: Whether the durations of calls on single rows matter now; they are 0 otherwise.
    is_sampling = True

    def for_attempt(self, pod: PodInfo) -> PluginObserver:
        """The observer of the calls for a pod's attempt in progress: this one, or one that does more."""
        return self

    def plugin_called(self, plugin: str, extension_point: str, result: Any, seconds: float) -> None:
        """A plugin was called once, for any number of nodes. ``result`` is what it returned, or the PluginError.

        A call that returns an awaitable is reported twice: with the awaitable, and with the status it ends with.
        """

    def extension_point_ended(self, extension_point: str, code: Code, seconds: float) -> None:
        """All plugins of an extension point have been called, or as many as it took to decide."""

    def gang_preemption_ended(self, code: Code, *, evaluating: float | None) -> None:
        """PodGroupPostFilter has looked for victims for a pod group.

        ``evaluating`` are the seconds that went into choosing them; None when there were none to choose from.
        """

    def gang_attempt_ended(self, outcome: str, seconds: float, *, deciding: float | None) -> None:
        """An attempt to schedule a gang has ended; ``outcome`` is a :class:`kubestow.framework.gang.GangOutcome`.

        ``deciding`` is the part of the seconds that went into placement; None when the gang was rejected without it.
        """

    def queueing_hint_called(self, plugin: str, event: str, hint: str, seconds: float) -> None:
        """A plugin's queueing hint returned ``Queue`` or ``QueueSkip`` for the event of this label, or ``Error``."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProfilePlugins:
    """Each sequence is in the order in which its plugins are called; scores come with their weights."""

    queue_sort: QueueSortPlugin
    pre_enqueue: Sequence[PreEnqueuePlugin]
    pre_filter: Sequence[PreFilterPlugin]
    filter: Sequence[FilterPlugin]
    post_filter: Sequence[PostFilterPlugin]
    pre_score: Sequence[PreScorePlugin]
    score: Sequence[tuple[ScorePlugin, int]]
    reserve: Sequence[ReservePlugin]
    permit: Sequence[PermitPlugin]
    pre_bind: Sequence[PreBindPlugin]
    bind: Sequence[BindPlugin]
    post_bind: Sequence[PostBindPlugin]
    #: The plugin that lists the placements of a gang; without one a gang may use the whole cluster.
    placement_generate: PlacementGeneratePlugin | None
    placement_score: Sequence[tuple[PlacementScorePlugin, int]]
    #: The plugin that defines which pods are a gang; without one every pod is scheduled by itself.
    gang_source: GangSource | None
    #: The plugin that finds nodes for gangs which do not fit pod after pod.
    gang_placement: GangPlacementPlugin | None
    #: The plugin that lists the pods which may be evicted for a gang as a whole.
    gang_preemption: GangPreemptionPlugin | None
