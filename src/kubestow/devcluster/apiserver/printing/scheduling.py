"""What schedulers read and write beside pods: budgets, priorities, leases, devices."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from kubestow.devcluster.apiserver.printing.layout import UNKNOWN, Layout, Object, age_of, columns, name_of, values_at

__all__ = ["LAYOUTS"]


def _budget(new: Object, now: datetime) -> list[Any]:
    spec, status = new["spec"], new.get("status", {})
    least, most = spec.get("minAvailable"), spec.get("maxUnavailable")
    bounds = ["N/A" if bound is None else str(bound) for bound in (least, most)]
    return [name_of(new), *bounds, status.get("disruptionsAllowed", 0), age_of(new, now)]


def _claim_state(new: Object, now: datetime) -> list[Any]:
    status = new.get("status") or {}
    states = [
        word
        for word, holds in (
            ("deleted", "deletionTimestamp" in new["metadata"]),
            ("allocated", "allocation" in status),
            ("reserved", bool(status.get("reservedFor"))),
        )
        if holds
    ]
    return [name_of(new), ",".join(states) if states else "pending", age_of(new, now)]


def _slice(new: Object, now: datetime) -> list[Any]:
    spec = new.get("spec", {})
    node = spec.get("nodeName") or ("<all nodes>" if spec.get("allNodes") else "<some nodes>")
    return [name_of(new), node, spec.get("driver", ""), spec.get("pool", {}).get("name", ""), age_of(new, now)]


def _priority_class(new: Object, now: datetime) -> list[Any]:
    policy = new.get("preemptionPolicy", "")
    return [name_of(new), new.get("value", 0), bool(new.get("globalDefault", False)), age_of(new, now), policy]


def _pod_group(new: Object, now: datetime) -> list[Any]:
    policy = new["spec"].get("schedulingPolicy", {})
    form = f"Gang ({policy['gang'].get('minCount', 0)})" if "gang" in policy else "Basic"
    conditions = new.get("status", {}).get("conditions") or ()
    scheduled = next((one["status"] for one in conditions if one["type"] == "PodGroupScheduled"), UNKNOWN)
    return [name_of(new), form, scheduled, age_of(new, now)]


LAYOUTS: dict[str, Layout] = {
    "deviceclasses.resource.k8s.io": Layout(columns("Name", "Age"), values_at()),
    "leases.coordination.k8s.io": Layout(columns("Name", "Holder", "Age"), values_at("spec.holderIdentity")),
    "poddisruptionbudgets.policy": Layout(
        columns("Name", "Min Available", "Max Unavailable", ("Allowed Disruptions", "integer"), "Age"), _budget
    ),
    "podgroups.scheduling.k8s.io": Layout(columns("Name", "Policy", "Scheduled", "Age"), _pod_group),
    "podgroups.scheduling.volcano.sh": Layout(
        columns("Name", "STATUS", ("minMember", "integer"), ("RUNNINGS", "integer"), "AGE", "!QUEUE"),
        values_at("status.phase", "spec.minMember", "status.running", after_age=("spec.queue",)),
    ),
    "podgroups.scheduling.x-k8s.io": Layout(
        columns(
            "Name",
            "Phase",
            ("MinMember", "integer"),
            ("Running", "integer"),
            ("Succeeded", "integer"),
            ("Failed", "integer"),
            "Age",
        ),
        values_at("status.phase", "spec.minMember", "status.running", "status.succeeded", "status.failed"),
    ),
    "priorityclasses.scheduling.k8s.io": Layout(
        columns("Name", ("Value", "integer"), ("Global-Default", "boolean"), "Age", "PreemptionPolicy"),
        _priority_class,
    ),
    "resourceclaims.resource.k8s.io": Layout(columns("Name", "State", "Age"), _claim_state),
    "resourceclaimtemplates.resource.k8s.io": Layout(columns("Name", "Age"), values_at()),
    "resourceslices.resource.k8s.io": Layout(columns("Name", "Node", "Driver", "Pool", "Age"), _slice),
}
