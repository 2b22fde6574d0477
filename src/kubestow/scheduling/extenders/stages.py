"""The decision when extenders take part: the same steps, with answers to wait for in between.

While an extender thinks the world moves: nodes come and go, and rows of the node table with them. So what is remembered
across a wait are names of nodes, and after each wait the profile is asked again, which costs next to nothing where
nothing has changed. A node is chosen only if the extenders were asked about it and it suits the pod as things are now.
One decision is made at a time all the same; whoever places the pod does so in the same breath as this ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

import msgspec
import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.cache import Cluster
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import ExtenderError, PluginError
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.diagnosis import Diagnosis, Refusal
from kubestow.framework.evaluation import Evaluation, Feasible
from kubestow.framework.interface import PostFilterResult
from kubestow.framework.profile import Profile
from kubestow.framework.status import Code, Status, Verdict
from kubestow.scheduling.decision.pipeline import Decider, Decision, Room, failed, without_node
from kubestow.scheduling.decision.scope import EVERYWHERE, Scope
from kubestow.scheduling.extenders.port import EXTENDER, Extenders, Opinion

__all__ = ["ExtendedDecider"]


class ExtendedDecider:
    """Decides with extenders about one pod after another."""

    def __init__(self, decider: Decider, extenders: Extenders) -> None:
        self._decider = decider
        self._extenders = extenders

    async def decide(self, pod: PodInfo, scope: Scope = EVERYWHERE) -> Decision:
        """Find a pod its node. What plugins and extenders do wrong ends in a decision with an ERROR status."""
        decider = self._decider
        if not len(decider.cluster.nodes):
            return decider.decide(pod, scope)
        evaluation: Evaluation | None = None
        try:
            profile = decider.profiles[pod.spec.scheduler_name]
            evaluation = profile.evaluations.of(decider.cluster, pod)
            return await _Cycle(decider, self._extenders, profile, evaluation, pod, scope).decide()
        except PluginError as error:
            return failed(pod, evaluation, str(error), error)
        except ExtenderError as error:
            return failed(pod, evaluation, error.problem)


class _Filtering(Exception):
    """A filter ended the cycle with an error."""


class _Cycle:
    """One decision under way."""

    def __init__(
        self,
        decider: Decider,
        extenders: Extenders,
        profile: Profile,
        evaluation: Evaluation,
        pod: PodInfo,
        scope: Scope,
    ) -> None:
        self._decider, self._cluster, self._extenders = decider, decider.cluster, extenders
        self._profile, self._evaluation, self._pod, self._scope = profile, evaluation, pod, scope
        #: The pod as filters are asked about it: without its nomination, once that has come to nothing.
        self._asked_about = pod
        self._now = _Moment(self._cluster)
        self._found: Feasible | None = None
        self._vetoed: frozenset[str] = frozenset()

    async def decide(self) -> Decision:
        """From filtering to the choice."""
        try:
            return await self._on_promised_node() or await self._on_any_node()
        except _Filtering as error:
            return failed(self._pod, self._evaluation, str(error))

    async def _on_promised_node(self) -> Decision | None:
        """Reference 5.3: the node that the pod was promised, unless somebody objects; an extender's error does."""
        promised = self._pod.status.nominated_node_name
        if not promised or self._names(self._feasible().rows) != [promised]:
            return None
        try:
            opinion = await self._extenders.filter(self._pod, [promised])
        except ExtenderError:
            opinion = Opinion()
        rows = self._standing(opinion.passed)
        if len(rows):
            return self._placed(rows, int(rows[0]))
        self._asked_about = _without_nomination(self._pod)
        self._found = None
        return None

    async def _on_any_node(self) -> Decision:
        found = self._feasible()
        if not found.count:
            return await self._without_node(Opinion())
        within = self._scope.rows(self._cluster)
        sampled, _ = self._decider.sampled(self._profile, found.rows, found.count, within)
        opinion = await self._extenders.filter(self._pod, self._names(sampled))
        self._vetoed = _vetoes(opinion)
        rows = self._standing(opinion.passed)
        extra = np.zeros(len(rows), np.int64)
        if len(rows) > 1:
            scores = await self._extenders.prioritize(self._pod, self._names(rows))
            rows = self._standing(opinion.passed)
            extra = np.array([scores.get(name, 0) for name in self._names(rows)], np.int64)
        if not len(rows):
            return await self._without_node(opinion)
        if len(rows) == 1:
            return self._placed(rows, int(rows[0]))
        totals = self._evaluation.totals(self._cluster, self._asked_about, rows) + extra
        return self._placed(rows, self._decider.pick(totals, rows))

    # -- as things are now -----------------------------------------------------------------------------------------

    def _feasible(self) -> Feasible:
        """What the filters say; asked again if anything has happened since they were."""
        if self._found is None or self._now.has_passed():
            self._now = _Moment(self._cluster)
            # Plugins that had nothing to say of such a pod before may have now.
            self._evaluation = self._profile.evaluations.of(self._cluster, self._pod)
            self._found = self._evaluation.feasible(self._cluster, self._asked_about, self._scope.rows(self._cluster))
            if self._found.error is not None:
                raise _Filtering(self._found.error.message)
        return self._found

    def _standing(self, names: Sequence[str]) -> NDArray[np.intp]:
        """The rows of those of some nodes that are still there and still suit the pod."""
        feasible = self._feasible().rows
        table = self._cluster.nodes
        standing = np.zeros(len(table), np.bool_)
        standing[[row for row in map(table.rows.get, names) if row is not None]] = True
        alive = np.zeros(len(table), np.bool_)
        alive[feasible] = True
        return np.flatnonzero(standing & alive)

    def _names(self, rows: NDArray[np.intp] | slice) -> list[str]:
        return Nodes(self._cluster.nodes, rows).names

    # -- results ---------------------------------------------------------------------------------------------------

    def _placed(self, rows: NDArray[np.intp], row: int) -> Decision:
        return Decision(
            self._pod,
            self._evaluation.state(),
            node_name=self._cluster.nodes.names[row],
            feasible=rows,
            feasible_count=len(rows),
            found=self._found,
            evaluation=self._evaluation,
            vetoed=self._vetoed,
        )

    async def _without_node(self, opinion: Opinion) -> Decision:
        """No node is left: what filters and extenders said of them, and whom one could evict."""
        found = self._feasible()
        state, diagnosis = self._evaluation.state(), found.diagnose()
        if (refusal := self._refusal(opinion)) is not None:
            diagnosis = diagnosis.overruled_by(refusal)
        explained = without_node(
            self._pod, state, diagnosis=diagnosis, room=Room(), found=found, evaluation=self._evaluation
        )
        if opinion.passed or opinion.refused:
            # Extenders have no say in what may change their minds, so anything may.
            explained.rejectors |= {EXTENDER}
        explained.vetoed = self._vetoed
        room = await self._post_filter(state, diagnosis, found) if self._scope.makes_room else Room()
        explained.nomination, explained.actions = room.nomination, tuple(room.actions)
        if room.message:
            explained.message = f"{explained.message} {room.message}"
        return explained

    def _refusal(self, opinion: Opinion) -> Refusal | None:
        """What the extenders refused, as if they were one plugin."""
        rows = self._cluster.nodes.rows
        keys = np.zeros(len(rows), np.int32)
        legend: dict[Status, int] = {}
        for name, status in opinion.refused.items():
            if name in rows:
                keys[rows[name]] = legend.setdefault(status, len(legend) + 1)
        if not legend:
            return None
        verdict = Verdict.of(keys, {key: status for status, key in legend.items()})
        return Refusal(EXTENDER, ~verdict.passes, verdict)

    # -- making room -----------------------------------------------------------------------------------------------

    async def _post_filter(self, state: CycleState, diagnosis: Diagnosis, found: Feasible) -> Room:
        """Ask the PostFilter plugins in turn; when the world has moved while extenders thought, no further ones."""
        room, moment = Room(), _Moment(self._cluster)
        runtime = self._profile.runtime
        with closing(runtime.run_post_filter_plugins(state, self._pod, diagnosis, found.filters)) as results:
            for result in results:
                if room.take(await self._narrowed(result)) or moment.has_passed():
                    break
        return room

    async def _narrowed(self, answer: PostFilterResult) -> PostFilterResult:
        """A preemption's outcome after the extenders have had their say about its candidates (semantics 9.4)."""
        if answer.extender_candidates is None or not self._extenders.take_part_in_preemption(self._pod):
            return answer
        victims_by_node = answer.extender_candidates.victims_by_node()
        try:
            return answer.extender_candidates.select(await self._extenders.preempt(self._pod, victims_by_node))
        except ExtenderError as error:
            return PostFilterResult(Status.error(f"preemption: {error.problem}"))


class _Moment:
    """A state of the cluster, to tell whether anything has happened to it since."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._position, self._structure = cluster.journal.position, cluster.nodes.structure

    def has_passed(self) -> bool:
        """Whether the cluster is another by now."""
        return (self._cluster.journal.position, self._cluster.nodes.structure) != (self._position, self._structure)


def _vetoes(opinion: Opinion) -> frozenset[str]:
    unresolvable = Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    return frozenset(name for name, status in opinion.refused.items() if status.code is unresolvable)


def _without_nomination(pod: PodInfo) -> PodInfo:
    status = msgspec.structs.replace(pod.status, nominated_node_name="")
    return PodInfo(msgspec.structs.replace(pod.pod, status=status), pod.shape, pod.requests, pod.nonzero_requests)
