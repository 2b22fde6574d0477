"""Asking a plugin: its method is called, its answer is checked, and what goes wrong names plugin and extension point.

Everything the scheduler wants of a plugin goes through here. An exception, an answer of the wrong type or shape, a
score out of range: all become a :class:`~kubestow.errors.PluginError`, which costs one pod one attempt. A plugin that
answers slowly cannot be interrupted, since the scheduling cycle is ordinary synchronous code; it is told of instead.
Whether an answer is *right* is not asked here: see :mod:`kubestow.testing.contract`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Set
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import PluginError
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.interface import (
    MAX_SCORE,
    FilterPlugin,
    Plugin,
    PostFilterPlugin,
    PostFilterResult,
    PreFilterPlugin,
    PreFilterResult,
    PreScorePlugin,
    ScorePlugin,
)
from kubestow.framework.observer import PluginObserver
from kubestow.framework.status import SUCCESS, Code, Legend, Status, Verdict

if TYPE_CHECKING:
    from kubestow.framework.diagnosis import Diagnosis
    from kubestow.framework.filters import Filters

__all__ = ["SCORES", "SLOW", "Asking", "as_status", "checked_array", "in_range"]

T = TypeVar("T")

SLOW = 1.0
"""One ask that takes longer than this many seconds is told of."""

_KEYS = np.dtype(np.int32)
SCORES = np.dtype(np.int64)
"""Of the arrays that scores come in."""


def _no_clock() -> float:
    return 0.0


def _nobody(plugin: Plugin, extension_point: str, seconds: float) -> None:
    pass


class Asking:
    """Asks plugins. Every method raises PluginError when the plugin breaks its contract.

    ``monotonic`` tells the time in seconds; ``on_slow`` is called with plugin, extension point and seconds after an ask
    that took longer than SLOW. Without a clock no ask is slow. ``observer`` is told of everything, if there is one.
    """

    __slots__ = ("_monotonic", "_observer", "_on_slow")

    def __init__(
        self,
        monotonic: Callable[[], float] = _no_clock,
        on_slow: Callable[[Plugin, str, float], None] = _nobody,
        observer: PluginObserver | None = None,
    ) -> None:
        self._monotonic = monotonic
        self._on_slow = on_slow
        self._observer = observer

    def __call__(self, plugin: Plugin, extension_point: str, method: Callable[..., T], *arguments: Any) -> T:
        """Call a method of a plugin; its answer is not checked."""
        began = self._monotonic()
        try:
            answer = method(*arguments)
        except Exception as error:
            if not isinstance(error, PluginError):
                broken = PluginError(plugin.name, extension_point, f"{type(error).__name__}: {error}")
                self.answered(plugin, extension_point, broken, began)
                raise broken from error
            self.answered(plugin, extension_point, error, began)
            raise
        seconds = self._monotonic() - began
        if seconds > SLOW:
            self._on_slow(plugin, extension_point, seconds)
        if self._observer is not None:
            self._observer.asked(plugin.name, extension_point, answer, seconds)
        return answer

    # -- for whoever watches -------------------------------------------------------------------------------------

    def now(self) -> float:
        """When something begins that is told of by :meth:`answered` or :meth:`passed`."""
        return self._monotonic()

    def answered(self, plugin: Plugin, extension_point: str, answer: Any, began: float) -> None:
        """A plugin has answered what it was asked at some time."""
        if self._observer is not None:
            self._observer.asked(plugin.name, extension_point, answer, self._monotonic() - began)

    def passed(self, extension_point: str, code: Code, began: float) -> None:
        """An extension point is over that began at some time."""
        if self._observer is not None:
            self._observer.passed(extension_point, code, self._monotonic() - began)

    def attempt_ended(self, outcome: str, began: float, *, decided: float | None) -> None:
        """An attempt to schedule a gang has ended that began at some time, and was ``decided`` at another if at all."""
        if self._observer is not None:
            deciding = None if decided is None else decided - began
            self._observer.attempt_ended(outcome, self._monotonic() - began, deciding=deciding)

    # -- once per shape of pod -----------------------------------------------------------------------------------

    def applies_to(self, plugin: Plugin, pod: PodInfo) -> bool:
        """Whether the plugin has anything to say of the pod."""
        return bool(self(plugin, "applies_to", plugin.applies_to, pod))

    def signature(self, plugin: Plugin, pod: PodInfo) -> Hashable | None:
        """What of the pod the plugin's answers depend on, None when they must not be remembered."""
        return self(plugin, "signature", _hashable_signature, plugin, pod)

    # -- filtering -----------------------------------------------------------------------------------------------

    def pre_filter(
        self, plugin: PreFilterPlugin, state: CycleState, pod: PodInfo, nodes: Nodes
    ) -> Status | PreFilterResult:
        """What PreFilter says of the pod, all nodes given."""
        answer = self(plugin, "PreFilter", plugin.pre_filter, state, pod, nodes)
        if isinstance(answer, PreFilterResult):
            if not isinstance(answer.node_names, Set):
                raise _unexpected(plugin, "PreFilter", answer.node_names, expected="a frozenset of node names")
            return answer
        return as_status(plugin, "PreFilter", answer, expected="a Status, a PreFilterResult or None")

    def filter(self, plugin: FilterPlugin, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict | None:
        """A verdict with a key per node, None when all pass; nobody else holds its array."""
        verdict = self(plugin, "Filter", plugin.filter, state, pod, nodes)
        if verdict is None:
            return None
        if not isinstance(verdict, Verdict):
            raise _unexpected(plugin, "Filter", verdict, expected="a Verdict or None")
        keys = checked_array(plugin, "Filter", verdict.keys, _KEYS, len(nodes), name="keys of ")
        owned = keys if keys.flags.owndata else keys.copy()  # remembering writes to it
        return Verdict(owned, _CheckedLegend(plugin, verdict.legend), has_errors=verdict.has_errors)

    def post_filter(
        self, plugin: PostFilterPlugin, state: CycleState, pod: PodInfo, diagnosis: Diagnosis, filters: Filters
    ) -> PostFilterResult:
        """What PostFilter made of the pod that fits nowhere."""
        answer = self(plugin, "PostFilter", plugin.post_filter, state, pod, diagnosis, filters)
        if not isinstance(answer, PostFilterResult):
            raise _unexpected(plugin, "PostFilter", answer, expected="a PostFilterResult")
        if not _are_pods(answer.victims) or not _are_pods(answer.lower_priority_nominated):
            raise PluginError(
                plugin.name, "PostFilter", "victims and lower_priority_nominated must be tuples of PodInfo"
            )
        return answer

    # -- scoring -------------------------------------------------------------------------------------------------

    def pre_score(self, plugin: PreScorePlugin, state: CycleState, pod: PodInfo, nodes: Nodes) -> Status:
        """Whether to score: a success or a skip."""
        answer = self(plugin, "PreScore", plugin.pre_score, state, pod, nodes)
        status = as_status(plugin, "PreScore", answer)
        if not status.ok and status.code is not Code.SKIP:
            raise PluginError(plugin.name, "PreScore", status.message)
        return status

    def score(self, plugin: ScorePlugin, state: CycleState, pod: PodInfo, nodes: Nodes) -> NDArray[np.int64]:
        """Raw scores, int64, one per node; nobody else holds the array."""
        scores = self(plugin, "Score", plugin.score, state, pod, nodes)
        checked = checked_array(plugin, "Score", scores, SCORES, len(nodes))
        return checked if checked.flags.owndata else checked.copy()

    def normalize(
        self, plugin: ScorePlugin, state: CycleState, pod: PodInfo, scores: NDArray[np.int64], nodes: Nodes
    ) -> NDArray[np.int64]:
        """The scores of the feasible nodes brought to 0 .. MAX_SCORE. The plugin gets a view it cannot write to."""
        given = scores.view()
        given.flags.writeable = False
        normalized = self(plugin, "NormalizeScore", plugin.normalize, state, pod, given, nodes)
        checked = checked_array(plugin, "NormalizeScore", normalized, SCORES, len(nodes))
        return in_range(plugin, "NormalizeScore", checked)


class _CheckedLegend:
    """A verdict's legend, whose mistakes are the plugin's. It is asked late: when somebody wants to know why."""

    __slots__ = ("_legend", "_plugin")

    def __init__(self, plugin: Plugin, legend: Legend) -> None:
        self._plugin = plugin
        self._legend = legend

    def __call__(self, key: int) -> Status:
        try:
            status = self._legend(key)
        except Exception as error:
            raise PluginError(
                self._plugin.name,
                "Filter",
                f"answered with key {key}, which its legend does not know ({type(error).__name__}: {error})",
            ) from error
        if not isinstance(status, Status):
            raise _unexpected(self._plugin, "Filter", status, expected=f"a Status for key {key}")
        return status


def _are_pods(answer: Any) -> bool:
    return isinstance(answer, tuple) and all(isinstance(pod, PodInfo) for pod in answer)


def as_status(plugin: Plugin, extension_point: str, answer: Any, *, expected: str = "a Status or None") -> Status:
    """A plugin's answer if it is a status; None is success. Raises PluginError otherwise."""
    if answer is None:
        return SUCCESS
    if not isinstance(answer, Status):
        raise _unexpected(plugin, extension_point, answer, expected=expected)
    return answer


def in_range(plugin: Plugin, extension_point: str, scores: NDArray[np.int64]) -> NDArray[np.int64]:
    """Normalised scores, if they are 0 to 100. Raises PluginError in the reference's words otherwise."""
    unsigned = scores.view(np.uint64)  # in which negative numbers are huge
    if (unsigned[0] if len(unsigned) == 1 else unsigned.max(initial=0)) > MAX_SCORE:
        culprit = next(score for score in scores.tolist() if not 0 <= score <= MAX_SCORE)
        raise PluginError(
            plugin.name,
            extension_point,
            f'plugin "{plugin.name}" returns an invalid score {culprit}, '
            f"it should in the range of [0, {MAX_SCORE}] after normalizing",
        )
    return scores


def checked_array(
    plugin: Plugin, extension_point: str, answer: Any, dtype: np.dtype[Any], count: int, *, name: str = ""
) -> NDArray[Any]:
    """A plugin's answer if it is an array with an entry for each of so many. Raises PluginError otherwise."""
    if isinstance(answer, np.ndarray):
        if answer.dtype == dtype and answer.shape == (count,):
            return answer
        found = f"{answer.dtype} and shape {answer.shape}"
    else:
        found = type(answer).__name__
    wanted = f"{dtype.name} and shape ({count},)"
    raise PluginError(plugin.name, extension_point, f"answered with {name}{found}, expected {wanted}")


def _hashable_signature(plugin: Plugin, pod: PodInfo) -> Hashable | None:
    signature = plugin.signature(pod)
    hash(signature)
    return signature


def _unexpected(plugin: Plugin, extension_point: str, answer: object, *, expected: str) -> PluginError:
    return PluginError(plugin.name, extension_point, f"answered with {type(answer).__name__}, expected {expected}")
