"""Jobs: pods until enough of them have succeeded, or too many have failed.

A finished pod is counted once: its finalizer is taken off when its job's status has it. The containers of simulated
nodes have nothing to do and would never end; a job's pods that do not say how long they run get the annotation
``kubestow.dev/duration`` with :data:`DURATION`.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import islice

from kubestow.devcluster.apiserver.registry.deletion import Deletion
from kubestow.devcluster.apiserver.resources import Object
from kubestow.devcluster.apiserver.statuses import Failure
from kubestow.devcluster.controllers.conditions import condition_of, with_condition
from kubestow.devcluster.controllers.controller import PodController, World
from kubestow.devcluster.controllers.pods import Pod
from kubestow.devcluster.kubelets import DURATION as DURATION_ANNOTATION

__all__ = ["DURATION", "JobController", "end_of"]

#: How long a job's pods run unless they say so themselves.
DURATION = "1s"
#: Seconds until a failed pod is replaced, doubled with each failure.
FIRST_BACKOFF, LAST_BACKOFF = 10.0, 600.0
#: Pods made in one go.
BATCH = 500

_TRACKING = "batch.kubernetes.io/job-tracking"
_INDEX = "batch.kubernetes.io/job-completion-index"


class JobController(PodController):
    resource = "jobs.batch"
    component = "job-controller"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        #: By job: failures since the last success, and when another pod may be made after them.
        self._failures: dict[str, int] = {}
        self._not_before: dict[str, datetime] = {}

    def reconcile(self, key: str) -> None:
        job = self.find(key)
        uid = job["metadata"]["uid"] if job is not None else ""
        pods = self.pods.controlled("Job", key)
        self.rest_after(key, len(pods))
        for pod in pods:
            # Pods of a job that is gone are counted by nobody.
            if pod.controller is not None and pod.controller.uid != uid:
                self._untrack(pod)
        if job is None:
            return
        pods = [pod for pod in pods if pod.controller is not None and pod.controller.uid == uid]
        if end_of(job) is not None:
            self._finish(key, job, pods)
        elif "deletionTimestamp" in job["metadata"]:
            for pod in pods:
                if _outcome(pod):
                    self._untrack(pod)
        else:
            self._run(key, job, pods)

    def _run(self, key: str, job: Object, pods: list[Pod]) -> None:
        status: Object = {**(job.get("status") or {})}
        if job["spec"].get("suspend"):
            self._suspend(job, status, pods)
            return
        status.setdefault("startTime", self.registry.now())
        self._resume(job, status)
        fresh = [pod for pod in pods if _TRACKING in pod.metadata.finalizers and _outcome(pod)]
        for pod in fresh:
            self._count(key, job, status, pod)
        active = [pod for pod in pods if not _outcome(pod)]
        verdict = self._verdict(key, job, status, active)
        refused: Failure | None = None
        added = 0
        if verdict is not None:
            self._conclude(job, status, *verdict)
        else:
            try:
                added = self._manage(key, job, status, active)
            except Failure as failure:
                refused = failure
        self._report(job, status, active, added)
        for pod in fresh:
            self._untrack(pod)
        if refused is not None:
            raise refused

    def _report(self, job: Object, status: Object, active: list[Pod], added: int) -> None:
        status["active"] = len(active) + added
        if not status["active"]:
            del status["active"]
        status["ready"] = sum(pod.is_ready for pod in active)
        status["terminating"] = 0
        status["uncountedTerminatedPods"] = {}
        self.set_status(job, status)

    def _count(self, key: str, job: Object, status: Object, pod: Pod) -> None:
        if _outcome(pod) == "Failed":
            status["failed"] = status.get("failed", 0) + 1
            failures = self._failures[key] = self._failures.get(key, 0) + 1
            wait = min(FIRST_BACKOFF * 2 ** (failures - 1), LAST_BACKOFF)
            self._not_before[key] = self.registry.moment() + timedelta(seconds=wait)
            return
        self._failures.pop(key, None)
        self._not_before.pop(key, None)
        if _is_indexed(job):
            done = _numbers(status.get("completedIndexes", "")) | {_index(pod)}
            status["completedIndexes"], status["succeeded"] = _ranges(done), len(done)
        else:
            status["succeeded"] = status.get("succeeded", 0) + 1

    def _verdict(self, key: str, job: Object, status: Object, active: list[Pod]) -> tuple[str, str, str] | None:
        """Why the job is over: condition, reason and message; None while it is not."""
        spec, succeeded = job["spec"], status.get("succeeded", 0)
        if status.get("failed", 0) > spec["backoffLimit"]:
            return "Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit"
        if "activeDeadlineSeconds" in spec:
            left = spec["activeDeadlineSeconds"] - self._since(status["startTime"])
            if left <= 0:
                return "Failed", "DeadlineExceeded", "Job was active longer than specified deadline"
            self.reconcile_after(key, left)
        # Without a number of completions, one success means that the others are about to end, too.
        enough = succeeded >= spec["completions"] if "completions" in spec else succeeded and not active
        if enough:
            return "Complete", "CompletionsReached", "Reached expected number of succeeded pods"
        return None

    def _conclude(self, job: Object, status: Object, type_: str, reason: str, message: str) -> None:
        now = self.registry.now()
        before = {"Complete": "SuccessCriteriaMet", "Failed": "FailureTarget"}[type_]
        for name in (before, type_):
            condition = {"type": name, "status": "True", "reason": reason, "message": message}
            status["conditions"] = with_condition(status, condition, now, written="lastProbeTime")
        if type_ == "Complete":
            status["completionTime"] = now
            self.tell(job, "Completed", "Job completed")
        else:
            self.warn(job, reason, message)

    def _manage(self, key: str, job: Object, status: Object, active: list[Pod]) -> int:
        """Make the pods that are missing or delete those too many; how many pods that adds."""
        spec, succeeded = job["spec"], int(status.get("succeeded", 0))
        wanted = int(spec["parallelism"])
        if "completions" in spec:
            wanted = min(wanted, int(spec["completions"]) - succeeded)
        elif succeeded:
            wanted = min(wanted, len(active))
        for pod in active[wanted:]:
            self._drop(job, pod)
        missing = min(wanted - len(active), BATCH)
        if missing <= 0:
            return min(0, wanted - len(active))
        wait = (self._not_before.get(key, self.registry.moment()) - self.registry.moment()).total_seconds()
        if wait > 0:
            self.reconcile_after(key, wait)
            return 0
        indexes = self._free_indexes(job, status, active, missing) if _is_indexed(job) else []
        self.create_pods(job, missing, finish=lambda pod, number: _prepare(job, pod, indexes, number))
        return missing

    def _free_indexes(self, job: Object, status: Object, active: list[Pod], count: int) -> list[int]:
        taken = _numbers(status.get("completedIndexes", "")) | {_index(pod) for pod in active}
        free = (index for index in range(job["spec"]["completions"]) if index not in taken)
        return list(islice(free, count))

    def _suspend(self, job: Object, status: Object, pods: list[Pod]) -> None:
        """Delete the pods without counting them, and stop the clock."""
        for pod in pods:
            if not _outcome(pod):
                self._drop(job, pod)
        status.pop("startTime", None)
        self._set_suspended(job, status, "True", "JobSuspended", "Job suspended")
        self._report(job, status, [], 0)

    def _resume(self, job: Object, status: Object) -> None:
        suspended = condition_of(status, "Suspended")
        if suspended is not None and suspended["status"] == "True":
            status["startTime"] = self.registry.now()
            self._set_suspended(job, status, "False", "JobResumed", "Job resumed")

    def _set_suspended(self, job: Object, status: Object, value: str, reason: str, message: str) -> None:
        old = condition_of(status, "Suspended")
        condition = {"type": "Suspended", "status": value, "reason": reason, "message": message}
        status["conditions"] = with_condition(status, condition, self.registry.now(), written="lastProbeTime")
        if old is None or old["status"] != value:
            self.tell(job, "Suspended" if value == "True" else "Resumed", message)

    def _finish(self, key: str, job: Object, pods: list[Pod]) -> None:
        """The job is over: nothing of it runs on, and after its time to live it goes itself."""
        self._failures.pop(key, None)
        self._not_before.pop(key, None)
        for pod in pods:
            if _outcome(pod):
                self._untrack(pod)
            else:
                self._drop(job, pod)
        status = {name: value for name, value in job["status"].items() if name != "active"}
        self.set_status(job, {**status, "ready": 0})
        end = end_of(job)
        if "ttlSecondsAfterFinished" not in job["spec"] or end is None:
            return
        left = job["spec"]["ttlSecondsAfterFinished"] - self._since(end["lastTransitionTime"])
        if left > 0:
            self.reconcile_after(key, left)
        elif "deletionTimestamp" not in job["metadata"]:
            identity = job["metadata"]
            deletion = Deletion(uid=identity["uid"], propagation="Foreground")
            self.registry.delete(self.kind, identity["namespace"], identity["name"], deletion)

    def _since(self, time: str) -> float:
        """Seconds since a time of the API."""
        return (self.registry.moment() - datetime.fromisoformat(time)).total_seconds()

    def _drop(self, job: Object, pod: Pod) -> None:
        self._untrack(pod)
        if not pod.is_deleted:
            self.delete_pod(job, pod)

    def _untrack(self, pod: Pod) -> None:
        if _TRACKING not in pod.metadata.finalizers:
            return

        def change(metadata: Object) -> None:
            metadata["finalizers"] = [one for one in metadata["finalizers"] if one != _TRACKING]
            if not metadata["finalizers"]:
                del metadata["finalizers"]

        self.change_pod(pod, change)


def _outcome(pod: Pod) -> str:
    """How a pod ended: Succeeded or Failed; empty while it has not. A pod that is taken away has failed."""
    if pod.is_finished:
        return pod.status.phase
    return "Failed" if pod.is_deleted else ""


def end_of(job: Object) -> Object | None:
    """The condition that says that the job is over."""
    conditions = (job.get("status") or {}).get("conditions") or ()
    return next((one for one in conditions if one["type"] in ("Complete", "Failed") and one["status"] == "True"), None)


def _is_indexed(job: Object) -> bool:
    return bool(job["spec"].get("completionMode") == "Indexed")


def _index(pod: Pod) -> int:
    text = pod.metadata.annotations.get(_INDEX, "")
    return int(text) if text.isdigit() else -1


def _prepare(job: Object, pod: Object, indexes: list[int], number: int) -> None:
    """What a job adds to a pod of its template."""
    metadata = pod["metadata"]
    metadata["finalizers"] = [*(metadata.get("finalizers") or ()), _TRACKING]
    annotations = metadata.setdefault("annotations", {})
    annotations.setdefault(DURATION_ANNOTATION, DURATION)
    if not indexes:
        return
    index = str(indexes[number])
    annotations[_INDEX] = index
    metadata.setdefault("labels", {})[_INDEX] = index
    name = job["metadata"]["name"]
    metadata["generateName"] = f"{name}-{index}-"
    pod["spec"].setdefault("hostname", f"{name}-{index}")
    for container in (*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"]):
        container.setdefault("env", []).append({"name": "JOB_COMPLETION_INDEX", "value": index})


def _numbers(text: str) -> set[int]:
    """The numbers of ``1,3-5``."""
    found: set[int] = set()
    for part in text.split(",") if text else ():
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def _ranges(numbers: set[int]) -> str:
    """``1,3-5``, the opposite of :func:`_numbers`."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1] = [runs[-1][0], number]
        else:
            runs.append([number])
    return ",".join("-".join(str(end) for end in run) for run in runs)
