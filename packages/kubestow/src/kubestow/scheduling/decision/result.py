"""The result of a decision about one pod: scheduled, unschedulable, or failed.

A closed union, so that type checkers require callers to handle each case. ``feasibility`` and ``evaluation`` hold the
figures behind a decision (which node was rejected by which plugin, raw and weighted scores). They share arrays with the
result cache and are valid until the next decision.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, ClassVar

import msgspec

from kubestow.cluster.nodes.views import Rows
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import PluginError
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.evaluation.evaluation import Evaluation
from kubestow.framework.evaluation.feasibility import Feasibility
from kubestow.framework.interface import PostFilterResult
from kubestow.framework.status import SUCCESS, Code, Status


@dataclass(slots=True)
class PostFilterResults:
    """What the PostFilter plugins of a profile achieved, in the order in which they ran (semantics 4.4).

    ``nominating_result`` is the one that sets or clears the pod's nomination, ``actions`` are further requests of the
    plugins to the API server. ``message`` explains why no plugin succeeded, or what one found.
    """

    nominating_result: PostFilterResult | None = None
    actions: list[Callable[[], Coroutine[Any, Any, None]]] = field(default_factory=list)
    message: str = ""
    code: Code = Code.UNSCHEDULABLE
    _reasons: list[str] = field(default_factory=list)

    def add(self, result: PostFilterResult) -> bool:
        """Add one plugin's result. True if it ends the extension point: anything but Unschedulable does."""
        if result.nominated_node_name is not None or result.status.ok:
            self.nominating_result = result
        if result.action is not None:
            self.actions.append(result.action)
        if result.status.ok:
            self.message, self.code = result.status.message, Code.SUCCESS
            return True
        if result.status.code is not Code.UNSCHEDULABLE:
            self.message, self.code = result.status.message, result.status.code
            return True
        self._reasons += result.status.reasons
        self.message = ", ".join(self._reasons)
        return False

    @property
    def has_nominated(self) -> bool:
        """Whether a plugin nominated a node for the pod."""
        return self.nominating_result is not None and self.nominating_result.status.ok


class Scheduled(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The pod fits on ``node_name``, the best of the :attr:`candidates`.

    ``scored_rows`` are their rows if only a part of the feasible nodes was scored, else None.
    """

    status: ClassVar[Status] = SUCCESS
    message: ClassVar[str] = ""

    pod: PodInfo
    state: CycleState
    node_name: str
    scored_rows: Rows | None
    candidate_count: int
    feasibility: Feasibility
    evaluation: Evaluation

    @property
    def candidates(self) -> Rows:
        """The rows of the node table among which the node was selected."""
        return self.feasibility.rows if self.scored_rows is None else self.scored_rows


class Unschedulable(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """No node fits.

    ``message`` is the text of the pod's PodScheduled condition (semantics 5.9). ``rejectors`` and ``pending_plugins``
    name the plugins whose events requeue the pod. ``vetoed`` are the nodes that extenders rejected as unresolvable.
    """

    node_name: ClassVar[None] = None

    pod: PodInfo
    state: CycleState
    status: Status
    message: str
    rejectors: frozenset[str] = frozenset()
    pending_plugins: frozenset[str] = frozenset()
    post_filter: PostFilterResults = msgspec.field(default_factory=PostFilterResults)
    vetoed: frozenset[str] = frozenset()
    feasibility: Feasibility | None = None
    evaluation: Evaluation | None = None


class Failed(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A plugin or an extender failed. ``error`` is set when a plugin broke its contract."""

    node_name: ClassVar[None] = None
    feasibility: ClassVar[None] = None
    evaluation: ClassVar[None] = None

    pod: PodInfo
    state: CycleState
    message: str
    error: PluginError | None = None

    @property
    def status(self) -> Status:
        """An ERROR status with the message."""
        return Status.error(self.message)


Decision = Scheduled | Unschedulable | Failed
