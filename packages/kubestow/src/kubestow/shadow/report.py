"""What a shadow has found, for people and for programs: on a terminal, as lines, as JSON and as an HTML page."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from functools import partial
from operator import itemgetter
from typing import Any

from kubestow.engine.explanation.node_tables import verdicts_and_scores
from kubestow.http.messages import Handler, HTTPResponse, PathMux
from kubestow.observability.instruments import MetricDefinition, MetricSet, exposition
from kubestow.reports.model import Block, Cards, Details, Items, Paragraph, Report, Section, Span, Table
from kubestow.reports.page import as_page
from kubestow.reports.text import Displayed
from kubestow.serving.healthz import PING, HealthChecks
from kubestow.shadow.comparison import Verdict, document_of
from kubestow.shadow.shadow import ComparedDecision, ShadowCounts

#: So many differences, and decisions that a race explains, are kept for the report.
_KEPT = 200
#: So many differences are shown on a terminal.
_SHOWN = 12
#: So many of the circumstances of a race are named.
_NAMED = 3


class ShadowMetrics(MetricSet):
    """The metrics of a shadow."""

    def __init__(self) -> None:
        super().__init__()
        self._decisions = self.counter(
            "kubestow_shadow_decisions_total",
            "Number of decisions of the scheduler that were looked at, by how they compare with those made here.",
            MetricDefinition(labels=("verdict",)),
        )
        self._differing = self.counter(
            "kubestow_shadow_differences_total",
            "Number of decisions of the scheduler that were not made here from any state that it may have seen.",
            MetricDefinition(),
        )
        self.add_serving(MetricDefinition(labels=("result",), buckets=(0.001, 0.01, 0.1, 1, 10)))

    def count(self, found: ComparedDecision) -> None:
        """Count a decision."""
        self._decisions.labels(found.label).value += 1
        if found.differs:
            self._differing.labels().value += 1


def shadow_mux(metrics: ShadowMetrics) -> PathMux:
    """/metrics, /healthz, /livez and /readyz."""
    health = HealthChecks({name: [PING] for name in ("healthz", "livez", "readyz")})
    paths: dict[str, Handler] = {f"/{name}": partial(health.handle, name) for name in health.endpoints}
    paths["/metrics"] = lambda request: HTTPResponse(200, *exposition(metrics.registry, request.header("accept")))
    return PathMux(paths=paths, prefixes={}, deletions={})


class ShadowReport(Displayed):
    """The counts, and the last differences, with a ``title`` that says whose decisions are compared with what.

    ``seconds`` is how long the scheduler was watched.
    """

    def __init__(self, title: str = "") -> None:
        self.title, self.counts, self.seconds = title, ShadowCounts(), 0.0
        self.remarks: list[str] = []
        self._differing: deque[ComparedDecision] = deque(maxlen=_KEPT)
        self._raced: deque[ComparedDecision] = deque(maxlen=_KEPT)
        #: Of the differences between two nodes, how many each plugin decided.
        self._causes: Counter[str] = Counter()

    def add(self, found: ComparedDecision) -> None:
        """Count a decision, and keep it if there is more to be said about it."""
        self.counts.add(found)
        if found.differs:
            self._differing.append(found)
            if cause := _cause(found):
                self._causes[cause] += 1
        elif found.race:
            self._raced.append(found)

    def headline(self) -> str:
        """The result in one sentence."""
        counts = self.counts
        if not counts.compared:
            return "no decision has been compared yet"
        differ = "differs" if counts.differing == 1 else "differ"
        left_out = counts.by_label[Verdict.NOT_COMPARED.value]
        return (
            f"{counts.agreement:.2f} % of {counts.compared:,} decisions agree, {counts.differing:,} {differ}"
            f"{f', {left_out:,} were not compared' if left_out else ''}"
        )

    def blocks(self) -> Iterator[Block]:
        """The title, the counts and the last differences."""
        yield Paragraph(self.title)
        yield from (Paragraph(f"remark: {remark}") for remark in self.remarks)
        yield Paragraph(self.headline())
        yield from (Paragraph(""), self._counts())
        if self._causes:
            yield from (Paragraph(""), self._causes_table())
        if self._differing:
            table = Table("pod", "verdict", "scheduler", "here", right=(), caption="Differences")
            for found in list(self._differing)[-_SHOWN:]:
                table.add(found.pod, found.label, found.observed.text, found.here)
            yield from (Paragraph(""), table)

    def _counts(self) -> Table:
        table = Table("verdict", "decisions", caption="Decisions by verdict")
        for label, count in self.counts.by_label.most_common():
            table.add(label, f"{count:,}")
        return table

    def _causes_table(self) -> Table:
        table = Table("plugin", "differences", caption="What decided for another node here")
        for cause, count in self._causes.most_common():
            table.add(cause, f"{count:,}")
        return table

    def document(self) -> dict[str, Any]:
        """The counts as plain data."""
        counts = self.counts
        return {
            "kind": "summary",
            "compared": counts.compared,
            "differing": counts.differing,
            "agreement": round(counts.agreement, 4),
            "verdicts": dict(counts.by_label),
            "causes": dict(self._causes),
        }

    def page(self) -> str:
        """The page: counts, then every difference with both nodes side by side, then the races."""
        counts = self.counts
        cards = Cards(
            [
                ("of the decisions agree", f"{counts.agreement:.2f} %"),
                ("decisions compared", f"{counts.compared:,}"),
                ("differ", f"{counts.differing:,}"),
                ("watched", f"{self.seconds:,.0f} s"),
            ]
        )
        remarks = [Paragraph(f"Remark: {remark}", note=True) for remark in self.remarks]
        sections = [Section("Summary", [cards, Paragraph(self.headline()), *remarks, self._counts()])]
        if self._differing:
            note = _kept_note(len(self._differing), counts.differing, "differences")
            causes = [self._causes_table()] if self._causes else []
            sections.append(Section("Differences", [*causes, *note, *map(_difference, self._differing)]))
        if self._raced:
            raced = counts.by_label[self._raced[0].label]
            text = "The scheduler decides this way from another state that it may have seen at that time."
            table = Table("pod", "scheduler", "if", right=(), caption="Explained by a race")
            for found in self._raced:
                table.add(Span(found.pod, "code"), found.observed.text, "\n".join(_circumstances(found)))
            note = _kept_note(len(self._raced), raced, "of them")
            sections.append(Section("Explained by a race", [Paragraph(text), *note, table]))
        return as_page(Report("Shadow of a scheduler", self.title, sections))


def _cause(found: ComparedDecision) -> str:
    """The plugin that rejects the scheduler's node here, or else the one that adds most to the score of the other."""
    if (nodes := found.nodes) is None:
        return ""
    if nodes.one.rejections:
        return f"{nodes.one.rejections[0].plugin}, which rejects the node"
    differences = nodes.differences()
    plugin, difference = min(differences, key=itemgetter(1), default=("", 0))
    return plugin if difference < 0 else ""


