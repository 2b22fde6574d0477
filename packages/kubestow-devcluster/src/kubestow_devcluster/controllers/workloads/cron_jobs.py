"""The CronJob controller: creates a Job at each scheduled time.

Of several missed times only the latest is started, and only within ``startingDeadlineSeconds``. The Job's name contains
the scheduled minute, so each time has at most one Job. The status is derived from the Jobs.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

import msgspec

from kubestow.rules.workloads import job_of_cron_job
from kubestow_devcluster.apiserver import statuses
from kubestow_devcluster.apiserver.kinds import cron_schedule
from kubestow_devcluster.apiserver.kinds.kind import Kind
from kubestow_devcluster.apiserver.registry.registry import DeleteOptions
from kubestow_devcluster.apiserver.schema.types import Object
from kubestow_devcluster.component_base.stored_objects import controller_of, new_controller_ref, owner_refs_of
from kubestow_devcluster.controllers.controller import Controller, ControllerContext, key_of
from kubestow_devcluster.controllers.workloads.jobs import finished_condition

#: With this many missed times or more, a warning event is recorded.
MANY_MISSED_TIMES = 100
#: Seconds added to the time of the next reconciliation, so that it is not before the scheduled time.
SLACK = 0.1
#: Longer deadlines are capped, so that the start time does not overflow; in seconds.
MAX_DEADLINE = 1_000_000_000


class CronJobController(Controller):
    resource = "cronjobs.batch"
    watched = frozenset({"jobs.batch"})
    owned = "jobs.batch"
    component = "cronjob-controller"

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._job_kind: Kind = context.registry.scheme["jobs.batch"]
        #: The uids of unexpected Jobs about which a warning has been recorded.
        self._unexpected_jobs: set[str] = set()

    def sync(self, key: str, cron_job: Object) -> None:
        status: Object = {**(cron_job.get("status") or {})}
        status["active"] = list(status.get("active") or ())
        uid, namespace = cron_job["metadata"]["uid"], cron_job["metadata"]["namespace"]
        jobs = []
        for stored in self.registry.store.collection(self._job_kind.storage).snapshot(f"{namespace}/"):
            owner = controller_of(owner_refs_of(stored))
            if owner is not None and owner.uid == uid:
                jobs.append(self._job_kind.decode(stored))
        self._sync_active_jobs(cron_job, status, jobs)
        try:
            if "deletionTimestamp" not in cron_job["metadata"] and not cron_job["spec"].get("suspend"):
                self._run_schedule(cron_job, status)
        finally:
            if not status["active"]:
                del status["active"]
            self.update_status(cron_job, status)
        # Delete the oldest finished Jobs beyond the history limits.
        limits = {"Complete": "successfulJobsHistoryLimit", "Failed": "failedJobsHistoryLimit"}
        for type_, field in limits.items():
            limit = cron_job["spec"].get(field)
            finished = [job for job in jobs if (end := finished_condition(job)) is not None and end["type"] == type_]
            finished.sort(key=lambda job: (job["status"].get("startTime", ""), job["metadata"]["name"]))
            for job in finished[: max(0, len(finished) - limit)] if limit is not None else ():
                self._delete_job(cron_job, job["metadata"]["name"], job["metadata"]["uid"])

    # Active and finished Jobs

    def _sync_active_jobs(self, cron_job: Object, status: Object, jobs: list[Object]) -> None:
        """Remove finished and deleted Jobs from ``status["active"]``; record events about them and unexpected Jobs."""
        by_uid = {job["metadata"]["uid"]: job for job in jobs}
        active = {reference["uid"] for reference in status["active"]}
        for uid, job in by_uid.items():
            finished, name = finished_condition(job), job["metadata"]["name"]
            if uid in active and finished is not None:
                message = f"Saw completed job: {name}, condition: {finished['type']}"
                self.record_event(cron_job, "SawCompletedJob", message)
            elif uid not in active | self._unexpected_jobs and finished is None:
                self._unexpected_jobs.add(uid)
                message = f"Saw a job that the controller did not create or forgot: {name}"
                self.record_warning(cron_job, "UnexpectedJob", message)
            if finished is not None and finished["type"] == "Complete":
                times = (status.get("lastSuccessfulTime", ""), job["status"].get("completionTime", ""))
                status["lastSuccessfulTime"] = max(times)
        for reference in status["active"]:
            if reference["uid"] not in by_uid:
                self.record_event(cron_job, "MissingJob", f"Active job went missing: {reference['name']}")
        unfinished = {uid for uid, job in by_uid.items() if finished_condition(job) is None}
        status["active"] = [reference for reference in status["active"] if reference["uid"] in unfinished]

    def _delete_job(self, cron_job: Object, name: str, uid: str) -> None:
        namespace = cron_job["metadata"]["namespace"]
        self.registry.delete(self._job_kind, namespace, name, DeleteOptions(uid=uid, propagation_policy="Background"))
        self._unexpected_jobs.discard(uid)
        self.record_event(cron_job, "SuccessfulDelete", f"Deleted job {name}")

    # The schedule

    def _run_schedule(self, cron_job: Object, status: Object) -> None:
        """Start a Job if one is due, and enqueue the CronJob for the next scheduled time."""
        spec = cron_job["spec"]
        try:
            schedule = cron_schedule.parse(spec["schedule"])
            zone = ZoneInfo(spec["timeZone"]) if spec.get("timeZone") else UTC
        except cron_schedule.InvalidSchedule as problem:
            # Unreachable through the API, which validates schedules.
            message = f'unparseable schedule: "{spec["schedule"]}" : {problem}'
            self.record_warning(cron_job, "UnparseableSchedule", message)
            return
        now = self.registry.clock()
        scheduled_time = self._find_most_recent_time(cron_job, status, schedule, zone, now)
        if scheduled_time is not None and self._make_way(cron_job, status, scheduled_time):
            self._start_job(cron_job, status, scheduled_time, zone)
        following = schedule.next(now, zone)
        if following is not None:
            self.enqueue_after(key_of(cron_job), (following - now).total_seconds() + SLACK)

    def _find_most_recent_time(
        self, cron_job: Object, status: Object, schedule: cron_schedule.Schedule, zone: tzinfo, now: datetime
    ) -> datetime | None:
        """The latest scheduled time since the last start and within the starting deadline.

        Records a warning if many times were missed.
        """
        since = datetime.fromisoformat(status.get("lastScheduleTime") or cron_job["metadata"]["creationTimestamp"])
        deadline = cron_job["spec"].get("startingDeadlineSeconds")
        if deadline is not None:
            since = max(since, now - timedelta(seconds=min(deadline, MAX_DEADLINE)))
        first = schedule.next(since, zone)
        if first is None or first > now:
            return None
        second = schedule.next(first, zone)
        if second is not None and (now - first) // (second - first) >= MANY_MISSED_TIMES:
            advice = "Set or decrease .spec.startingDeadlineSeconds or check clock skew"
            self.record_warning(cron_job, "TooManyMissedTimes", f"too many missed start times. {advice}")
        return schedule.latest(since, now, zone)

    def _make_way(self, cron_job: Object, status: Object, scheduled_time: datetime) -> bool:
        """Delete running Jobs if the concurrency policy says so; whether to start the Job, which is not done twice."""
        spec = cron_job["spec"]
        if status.get("lastScheduleTime") == _format_time(scheduled_time):
            return False
        if spec["concurrencyPolicy"] == "Forbid" and status["active"]:
            message = "Not starting job because prior execution is running and concurrency policy is Forbid"
            self.record_event(cron_job, "JobAlreadyActive", message)
            return False
        if spec["concurrencyPolicy"] == "Replace":
            while status["active"]:
                reference = status["active"].pop()
                self._delete_job(cron_job, reference["name"], reference["uid"])
        return True

    def _start_job(self, cron_job: Object, status: Object, scheduled_time: datetime, zone: tzinfo) -> None:
        """Create the Job of a scheduled time unless it exists.

        Raises StatusError if it is rejected, after recording an event about it.
        """
        cron_job_metadata = cron_job["metadata"]
        minutes, scheduled = int(scheduled_time.timestamp()) // 60, _format_time(scheduled_time.astimezone(zone))
        owned = job_of_cron_job(cron_job, minutes, new_controller_ref(self.kind, cron_job), scheduled=scheduled)
        new = self._job_kind.struct.read(msgspec.json.decode(msgspec.json.encode(owned)), [])
        name = new["metadata"]["name"]
        namespace = cron_job_metadata["namespace"]
        try:
            job = self._job_kind.decode(self.registry.create(self._job_kind, namespace, new))
        except statuses.StatusError as failure:
            if failure.code != 409:
                self.record_warning(cron_job, "FailedCreate", f"Error creating job: {failure.message}")
                raise
            # The Job exists if an earlier reconciliation created it and then failed to update the status.
            stored = self.registry.get(self._job_kind, namespace, name)
            owner = controller_of(owner_refs_of(stored))
            if owner is None or owner.uid != cron_job_metadata["uid"]:
                raise
            job = self._job_kind.decode(stored)
        else:
            self.record_event(cron_job, "SuccessfulCreate", f"Created job {name}")
        status["lastScheduleTime"] = _format_time(scheduled_time)
        if finished_condition(job) is None:
            status["active"].append(self._job_kind.object_reference(job))


def _format_time(time: datetime) -> str:
    return time.replace(microsecond=0).isoformat().replace("+00:00", "Z")
