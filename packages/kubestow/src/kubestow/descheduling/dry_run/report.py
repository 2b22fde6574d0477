"""The report of a loop as plain data, for JSON and YAML."""

from __future__ import annotations

from typing import Any

from kubestow.descheduling.dry_run.loop_report import LoopReport
from kubestow.descheduling.dry_run.rescheduling import Prediction
from kubestow.descheduling.eviction import Eviction

__all__ = ["document", "eviction_document"]


def document(run: LoopReport) -> dict[str, Any]:
    """The report as plain data."""
    result = run.result
    return {
        "evicted": [_with_prediction(run, eviction) for eviction in result.evicted],
        "refused": [_with_prediction(run, eviction) for eviction in result.refused],
        "admitted": [{"pod": pod, "node": node} for pod, node in run.admitted],
        "nodes": [
            {"name": name, "leaving": leaving, "coming": coming} for name, (leaving, coming) in run.nodes().items()
        ],
        "errors": [str(error) for error in result.errors],
    }


def eviction_document(eviction: Eviction) -> dict[str, Any]:
    """An eviction as plain data; optional fields are left out."""
    fields: dict[str, Any] = {
        "pod": eviction.pod.key,
        "node": eviction.pod.node_name,
        "profile": eviction.profile,
        "plugin": eviction.plugin,
        "why": eviction.message,
    }
    if eviction.reason:
        fields["reason"] = eviction.reason
    if eviction.grace_period is not None:
        fields["gracePeriodSeconds"] = eviction.grace_period
    if eviction.refusal is not None:
        fields |= {"refusedBy": eviction.refusal.by.value, "error": eviction.refusal.message}
    return fields


def _with_prediction(run: LoopReport, eviction: Eviction) -> dict[str, Any]:
    fields = eviction_document(eviction)
    if (prediction := run.prediction(eviction)) is not None:
        fields["comesBack"] = _prediction(prediction)
    return fields


def _prediction(prediction: Prediction) -> dict[str, Any]:
    fields = {"state": prediction.state.value, "pod": prediction.pod, "node": prediction.node}
    return {name: value for name, value in (fields | {"message": prediction.message}).items() if value}
