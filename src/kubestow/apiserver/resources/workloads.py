"""The kinds that make pods (replica sets, deployments, stateful and daemon sets, jobs, cron jobs): their defaults."""

from __future__ import annotations

import re
from typing import Any, ClassVar

from kubestow.apiserver.resources import metadata, pod_spec
from kubestow.apiserver.resources.kind import Object, Strategy
from kubestow.apiserver.statuses import Cause, forbidden_value, invalid_value, required_value

__all__ = [
    "TEMPLATE_GENERATION",
    "CronJobStrategy",
    "DaemonSetStrategy",
    "DeploymentStrategy",
    "JobStrategy",
    "ReplicaSetStrategy",
    "ReplicationControllerStrategy",
    "StatefulSetStrategy",
]

#: Annotation of a daemon set: how many templates it has had.
TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"
_PERCENTAGE = re.compile(r"[0-9]+%")


class WorkloadStrategy(Strategy):
    """A spec with a pod template, a selector that must match it, and a status the controller writes."""

    has_generation = True
    #: Status of a new object, before any controller has looked.
    initial_status: ClassVar[dict[str, Any]] = {}

    def default(self, new: Object) -> None:
        spec = new["spec"]
        pod_spec.default_template(spec.setdefault("template", {}))
        self.default_spec(spec)

    def default_spec(self, spec: Object) -> None:
        """Defaults besides those of the template."""

    def prepare_create(self, new: Object, now: str) -> None:
        new["status"] = dict(self.initial_status)

    def validate(self, new: Object) -> list[Cause]:
        spec = new["spec"]
        causes = self.validate_selector(spec)
        if spec.get("replicas", 0) < 0:
            causes.append(invalid_value("spec.replicas", spec["replicas"], "must be greater than or equal to 0"))
        causes += metadata.validate_labels(_template_labels(spec), "spec.template.labels")
        return causes + pod_spec.validate_spec(spec["template"].get("spec", {}), "spec.template.spec")

    def validate_selector(self, spec: Object) -> list[Cause]:
        selector = spec.get("selector")
        if selector is None:
            return [required_value("spec.selector")]
        wanted, labels = selector.get("matchLabels") or {}, _template_labels(spec)
        if not wanted and not selector.get("matchExpressions"):
            problem = "empty selector is invalid for deployment"
            return [invalid_value("spec.selector", selector, problem)]
        if any(labels.get(key) != value for key, value in wanted.items()):
            problem = "`selector` does not match template `labels`"
            return [invalid_value("spec.template.metadata.labels", labels, problem)]
        return []

    def validate_update(self, new: Object, old: Object) -> list[Cause]:
        causes = self.validate(new)
        if new["spec"].get("selector") != old["spec"].get("selector"):
            causes.append(invalid_value("spec.selector", new["spec"].get("selector"), "field is immutable"))
        return causes


def _template_labels(spec: Object) -> dict[str, str]:
    labels: dict[str, str] = spec["template"].get("metadata", {}).get("labels") or {}
    return labels


class ReplicaSetStrategy(WorkloadStrategy):
    initial_status: ClassVar = {"replicas": 0}

    def default_spec(self, spec: Object) -> None:
        spec.setdefault("replicas", 1)


class ReplicationControllerStrategy(WorkloadStrategy):
    initial_status: ClassVar = {"replicas": 0}

    def default_spec(self, spec: Object) -> None:
        spec.setdefault("replicas", 1)
        if not spec.get("selector") and _template_labels(spec):
            spec["selector"] = dict(_template_labels(spec))

    def validate_selector(self, spec: Object) -> list[Cause]:
        return [] if spec.get("selector") else [required_value("spec.selector")]


class DeploymentStrategy(WorkloadStrategy):
    def default_spec(self, spec: Object) -> None:
        spec.setdefault("replicas", 1)
        strategy = spec.setdefault("strategy", {})
        strategy.setdefault("type", "RollingUpdate")
        if strategy["type"] == "RollingUpdate":
            rolling = strategy.setdefault("rollingUpdate", {})
            rolling.setdefault("maxUnavailable", "25%")
            rolling.setdefault("maxSurge", "25%")
        spec.setdefault("revisionHistoryLimit", 10)
        spec.setdefault("progressDeadlineSeconds", 600)

    def validate(self, new: Object) -> list[Cause]:
        causes = super().validate(new)
        rolling = new["spec"]["strategy"].get("rollingUpdate") or {}
        for field, value in rolling.items():
            path = f"spec.strategy.rollingUpdate.{field}"
            if isinstance(value, str) and not _PERCENTAGE.fullmatch(value):
                problem = (
                    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%',"
                    " regex used for validation is '[0-9]+%')"
                )
                causes.append(invalid_value(path, value, problem))
            elif isinstance(value, int) and value < 0:
                causes.append(invalid_value(path, value, "must be greater than or equal to 0"))
        return causes


