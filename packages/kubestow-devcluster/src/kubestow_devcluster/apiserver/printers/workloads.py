"""Printers of the kinds of apps, batch, autoscaling, policy, scheduling and coordination.

Replication controllers are printed like replica sets.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from kubestow_devcluster.apiserver.printers.table import (
    NONE,
    UNKNOWN,
    UNSET,
    age,
    age_of,
    format_duration,
    format_labels,
    format_selector,
    has_condition,
    name_of,
    print_fields,
    printer,
    template_cells,
)
from kubestow_devcluster.apiserver.schema.types import Object


@printer("Name, Ready, Up-to-date, Available, Age, !Containers, !Images, !Selector", "deployments.apps")
def _print_deployment(obj: Object, now: datetime) -> list[Any]:
    spec, status = obj["spec"], obj.get("status", {})
    ready = f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 0)}"
    updated, available = status.get("updatedReplicas", 0), status.get("availableReplicas", 0)
    selector = format_selector(spec.get("selector"))
    return [name_of(obj), ready, updated, available, age_of(obj, now), *template_cells(spec), selector]


@printer(
    "Name, Desired:integer, Current:integer, Ready:integer, Age, !Containers, !Images, !Selector",
    "replicasets.apps",
    "replicationcontrollers",
)
def _print_replica_set(obj: Object, now: datetime) -> list[Any]:
    spec, status = obj["spec"], obj.get("status", {})
    selector = spec.get("selector")
    # The selector of a replication controller is a map of labels.
    is_label_selector = selector is None or "matchLabels" in selector or "matchExpressions" in selector
    selector_cell = format_selector(selector) if is_label_selector else format_labels(selector)
    counts = [spec.get("replicas", 0), status.get("replicas", 0), status.get("readyReplicas", 0)]
    return [name_of(obj), *counts, age_of(obj, now), *template_cells(spec), selector_cell]


@printer("Name, Ready, Age, !Containers, !Images", "statefulsets.apps")
def _print_stateful_set(obj: Object, now: datetime) -> list[Any]:
    spec, status = obj["spec"], obj.get("status", {})
    ready = f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 0)}"
    return [name_of(obj), ready, age_of(obj, now), *template_cells(spec)]


@printer(
    "Name, Desired:integer, Current:integer, Ready:integer, Up-to-date:integer, Available:integer, "
    "Node Selector, Age, !Containers, !Images, !Selector",
    "daemonsets.apps",
)
def _print_daemon_set(obj: Object, now: datetime) -> list[Any]:
    spec, status = obj["spec"], obj.get("status", {})
    fields = (
        "desiredNumberScheduled",
        "currentNumberScheduled",
        "numberReady",
        "updatedNumberScheduled",
        "numberAvailable",
    )
    selector = format_labels(spec.get("template", {}).get("spec", {}).get("nodeSelector"))
    counts = [status.get(field, 0) for field in fields]
    return [
        name_of(obj),
        *counts,
        selector,
        age_of(obj, now),
        *template_cells(spec),
        format_selector(spec.get("selector")),
    ]


@printer("Name, Status, Completions, Duration, Age, !Containers, !Images, !Selector", "jobs.batch")
def _print_job(obj: Object, now: datetime) -> list[Any]:
    spec, status = obj["spec"], obj.get("status", {})
    completions, parallelism = spec.get("completions"), spec.get("parallelism", 1)
    if completions is None:
        completions = f"1 of {parallelism}" if parallelism > 1 else "1"
    return [
        name_of(obj),
        next((type_ for type_ in ("Complete", "Failed", "Suspended") if has_condition(status, type_)), "Running"),
        f"{status.get('succeeded', 0)}/{completions}",
        _job_duration(status, now),
        age_of(obj, now),
        *template_cells(spec),
        format_selector(spec.get("selector")),
    ]


def _job_duration(status: Object, now: datetime) -> str:
    """From start to completion, or to now while the job runs; empty before it starts."""
    start, completion = status.get("startTime"), status.get("completionTime")
    if not start:
        return ""
    end = datetime.fromisoformat(completion) if completion else now
    return format_duration((end - datetime.fromisoformat(start)).total_seconds())


@printer(
    "Name, Schedule, Timezone, Suspend, Active:integer, Last Schedule, Age, !Containers, !Images, !Selector",
    "cronjobs.batch",
)
def _print_cron_job(obj: Object, now: datetime) -> list[Any]:
    spec, status = obj["spec"], obj.get("status", {})
    template = spec.get("jobTemplate", {}).get("spec", {})
    return [
        name_of(obj),
        spec.get("schedule", ""),
        spec.get("timeZone") or NONE,
        str(spec.get("suspend", False)),
        len(status.get("active") or ()),
        age(status["lastScheduleTime"], now) if status.get("lastScheduleTime") else NONE,
        age_of(obj, now),
        *template_cells(template),
        format_selector(template.get("selector")),
    ]


@printer("Name, Controller, Revision:integer, Age", "controllerrevisions.apps")
def _print_controller_revision(obj: Object, now: datetime) -> list[Any]:
    owners = obj["metadata"].get("ownerReferences") or ()
    owner = next((one for one in owners if one.get("controller")), None)
    controller = NONE
    if owner is not None:
        group_kind = f"{owner['kind'].lower()}.{owner['apiVersion'].rpartition('/')[0]}".rstrip(".")
        controller = f"{group_kind}/{owner['name']}"
    return [name_of(obj), controller, obj.get("revision", 0), age_of(obj, now)]


#: Metrics that are shown; the number of the others follows.
_SHOWN = 2


@printer("Name, Desired:integer, Available:integer, Age", "scales.autoscaling")
def _print_scale(obj: Object, now: datetime) -> list[Any]:
    desired, available = (obj[part].get("replicas", 0) for part in ("spec", "status"))
    return [name_of(obj), desired, available, age_of(obj, now)]


@printer("Name, Reference, Targets, MinPods, MaxPods, Replicas, Age", "horizontalpodautoscalers.autoscaling")
def _print_horizontal_pod_autoscaler(obj: Object, now: datetime) -> list[Any]:
    spec, status = obj["spec"], obj.get("status") or {}
    target = spec.get("scaleTargetRef") or {}
    # Current and target values, such as ``cpu: 12%/80%``; current ones are in the order of the metrics.
    metrics, current = spec.get("metrics") or [], status.get("currentMetrics") or []
    shown = [
        _target(metric, current[index] if index < len(current) else {}) for index, metric in enumerate(metrics[:_SHOWN])
    ]
    text = ", ".join(shown) or NONE
    return [
        name_of(obj),
        f"{target.get('kind', '')}/{target.get('name', '')}",
        f"{text} + {len(metrics) - _SHOWN} more..." if len(metrics) > _SHOWN else text,
        str(spec.get("minReplicas", UNSET)),
        spec.get("maxReplicas", 0),
        status.get("currentReplicas", 0),
        age_of(obj, now),
    ]


def _target(metric: Object, current: Object) -> str:
    field = metric["type"][:1].lower() + metric["type"][1:]
    source, value = metric[field], (current.get(field) or {}).get("current") or {}
    target = source["target"]
    if field in ("resource", "containerResource"):
        if target.get("averageValue") is not None:
            return f"{source['name']}: {value.get('averageValue', UNKNOWN)}/{target['averageValue']}"
        used = f"{value['averageUtilization']}%" if "averageUtilization" in value else UNKNOWN
        return f"{source['name']}: {used}/{target['averageUtilization']}%"
    if target.get("averageValue") is not None:
        suffix = "" if field == "pods" else " (avg)"
        return f"{value.get('averageValue', UNKNOWN)}/{target['averageValue']}{suffix}"
    return f"{value.get('value', UNKNOWN)}/{target['value']}"


@printer("Name, Min Available, Max Unavailable, Allowed Disruptions:integer, Age", "poddisruptionbudgets.policy")
def _print_pod_disruption_budget(obj: Object, now: datetime) -> list[Any]:
    spec, status = obj["spec"], obj.get("status", {})
    bounds = [
        str(spec[field]) if spec.get(field) is not None else "N/A" for field in ("minAvailable", "maxUnavailable")
    ]
    return [name_of(obj), *bounds, status.get("disruptionsAllowed", 0), age_of(obj, now)]


@printer("Name, Value:integer, Global-Default:boolean, Age, PreemptionPolicy", "priorityclasses.scheduling.k8s.io")
def _print_priority_class(obj: Object, now: datetime) -> list[Any]:
    policy = obj.get("preemptionPolicy", "")
    return [name_of(obj), obj.get("value", 0), bool(obj.get("globalDefault", False)), age_of(obj, now), policy]


#: The conditions that say whether a group was scheduled: of PodGroups in 1.36 and since 1.37, of composite groups.
_SCHEDULED = ("PodGroupScheduled", "PodGroupInitiallyScheduled", "CompositePodGroupInitiallyScheduled")


@printer("Name, Policy, Scheduled, Age", "podgroups.scheduling.k8s.io")
@printer("Name, Policy, Scheduled, Age", "compositepodgroups.scheduling.k8s.io")
def _print_pod_group(obj: Object, now: datetime) -> list[Any]:
    gang = obj["spec"].get("schedulingPolicy", {}).get("gang")
    summary = "Basic" if gang is None else f"Gang ({gang.get('minCount') or gang.get('minGroupCount') or 0})"
    conditions = obj.get("status", {}).get("conditions") or ()
    scheduled = next((one["status"] for one in conditions if one["type"] in _SCHEDULED), UNKNOWN)
    return [name_of(obj), summary, scheduled, age_of(obj, now)]


@printer("Name, PARENT", "queues.scheduling.volcano.sh")
def _print_queue(obj: Object, now: datetime) -> list[Any]:
    return [name_of(obj), obj.get("spec", {}).get("parent") or ""]


print_fields("Name, Holder, Age", "leases.coordination.k8s.io", "spec.holderIdentity")
print_fields(
    "Name, STATUS, minMember:integer, RUNNINGS:integer, AGE, !QUEUE",
    "podgroups.scheduling.volcano.sh",
    "status.phase",
    "spec.minMember",
    "status.running",
    after_age=("spec.queue",),
)
print_fields(
    "Name, Phase, MinMember:integer, Running:integer, Succeeded:integer, Failed:integer, Age",
    "podgroups.scheduling.x-k8s.io",
    "status.phase",
    "spec.minMember",
    "status.running",
    "status.succeeded",
    "status.failed",
)
