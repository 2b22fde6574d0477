"""The strategies of kinds whose controllers create pods from a template, of cron jobs and of pod disruption budgets.

Daemon sets also count the generations of their templates, and jobs label their pods with their uid.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, ClassVar
from zoneinfo import ZoneInfo

from kubestow.api.formats.names import NameErrors
from kubestow.rules.workloads import job_pod_labels
from kubestow_devcluster.apiserver.kinds import cron_schedule as cron
from kubestow_devcluster.apiserver.kinds.kind import RESTStrategy, set_defaults_at
from kubestow_devcluster.apiserver.kinds.object_fields import (
    is_zero,
    validate_int_or_percent,
    validate_label_selector,
    validate_labels,
)
from kubestow_devcluster.apiserver.resources.strategies.pods import default_pod_template, validate_pod_spec
from kubestow_devcluster.apiserver.schema.types import Object
from kubestow_devcluster.apiserver.statuses import (
    FieldError,
    forbidden_value,
    invalid_value,
    required_value,
    unsupported_value,
    validate_choice,
)
from kubestow_devcluster.apiserver.storage.store import matches_label_selector


class PodControllerStrategy(RESTStrategy):
    """Kinds with a pod template, a selector that must match its labels, and a status that the controller writes."""

    has_generation = True
    initial_status: ClassVar[dict[str, Any]] = {}
    #: The spec's field for how pods are updated, and what ``rollingUpdate`` in it has by default.
    rolling_update: ClassVar[tuple[str, dict[str, Any]]] = ("", {})
    #: The kind as error messages name it.
    noun: ClassVar = "deployment"
    #: Whether the template must have restartPolicy Always.
    requires_restart_always: ClassVar = True
    #: The problem of a selector with invalid parts, whose template is not validated; None if it is all the same.
    selector_problem: ClassVar[str | None] = None

    def set_defaults(self, new: Object) -> None:
        spec, (field, rolling_update) = new["spec"], self.rolling_update
        default_pod_template(spec.setdefault("template", {}))
        super().set_defaults(new)
        if field and spec.setdefault(field, {}).setdefault("type", "RollingUpdate") == "RollingUpdate":
            set_defaults_at(spec[field].setdefault("rollingUpdate", {}), rolling_update)

    def validate(self, new: Object) -> list[FieldError]:
        spec = new["spec"]
        errors = self.validate_selector(spec)
        is_readable = not errors or errors[-1] != self._unreadable_selector(spec)
        errors += validate_not_negative(spec, ("replicas", "minReadySeconds", "revisionHistoryLimit"), "spec")
        errors += self.validate_spec(spec)
        if not is_readable:
            return errors
        errors += validate_labels(template_labels(spec), "spec.template.labels")
        template = spec["template"].get("spec", {})
        if self.requires_restart_always and template.get("restartPolicy") in ("OnFailure", "Never"):
            path = "spec.template.spec.restartPolicy"
            errors.append(unsupported_value(path, template["restartPolicy"], ("Always",)))
        return errors + validate_pod_spec(template, "spec.template.spec")

    def validate_spec(self, spec: Object) -> list[FieldError]:
        """Validate the fields that only this kind has."""
        return []

    def validate_selector(self, spec: Object) -> list[FieldError]:
        selector = spec.get("selector")
        if selector is None:
            return [required_value("spec.selector")]
        if errors := validate_label_selector(selector, "spec.selector"):
            return errors if self.selector_problem is None else [*errors, self._unreadable_selector(spec)]
        labels = template_labels(spec)
        if not selector.get("matchLabels") and not selector.get("matchExpressions"):
            return [invalid_value("spec.selector", selector, f"empty selector is invalid for {self.noun}")]
        if not matches_label_selector(selector, labels):
            problem = "`selector` does not match template `labels`"
            return [invalid_value("spec.template.metadata.labels", labels, problem)]
        return []

    def _unreadable_selector(self, spec: Object) -> FieldError:
        return invalid_value("spec.selector", spec.get("selector"), self.selector_problem or "")

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        errors = self.validate(new)
        if new["spec"].get("selector") != old["spec"].get("selector"):
            errors.append(invalid_value("spec.selector", new["spec"].get("selector"), "field is immutable"))
        return errors


def validate_not_negative(obj: Object, fields: Sequence[str], path: str) -> list[FieldError]:
    """Validate that these fields of the object at ``path`` are not negative."""
    return [
        invalid_value(f"{path}.{field}", obj[field], "must be greater than or equal to 0")
        for field in fields
        if obj.get(field, 0) < 0
    ]


def template_labels(spec: Object) -> dict[str, str]:
    labels: dict[str, str] = spec["template"].get("metadata", {}).get("labels") or {}
    return labels


_DEPLOYMENT_TYPES = ("Recreate", "RollingUpdate")


class ReplicaSetStrategy(PodControllerStrategy):
    selector_problem: ClassVar[str | None] = "invalid label selector"
    defaults: ClassVar = {"spec.replicas": 1}
    initial_status: ClassVar = {"replicas": 0}


class ReplicationControllerStrategy(ReplicaSetStrategy):
    selector_problem = None
    default_propagation_policy = "Orphan"

    def set_defaults(self, new: Object) -> None:
        super().set_defaults(new)
        spec = new["spec"]
        if not spec.get("selector") and template_labels(spec):
            spec["selector"] = dict(template_labels(spec))

    def validate_selector(self, spec: Object) -> list[FieldError]:
        selector = spec.get("selector")
        return super().validate_selector({**spec, "selector": {"matchLabels": selector}} if selector else {})

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        return self.validate(new)


class DeploymentStrategy(PodControllerStrategy):
    selector_problem: ClassVar[str | None] = "invalid label selector"
    counts_annotations = True
    kept_by_status_writes = ("labels",)
    defaults: ClassVar = {"spec.replicas": 1, "spec.revisionHistoryLimit": 10, "spec.progressDeadlineSeconds": 600}
    rolling_update: ClassVar = ("strategy", {"maxUnavailable": "25%", "maxSurge": "25%"})

    def validate_spec(self, spec: Object) -> list[FieldError]:
        strategy, path = spec["strategy"], "spec.strategy"
        if errors := validate_choice(f"{path}.type", strategy["type"], _DEPLOYMENT_TYPES):
            return errors
        rolling = strategy.get("rollingUpdate")
        if rolling is None:
            return []
        if strategy["type"] == "Recreate":
            return [forbidden_value(f"{path}.rollingUpdate", "may not be specified when strategy `type` is 'Recreate'")]
        path += ".rollingUpdate"
        fields = ("maxUnavailable", "maxSurge")
        errors = validate_int_or_percent(rolling, fields, path, at_most_100_percent=fields[:1])
        if not errors and all(is_zero(rolling.get(field)) for field in fields):
            value = rolling["maxUnavailable"]
            errors.append(invalid_value(f"{path}.maxUnavailable", value, "may not be 0 when `maxSurge` is 0"))
        return errors


_RETENTION_POLICIES = ("Delete", "Retain")
_MUTABLE = (
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
)


_CLAIM_DEFAULTS = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "spec.volumeMode": "Filesystem",
    "status.phase": "Pending",
}


class StatefulSetStrategy(PodControllerStrategy):
    selector_problem = ""
    initial_status: ClassVar = {"replicas": 0, "availableReplicas": 0}
    noun = "statefulset"
    defaults: ClassVar = {
        "spec.replicas": 1,
        "spec.podManagementPolicy": "OrderedReady",
        "spec.revisionHistoryLimit": 10,
        "spec.persistentVolumeClaimRetentionPolicy.whenDeleted": "Retain",
        "spec.persistentVolumeClaimRetentionPolicy.whenScaled": "Retain",
    }
    rolling_update: ClassVar = ("updateStrategy", {"partition": 0, "maxUnavailable": 1})

    def set_defaults(self, new: Object) -> None:
        super().set_defaults(new)
        for claim in new["spec"].get("volumeClaimTemplates") or ():
            set_defaults_at(claim, _CLAIM_DEFAULTS)

    def validate_spec(self, spec: Object) -> list[FieldError]:
        errors = []
        policy = spec["podManagementPolicy"]
        if policy not in ("OrderedReady", "Parallel"):
            problem = "must be 'OrderedReady' or 'Parallel'"
            errors.append(invalid_value("spec.podManagementPolicy", policy, problem))
        retention = spec["persistentVolumeClaimRetentionPolicy"]
        for when in ("whenDeleted", "whenScaled"):
            path = f"spec.persistentVolumeClaimRetentionPolicy.{when}"
            errors += validate_choice(path, retention[when], _RETENTION_POLICIES)
        errors += validate_not_negative(spec.get("ordinals") or {}, ("start",), "spec.ordinals")
        return errors + _validate_update_strategy(spec["updateStrategy"], "spec.updateStrategy")

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        def immutable(spec: Object) -> Object:
            return {field: value for field, value in spec.items() if field not in _MUTABLE}

        errors = self.validate(new)
        if immutable(new["spec"]) != immutable(old["spec"]):
            *names, last = (f"'{field}'" for field in _MUTABLE)
            mutable = f"{', '.join(names)} and {last}"
            problem = f"updates to statefulset spec for fields other than {mutable} are forbidden"
            errors.append(forbidden_value("spec", problem))
        return errors


def _validate_update_strategy(strategy: Object, path: str) -> list[FieldError]:
    rolling = strategy.get("rollingUpdate")
    if strategy["type"] not in ("RollingUpdate", "OnDelete"):
        return [invalid_value(path, strategy, "must be 'RollingUpdate' or 'OnDelete'")]
    if rolling is None:
        return []
    path += ".rollingUpdate"
    if strategy["type"] == "OnDelete":
        return [invalid_value(path, rolling, "only allowed for updateStrategy 'RollingUpdate'")]
    errors = validate_not_negative(rolling, ("partition",), path)
    invalid = validate_int_or_percent(rolling, ["maxUnavailable"], path, at_most_100_percent=["maxUnavailable"])
    if not invalid and "maxUnavailable" in rolling and is_zero(rolling["maxUnavailable"]):
        invalid.append(invalid_value(f"{path}.maxUnavailable", rolling["maxUnavailable"], "cannot be 0"))
    return errors + invalid


#: The annotation that counts the pod templates a daemon set has had.
TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"
_UPDATE_TYPES = ("OnDelete", "RollingUpdate")


class DaemonSetStrategy(PodControllerStrategy):
    initial_status: ClassVar = {
        "currentNumberScheduled": 0,
        "numberMisscheduled": 0,
        "desiredNumberScheduled": 0,
        "numberReady": 0,
    }
    noun = "daemonset"
    defaults: ClassVar = {"spec.revisionHistoryLimit": 10}
    rolling_update: ClassVar = ("updateStrategy", {"maxUnavailable": 1, "maxSurge": 0})

    def validate_spec(self, spec: Object) -> list[FieldError]:
        strategy, path = spec["updateStrategy"], "spec.updateStrategy"
        if strategy["type"] not in _UPDATE_TYPES:
            return [unsupported_value(f"{path}.type", strategy["type"], _UPDATE_TYPES)]
        rolling, path = strategy.get("rollingUpdate") or {}, f"{path}.rollingUpdate"
        fields = ("maxUnavailable", "maxSurge")
        errors = validate_int_or_percent(rolling, fields, path, at_most_100_percent=fields)
        if errors or strategy["type"] == "OnDelete":
            return errors
        no_unavailable, no_surge = (is_zero(rolling.get(field)) for field in fields)
        if no_unavailable and no_surge:
            errors.append(required_value(f"{path}.maxUnavailable", "cannot be 0 when maxSurge is 0"))
        elif not no_unavailable and not no_surge:
            problem = "may not be set when maxUnavailable is non-zero"
            errors.append(invalid_value(f"{path}.maxSurge", rolling["maxSurge"], problem))
        return errors

    def prepare_for_create(self, new: Object, now: str) -> None:
        super().prepare_for_create(new, now)
        new["metadata"].setdefault("annotations", {})[TEMPLATE_GENERATION] = "1"

    def prepare_for_update(self, new: Object, old: Object, now: str) -> None:
        text = (old["metadata"].get("annotations") or {}).get(TEMPLATE_GENERATION, "1")
        count = int(text) if text.isdigit() else 1
        count += new["spec"]["template"] != old["spec"]["template"]
        new["metadata"]["annotations"] = {**(new["metadata"].get("annotations") or {}), TEMPLATE_GENERATION: str(count)}


_COUNT_FIELDS = ("parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished")
#: The back-off limit of a Job with one per index.
_NO_LIMIT = 2**31 - 1
_CONCURRENCY_POLICIES = ("Allow", "Forbid", "Replace")
_TIME_ZONE = re.compile(r"[A-Za-z0-9+\-_/]+")


class JobStrategy(PodControllerStrategy):
    default_propagation_policy = "Orphan"
    requires_restart_always = False
    defaults: ClassVar = {"spec.completionMode": "NonIndexed", "spec.suspend": False, "spec.manualSelector": False}

    def set_defaults(self, new: Object) -> None:
        spec, metadata = new["spec"], new["metadata"]
        if not metadata.get("labels") and (labels := template_labels(spec)):
            metadata["labels"] = labels  # one mapping, as in kube-apiserver: both get the labels of prepare_for_create
        if "parallelism" not in spec and "completions" not in spec:
            spec["completions"] = 1
        spec.setdefault("parallelism", 1)
        spec.setdefault("backoffLimit", _NO_LIMIT if "backoffLimitPerIndex" in spec else 6)
        super().set_defaults(new)
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
        for label, value in job_pod_labels(metadata.get("name", ""), metadata["uid"]).items():
            labels.setdefault(label, value)
        metadata.setdefault("labels", labels)
        spec.setdefault("selector", {"matchLabels": {"batch.kubernetes.io/controller-uid": metadata["uid"]}})

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        errors = super().validate_update(new, old)
        if new["spec"]["template"] != old["spec"]["template"] and not old["spec"].get("suspend"):
            errors.append(invalid_value("spec.template", new["spec"]["template"], "field is immutable"))
        return errors


class CronJobStrategy(RESTStrategy):
    has_generation = True
    validates_updates_as_new = True
    initial_status: ClassVar = {}
    defaults: ClassVar = {
        "spec.jobTemplate.spec.template": {},
        "spec.concurrencyPolicy": "Allow",
        "spec.suspend": False,
        "spec.successfulJobsHistoryLimit": 3,
        "spec.failedJobsHistoryLimit": 1,
    }

    def set_defaults(self, new: Object) -> None:
        super().set_defaults(new)
        default_pod_template(new["spec"]["jobTemplate"]["spec"]["template"])

    def validate(self, new: Object) -> list[FieldError]:
        spec = new["spec"]
        schedule, zone = spec.get("schedule"), spec.get("timeZone")
        errors: list[FieldError] = []
        if not schedule:
            errors.append(required_value("spec.schedule"))
        elif "TZ" in schedule:
            problem = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
            errors.append(invalid_value("spec.schedule", schedule, problem))
        else:
            try:
                cron.parse(schedule)
            except cron.InvalidSchedule as invalid:
                errors.append(invalid_value("spec.schedule", schedule, str(invalid)))
        if zone is not None and (problem := _time_zone_problem(zone)):
            errors.append(invalid_value("spec.timeZone", zone, problem))
        errors += validate_choice("spec.concurrencyPolicy", spec["concurrencyPolicy"], _CONCURRENCY_POLICIES)
        limits = ("startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit")
        errors += validate_not_negative(spec, limits, "spec")
        template, path = spec["jobTemplate"]["spec"], "spec.jobTemplate.spec"
        errors += validate_pod_spec(template["template"].get("spec", {}), f"{path}.template.spec")
        return errors + _validate_restart_policy(template, path)

    def validate_name(self, name: str) -> NameErrors:
        # The name of a job is that of its cron job and a suffix of 11 characters.
        name_errors = super().validate_name(name)
        return (*name_errors, "must be no more than 52 characters") if len(name) > 52 else name_errors


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


_UNHEALTHY_POD_EVICTION_POLICIES = ("AlwaysAllow", "IfHealthyBudget")


class PodDisruptionBudgetStrategy(RESTStrategy):
    has_generation = True
    validates_updates_as_new = True
    initial_status: ClassVar = {"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0}

    def validate(self, new: Object) -> list[FieldError]:
        spec, errors = new["spec"], []
        bounds = [field for field in ("minAvailable", "maxUnavailable") if field in spec]
        if len(bounds) > 1:
            value = {field: spec[field] for field in bounds}
            errors.append(invalid_value("spec", value, "minAvailable and maxUnavailable cannot be both set"))
        errors += validate_int_or_percent(spec, bounds, "spec", at_most_100_percent=bounds)
        policy = spec.get("unhealthyPodEvictionPolicy", "IfHealthyBudget")
        return errors + validate_choice("spec.unhealthyPodEvictionPolicy", policy, _UNHEALTHY_POD_EVICTION_POLICIES)
