"""The Job controller: runs pods until enough of them have succeeded or too many have failed.

Each finished pod is counted once: its tracking finalizer is removed after the Job's status counts it. Containers of
simulated pods do not exit by themselves, so a Job's pods get the annotation ``kubestow.dev/duration`` with
:data:`DEFAULT_DURATION` unless their template has it, or a command whose end is known.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from itertools import islice
from typing import NamedTuple

from kubestow.rules.workloads import COMPLETION_INDEX, completion_index_prefix
from kubestow_devcluster.apiserver.kinds.object_fields import get_condition, with_condition
from kubestow_devcluster.apiserver.registry.registry import DeleteOptions
from kubestow_devcluster.apiserver.schema.types import Object
from kubestow_devcluster.behaviour.pod_behaviour import DURATION
from kubestow_devcluster.container_commands import command_of
from kubestow_devcluster.controllers.controller import LONGEST_THROTTLE, ControllerContext, PodController
from kubestow_devcluster.controllers.pod_index import ControlledPods, PodView

DEFAULT_DURATION = "1s"
#: The environment variable with a pod's completion index.
_INDEX_VARIABLE = "JOB_COMPLETION_INDEX"
#: Images whose containers do nothing until they are stopped.
_PAUSE = re.compile(r"(?:^|/)pause(?:[:@]|$)")
#: Back-off before a failed pod is replaced, in seconds, doubled with each failure in a row.
INITIAL_BACK_OFF, MAX_BACK_OFF = 10.0, 600.0
#: Pods created per reconciliation.
BATCH = 500

_TRACKING_FINALIZER = "batch.kubernetes.io/job-tracking"
#: The number of failures of its index before a pod was created.
_INDEX_FAILURES = "batch.kubernetes.io/job-index-failure-count"
_MANAGER = "kubernetes.io/job-controller"


class _Indexes:
    """The completion indexes that have succeeded and failed, read from a Job's status and written back to it."""

    def __init__(self, status: Object) -> None:
        self.completed = CompletionIndexes(status.get("completedIndexes", ""))
        self.failed = CompletionIndexes(status.get("failedIndexes", ""))

    def write(self, status: Object) -> None:
        if self.completed:
            status["completedIndexes"], status["succeeded"] = str(self.completed), len(self.completed)
        if self.failed:
            status["failedIndexes"] = str(self.failed)


