"""The Job controller: runs pods until enough of them have succeeded or too many have failed.

Each finished pod is counted once: its tracking finalizer is removed after the Job's status counts it. Containers of
simulated pods do not exit by themselves, so a Job's pods get the annotation ``kubestow.dev/duration`` with
:data:`DEFAULT_DURATION` unless their template has it.

Pod failure policies and success policies are stored but not evaluated.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import islice

from kubestow.devcluster.annotations import DURATION
from kubestow.devcluster.apiserver.registry.deletion import DeleteOptions
from kubestow.devcluster.apiserver.resources import Object
from kubestow.devcluster.apiserver.statuses import StatusError
from kubestow.devcluster.controllers.conditions import get_condition, with_condition
from kubestow.devcluster.controllers.controller import ControllerContext, PodController
from kubestow.devcluster.controllers.pods import PodView

__all__ = ["DEFAULT_DURATION", "JobController", "finished_condition"]

DEFAULT_DURATION = "1s"
#: Back-off before a failed pod is replaced, in seconds, doubled with each failure in a row.
INITIAL_BACK_OFF, MAX_BACK_OFF = 10.0, 600.0
#: Pods created per reconciliation.
BATCH = 500

_TRACKING_FINALIZER = "batch.kubernetes.io/job-tracking"
_COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"


class JobController(PodController):
    resource = "jobs.batch"
    component = "job-controller"

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        #: By the Job's key: failures since the last success, and the time before which no pod is created.
        self._failures: dict[str, int] = {}
        self._back_off_until: dict[str, datetime] = {}

    def reconcile(self, key: str) -> None:
        job = self.get(key)
        uid = job["metadata"]["uid"] if job is not None else ""
        pods = self.pods.controlled_by("Job", key)
        self.throttle(key, len(pods))
        for pod in pods:
            # Pods of a deleted Job of this name are not counted.
            if pod.controller is not None and pod.controller.uid != uid:
                self._untrack(pod)
        if job is None:
            return
        pods = [pod for pod in pods if pod.controller is not None and pod.controller.uid == uid]
        if finished_condition(job) is not None:
            self._clean_up(key, job, pods)
        elif "deletionTimestamp" in job["metadata"]:
            for pod in pods:
                if _outcome(pod):
                    self._untrack(pod)
        else:
            self._sync(key, job, pods)

    def _sync(self, key: str, job: Object, pods: list[PodView]) -> None:
        status: Object = {**(job.get("status") or {})}
        if job["spec"].get("suspend"):
            self._suspend(job, status, pods)
            return
        status.setdefault("startTime", self.registry.now())
        self._resume(job, status)
        uncounted = [pod for pod in pods if _TRACKING_FINALIZER in pod.metadata.finalizers and _outcome(pod)]
        for pod in uncounted:
            self._count(key, job, status, pod)
        active = [pod for pod in pods if not _outcome(pod)]
        end = self._evaluate(key, job, status, active)
        failure: StatusError | None = None
        created = 0
        if end is not None:
            self._finish(job, status, *end)
        else:
            try:
                created = self._manage_pods(key, job, status, active)
            except StatusError as error:
                failure = error
        self._sync_status(job, status, active, created)
        for pod in uncounted:
            self._untrack(pod)
        if failure is not None:
            raise failure

    def _sync_status(self, job: Object, status: Object, active: list[PodView], created: int) -> None:
        status["active"] = len(active) + created
        if not status["active"]:
            del status["active"]
        status["ready"] = sum(pod.is_ready for pod in active)
        status["terminating"] = 0
        status["uncountedTerminatedPods"] = {}
        self.update_status(job, status)

    def _count(self, key: str, job: Object, status: Object, pod: PodView) -> None:
        """Count a finished pod in the status, and update the back-off."""
        if _outcome(pod) == "Failed":
            status["failed"] = status.get("failed", 0) + 1
            failures = self._failures[key] = self._failures.get(key, 0) + 1
            back_off = min(INITIAL_BACK_OFF * 2 ** (failures - 1), MAX_BACK_OFF)
            self._back_off_until[key] = self.registry.clock() + timedelta(seconds=back_off)
            return
        self._failures.pop(key, None)
        self._back_off_until.pop(key, None)
        if _is_indexed(job):
            completed = _parse_indexes(status.get("completedIndexes", "")) | {_completion_index(pod)}
            status["completedIndexes"], status["succeeded"] = _format_indexes(completed), len(completed)
        else:
            status["succeeded"] = status.get("succeeded", 0) + 1

    def _evaluate(self, key: str, job: Object, status: Object, active: list[PodView]) -> tuple[str, str, str] | None:
        """The type, reason and message of the condition that ends the Job; None while it continues."""
        spec, succeeded = job["spec"], status.get("succeeded", 0)
        if status.get("failed", 0) > spec["backoffLimit"]:
            return "Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit"
        if "activeDeadlineSeconds" in spec:
            remaining = spec["activeDeadlineSeconds"] - self._seconds_since(status["startTime"])
            if remaining <= 0:
                return "Failed", "DeadlineExceeded", "Job was active longer than specified deadline"
            self.enqueue_after(key, remaining)
        # Without completions, the Job is complete when one pod has succeeded and all others have finished.
        is_complete = succeeded >= spec["completions"] if "completions" in spec else succeeded and not active
        if is_complete:
            return "Complete", "CompletionsReached", "Reached expected number of succeeded pods"
        return None

    def _finish(self, job: Object, status: Object, type_: str, reason: str, message: str) -> None:
        now = self.registry.now()
        interim_type = {"Complete": "SuccessCriteriaMet", "Failed": "FailureTarget"}[type_]
        for name in (interim_type, type_):
            condition = {"type": name, "status": "True", "reason": reason, "message": message}
            status["conditions"] = with_condition(status, condition, now, update_field="lastProbeTime")
        if type_ == "Complete":
            status["completionTime"] = now
            self.record_event(job, "Completed", "Job completed")
        else:
            self.record_warning(job, reason, message)

    def _manage_pods(self, key: str, job: Object, status: Object, active: list[PodView]) -> int:
        """Create missing or delete surplus pods. Returns the change in the number of active pods."""
        spec, succeeded = job["spec"], int(status.get("succeeded", 0))
        desired = int(spec["parallelism"])
        if "completions" in spec:
            desired = min(desired, int(spec["completions"]) - succeeded)
        elif succeeded:
            desired = min(desired, len(active))
        for pod in active[desired:]:
            self._delete_uncounted(job, pod)
        missing = min(desired - len(active), BATCH)
        if missing <= 0:
            return min(0, desired - len(active))
        now = self.registry.clock()
        back_off = (self._back_off_until.get(key, now) - now).total_seconds()
        if back_off > 0:
            self.enqueue_after(key, back_off)
            return 0
        indexes = self._free_indexes(job, status, active, missing) if _is_indexed(job) else []
        self.create_pods(
            job, missing, customize=lambda pod, number: _customize(job, pod, indexes[number] if indexes else None)
        )
        return missing

    def _free_indexes(self, job: Object, status: Object, active: list[PodView], count: int) -> list[int]:
        """The lowest ``count`` completion indexes that are neither completed nor in progress."""
        taken = _parse_indexes(status.get("completedIndexes", "")) | {_completion_index(pod) for pod in active}
        free = (index for index in range(job["spec"]["completions"]) if index not in taken)
        return list(islice(free, count))

    def _suspend(self, job: Object, status: Object, pods: list[PodView]) -> None:
        """Delete the active pods without counting them, and reset the start time."""
        for pod in pods:
            if not _outcome(pod):
                self._delete_uncounted(job, pod)
        status.pop("startTime", None)
        self._set_suspended(job, status, "True", "JobSuspended", "Job suspended")
        self._sync_status(job, status, [], 0)

    def _resume(self, job: Object, status: Object) -> None:
        suspended = get_condition(status, "Suspended")
        if suspended is not None and suspended["status"] == "True":
            status["startTime"] = self.registry.now()
            self._set_suspended(job, status, "False", "JobResumed", "Job resumed")

    def _set_suspended(self, job: Object, status: Object, value: str, reason: str, message: str) -> None:
        old = get_condition(status, "Suspended")
        condition = {"type": "Suspended", "status": value, "reason": reason, "message": message}
        status["conditions"] = with_condition(status, condition, self.registry.now(), update_field="lastProbeTime")
        if old is None or old["status"] != value:
            self.record_event(job, "Suspended" if value == "True" else "Resumed", message)

    def _clean_up(self, key: str, job: Object, pods: list[PodView]) -> None:
        """Delete the remaining pods of a finished Job, and the Job after its ttlSecondsAfterFinished."""
        self._failures.pop(key, None)
        self._back_off_until.pop(key, None)
        for pod in pods:
            if _outcome(pod):
                self._untrack(pod)
            else:
                self._delete_uncounted(job, pod)
        status = {name: value for name, value in job["status"].items() if name != "active"}
        self.update_status(job, {**status, "ready": 0})
        condition = finished_condition(job)
        if "ttlSecondsAfterFinished" not in job["spec"] or condition is None:
            return
        remaining = job["spec"]["ttlSecondsAfterFinished"] - self._seconds_since(condition["lastTransitionTime"])
        if remaining > 0:
            self.enqueue_after(key, remaining)
        elif "deletionTimestamp" not in job["metadata"]:
            metadata = job["metadata"]
            deletion = DeleteOptions(uid=metadata["uid"], propagation_policy="Foreground")
            self.registry.delete(self.kind, metadata["namespace"], metadata["name"], deletion)

    def _seconds_since(self, timestamp: str) -> float:
        return (self.registry.clock() - datetime.fromisoformat(timestamp)).total_seconds()

    def _delete_uncounted(self, job: Object, pod: PodView) -> None:
        self._untrack(pod)
        if not pod.is_terminating:
            self.delete_pod(job, pod)

    def _untrack(self, pod: PodView) -> None:
        """Remove the tracking finalizer: the pod has been counted, or must not be."""
        if _TRACKING_FINALIZER in pod.metadata.finalizers:
            self.remove_finalizer(self.pod_kind, pod.metadata.namespace, pod.name, _TRACKING_FINALIZER)


def _outcome(pod: PodView) -> str:
    """Succeeded or Failed; empty for an active pod. A terminating pod counts as failed."""
    if pod.is_finished:
        return pod.status.phase
    return "Failed" if pod.is_terminating else ""


def finished_condition(job: Object) -> Object | None:
    """The condition Complete or Failed of a finished Job; None if it has not finished."""
    for condition in (job.get("status") or {}).get("conditions") or ():
        if condition["type"] in ("Complete", "Failed") and condition["status"] == "True":
            finished: Object = condition
            return finished
    return None


def _is_indexed(job: Object) -> bool:
    return bool(job["spec"].get("completionMode") == "Indexed")


def _completion_index(pod: PodView) -> int:
    """The pod's completion index; -1 if it has none."""
    text = pod.metadata.annotations.get(_COMPLETION_INDEX, "")
    return int(text) if text.isdigit() else -1


