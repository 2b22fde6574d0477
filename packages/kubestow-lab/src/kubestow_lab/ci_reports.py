"""Reports for CI: Markdown for a pull request, JUnit for test reports, SARIF for code scanning.

They are about the comparison of two schedulers, about configurations that have to be edited before they can be
compared, and about a workload that fits or does not. Their size is bounded, however large the cluster is: a comment of
GitHub has at most 65,536 characters. Whatever the cluster names is text in all of them: it links to nothing, mentions
no account and ends no element.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree as ET

import msgspec

from kubestow.config import FieldError
from kubestow.reports.model import Block, Details, Heading, Paragraph, Span, Table, counted
from kubestow.reports.text import as_markdown as as_text
from kubestow.reports.text import code_span, shortened
from kubestow.version import VERSION
from kubestow_lab.comparison import tables
from kubestow_lab.comparison.comparison import SimulationComparison
from kubestow_lab.comparison.configuration_problems import ConfigurationProblems
from kubestow_lab.comparison.pod_differences import DifferenceGroup, PodChange
from kubestow_lab.comparison.thresholds import CheckedThreshold
from kubestow_lab.simulation.outcomes import Origin, OutcomeState, PodOutcome
from kubestow_lab.simulation.simulation_result import SimulationResult

#: So many groups of pods are shown at once; with more of them, all are below a line to click on.
_FEW_GROUPS = 10
_MOST_GROUPS, _MOST_METRICS, _MOST_CAUSES, _MOST_PROBLEMS = 50, 40, 20, 50
#: Characters of a name and of a message.
_LONGEST_NAME, _LONGEST_TEXT = 100, 300
#: So many nodes are named.
_NODES_NAMED = 3
_COMPARE, _SIMULATE = "kubestow compare", "kubestow simulate"
#: Characters that XML 1.0 does not allow, escaped or not.
_INVALID = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


# -- Markdown --------------------------------------------------------------------------------------------------------


def comparison_markdown(comparison: SimulationComparison, checked: Sequence[CheckedThreshold] = ()) -> str:
    """The thresholds, how many pods differ, the metrics that move, the causes, and the pods by change and owner."""
    return as_text(_comparison_blocks(comparison, checked))


def _comparison_blocks(comparison: SimulationComparison, checked: Sequence[CheckedThreshold]) -> Iterator[Block]:
    baseline, candidate = (shortened(side.name, _LONGEST_NAME) for side in (comparison.baseline, comparison.candidate))
    yield Heading(f"Scheduling: {code_span(baseline)} (baseline) and {code_span(candidate)} (candidate)")
    if checked:
        crossed = sum(1 for found in checked if found.crossed)
        text = Span(f"{crossed} of {counted(len(checked), 'threshold')} crossed", "strong")
        yield Paragraph(text if crossed else "No threshold is crossed.")
        yield tables.thresholds_table(checked)
    yield Paragraph(f"{tables.headline(comparison.pods)}. Decided as {comparison.versions}.")
    yield _limited(tables.metrics_table(comparison.metrics, checked), _MOST_METRICS)
    if comparison.causes:
        yield _limited(tables.causes_table(comparison.causes), _MOST_CAUSES)
    if groups := comparison.groups():
        table = _limited(tables.groups_table(groups, most=_MOST_GROUPS), _MOST_GROUPS + 1)
        title = f"{counted(len(groups), 'group')} of pods that differ, by change, owner and reason"
        yield table if len(groups) <= _FEW_GROUPS else Details([title], [table])
    for side in (comparison.baseline, comparison.candidate):
        for remark in side.remarks:
            yield Paragraph(f"Remark: {code_span(shortened(remark, _LONGEST_TEXT))}")


def problems_markdown(problems: ConfigurationProblems) -> str:
    """What must be edited before the configurations can be compared."""
    blocks: list[Block] = [Heading("Scheduling: what must be edited first")]
    blocks += [Paragraph(problems.headline + "."), _limited(problems.table(), _MOST_PROBLEMS)]
    return as_text(blocks)


def fit_markdown(result: SimulationResult) -> str:
    """Whether a workload fits, where its pods land, and why those do not that are pending."""
    return as_text(_fit_blocks(result))


def _fit_blocks(result: SimulationResult) -> Iterator[Block]:
    groups = _workload_groups(result)
    pods, placed = sum(len(found) for found in groups.values()), _placed(groups.values())
    total = pods + result.refused_count
    yield Heading("Scheduling: does it fit, and where")
    verdict = f"{placed:,} of {counted(total, 'pod')} placed"
    yield Paragraph(Span(f"{verdict}.", "passed") if placed == total else Span(f"{verdict}.", "failed"))
    evicted = result.count(OutcomeState.PREEMPTED)
    if evicted:
        yield Paragraph(f"{counted(evicted, 'pod is', 'pods are')} preempted for them.")
    table = Table("owner", "pods", "placed", "nodes", "why not", right=("pods", "placed"))
    for (namespace, owner), found in groups.items():
        why = Counter(outcome.message for outcome in found if outcome.state is OutcomeState.PENDING)
        reason = why.most_common(1)[0][0] if why else ""
        spans = (Span(text, "code") for text in (_node_names(found), reason))
        table.add(Span(f"{namespace} {owner}", "code"), f"{len(found):,}", f"{_placed([found]):,}", *spans)
    for refused in result.refused:
        table.add(Span(refused.owner, "code"), f"{refused.count:,}", "0", "", Span(refused.message, "code"))
    if table.rows:
        limited = _limited(table, _MOST_GROUPS)
        yield limited if len(table.rows) <= _FEW_GROUPS else Details([counted(len(table.rows), "owner")], [limited])
    resources = Table("resource", "requested", "of", right=("requested", "of"))
    for name, share in result.utilisation.items():
        resources.add(Span(name, "code"), f"{share:.1%}", counted(len(result.nodes), "node"))
    yield _limited(resources, _MOST_METRICS)
    for remark in result.remarks:
        yield Paragraph(f"Remark: {code_span(shortened(remark, _LONGEST_TEXT))}")


def _workload_groups(result: SimulationResult) -> dict[tuple[str, str], list[PodOutcome]]:
    """The pods that were to be placed, by namespace and owner; a pod without a controller is its own."""
    groups: dict[tuple[str, str], list[PodOutcome]] = {}
    for outcome in result.outcomes:
        if outcome.origin is Origin.WORKLOAD:
            owner = outcome.owner or f"Pod/{outcome.name}"
            groups.setdefault((outcome.namespace, owner), []).append(outcome)
    return groups


def _placed(groups: Iterable[Sequence[PodOutcome]]) -> int:
    return sum(1 for found in groups for outcome in found if outcome.state.is_placed)


def _node_names(outcomes: Iterable[PodOutcome]) -> str:
    """The nodes with most of some pods, each with their number; how many nodes there are if some are left out."""
    counts = Counter(outcome.node for outcome in outcomes if outcome.node)
    named = sorted(counts, key=lambda node: (-counts[node], node))
    texts = [
        shortened(node, _LONGEST_NAME) + (f" ×{counts[node]:,}" if counts[node] > 1 else "")
        for node in named[:_NODES_NAMED]
    ]
    if len(named) <= _NODES_NAMED:
        return ", ".join(texts)
    return f"{counted(len(named), 'node')}: {', '.join(texts)}, …"


def _limited(table: Table, most: int) -> Table:
    """The first rows of a table, with what is left out in the last one, and no cell longer than a message."""
    limited = Table(*table.headings, caption=table.caption)
    for row in table.rows[:most]:
        limited.add(*(_cell(cell) for cell in row))
    if len(table.rows) > most:
        limited.add(f"… {len(table.rows) - most:,} more", *[""] * (len(table.headings) - 1))
    return limited


def _cell(text: str) -> str:
    short = shortened(text, _LONGEST_TEXT)
    return Span(short, text.role) if isinstance(text, Span) else short


# -- JUnit -----------------------------------------------------------------------------------------------------------


def comparison_junit(comparison: SimulationComparison, checked: Sequence[CheckedThreshold] = ()) -> str:
    """One test case for each threshold, the metrics as properties.

    A threshold that is crossed is a failure that names the pods that lose.
    """
    properties = {"baseline": comparison.baseline.name, "candidate": comparison.candidate.name}
    for name, found in comparison.metrics.items():
        properties[name] = f"{tables.value_text(found, found.baseline)} -> {tables.value_text(found, found.candidate)}"
    lost = [group for group in comparison.groups() if group.change is PodChange.LOST][:_MOST_GROUPS]
    details = "\n".join((tables.headline(comparison.pods), *(f"lost: {_pods_text(group)}" for group in lost)))
    cases = [(each.threshold.text, tables.crossed_text(each) if each.crossed else "", details) for each in checked]
    return _junit(_COMPARE, f"{_COMPARE} --fail-if", cases, failure="threshold", properties=properties)


def problems_junit(problems: ConfigurationProblems) -> str:
    """One failed test case for each configuration that has to be edited."""
    cases = []
    for found in problems.sides:
        lines = [f"{each.line or 1}:{each.column or 1}: {_problem_text(each)}" for each in found.errors]
        name = f"{found.file} ({found.role}, Kubernetes {found.minor})"
        cases.append((name, counted(len(found.errors), "problem"), "\n".join(lines[:_MOST_PROBLEMS])))
    return _junit(_COMPARE, "kubestow config check", cases, failure="configuration")


def _problem_text(error: FieldError) -> str:
    return f"{error.path}: {error.message}" if error.path else error.message


def fit_junit(result: SimulationResult) -> str:
    """One test case for each owner of pods; it fails if one of them has no node."""
    cases = []
    for (namespace, owner), found in _workload_groups(result).items():
        pending = [outcome for outcome in found if outcome.state is OutcomeState.PENDING]
        message = f"{len(pending):,} of {counted(len(found), 'pod is', 'pods are')} pending" if pending else ""
        cases.append((f"{namespace} {owner}", message, "\n".join(dict.fromkeys(each.message for each in pending))))
    cases += [
        (refused.owner, f"{counted(refused.count, 'pod is', 'pods are')} refused", refused.message)
        for refused in result.refused
    ]
    return _junit(_SIMULATE, _SIMULATE, cases, failure="pending")


def _junit(
    suite_name: str,
    classname: str,
    cases: Sequence[tuple[str, str, str]],
    *,
    failure: str,
    properties: Mapping[str, str] | None = None,
) -> str:
    """A JUnit report. A case is its name, why it fails (empty if it does not), and the text of the failure."""
    failures = str(sum(1 for _, message, _ in cases if message))
    counts = {"tests": str(len(cases)), "failures": failures, "errors": "0"}
    suites = ET.Element("testsuites", {"name": suite_name, **counts})
    suite = ET.SubElement(suites, "testsuite", {"name": suite_name, **counts, "skipped": "0", "time": "0"})
    if properties:
        listed = ET.SubElement(suite, "properties")
        for name, value in properties.items():
            ET.SubElement(listed, "property", {"name": _valid(name), "value": _valid(value)})
    for name, message, text in cases:
        case = ET.SubElement(suite, "testcase", {"classname": classname, "name": _valid(name), "time": "0"})
        if message:
            found = ET.SubElement(case, "failure", {"type": failure, "message": _valid(message)})
            found.text = _valid(text)
    ET.indent(suites)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(suites, encoding="unicode") + "\n"


def _pods_text(group: DifferenceGroup) -> str:
    return f"{', '.join(group.pods)}: {group.reason}"


def _valid(text: str) -> str:
    return _INVALID.sub("\N{REPLACEMENT CHARACTER}", text)


# -- SARIF -----------------------------------------------------------------------------------------------------------

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_THRESHOLD, _INVALID_CONFIGURATION = "threshold-crossed", "invalid-configuration"
#: The rules, each with its level and what it is about.
_RULES = {
    _THRESHOLD: ("error", "A threshold is crossed"),
    _INVALID_CONFIGURATION: ("error", "The configuration has to be edited"),
    "pod-lost": ("error", "Pods are pending that the baseline places"),
    "pod-preempted": ("warning", "Pods are preempted that the baseline leaves where they are"),
    "pod-missing": ("note", "Pods exist in the baseline only"),
    "pod-moved": ("note", "Pods are on another node"),
    "pod-reworded": ("note", "Pods are pending with another message"),
    "pod-added": ("note", "Pods exist in the candidate only"),
    "pod-won": ("note", "Pods are placed that are pending in the baseline"),
    "pod-spared": ("note", "Pods stay that the baseline preempts"),
}


def comparison_sarif(
    comparison: SimulationComparison, checked: Sequence[CheckedThreshold] = (), *, file: str = ""
) -> str:
    """A result for each crossed threshold and each group of pods that differ, at the first line of ``file``.

    The file is what was changed, such as the configuration of the candidate. The groups beyond the first 50 are left
    out; the headline, which counts all, is a notification of the run.
    """
    results = [
        _result(_THRESHOLD, tables.crossed_text(each), file, identity=each.threshold.text)
        for each in checked
        if each.crossed
    ]
    for group in comparison.groups()[:_MOST_GROUPS]:
        owner = f"{group.namespace} {group.owner or 'pods without owner'}"
        names = ", ".join(pod.partition("/")[2] for pod in group.pods[:_NODES_NAMED])
        more = ", …" if len(group.pods) > _NODES_NAMED else ""
        text = f"{counted(len(group.pods), 'pod')} {group.change.value}: {owner}: {names}{more}"
        text += f": {group.reason}" if group.reason else ""
        identity = f"{group.namespace}/{group.owner}: {group.reason}"
        results.append(_result(f"pod-{group.change.value}", text, file, identity=identity))
    return _sarif(results, tables.headline(comparison.pods))


def problems_sarif(problems: ConfigurationProblems) -> str:
    """A result for each problem, at its place in the configuration."""
    results = []
    for found in problems.sides:
        for each in found.errors[:_MOST_PROBLEMS]:
            text = f"Kubernetes {found.minor}: {_problem_text(each)}"
            place = (each.line or 1, each.column or 1)
            results.append(_result(_INVALID_CONFIGURATION, text, found.file, *place, identity=text))
    return _sarif(results, problems.headline)


def _result(rule: str, text: str, file: str, line: int = 1, column: int = 1, *, identity: str) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": rule,
        "ruleIndex": list(_RULES).index(rule),
        "level": _RULES[rule][0],
        "message": {"text": _plain(shortened(text, 2 * _LONGEST_TEXT))},
        # The same finding of the next commit, though the pods have other names.
        "partialFingerprints": {"kubestow/v1": hashlib.sha256(f"{rule}: {identity}".encode()).hexdigest()},
    }
    if file:
        region = {"startLine": line, "startColumn": column}
        result["locations"] = [{"physicalLocation": {"artifactLocation": {"uri": _uri(file)}, "region": region}}]
    return result


def _sarif(results: Sequence[Mapping[str, Any]], headline: str) -> str:
    rules = [
        {"id": rule, "shortDescription": {"text": text}, "defaultConfiguration": {"level": level}}
        for rule, (level, text) in _RULES.items()
    ]
    notification = {"level": "note", "message": {"text": _plain(headline)}}
    run = {
        "tool": {"driver": {"name": "kubestow", "version": VERSION, "rules": rules}},
        "invocations": [{"executionSuccessful": True, "toolExecutionNotifications": [notification]}],
        "columnKind": "unicodeCodePoints",
        "results": list(results),
    }
    document = {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


def _plain(text: str) -> str:
    """A message in which nothing is a link: brackets that make one are escaped (SARIF 3.11.6)."""
    return re.sub(r"([\\\[\]])", r"\\\1", _valid(text))


def _uri(file: str) -> str:
    """A file as GitHub expects it: relative to the repository if it is given so."""
    path = PurePath(file)
    return path.as_uri() if path.is_absolute() else quote(path.as_posix())