class JobController(PodController):
    resource = "jobs.batch"
    component = "job-controller"

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        #: By the Job's key: failures since the last success, and the time before which no pod is created.
        self._failures: dict[str, int] = {}
        self._back_off_until: dict[str, datetime] = {}
        #: The same time by the Job's key and index, for Jobs with a back-off limit per index.
        self._index_back_off_until: dict[str, dict[int, datetime]] = {}

    def reconcile(self, key: str) -> None:
        job = self.get(key)
        if job is not None and job["spec"].get("managedBy", _MANAGER) != _MANAGER:
            return
        uid = job["metadata"]["uid"] if job is not None else ""
        for pod in self.pods.of_former_controllers("Job", key, uid):
            # Pods of a deleted Job of this name are not counted.
            self._untrack(pod)
        if job is None:
            return
        pods = self.pods.of_controller("Job", key, uid)
        self.throttle(key, len(pods), longest=LONGEST_THROTTLE)
        if finished_condition(job) is not None:
            self._clean_up(key, job, pods)
        elif "deletionTimestamp" in job["metadata"]:
            for pod in pods.held():
                if _outcome(job, pod):
                    self._untrack(pod)
        else:
            self._sync(key, job, pods)

    def _sync(self, key: str, job: Object, pods: ControlledPods) -> None:
        status: Object = {**(job.get("status") or {})}
        if job["spec"].get("suspend"):
            self._suspend(job, status, pods)
            return
        status.setdefault("startTime", self.registry.now())
        suspended = get_condition(status, "Suspended")
        if suspended is not None and suspended["status"] == "True":
            status["startTime"] = self.registry.now()
            self._set_suspended(job, status, "False", "JobResumed", "Job resumed")
        uncounted = [
            pod for pod in pods.held() if _TRACKING_FINALIZER in pod.metadata.finalizers and _outcome(job, pod)
        ]
        indexes, job_failure = _Indexes(status), ""
        for pod in uncounted:
            job_failure = self._count(key, job, status, indexes, pod) or job_failure
        indexes.write(status)
        end = ("Failed", "PodFailurePolicy", job_failure) if job_failure else None
        end = end or self._evaluate(key, job, status, indexes, pods.active)
        created = 0
        try:
            if end is not None:
                self._finish(job, status, *end)
            else:
                created = self._manage_pods(key, job, status, indexes, pods)
        finally:
            self._write_status(job, status, pods.active + created, pods.ready, len(pods.terminating()))
            for pod in uncounted:
                self._untrack(pod)

    def _write_status(self, job: Object, status: Object, active: int, ready: int, terminating: int) -> None:
        status["active"] = active
        if not active:
            del status["active"]
        status["ready"], status["terminating"] = ready, terminating
        status["uncountedTerminatedPods"] = {}
        self.update_status(job, status)

    def _count(self, key: str, job: Object, status: Object, indexes: _Indexes, pod: PodView) -> str:
        """Count a finished pod in the status or among the indexes, and update the back-off.

        Returns why the pod's failure fails the whole Job; empty if it does not.
        """
        if _outcome(job, pod) == "Failed":
            decoded = self.get(pod.key, self.pod_kind)
            action, message = failure_action(job, decoded) if decoded is not None else ("Count", "")
            if action == "Ignore":
                return ""
            status["failed"] = status.get("failed", 0) + 1
            if "backoffLimitPerIndex" in job["spec"]:
                index, failures = pod.completion_index, _index_failures(pod) + 1
                if action == "FailIndex" or failures > job["spec"]["backoffLimitPerIndex"]:
                    indexes.failed.add(index)
                self._index_back_off_until.setdefault(key, {})[index] = self._after_back_off(failures)
            else:
                self._failures[key] = self._failures.get(key, 0) + 1
                self._back_off_until[key] = self._after_back_off(self._failures[key])
            return message if action == "FailJob" else ""
        self._failures.pop(key, None)
        self._back_off_until.pop(key, None)
        if _is_indexed(job):
            if 0 <= pod.completion_index < job["spec"]["completions"]:
                indexes.completed.add(pod.completion_index)
        else:
            status["succeeded"] = status.get("succeeded", 0) + 1
        return ""

    def _after_back_off(self, failures: int) -> datetime:
        back_off = min(INITIAL_BACK_OFF * 2 ** (failures - 1), MAX_BACK_OFF)
        return self.registry.clock() + timedelta(seconds=back_off)

    def _evaluate(
        self, key: str, job: Object, status: Object, indexes: _Indexes, active: int
    ) -> tuple[str, str, str] | None:
        """The type, reason and message of the condition that ends the Job; None while it continues."""
        spec, succeeded = job["spec"], status.get("succeeded", 0)
        if status.get("failed", 0) > spec["backoffLimit"]:
            return "Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit"
        if "activeDeadlineSeconds" in spec:
            remaining = spec["activeDeadlineSeconds"] - self._seconds_since(status["startTime"])
            if remaining <= 0:
                return "Failed", "DeadlineExceeded", "Job was active longer than specified deadline"
            self.enqueue_after(key, remaining)
        if (end := _evaluate_indexes(spec, indexes)) is not None:
            return end
        rule = matched_success_rule(job, indexes.completed)
        if rule is not None:
            return "Complete", "SuccessPolicy", f"Matched rules at index {rule}"
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

    def _manage_pods(self, key: str, job: Object, status: Object, indexes: _Indexes, pods: ControlledPods) -> int:
        """Create missing or delete surplus pods. Returns the change in the number of active pods."""
        spec, succeeded = job["spec"], int(status.get("succeeded", 0))
        desired = int(spec["parallelism"])
        if "completions" in spec:
            desired = min(desired, int(spec["completions"]) - succeeded - len(indexes.failed))
        elif succeeded:
            desired = min(desired, pods.active)
        if pods.active > desired:
            for pod in pods.active_pods()[desired:]:
                self._delete_uncounted(job, pod)
        # Jobs that replace pods only when they have failed wait for those that are terminating.
        waiting_for = pods.terminating() if _replaces_failed_only(job) else []
        missing = min(desired - pods.active - len(waiting_for), BATCH)
        if missing <= 0:
            return min(0, desired - pods.active)
        now = self.registry.clock()
        back_off = (self._back_off_until.get(key, now) - now).total_seconds()
        if back_off > 0:
            self.enqueue_after(key, back_off)
            return 0
        if not _is_indexed(job):
            self.create_pods(job, missing, customize=lambda pod, _: _customize(job, pod))
            return missing
        free = list(islice(self._free_indexes(key, job, indexes, pods), missing))

        def customize(pod: Object, number: int) -> None:
            index, metadata = free[number], pod["metadata"]
            text, name = str(index), job["metadata"]["name"]
            metadata.setdefault("annotations", {})[COMPLETION_INDEX] = text
            if "backoffLimitPerIndex" in job["spec"]:
                failures = _failures_of(job, pods.of_completion_index(index))
                metadata["annotations"][_INDEX_FAILURES] = str(failures)
            metadata.setdefault("labels", {})[COMPLETION_INDEX] = text
            metadata["generateName"] = completion_index_prefix(name, index)
            pod["spec"].setdefault("hostname", f"{name}-{text}")
            for container in (*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"]):
                environment = container.setdefault("env", [])
                if not any(variable["name"] == _INDEX_VARIABLE for variable in environment):
                    source = {"fieldRef": {"fieldPath": f"metadata.labels['{COMPLETION_INDEX}']"}}
                    environment.append({"name": _INDEX_VARIABLE, "valueFrom": source})
            _customize(job, pod)

        self.create_pods(job, len(free), customize=customize)
        return len(free)

    def _free_indexes(self, key: str, job: Object, indexes: _Indexes, pods: ControlledPods) -> Iterator[int]:
        """The completion indexes that are neither completed, failed, in progress nor in back-off, in order."""
        now = self.registry.clock()
        back_offs = {index: until for index, until in self._index_back_off_until.get(key, {}).items() if until > now}
        if key in self._index_back_off_until:
            self._index_back_off_until[key] = back_offs
        for index, until in back_offs.items():
            if index not in indexes.failed and index not in indexes.completed:
                self.enqueue_after(key, (until - now).total_seconds())
        for index in indexes.completed.missing(job["spec"]["completions"]):
            is_held = index in indexes.failed or index in back_offs
            if not (is_held or any(_occupies_index(job, pod) for pod in pods.of_completion_index(index))):
                yield index

    def _suspend(self, job: Object, status: Object, pods: ControlledPods) -> None:
        """Delete the active pods without counting them, and reset the start time."""
        for pod in pods.active_pods() if pods.active else ():
            self._delete_uncounted(job, pod)
        status.pop("startTime", None)
        self._set_suspended(job, status, "True", "JobSuspended", "Job suspended")
        self._write_status(job, status, 0, 0, 0)

    def _set_suspended(self, job: Object, status: Object, value: str, reason: str, message: str) -> None:
        old = get_condition(status, "Suspended")
        condition = {"type": "Suspended", "status": value, "reason": reason, "message": message}
        status["conditions"] = with_condition(status, condition, self.registry.now(), update_field="lastProbeTime")
        if old is None or old["status"] != value:
            self.record_event(job, "Suspended" if value == "True" else "Resumed", message)

    def _clean_up(self, key: str, job: Object, pods: ControlledPods) -> None:
        """Delete the remaining pods of a finished Job, and the Job after its ttlSecondsAfterFinished."""
        self._failures.pop(key, None)
        self._back_off_until.pop(key, None)
        self._index_back_off_until.pop(key, None)
        for pod in pods.active_pods() if pods.active else ():
            self._delete_uncounted(job, pod)
        for pod in pods.held():
            self._untrack(pod)
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


def _outcome(job: Object, pod: PodView) -> str:
    """Succeeded or Failed; empty while it is not known.

    A terminating pod has failed, unless the replacement policy waits until its kubelet says so.
    """
    if pod.is_finished:
        return pod.status.phase
    waits = bool(pod.spec.node_name) and _replaces_failed_only(job)
    return "Failed" if pod.is_terminating and not waits else ""


def _replaces_failed_only(job: Object) -> bool:
    return bool(job["spec"].get("podReplacementPolicy") == "Failed")


def _evaluate_indexes(spec: Object, indexes: _Indexes) -> tuple[str, str, str] | None:
    """How failed indexes end a Job with a back-off limit per index."""
    failed = len(indexes.failed)
    if "maxFailedIndexes" in spec and failed > spec["maxFailedIndexes"]:
        problem = "Job has exceeded the specified maximal number of failed indexes"
        return "Failed", "MaxFailedIndexesExceeded", problem
    if failed and failed + len(indexes.completed) >= spec["completions"]:
        return "Failed", "FailedIndexes", "Job has failed indexes"
    return None


def finished_condition(job: Object) -> Object | None:
    """The condition Complete or Failed of a finished Job; None if it has not finished."""
    for condition in (job.get("status") or {}).get("conditions") or ():
        if condition["type"] in ("Complete", "Failed") and condition["status"] == "True":
            finished: Object = condition
            return finished
    return None


def _is_indexed(job: Object) -> bool:
    return bool(job["spec"].get("completionMode") == "Indexed")


def _occupies_index(job: Object, pod: PodView) -> bool:
    """Whether no other pod may be created for the pod's index yet."""
    return pod.is_active or (_replaces_failed_only(job) and pod.is_terminating and not pod.is_finished)


def _failures_of(job: Object, pods: Iterable[PodView]) -> int:
    """How often an index has failed, by its pods that exist."""
    return max((_index_failures(pod) + (_outcome(job, pod) == "Failed") for pod in pods), default=0)


def _index_failures(pod: PodView) -> int:
    """How often the pod's index had failed before."""
    text = pod.metadata.annotations.get(_INDEX_FAILURES, "")
    return int(text) if text.isdigit() else 0


def _customize(job: Object, pod: Object) -> None:
    """Add the tracking finalizer, and the duration if needed, to a pod from the template."""
    metadata = pod["metadata"]
    metadata["finalizers"] = [*(metadata.get("finalizers") or ()), _TRACKING_FINALIZER]
    annotations = metadata.setdefault("annotations", {})
    containers = pod["spec"]["containers"]
    if all(command_of(one, metadata) is None and not _PAUSE.search(one.get("image", "")) for one in containers):
        annotations.setdefault(DURATION, DEFAULT_DURATION)


class CompletionIndexes:
    """A set of numbers as disjoint ranges in order: ``1,3-5``. All costs depend on the ranges, not on the numbers.

    The text may list ranges in any order, overlapping ones too. Raises ValueError if it has another form.
    """

    def __init__(self, text: str = "") -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        self._count = 0
        ranges = []
        for part in text.split(",") if text else ():
            first, _, last = part.partition("-")
            ranges.append((int(first), int(last or first)))
        for start, end in sorted(ranges):
            if self._lasts and start <= self._lasts[-1] + 1:
                self._lasts[-1] = max(self._lasts[-1], end)
            else:
                self._firsts.append(start)
                self._lasts.append(end)
        self._count = sum(end - start + 1 for start, end in zip(self._firsts, self._lasts, strict=True))

    def __len__(self) -> int:
        return self._count

    def __contains__(self, index: int) -> bool:
        place = bisect_right(self._firsts, index) - 1
        return place >= 0 and index <= self._lasts[place]

    def __str__(self) -> str:
        ranges = zip(self._firsts, self._lasts, strict=True)
        return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)

    def add(self, index: int) -> None:
        """Add one number; ranges that it joins become one."""
        place = bisect_right(self._firsts, index)
        if place and index <= self._lasts[place - 1]:
            return
        self._count += 1
        follows = place > 0 and self._lasts[place - 1] == index - 1
        precedes = place < len(self._firsts) and self._firsts[place] == index + 1
        if follows and precedes:
            self._lasts[place - 1] = self._lasts.pop(place)
            del self._firsts[place]
        elif follows:
            self._lasts[place - 1] = index
        elif precedes:
            self._firsts[place] = index
        else:
            self._firsts.insert(place, index)
            self._lasts.insert(place, index)

    def missing(self, end: int) -> Iterator[int]:
        """The numbers from 0 up to ``end``, exclusive, that the set lacks, in order."""
        start = 0
        for first, last in zip(self._firsts, self._lasts, strict=True):
            yield from range(start, min(first, end))
            start = last + 1
        yield from range(start, end)

    def count_in(self, other: CompletionIndexes) -> int:
        """How many numbers the two sets have in common."""
        common = place = 0
        for first, last in zip(self._firsts, self._lasts, strict=True):
            while place < len(other._lasts) and other._lasts[place] < first:
                place += 1
            at = place
            while at < len(other._firsts) and other._firsts[at] <= last:
                common += min(last, other._lasts[at]) - max(first, other._firsts[at]) + 1
                at += 1
            place = max(place, at - 1)
        return common


