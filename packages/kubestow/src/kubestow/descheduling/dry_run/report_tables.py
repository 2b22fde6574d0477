"""The report of a loop as tables for people."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from kubestow.descheduling.dry_run.loop_report import LoopReport
from kubestow.descheduling.dry_run.rescheduling import PredictedState, Prediction
from kubestow.reports.tables import plain_table

__all__ = ["render"]


def render(run: LoopReport) -> RenderableType:
    """The headline, the evictions, and the refused ones."""
    result = run.result
    parts: list[RenderableType] = [Text(_headline(run))]
    if result.evicted:
        table = plain_table("evicted pod", "from", "plugin", "why", "comes back")
        for eviction in result.evicted:
            came = _outcome(run.prediction(eviction))
            table.add_row(eviction.pod.key, eviction.pod.node_name, eviction.plugin, eviction.message, came)
        parts.append(table)
    if result.refused:
        table = plain_table("refused pod", "on", "plugin", "why it stays")
        for eviction in result.refused:
            why = eviction.refusal.message if eviction.refusal else ""
            table.add_row(eviction.pod.key, eviction.pod.node_name, eviction.plugin, why)
        parts.append(table)
    if run.admitted:
        table = plain_table("pending pod", "gets")
        for pod, node in run.admitted:
            table.add_row(pod, node)
        parts.append(table)
    return Group(*parts)


def _headline(run: LoopReport) -> str:
    result = run.result
    if result.too_few_nodes:
        return "nothing to do: fewer than two nodes are ready and selected"
    text = f"{len(result.evicted):,} pods evicted, {len(result.refused):,} refused"
    if not run.predictions:
        return text
    counts = ((run.count(state), label) for state, label in _LABELS.items())
    parts = ", ".join(f"{count:,} {label}" for count, label in counts if count)
    return f"{text}; of the evicted, {parts}" if parts else text


_LABELS = {
    PredictedState.MOVED: "move to another node",
    PredictedState.SAME_NODE: "come back to the same node",
    PredictedState.PENDING: "stay pending",
    PredictedState.GONE: "do not come back",
    PredictedState.UNKNOWN: "are placed by another scheduler",
}


def _outcome(prediction: Prediction | None) -> str:
    if prediction is None:
        return ""
    match prediction.state:
        case PredictedState.MOVED:
            return f"on {prediction.node}"
        case PredictedState.SAME_NODE:
            return f"on {prediction.node} again"
        case PredictedState.PENDING:
            return f"pending: {prediction.message}"
        case PredictedState.GONE:
            return f"no: {prediction.message}"
    return prediction.message
