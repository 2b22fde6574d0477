"""The strategies of jobs, which label their pods with their uid, and of cron jobs with their schedules."""

from __future__ import annotations

import re
from zoneinfo import ZoneInfo

from kubestow.api.formats.names import NameErrors
from kubestow_devcluster import cron_schedule as cron
from kubestow_devcluster.apiserver.field_errors import FieldError, invalid_value, required_value, unsupported_value
from kubestow_devcluster.apiserver.resources.strategies.pod_spec_defaults import default_pod_template
from kubestow_devcluster.apiserver.resources.strategies.pod_spec_validation import validate_pod_spec
from kubestow_devcluster.apiserver.resources.strategies.workloads.pod_controllers import (
    PodControllerStrategy,
    validate_not_negative,
)
from kubestow_devcluster.apiserver.resources.strategy import RESTStrategy
from kubestow_devcluster.apiserver.schema import Object

__all__ = ["CronJobStrategy", "JobStrategy"]


_COUNT_FIELDS = ("parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished")
#: The back-off limit of a Job with one per index.
_NO_LIMIT = 2**31 - 1
_CONCURRENCY_POLICIES = ("Allow", "Forbid", "Replace")
_TIME_ZONE = re.compile(r"[A-Za-z0-9+\-_/]+")


class JobStrategy(PodControllerStrategy):
    default_propagation_policy = "Orphan"
    requires_restart_always = False

    def default_spec(self, spec: Object) -> None:
        if "parallelism" not in spec and "completions" not in spec:
            spec["completions"] = 1
        spec.setdefault("parallelism", 1)
        spec.setdefault("backoffLimit", _NO_LIMIT if "backoffLimitPerIndex" in spec else 6)
        spec.setdefault("completionMode", "NonIndexed")
        spec.setdefault("suspend", False)
        spec.setdefault("manualSelector", False)
        replacement = "Failed" if "podFailurePolicy" in spec else "TerminatingOrFailed"
        spec.setdefault("podReplacementPolicy", replacement)
        for rule in (spec.get("podFailurePolicy") or {}).get("rules") or ():
            for pattern in rule.get("onPodConditions") or ():
                pattern["status"] = pattern.get("status") or "True"

    def validate_spec(self, spec: Object) -> list[FieldError]:
        return validate_not_negative(spec, _COUNT_FIELDS, "spec") + _validate_restart_policy(spec, "spec")

    def prepare_for_create(self, new: Object, now: str) -> None:
        super().prepare_for_create(new, now)
        spec, metadata = new["spec"], new["metadata"]
        if spec.get("manualSelector"):
            return
        labels = spec["template"].setdefault("metadata", {}).setdefault("labels", {})
        for prefix in ("", "batch.kubernetes.io/"):
            labels.setdefault(f"{prefix}controller-uid", metadata["uid"])
            labels.setdefault(f"{prefix}job-name", metadata.get("name", ""))
        spec.setdefault("selector", {"matchLabels": {"batch.kubernetes.io/controller-uid": metadata["uid"]}})

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        errors = super().validate_update(new, old)
        if new["spec"]["template"] != old["spec"]["template"] and not old["spec"].get("suspend"):
            errors.append(invalid_value("spec.template", new["spec"]["template"], "field is immutable"))
        return errors


class CronJobStrategy(RESTStrategy):
    has_generation = True

    def set_defaults(self, new: Object) -> None:
        spec = new["spec"]
        template = spec.setdefault("jobTemplate", {}).setdefault("spec", {})
        default_pod_template(template.setdefault("template", {}))
        spec.setdefault("concurrencyPolicy", "Allow")
        spec.setdefault("suspend", False)
        spec.setdefault("successfulJobsHistoryLimit", 3)
        spec.setdefault("failedJobsHistoryLimit", 1)

    def prepare_for_create(self, new: Object, now: str) -> None:
        new["status"] = {}

    def validate(self, new: Object) -> list[FieldError]:
        spec = new["spec"]
        errors = _validate_schedule(spec)
        if spec["concurrencyPolicy"] not in _CONCURRENCY_POLICIES:
            errors.append(unsupported_value("spec.concurrencyPolicy", spec["concurrencyPolicy"], _CONCURRENCY_POLICIES))
        limits = ("startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit")
        errors += validate_not_negative(spec, limits, "spec")
        template, path = spec["jobTemplate"]["spec"], "spec.jobTemplate.spec"
        errors += validate_pod_spec(template["template"].get("spec", {}), f"{path}.template.spec")
        return errors + _validate_restart_policy(template, path)

    def validate_name(self, name: str) -> NameErrors:
        # The name of a job is that of its cron job and a suffix of 11 characters.
        name_errors = super().validate_name(name)
        return (*name_errors, "must be no more than 52 characters") if len(name) > 52 else name_errors

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        return self.validate(new)


def _validate_schedule(spec: Object) -> list[FieldError]:
    schedule, zone = spec.get("schedule"), spec.get("timeZone")
    if not schedule:
        errors = [required_value("spec.schedule")]
    elif "TZ" in schedule:
        problem = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
        errors = [invalid_value("spec.schedule", schedule, problem)]
    else:
        errors = []
        try:
            cron.parse(schedule)
        except cron.InvalidSchedule as invalid:
            errors.append(invalid_value("spec.schedule", schedule, str(invalid)))
    if zone is not None and (problem := _time_zone_problem(zone)):
        errors.append(invalid_value("spec.timeZone", zone, problem))
    return errors


def _time_zone_problem(zone: str) -> str:
    if not zone:
        return "timeZone must be nil or non-empty string"
    if zone.lower() == "local":
        return "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
    try:
        if _TIME_ZONE.fullmatch(zone):
            ZoneInfo(zone)
            return ""
    except (KeyError, ValueError, OSError):
        pass
    return f"unknown time zone {zone}"


def _validate_restart_policy(spec: Object, path: str) -> list[FieldError]:
    policy = spec["template"].get("spec", {}).get("restartPolicy")
    if policy != "Always":
        return []
    return [required_value(f"{path}.template.spec.restartPolicy", 'valid values: "OnFailure", "Never"')]