def _customize(job: Object, pod: Object, index: int | None) -> None:
    """Add the tracking finalizer, the duration and the completion index, if any, to a pod from the template."""
    metadata = pod["metadata"]
    metadata["finalizers"] = [*(metadata.get("finalizers") or ()), _TRACKING_FINALIZER]
    annotations = metadata.setdefault("annotations", {})
    annotations.setdefault(DURATION, DEFAULT_DURATION)
    if index is None:
        return
    text = str(index)
    annotations[_COMPLETION_INDEX] = text
    metadata.setdefault("labels", {})[_COMPLETION_INDEX] = text
    name = job["metadata"]["name"]
    metadata["generateName"] = f"{name}-{text}-"
    pod["spec"].setdefault("hostname", f"{name}-{text}")
    for container in (*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"]):
        container.setdefault("env", []).append({"name": "JOB_COMPLETION_INDEX", "value": text})


def _parse_indexes(text: str) -> set[int]:
    """The numbers of ``1,3-5``."""
    indexes: set[int] = set()
    for part in text.split(",") if text else ():
        first, _, last = part.partition("-")
        indexes.update(range(int(first), int(last or first) + 1))
    return indexes


def _format_indexes(indexes: set[int]) -> str:
    """``1,3-5``; the inverse of :func:`_parse_indexes`."""
    ranges: list[list[int]] = []
    for index in sorted(indexes):
        if ranges and index == ranges[-1][-1] + 1:
            ranges[-1] = [ranges[-1][0], index]
        else:
            ranges.append([index])
    return ",".join("-".join(str(bound) for bound in bounds) for bounds in ranges)
