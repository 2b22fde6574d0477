"""The trials of a gang: its pods placed as far as possible, anywhere or in the best part of the cluster that would do.

What a trial has placed stays until it is taken back; whoever asked for it decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from kubestow.cluster.cache import Cluster
from kubestow.framework.status import Status
from kubestow.scheduling.decision.scope import EVERYWHERE, Scope
from kubestow.scheduling.gangs.attempt import Attempt, Steps
from kubestow.scheduling.gangs.placements import choose
from kubestow.scheduling.gangs.trial import Trial
from kubestow.scheduling.queue.queued_pod import QueuedPod
from kubestow.scheduling.queue.scheduling_queue import SchedulingQueue

__all__ = ["GangTrials"]


class GangTrials:
    """Makes trials for attempts, and keeps the attempts up to date."""

    def __init__(self, cluster: Cluster, queue: SchedulingQueue, steps: Steps, random: Random) -> None:
        self._cluster, self._queue, self._steps, self._random = cluster, queue, steps, random

    async def placed(self, attempt: Attempt) -> Trial | Status:
        """The pods placed where they may be: in one placement of the gang, or anywhere. Raises PluginError."""
        gang, runtime, pods = attempt.gang, attempt.profile.runtime, attempt.pods
        placements = runtime.generate_placements(gang, [queued.info for queued in pods], self._cluster.all_nodes())
        if placements is None or isinstance(placements, Status):
            return await self.tried(attempt) if placements is None else placements
        attempt.placements = len(placements)
        if len(placements) == 1:
            return await self.tried(attempt, Scope(placements[0].nodes.names))
        choice = await choose(
            placements,
            lambda scope: self.tried(attempt, scope),
            cluster=self._cluster,
            profile=attempt.profile,
            gang=gang,
            pods=pods,
            needed=attempt.needed,
            random=self._random,
        )
        trial = self._new_trial(attempt)
        for queued, node_name in choice.assignments:
            if queued in attempt.pods:  # and has not gone meanwhile
                await trial.run([queued], Scope([node_name]))
        trial.failures += [failure for failure in choice.failures if failure.queued in attempt.pods]
        return self._ended(attempt, trial)

    async def tried(self, attempt: Attempt, scope: Scope = EVERYWHERE) -> Trial:
        """The pods placed as far as possible. Should that be too few, those that found no node get to go first."""
        trial = await self.trial(attempt, attempt.pods, scope)
        shapes = {queued.info.shape for queued in attempt.pods}
        if attempt.is_enough() or not trial.placed or len(shapes) == 1:
            return trial
        trial.undo()
        failed = [failure.queued for failure in trial.failures]
        return await self.trial(attempt, [*failed, *(reserved.queued for reserved in trial.placed)], scope)

    async def trial(
        self, attempt: Attempt, pods: Sequence[QueuedPod], scope: Scope = EVERYWHERE, *, evicting: bool = False
    ) -> Trial:
        trial = self._new_trial(attempt, evicting=evicting)
        await trial.run(pods, scope)
        return self._ended(attempt, trial)

    async def supposed(self, attempt: Attempt, scope: Scope) -> Trial:
        """A trial of which nobody is told."""
        trial = self._new_trial(attempt, supposing=True)
        await trial.run(attempt.pods, scope)
        return trial

    def _new_trial(self, attempt: Attempt, *, evicting: bool = False, supposing: bool = False) -> Trial:
        return Trial(
            self._cluster,
            attempt.profile,
            self._steps.suppose if evicting or supposing else self._steps.decide,
            is_wanted=self._steps.is_wanted,
            siblings=attempt.gang.members.pods,
            evicting=evicting,
        )

    def _ended(self, attempt: Attempt, trial: Trial) -> Trial:
        """A trial is over: what is to be known of it, whether or not it is taken back."""
        for queued in trial.gone:
            attempt.pods.remove(queued)
            self._queue.done(queued.info.uid)
        attempt.failures += trial.failures
        attempt.decided = attempt.profile.runtime.now()
        return trial
