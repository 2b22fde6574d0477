"""Cron jobs: a job each time the schedule says so.

Only the last of the times that were missed is made up for, and only within ``startingDeadlineSeconds``. A job is named
after the minute it was due, so that no time has two. What the status says of the jobs is read from the jobs themselves.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

import msgspec

from kubestow.devcluster import cron_schedule as cron
from kubestow.devcluster.apiserver import statuses
from kubestow.devcluster.apiserver.registry.deletion import Deletion
from kubestow.devcluster.apiserver.resources import Kind, Object
from kubestow.devcluster.controllers.controller import Controller, Happening, World, key_of
from kubestow.devcluster.controllers.owners import controller_among, owner_reference, owners_of
from kubestow.devcluster.controllers.workloads.jobs import end_of

__all__ = ["CronJobController"]

#: More times missed than this are worth a warning.
MANY = 100
#: Seconds by which the next look is later than the time it is for.
SLACK = 0.1

#: Seconds beyond which a deadline might as well not be there.
LONGEST = 1_000_000_000

_SCHEDULED = "batch.kubernetes.io/cronjob-scheduled-timestamp"


class CronJobController(Controller):
    resource = "cronjobs.batch"
    component = "cronjob-controller"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._jobs: Kind = world.registry.catalog["jobs.batch"]
        #: The uids of jobs that a cron job did not start itself, and that have been told of.
        self._strangers: set[str] = set()

    def observe(self, happening: Happening) -> None:
        super().observe(happening)
        if happening.resource == self._jobs.storage:
            for key in happening.controllers(self.kind.name):
                self.reconcile_soon(key)

    def reconcile(self, key: str) -> None:
        cron_job = self.find(key)
        if cron_job is None:
            return
        status: Object = {**(cron_job.get("status") or {})}
        status["active"] = list(status.get("active") or ())
        jobs = self._owned(cron_job)
        self._note_ends(cron_job, status, jobs)
        try:
            if "deletionTimestamp" not in cron_job["metadata"] and not cron_job["spec"].get("suspend"):
                self._run(cron_job, status)
        finally:
            if not status["active"]:
                del status["active"]
            self.set_status(cron_job, status)
        self._clean_up(cron_job, jobs)

    def _owned(self, cron_job: Object) -> list[Object]:
        """The jobs of the cron job."""
        uid, namespace = cron_job["metadata"]["uid"], cron_job["metadata"]["namespace"]
        found = []
        for stored in self.registry.store.collection(self._jobs.storage).snapshot(f"{namespace}/"):
            owner = controller_among(owners_of(stored))
            if owner is not None and owner.uid == uid:
                found.append(self._jobs.decode(stored))
        return found

    # What became of the jobs

    def _note_ends(self, cron_job: Object, status: Object, jobs: list[Object]) -> None:
        """Drop from the active jobs those that are over or gone."""
        known = {job["metadata"]["uid"]: job for job in jobs}
        active = {reference["uid"] for reference in status["active"]}
        for uid, job in known.items():
            end = end_of(job)
            if uid in active and end is not None:
                name = job["metadata"]["name"]
                self.tell(cron_job, "SawCompletedJob", f"Saw completed job: {name}, condition: {end['type']}")
            elif uid not in active | self._strangers and end is None:
                self._strangers.add(uid)
                message = f"Saw a job that the controller did not create or forgot: {job['metadata']['name']}"
                self.warn(cron_job, "UnexpectedJob", message)
            if end is not None and end["type"] == "Complete":
                times = (status.get("lastSuccessfulTime", ""), job["status"].get("completionTime", ""))
                status["lastSuccessfulTime"] = max(times)
        for reference in status["active"]:
            if reference["uid"] not in known:
                self.tell(cron_job, "MissingJob", f"Active job went missing: {reference['name']}")
        over = {uid for uid, job in known.items() if end_of(job) is not None}
        status["active"] = [one for one in status["active"] if one["uid"] in known.keys() - over]

    def _clean_up(self, cron_job: Object, jobs: list[Object]) -> None:
        """Delete the oldest jobs beyond the limits of the history."""
        limits = {"Complete": "successfulJobsHistoryLimit", "Failed": "failedJobsHistoryLimit"}
        for type_, field in limits.items():
            limit = cron_job["spec"].get(field)
            over = [job for job in jobs if (end := end_of(job)) is not None and end["type"] == type_]
            over.sort(key=lambda job: (job["status"].get("startTime", ""), job["metadata"]["name"]))
            for job in over[: max(0, len(over) - limit)] if limit is not None else ():
                self._delete(cron_job, job["metadata"])

    def _delete(self, cron_job: Object, identity: Object) -> None:
        namespace = cron_job["metadata"]["namespace"]
        deletion = Deletion(uid=identity["uid"], propagation="Background")
        self.registry.delete(self._jobs, namespace, identity["name"], deletion)
        self._strangers.discard(identity["uid"])
        self.tell(cron_job, "SuccessfulDelete", f"Deleted job {identity['name']}")

    # Starting

    def _run(self, cron_job: Object, status: Object) -> None:
        """Start the job that is due, if one is, and look again when the next one will be."""
        spec = cron_job["spec"]
        try:
            schedule, zone = cron.parse(spec["schedule"]), _zone(spec)
        except cron.InvalidSchedule as problem:
            # Schedules are validated when they are written; this one was not.
            self.warn(cron_job, "UnparseableSchedule", f'unparseable schedule: "{spec["schedule"]}" : {problem}')
            return
        now = self.registry.moment()
        due = self._due(cron_job, status, schedule, zone, now)
        if due is not None and self._is_wanted(cron_job, status, due):
            self._start(cron_job, status, due, zone)
        following = schedule.next(now, zone)
        if following is not None:
            self.reconcile_after(key_of(cron_job), (following - now).total_seconds() + SLACK)

    def _due(
        self, cron_job: Object, status: Object, schedule: cron.Schedule, zone: tzinfo, now: datetime
    ) -> datetime | None:
        """The last time that has come since the last job was started, if not too long ago; it tells of many."""
        since = datetime.fromisoformat(status.get("lastScheduleTime") or cron_job["metadata"]["creationTimestamp"])
        deadline = cron_job["spec"].get("startingDeadlineSeconds")
        if deadline is not None:
            since = max(since, now - timedelta(seconds=min(deadline, LONGEST)))
        first = schedule.next(since, zone)
        if first is None or first > now:
            return None
        second = schedule.next(first, zone)
        if second is not None and (now - first) // (second - first) >= MANY:
            advice = "Set or decrease .spec.startingDeadlineSeconds or check clock skew"
            self.warn(cron_job, "TooManyMissedTimes", f"too many missed start times. {advice}")
        return schedule.latest(since, now, zone)

    def _is_wanted(self, cron_job: Object, status: Object, due: datetime) -> bool:
        """Whether the job that is due may be started: not twice, and not beside others if it must not."""
        spec = cron_job["spec"]
        if status.get("lastScheduleTime") == _written(due):
            return False
        if spec["concurrencyPolicy"] == "Forbid" and status["active"]:
            message = "Not starting job because prior execution is running and concurrency policy is Forbid"
            self.tell(cron_job, "JobAlreadyActive", message)
            return False
        if spec["concurrencyPolicy"] == "Replace":
            while status["active"]:
                self._delete(cron_job, status["active"].pop())
        return True

    def _start(self, cron_job: Object, status: Object, due: datetime, zone: tzinfo) -> None:
        """Make the job of this time. Raises Failure, having told of it, when it is refused."""
        identity = cron_job["metadata"]
        template = msgspec.json.decode(msgspec.json.encode(cron_job["spec"]["jobTemplate"]))
        metadata = template.get("metadata") or {}
        metadata["name"] = name = f"{identity['name']}-{int(due.timestamp()) // 60}"
        metadata.setdefault("annotations", {})[_SCHEDULED] = _written(due.astimezone(zone))
        metadata["ownerReferences"] = [owner_reference(self.kind, cron_job)]
        job = self._jobs.struct.read({"metadata": metadata, "spec": template["spec"]}, [])
        try:
            made = self._jobs.decode(self.registry.create(self._jobs, identity["namespace"], job))
        except statuses.Failure as refused:
            if refused.code != 409:
                self.warn(cron_job, "FailedCreate", f"Error creating job: {refused.message}")
                raise
            # Somebody made it before, or it was made and not written down.
            stored = self.registry.get(self._jobs, identity["namespace"], name)
            owner = controller_among(owners_of(stored))
            if owner is None or owner.uid != identity["uid"]:
                raise
            made = self._jobs.decode(stored)
        else:
            self.tell(cron_job, "SuccessfulCreate", f"Created job {name}")
        status["lastScheduleTime"] = _written(due)
        if end_of(made) is None:
            status["active"].append(self._jobs.reference_to(made))


def _zone(spec: Object) -> tzinfo:
    return ZoneInfo(spec["timeZone"]) if spec.get("timeZone") else UTC


def _written(moment: datetime) -> str:
    """A time as the API writes it, in its own zone."""
    return moment.replace(microsecond=0).isoformat().replace("+00:00", "Z")