def line_of(found: ComparedDecision) -> str:
    """A decision in one line."""
    line = f"{found.pod}: {found.label}: {found.observed.text}"
    if found.reason:
        return f"{line}; {found.reason}"
    if found.race:
        return f"{line}, if {'; '.join(_circumstances(found))}"
    return f"{line}; here: {found.here}" if found.differs else line


def document_of_decision(found: ComparedDecision) -> dict[str, Any]:
    """A decision as plain data."""
    observed = found.observed
    document: dict[str, Any] = {
        "kind": "decision",
        "pod": found.pod,
        "verdict": found.label,
        "differs": found.differs,
        "scheduler": {
            "node": observed.node,
            "message": observed.message,
            "nominatedNodeName": observed.nominated,
            "victims": sorted(observed.victims.values()),
        },
        "here": found.here,
        "states": found.moments,
    }
    if found.race:
        document["race"] = list(found.race)
    if found.reason:
        document["reason"] = found.reason
    if found.nodes is not None:
        document["comparison"] = document_of(found.nodes)
    return document


def _circumstances(found: ComparedDecision) -> list[str]:
    more = len(found.race) - _NAMED
    return [*found.race[:_NAMED], *([f"and {more:,} more"] if more > 0 else [])]


def _kept_note(kept: int, count: int, what: str) -> list[Block]:
    return [Paragraph(f"The last {kept:,} of {count:,} {what}.", note=True)] if kept < count else []


def _difference(found: ComparedDecision) -> Details:
    blocks: list[Block] = [Items([f"scheduler: {found.observed.text}", f"here: {found.here}"])]
    if (nodes := found.nodes) is not None:
        blocks.append(Paragraph(nodes.text))
        blocks.extend(verdicts_and_scores((nodes.one, nodes.other), own=found.observed.node))
    blocks.append(Paragraph(f"{found.moments:,} states were tried that the scheduler may have seen.", note=True))
    return Details([Span(found.pod, "code"), Span(found.label, "failed")], blocks)