class FailureAction(NamedTuple):
    """What a pod failure policy does about a failed pod: FailJob, FailIndex, Ignore or Count, and why."""

    action: str
    message: str = ""


def failure_action(job: Object, pod: Object) -> FailureAction:
    """The action of the first rule that matches a failed pod; Count without any."""
    for index, rule in enumerate((job["spec"].get("podFailurePolicy") or {}).get("rules") or ()):
        if (cause := _cause(rule, pod)) is not None:
            action = rule["action"]
            return FailureAction(action, f"{cause} matching {action} rule at index {index}")
    return FailureAction("Count")


def _cause(rule: Object, pod: Object) -> str | None:
    """How a pod matches a rule, None if it does not."""
    name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
    if (on_exit_codes := rule.get("onExitCodes")) is not None:
        for container, exit_code in _exit_codes(pod):
            is_meant = on_exit_codes.get("containerName") in (None, "", container)
            if is_meant and (exit_code in on_exit_codes["values"]) == (on_exit_codes["operator"] == "In"):
                return f"Container {container} for pod {name} failed with exit code {exit_code}"
        return None
    conditions = {one["type"]: one["status"] for one in pod["status"].get("conditions") or ()}
    for pattern in rule.get("onPodConditions") or ():
        if conditions.get(pattern["type"]) == pattern["status"]:
            return f"Pod {name} has condition {pattern['type']}"
    return None


def _exit_codes(pod: Object) -> Iterator[tuple[str, int]]:
    """The containers that have failed, with their exit codes."""
    status = pod["status"]
    for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        exit_code = container["state"].get("terminated", {}).get("exitCode", 0)
        if exit_code:
            yield container["name"], exit_code


def matched_success_rule(job: Object, completed: CompletionIndexes) -> int | None:
    """The index of the first rule of the success policy that the completed indexes satisfy."""
    for index, rule in enumerate((job["spec"].get("successPolicy") or {}).get("rules") or ()):
        wanted = CompletionIndexes(rule["succeededIndexes"]) if rule.get("succeededIndexes") else None
        succeeded = len(completed) if wanted is None else completed.count_in(wanted)
        needed = rule.get("succeededCount") or (len(wanted) if wanted is not None else 0)
        if needed and succeeded >= needed:
            return index
    return None
