"""The printer of horizontal pod autoscalers."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from kubestow_devcluster.apiserver.printers.table import NONE, UNKNOWN, UNSET, Printer, age_of, columns, name_of
from kubestow_devcluster.apiserver.schema import Object

__all__ = ["PRINTERS"]

#: Metrics that are shown; the number of the others follows.
_SHOWN = 2


def _print_horizontal_pod_autoscaler(obj: Object, now: datetime) -> list[Any]:
    spec, status = obj["spec"], obj.get("status") or {}
    target = spec.get("scaleTargetRef") or {}
    return [
        name_of(obj),
        f"{target.get('kind', '')}/{target.get('name', '')}",
        _targets(spec.get("metrics") or [], status.get("currentMetrics") or []),
        str(spec.get("minReplicas", UNSET)),
        spec.get("maxReplicas", 0),
        status.get("currentReplicas", 0),
        age_of(obj, now),
    ]


def _targets(metrics: list[Object], current: list[Object]) -> str:
    """Current and target value of the metrics, such as ``cpu: 12%/80%``; current ones are in the same order."""
    shown = [
        _target(metric, current[index] if index < len(current) else {}) for index, metric in enumerate(metrics[:_SHOWN])
    ]
    text = ", ".join(shown) or NONE
    return f"{text} + {len(metrics) - _SHOWN} more..." if len(metrics) > _SHOWN else text


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


PRINTERS: dict[str, Printer] = {
    "horizontalpodautoscalers.autoscaling": Printer(
        columns("Name", "Reference", "Targets", "MinPods", "MaxPods", "Replicas", "Age"),
        _print_horizontal_pod_autoscaler,
    ),
}
