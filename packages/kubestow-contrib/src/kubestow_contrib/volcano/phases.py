"""The status of PodGroups, as Volcano's scheduler writes it: phase, numbers of pods, and a condition.

    Pending      not admitted
    Inqueue      admitted; Volcano's Job controller creates the pods of a job from then on
    Running      as many pods as ``minMember`` are on nodes or have succeeded
    Unknown      fewer, though some are running
    Completed    as many have succeeded, and none is left

Pods that are terminating on nodes count, so that a group keeps its phase until they are gone.

Once a second, outside scheduling cycles, statuses are compared of the groups that have changed, or a pod of which has,
and of those that are not admitted if anything has; only differences are written. The scheduler does not watch finished
pods, so each pod that ends is read once to see how it ended.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

import msgspec

from kubestow.api.formats.timestamps import timestamp
from kubestow.cluster.pods.pod_groups import PodGroupAPI, PodGroupName
from kubestow.errors import APIError, KubestowError
from kubestow.framework.interface import Handle
from kubestow.log_fields import fields
from kubestow_contrib.volcano.accounts import Accounts, Job, JobKey
from kubestow_contrib.volcano.kube_batch import KUBE_BATCH
from kubestow_contrib.volcano.pod_groups import VOLCANO, PodGroup, PodGroupCondition, PodGroupStatus

_log = logging.getLogger(__name__)

_PERIOD = 1.0
_FORBIDDEN = 403
_READY = "tasks in gang are ready to be scheduled"


class PodGroupPhases:
    """Writes the statuses. ``refusal`` admits a job if there is room, and returns why not, "" if it is admitted."""

    def __init__(self, handle: Handle, accounts: Accounts, refusal: Callable[[Job], str]) -> None:
        self._handle, self._accounts, self._refusal = handle, accounts, refusal
        self._groups = [(api, handle.cluster.catalog(api.kind)) for api in (VOLCANO, KUBE_BATCH)]
        #: How many pods have ended in each phase since the status of their group was written, by the group's job.
        self._ended: dict[JobKey, Counter[str]] = {}
        self._has_warned = False
        #: What statuses depend on, as it was when all were last written.
        self._written: object = None
        self._rules_changes = -1
        handle.run_periodically(_PERIOD, self.update)

    async def update(self) -> None:
        """Write what has changed. Without a change in the cluster this costs nothing."""
        self._accounts.update()
        versions = tuple(groups.version for _, groups in self._groups)
        state = self._accounts.changes, self._accounts.freed, versions
        if state == self._written:
            return
        while self._accounts.ended:
            pod = self._accounts.ended.popleft()
            # One that was deleted is not found.
            with suppress(KubestowError, KeyError, TypeError):
                found = await self._handle.request("GET", f"/api/v1/namespaces/{pod.job.namespace}/pods/{pod.name}")
                if found["metadata"]["uid"] == pod.uid:
                    self._ended.setdefault(pod.job, Counter())[found["status"]["phase"]] += 1
        not_written = set[JobKey]()
        for key in self._take_changed():
            for api, groups in self._groups:
                group = groups.get(key.namespace, key.name)
                if group is None:
                    continue
                status = self._status(group, api)
                if status != group.status and not await self._write(group, status):
                    not_written.add(key)
        self._accounts.changed |= not_written
        self._written = None if not_written else state
        self._ended = {
            key: ended
            for key, ended in self._ended.items()
            if any(groups.get(key.namespace, key.name) for _, groups in self._groups)
        }

    def _take_changed(self) -> list[JobKey]:
        """The groups whose statuses may have changed."""
        accounts = self._accounts
        changed, accounts.changed = accounts.changed, set()
        if self._rules_changes != accounts.rules_changes:
            self._rules_changes = accounts.rules_changes
            changed.update(
                JobKey(each.metadata.namespace, each.metadata.name) for _, all_ in self._groups for each in all_
            )
        changed.update(key for key, job in accounts.jobs.items() if not (job.is_admitted or key.uid))
        return sorted(changed)

    async def _write(self, group: PodGroup, status: PodGroupStatus) -> bool:
        # APIObject leaves out defaults, which a merge patch would not reset.
        counts = {"running": status.running, "succeeded": status.succeeded, "failed": status.failed}
        try:
            await self._handle.patch(group, {"status": {**msgspec.to_builtins(status), **counts}})
        except KubestowError as error:
            # A conflict, or an API server that is away: the next comparison writes it.
            if isinstance(error, APIError) and error.code == _FORBIDDEN and not self._has_warned:
                self._has_warned = True
                extra = fields(podGroup=group.metadata.name, namespace=group.metadata.namespace, err=str(error))
                _log.warning("the status of PodGroups cannot be written: %s", error, extra=extra)
            return False
        self._ended.pop(JobKey(group.metadata.namespace, group.metadata.name), None)
        return True

    def _status(self, group: PodGroup, api: PodGroupAPI) -> PodGroupStatus:
        key, old = JobKey(group.metadata.namespace, group.metadata.name), group.status
        job, ended = self._accounts.jobs.get(key), self._ended.get(key, Counter[str]())
        refusal = "" if job is None else self._refusal(job)
        placed = 0 if job is None else len(job.placed)
        waiting = 0 if job is None else len(job.pods) - placed
        running = 0 if job is None else sum(map(self._is_running, job.placed))
        succeeded, failed = old.succeeded + ended["Succeeded"], old.failed + ended["Failed"]
        least = max(group.spec.min_member, 1)
        terminating = self._terminating(key, api)
        leaving = sum(self._handle.cluster.placed_pod(uid) is not None for uid in terminating)
        is_ready = placed + succeeded >= least
        is_occupied = placed + succeeded + leaving >= least
        if is_ready or (is_occupied and not (running and waiting)):
            phase = "Running" if placed or waiting or leaving else "Completed"
        elif running:
            phase = "Unknown"
        else:
            phase = "Inqueue" if job is not None and job.is_admitted else "Pending"
        condition = None
        if is_ready:
            condition = PodGroupCondition(type="Scheduled", status="True", reason=_READY)
        elif waiting or ((placed or terminating) and not is_occupied):
            why = refusal or f"pod group is not ready, {waiting} Pending, {least} minAvailable"
            tasks = placed + waiting + len(terminating) + succeeded + failed
            condition = PodGroupCondition(
                type="Unschedulable",
                status="True",
                reason="NotEnoughResources",
                message=f"{least - placed - succeeded}/{tasks} tasks in gang unschedulable: {why}",
            )
        conditions = old.conditions
        if condition is not None:
            own = [each for each in conditions if each.type in ("Scheduled", "Unschedulable")]
            if not own or msgspec.structs.replace(own[0], last_transition_time="", transition_id="") != condition:
                condition = msgspec.structs.replace(condition, last_transition_time=timestamp(self._handle.now()))
                conditions = [*(each for each in conditions if each not in own), condition]
        return PodGroupStatus(phase, conditions, running, succeeded, failed)

    def _terminating(self, key: JobKey, api: PodGroupAPI) -> list[str]:
        """The uids of the pods of a group that are terminating."""
        members = self._handle.cluster.pod_groups.members(PodGroupName(api.name, key.namespace, key.name))
        return [uid for uid in members.pods.keys() - members.ready.keys() if members.pods[uid].terminating]

    def _is_running(self, uid: str) -> bool:
        placed = self._handle.cluster.placed_pod(uid)
        return placed is not None and placed.info.status.phase == "Running"