class StatefulSetStrategy(WorkloadStrategy):
    initial_status: ClassVar = {"replicas": 0, "availableReplicas": 0}

    def default_spec(self, spec: Object) -> None:
        spec.setdefault("replicas", 1)
        spec.setdefault("podManagementPolicy", "OrderedReady")
        strategy = spec.setdefault("updateStrategy", {})
        strategy.setdefault("type", "RollingUpdate")
        if strategy["type"] == "RollingUpdate":
            strategy.setdefault("rollingUpdate", {}).setdefault("partition", 0)
        spec.setdefault("revisionHistoryLimit", 10)
        retention = spec.setdefault("persistentVolumeClaimRetentionPolicy", {})
        retention.setdefault("whenDeleted", "Retain")
        retention.setdefault("whenScaled", "Retain")
        for claim in spec.get("volumeClaimTemplates") or ():
            claim.setdefault("apiVersion", "v1")
            claim.setdefault("kind", "PersistentVolumeClaim")
            claim.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")
            claim.setdefault("status", {}).setdefault("phase", "Pending")


class DaemonSetStrategy(WorkloadStrategy):
    initial_status: ClassVar = {
        "currentNumberScheduled": 0,
        "numberMisscheduled": 0,
        "desiredNumberScheduled": 0,
        "numberReady": 0,
    }

    def default_spec(self, spec: Object) -> None:
        strategy = spec.setdefault("updateStrategy", {})
        strategy.setdefault("type", "RollingUpdate")
        if strategy["type"] == "RollingUpdate":
            rolling = strategy.setdefault("rollingUpdate", {})
            rolling.setdefault("maxUnavailable", 1)
            rolling.setdefault("maxSurge", 0)
        spec.setdefault("revisionHistoryLimit", 10)

    def prepare_create(self, new: Object, now: str) -> None:
        super().prepare_create(new, now)
        new["metadata"].setdefault("annotations", {})[TEMPLATE_GENERATION] = "1"

    def prepare_update(self, new: Object, old: Object, now: str) -> None:
        """The annotation counts the templates there have been; nobody else writes it."""
        text = (old["metadata"].get("annotations") or {}).get(TEMPLATE_GENERATION, "1")
        count = int(text) if text.isdigit() else 1
        count += new["spec"]["template"] != old["spec"]["template"]
        new["metadata"]["annotations"] = {
            **(new["metadata"].get("annotations") or {}),
            TEMPLATE_GENERATION: str(count),
        }


class JobStrategy(WorkloadStrategy):
    def default_spec(self, spec: Object) -> None:
        if "parallelism" not in spec and "completions" not in spec:
            spec["completions"] = 1
        spec.setdefault("parallelism", 1)
        spec.setdefault("backoffLimit", 6)
        spec.setdefault("completionMode", "NonIndexed")
        spec.setdefault("suspend", False)
        spec.setdefault("manualSelector", False)
        spec.setdefault("podReplacementPolicy", "TerminatingOrFailed")

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

    def validate(self, new: Object) -> list[Cause]:
        causes = super().validate(new)
        policy = new["spec"]["template"].get("spec", {}).get("restartPolicy")
        if policy == "Always":
            problem = 'Required value: valid values: "OnFailure", "Never"'
            causes.append(Cause("FieldValueRequired", problem, "spec.template.spec.restartPolicy"))
        return causes

    def validate_update(self, new: Object, old: Object) -> list[Cause]:
        causes = super().validate_update(new, old)
        if new["spec"]["template"] != old["spec"]["template"] and not old["spec"].get("suspend"):
            causes.append(invalid_value("spec.template", new["spec"]["template"], "field is immutable"))
        return causes


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
        causes = [] if spec.get("schedule") else [required_value("spec.schedule")]
        if spec["concurrencyPolicy"] not in ("Allow", "Forbid", "Replace"):
            causes.append(forbidden_value("spec.concurrencyPolicy", "not a concurrency policy"))
        path = "spec.jobTemplate.spec.template.spec"
        return causes + pod_spec.validate_spec(spec["jobTemplate"]["spec"]["template"].get("spec", {}), path)

    def validate_update(self, new: Object, old: Object) -> list[Cause]:
        return self.validate(new)
