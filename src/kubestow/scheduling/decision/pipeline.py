"""The decision: which node a pod goes to, or why to none.

A pure function of the cluster's state, the profile and the pod (and of a rule for ties). Nothing is changed by asking;
whoever asked commits the answer: the scheduler by assuming the pod, the replay of recorded decisions by comparing it,
an explanation by printing it. The steps are the reference's (5.2 to 5.7), except that every feasible node is scored
unless ``percentageOfNodesToScore`` asks for less.

With extenders a decision has to wait for answers on the way; :mod:`.extended_decision` is made of the same steps.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.cache import Cluster
from kubestow.cluster.nodes.views import Nodes, Rows
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import PluginError
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.diagnosis import Diagnosis
from kubestow.framework.evaluation import Evaluation, Feasible
from kubestow.framework.filters import Filters
from kubestow.framework.interface import PostFilterResult
from kubestow.framework.profile import Profile
from kubestow.framework.status import Code, Status
from kubestow.scheduling.decision.scope import EVERYWHERE, Scope

__all__ = ["Decider", "Decision", "FirstByName", "RandomTie", "Room", "TieBreak", "failed", "without_node"]

_NO_NODES = Status.unresolvable("no nodes available to schedule pods")
#: Fewer nodes than this are never sampled.
_FEWEST_TO_FIND = 100


class TieBreak(Protocol):
    """Chooses among the nodes with the highest score."""

    def choose(self, cluster: Cluster, rows: NDArray[np.intp]) -> int:
        """One of the rows, of which there are at least two."""


@dataclass(frozen=True, slots=True)
class RandomTie:
    """Any of the best nodes with equal chance, by the injected random source."""

    random: Random

    def choose(self, cluster: Cluster, rows: NDArray[np.intp]) -> int:
        """A random one."""
        return int(rows[self.random.randrange(len(rows))])


@dataclass(frozen=True, slots=True)
class FirstByName:
    """The first of the best nodes in the order of their names, which is what recorded decisions assume."""

    def choose(self, cluster: Cluster, rows: NDArray[np.intp]) -> int:
        """The one whose name sorts first."""
        return int(rows[cluster.nodes.name_rank()[rows].argmin()])


@dataclass(slots=True)
class Decision:
    """What was decided about a pod.

    With a ``node_name`` the pod fits there. Without one, ``status`` says how it ended, ``message`` is the text for the
    pod's condition, ``rejectors`` and ``pending`` name the plugins whose change of mind to wait for, and ``nomination``
    and ``actions`` are what PostFilter made of it. ``error`` is set when a plugin broke its contract. ``found`` and
    ``evaluation`` hold the figures behind it, until the next decision.
    """

    pod: PodInfo
    state: CycleState
    node_name: str | None = None
    status: Status = field(default_factory=lambda: Status(Code.SUCCESS))
    message: str = ""
    feasible: Rows = field(default_factory=lambda: slice(0, 0))
    feasible_count: int = 0
    found: Feasible | None = None
    rejectors: frozenset[str] = frozenset()
    pending: frozenset[str] = frozenset()
    nomination: PostFilterResult | None = None
    #: What PostFilter plugins want done in the API, beside the nomination.
    actions: tuple[Callable[[], Coroutine[Any, Any, None]], ...] = ()
    error: PluginError | None = None
    evaluation: Evaluation | None = None
    #: The nodes that extenders refused for good, whoever leaves them.
    vetoed: frozenset[str] = frozenset()


class Decider:
    """Decides about one pod after another. Holds only where the walk over the nodes goes on when nodes are sampled."""

    def __init__(self, cluster: Cluster, profiles: Mapping[str, Profile], ties: TieBreak) -> None:
        self.cluster = cluster
        self.profiles = profiles
        self._ties = ties
        self._next_start = 0

    def decide(self, pod: PodInfo, scope: Scope = EVERYWHERE) -> Decision:
        """Find a pod its node. Plugins that break their contract end in a decision with an ERROR status."""
        profile = self.profiles[pod.spec.scheduler_name]
        if not len(self.cluster.nodes):
            return Decision(pod, CycleState(), status=_NO_NODES, message=_NO_NODES.message)
        evaluation: Evaluation | None = None
        try:
            evaluation = profile.evaluations.of(self.cluster, pod)
            return self._decide(profile, evaluation, pod, scope)
        except PluginError as error:
            return failed(pod, evaluation, str(error), error)

    def _decide(self, profile: Profile, evaluation: Evaluation, pod: PodInfo, scope: Scope) -> Decision:
        within = scope.rows(self.cluster)
        found = evaluation.feasible(self.cluster, pod, within)
        if found.error is not None:
            return failed(pod, evaluation, found.error.message)
        if not found.count:
            state, diagnosis = evaluation.state(), found.diagnose()
            room = _post_filter(profile, state, pod, diagnosis, found.filters) if scope.makes_room else Room()
            return without_node(pod, state, diagnosis=diagnosis, room=room, found=found, evaluation=evaluation)
        rows, count = self.sampled(profile, found.rows, found.count, within)
        row = self._only(rows) if count == 1 else self._best(evaluation, pod, rows)
        return Decision(
            pod,
            evaluation.state(),
            node_name=self.cluster.nodes.names[row],
            feasible=rows,
            feasible_count=count,
            found=found,
            evaluation=evaluation,
        )

    # -- choosing ------------------------------------------------------------------------------------------------

    def _only(self, rows: Rows) -> int:
        return int(Nodes(self.cluster.nodes, rows).row_numbers[0])

    def _best(self, evaluation: Evaluation, pod: PodInfo, rows: Rows) -> int:
        return self.pick(evaluation.totals(self.cluster, pod, rows), rows)

    def pick(self, totals: NDArray[np.int64], rows: Rows) -> int:
        """The row with the highest total; among equals the rule for ties decides."""
        best = np.flatnonzero(totals == totals.max())
        if not isinstance(rows, slice):
            best = rows[best]
        return int(best[0]) if len(best) == 1 else self._ties.choose(self.cluster, best)

    def sampled(
        self, profile: Profile, rows: Rows, count: int, within: NDArray[np.bool_] | None = None
    ) -> tuple[Rows, int]:
        """As many feasible nodes as the profile wants to find, from where the last walk ended (semantics 5.4).

        Only the nodes ``within`` (bool, one per node; None for all) are in question.
        """
        total = len(self.cluster.nodes) if within is None else int(np.count_nonzero(within))
        percentage = profile.percentage_of_nodes_to_score
        if not 0 < percentage < 100 or total < _FEWEST_TO_FIND:
            return rows, count
        wanted = max(_FEWEST_TO_FIND, total * percentage // 100)
        walk = Nodes(self.cluster.nodes, rows).row_numbers
        start = int(np.searchsorted(walk, self._next_start % len(self.cluster.nodes)))
        walk = np.concatenate((walk[start:], walk[:start]))
        if count <= wanted:
            return rows, count
        # The walk ends when one feasible node more than wanted is found, which is left for the next pod.
        self._next_start = int(walk[wanted])
        return np.sort(walk[:wanted]), wanted


@dataclass(slots=True)
class Room:
    """What PostFilter plugins did to make room, and what they say when there is none."""

    nomination: PostFilterResult | None = None
    actions: list[Callable[[], Coroutine[Any, Any, None]]] = field(default_factory=list)
    message: str = ""
    _reasons: list[str] = field(default_factory=list)

    def take(self, answer: PostFilterResult) -> bool:
        """One plugin's answer; True if it ends the search: a success does, and anything but "unschedulable"."""
        if answer.nominated_node_name is not None or answer.status.ok:
            self.nomination = answer
        if answer.action is not None:
            self.actions.append(answer.action)
        if answer.status.ok:
            self.message = ""
            return True
        if answer.status.code is not Code.UNSCHEDULABLE:
            self.message = answer.status.message
            return True
        self._reasons += answer.status.reasons
        self.message = ", ".join(self._reasons)
        return False


