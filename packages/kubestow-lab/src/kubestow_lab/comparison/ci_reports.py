"""A comparison for CI: Markdown for the summary of a job or a comment on a pull request, and a JUnit report."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from xml.etree import ElementTree as ET

from kubestow.reports.model import Block, Heading, Paragraph, Span, counted
from kubestow.reports.text import as_markdown as as_text
from kubestow.reports.text import code_span
from kubestow_lab.comparison import tables
from kubestow_lab.comparison.comparison import SimulationComparison
from kubestow_lab.comparison.pod_differences import PodChange
from kubestow_lab.comparison.thresholds import CheckedThreshold

_MOST_GROUPS = 50
_SUITE = "kubestow compare"
#: Characters that XML 1.0 does not allow, escaped or not.
_INVALID = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def as_markdown(comparison: SimulationComparison, checked: Sequence[CheckedThreshold] = ()) -> str:
    """The thresholds, the metrics that move, and the pods that differ by change and owner."""
    return as_text(_blocks(comparison, checked))


def _blocks(comparison: SimulationComparison, checked: Sequence[CheckedThreshold]) -> Iterator[Block]:
    baseline, candidate = code_span(comparison.baseline.name), code_span(comparison.candidate.name)
    yield Heading(f"Scheduling: {baseline} (baseline) and {candidate} (candidate)")
    if checked:
        crossed = sum(1 for found in checked if found.crossed)
        text = Span(f"{crossed} of {counted(len(checked), 'threshold')} crossed", "strong")
        yield Paragraph(text if crossed else "No threshold is crossed.")
        yield tables.thresholds_table(checked)
    yield Paragraph(f"{tables.headline(comparison.pods)}. Decided as {comparison.versions}.")
    yield tables.metrics_table(comparison.metrics, checked)
    if groups := comparison.groups():
        yield tables.groups_table(groups, most=_MOST_GROUPS)
    if comparison.causes:
        yield tables.causes_table(comparison.causes)


def as_junit(comparison: SimulationComparison, checked: Sequence[CheckedThreshold] = ()) -> str:
    """One test case for each threshold, the metrics as properties.

    A threshold that is crossed is a failure that names the pods that lose.
    """
    failures = str(sum(1 for found in checked if found.crossed))
    counts = {"tests": str(len(checked)), "failures": failures, "errors": "0"}
    suites = ET.Element("testsuites", {"name": _SUITE, **counts})
    suite = ET.SubElement(suites, "testsuite", {"name": _SUITE, **counts, "skipped": "0", "time": "0"})
    properties = ET.SubElement(suite, "properties")
    for side, label in ((comparison.baseline, "baseline"), (comparison.candidate, "candidate")):
        ET.SubElement(properties, "property", {"name": label, "value": _valid(side.name)})
    for name, found in comparison.metrics.items():
        value = f"{tables.value_text(found, found.baseline)} -> {tables.value_text(found, found.candidate)}"
        ET.SubElement(properties, "property", {"name": _valid(name), "value": value})
    for each in checked:
        case = ET.SubElement(
            suite, "testcase", {"classname": f"{_SUITE} --fail-if", "name": _valid(each.threshold.text), "time": "0"}
        )
        if each.crossed:
            message = _valid(tables.crossed_text(each))
            ET.SubElement(case, "failure", {"type": "threshold", "message": message}).text = _details(comparison)
    ET.indent(suites)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(suites, encoding="unicode") + "\n"


def _details(comparison: SimulationComparison) -> str:
    lines = [tables.headline(comparison.pods)]
    lines += [
        f"{group.change.value}: {', '.join(group.pods)}: {group.reason}"
        for group in comparison.groups()
        if group.change is PodChange.LOST
    ]
    return _valid("\n".join(lines))


def _valid(text: str) -> str:
    return _INVALID.sub("\N{REPLACEMENT CHARACTER}", text)
