"""One descheduling loop on a snapshot, and where the evicted pods come back as the scheduler would place them.

The report of a loop is shown in tables, and is plain data as ``document``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec

from kubestow.descheduling.dry_run.rescheduling import (
    Mode,
    PredictedState,
    Prediction,
    Rescheduler,
    ReschedulingBackend,
)
from kubestow.descheduling.eviction import DryRunEvictions, Eviction, EvictionBackend, EvictionObserver
from kubestow.descheduling.loop import Descheduler, LoopResult
from kubestow.descheduling.snapshot import Snapshot
from kubestow.engine.input.documents import Problems, SourceObject
from kubestow.errors import InvalidObject
from kubestow.reports.model import Block, Paragraph, Table, counted
from kubestow.reports.text import Displayed


@dataclass(frozen=True, slots=True, repr=False)
class LoopReport(Displayed):
    """The result of a loop, what becomes of the pods, and the pending pods that got a node, as (pod, node).

    ``predictions`` are by uid; without a rescheduler there are none. ``emulated_version`` is the minor version that it
    decides as, ``server_version`` that of the API server, such as ``v1.36.2``, if it is known.
    """

    result: LoopResult
    predictions: dict[str, Prediction] = field(default_factory=dict)
    admitted: Sequence[tuple[str, str]] = ()
    emulated_version: str = ""
    server_version: str = ""

    def prediction(self, eviction: Eviction) -> Prediction | None:
        """What becomes of a pod, None if the scheduler was not asked."""
        return self.predictions.get(eviction.pod.uid)

    def nodes(self) -> dict[str, tuple[int, int]]:
        """How many pods leave each node, and how many come, by node name."""
        leaving = Counter(eviction.pod.node_name for eviction in self.result.evicted)
        coming = Counter(node for _, node in self.admitted)
        for eviction in self.result.evicted:
            if (found := self.prediction(eviction)) is not None and found.node:
                coming[found.node] += 1
        return {node: (leaving[node], coming[node]) for node in sorted({*leaving, *coming})}

    def count(self, state: PredictedState) -> int:
        """How many evicted pods come to an end."""
        found = (self.prediction(eviction) for eviction in self.result.evicted)
        return sum(1 for prediction in found if prediction is not None and prediction.state is state)

    def blocks(self) -> Iterator[Block]:
        """The headline, the evictions, and the refused ones."""
        result = self.result
        yield Paragraph(_headline(self))
        if result.evicted:
            table = Table("evicted pod", "from", "plugin", "why", "comes back")
            for eviction in result.evicted:
                came = _outcome(self.prediction(eviction))
                table.add(eviction.pod.key, eviction.pod.node_name, eviction.plugin, eviction.message, came)
            yield table
        if result.refused:
            table = Table("refused pod", "on", "plugin", "why it stays")
            for eviction in result.refused:
                why = eviction.refusal.message if eviction.refusal else ""
                table.add(eviction.pod.key, eviction.pod.node_name, eviction.plugin, why)
            yield table
        if self.admitted:
            table = Table("pending pod", "gets")
            for pod, node in self.admitted:
                table.add(pod, node)
            yield table


def run_loop(
    descheduler: Descheduler,
    snapshot: Snapshot,
    *,
    now: datetime,
    backend: EvictionBackend | None = None,
    observers: Sequence[EvictionObserver] = (),
    rescheduler: Rescheduler | None = None,
    mode: Mode = Mode.REFUSE,
) -> LoopReport:
    """Run one loop, by default as a dry run that evicts nothing.

    ``rescheduler`` has the same cluster; without one the scheduler is not asked where pods come back. Raises
    InvalidQuantity, and what the backend raises.
    """
    backend = backend or DryRunEvictions(snapshot.budgets)
    if rescheduler is None:
        return LoopReport(descheduler.run(snapshot, now=now, backend=backend, observers=observers))
    rescheduling = ReschedulingBackend(backend, rescheduler, mode)
    result = descheduler.run(snapshot, now=now, backend=rescheduling, observers=observers)
    admitted = [(info.key, node) for info, node in rescheduler.admitted]
    return LoopReport(result, rescheduling.predictions, admitted, str(rescheduler.minor))


def _headline(run: LoopReport) -> str:
    result = run.result
    if result.too_few_nodes:
        return "nothing to do: fewer than two nodes are ready and selected"
    text = f"{counted(len(result.evicted), 'pod')} evicted, {len(result.refused):,} refused"
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


def document(run: LoopReport) -> dict[str, Any]:
    """The report as plain data."""
    result = run.result
    versions = {"emulatedVersion": run.emulated_version, "serverVersion": run.server_version}
    return {name: version for name, version in versions.items() if version} | {
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
        predicted = {"state": prediction.state.value, "pod": prediction.pod, "node": prediction.node}
        predicted["message"] = prediction.message
        fields["comesBack"] = {name: value for name, value in predicted.items() if value}
    return fields


_CLUSTER_SCOPED = ("Node", "Namespace", "PriorityClass", "NodeMetrics")


def read_snapshot(sources: Iterable[SourceObject], problems: Problems) -> tuple[Snapshot, list[SourceObject]]:
    """A snapshot, and the objects that can be used, those of other kinds included.

    Objects that cannot be decoded are reported and left out; of several with one name the first counts.
    """
    found: list[Any] = []
    usable: list[SourceObject] = []
    names: set[tuple[str, str, str]] = set()
    for source in sources:
        try:
            obj = Snapshot.decoded(source.api_version, source.kind, source.raw)
        except InvalidObject as error:
            problems.report(source.subject, source.place, f"invalid {source.kind}: {error}")
            continue
        usable.append(source)
        if obj is None or not obj.metadata.name:
            continue
        obj = _with_identity(obj, source.kind)
        key = source.kind, obj.metadata.namespace, obj.metadata.name
        if key not in names:
            names.add(key)
            found.append(obj)
    return Snapshot.of(found), usable


def _with_identity(obj: Any, kind: str) -> Any:
    """The object with a namespace and a uid, as the simulated scheduler completes it."""
    metadata = obj.metadata
    namespace = "" if kind in _CLUSTER_SCOPED else metadata.namespace or "default"
    if metadata.uid and metadata.namespace == namespace:
        return obj
    uid = metadata.uid or f"{kind}/{namespace}/{metadata.name}".lower()
    return msgspec.structs.replace(obj, metadata=msgspec.structs.replace(metadata, namespace=namespace, uid=uid))
