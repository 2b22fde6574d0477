"""Jobs and cron jobs: their defaults, the labels that tie pods to a job, schedules and time zones."""

from __future__ import annotations

import re
from zoneinfo import ZoneInfo

from kubestow.api.names import NameErrors
from kubestow.devcluster import cron_schedule as cron
from kubestow.devcluster.apiserver.field_errors import Cause, invalid_value, required_value, unsupported_value
from kubestow.devcluster.apiserver.resources import pod_spec
from kubestow.devcluster.apiserver.resources.kind import Object, Strategy
from kubestow.devcluster.apiserver.resources.workloads.replicas import WorkloadStrategy, not_negative

__all__ = ["CronJobStrategy", "JobStrategy"]


class JobStrategy(WorkloadStrategy):
    runs_forever = False

    def default_spec(self, spec: Object) -> None:
        if "parallelism" not in spec and "completions" not in spec:
            spec["completions"] = 1
        spec.setdefault("parallelism", 1)
        spec.setdefault("backoffLimit", 6)
        spec.setdefault("completionMode", "NonIndexed")
        spec.setdefault("suspend", False)
        spec.setdefault("manualSelector", False)
        spec.setdefault("podReplacementPolicy", "TerminatingOrFailed")

    def validate_spec(self, spec: Object) -> list[Cause]:
        return not_negative(spec, _COUNTS, "spec") + _validate_ending(spec, "spec")

    def prepare_create(self, new: Object, now: str) -> None:
        super().prepare_create(new, now)
        spec, identity = new["spec"], new["metadata"]
        if spec.get("manualSelector"):
            return
        labels = spec["template"].setdefault("metadata", {}).setdefault("labels", {})
        for prefix in ("", "batch.kubernetes.io/"):
            labels.setdefault(f"{prefix}controller-uid", identity["uid"])
            labels.setdefault(f"{prefix}job-name", identity.get("name", ""))
        spec.setdefault("selector", {"matchLabels": {"batch.kubernetes.io/controller-uid": identity["uid"]}})

    def validate_update(self, new: Object, old: Object) -> list[Cause]:
        causes = super().validate_update(new, old)
        if new["spec"]["template"] != old["spec"]["template"] and not old["spec"].get("suspend"):
            causes.append(invalid_value("spec.template", new["spec"]["template"], "field is immutable"))
        return causes


_COUNTS = ("parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished")


class CronJobStrategy(Strategy):
    has_generation = True

    def default(self, new: Object) -> None:
        spec = new["spec"]
        template = spec.setdefault("jobTemplate", {}).setdefault("spec", {})
        pod_spec.default_template(template.setdefault("template", {}))
        spec.setdefault("concurrencyPolicy", "Allow")
        spec.setdefault("suspend", False)
        spec.setdefault("successfulJobsHistoryLimit", 3)
        spec.setdefault("failedJobsHistoryLimit", 1)

    def prepare_create(self, new: Object, now: str) -> None:
        new["status"] = {}

    def validate(self, new: Object) -> list[Cause]:
        spec = new["spec"]
        causes = _validate_schedule(spec)
        if spec["concurrencyPolicy"] not in _CONCURRENCY:
            causes.append(unsupported_value("spec.concurrencyPolicy", spec["concurrencyPolicy"], _CONCURRENCY))
        limits = ("startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit")
        causes += not_negative(spec, limits, "spec")
        template, path = spec["jobTemplate"]["spec"], "spec.jobTemplate.spec"
        causes += pod_spec.validate_spec(template["template"].get("spec", {}), f"{path}.template.spec")
        return causes + _validate_ending(template, path)

    def name_errors(self, name: str) -> NameErrors:
        """Jobs are named after it and the minute."""
        faults = super().name_errors(name)
        return (*faults, "must be no more than 52 characters") if len(name) > 52 else faults

    def validate_update(self, new: Object, old: Object) -> list[Cause]:
        return self.validate(new)


_CONCURRENCY = ("Allow", "Forbid", "Replace")
_ZONE_NAME = re.compile(r"[A-Za-z0-9+\-_/]+")


def _validate_schedule(spec: Object) -> list[Cause]:
    schedule, zone = spec.get("schedule"), spec.get("timeZone")
    if not schedule:
        causes = [required_value("spec.schedule")]
    elif "TZ" in schedule:
        problem = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
        causes = [invalid_value("spec.schedule", schedule, problem)]
    else:
        causes = []
        try:
            cron.parse(schedule)
        except cron.InvalidSchedule as wrong:
            causes.append(invalid_value("spec.schedule", schedule, str(wrong)))
    if zone is not None and (problem := _zone_problem(zone)):
        causes.append(invalid_value("spec.timeZone", zone, problem))
    return causes


def _zone_problem(zone: str) -> str:
    if not zone:
        return "timeZone must be nil or non-empty string"
    if zone.lower() == "local":
        return "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
    try:
        if _ZONE_NAME.fullmatch(zone):
            ZoneInfo(zone)
            return ""
    except (KeyError, ValueError, OSError):
        pass
    return f"unknown time zone {zone}"


def _validate_ending(spec: Object, path: str) -> list[Cause]:
    """The pods of a job must be able to end."""
    policy = spec["template"].get("spec", {}).get("restartPolicy")
    if policy != "Always":
        return []
    return [required_value(f"{path}.template.spec.restartPolicy", 'valid values: "OnFailure", "Never"')]