def _post_filter(profile: Profile, state: CycleState, pod: PodInfo, diagnosis: Diagnosis, filters: Filters) -> Room:
    """Ask the PostFilter plugins in turn (semantics 4.4)."""
    room = Room()
    with closing(profile.runtime.run_post_filter_plugins(state, pod, diagnosis, filters)) as results:
        for result in results:
            if room.take(result):
                break
    return room


def without_node(
    pod: PodInfo, state: CycleState, *, diagnosis: Diagnosis, room: Room, found: Feasible, evaluation: Evaluation
) -> Decision:
    """No node fits: why (semantics 5.9), and what PostFilter made of it."""
    message = diagnosis.message()
    return Decision(
        pod,
        state,
        status=Status.unschedulable(message),
        message=f"{message} {room.message}" if room.message else message,
        found=found,
        rejectors=frozenset(diagnosis.rejectors),
        pending=frozenset(diagnosis.pending),
        nomination=room.nomination,
        actions=tuple(room.actions),
        evaluation=evaluation,
    )


def failed(pod: PodInfo, evaluation: Evaluation | None, message: str, error: PluginError | None = None) -> Decision:
    """Something went wrong."""
    state = CycleState() if evaluation is None else evaluation.state()
    return Decision(pod, state, status=Status.error(message), message=message, error=error, evaluation=evaluation)
