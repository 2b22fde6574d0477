"""A comparison as a JUnit report: one test case for each threshold, the metrics as properties."""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.etree import ElementTree as ET

from kubestow_lab.comparison import figures
from kubestow_lab.comparison.comparison import Comparison
from kubestow_lab.comparison.pods import Change
from kubestow_lab.comparison.thresholds import CheckedThreshold

__all__ = ["as_junit"]

_SUITE = "kubestow compare"
#: Characters that XML 1.0 does not allow, escaped or not.
_INVALID = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def as_junit(comparison: Comparison, checked: Sequence[CheckedThreshold] = ()) -> str:
    """The XML document; a threshold that is crossed is a failure that names the pods that lose."""
    failures = str(sum(1 for found in checked if found.crossed))
    counts = {"tests": str(len(checked)), "failures": failures, "errors": "0"}
    suites = ET.Element("testsuites", {"name": _SUITE, **counts})
    suite = ET.SubElement(suites, "testsuite", {"name": _SUITE, **counts, "skipped": "0", "time": "0"})
    properties = ET.SubElement(suite, "properties")
    for side, label in ((comparison.baseline, "baseline"), (comparison.candidate, "candidate")):
        ET.SubElement(properties, "property", {"name": label, "value": _valid(side.name)})
    for name, found in comparison.metrics.items():
        value = f"{figures.value_text(found, found.baseline)} -> {figures.value_text(found, found.candidate)}"
        ET.SubElement(properties, "property", {"name": _valid(name), "value": value})
    for each in checked:
        case = ET.SubElement(
            suite, "testcase", {"classname": f"{_SUITE} --fail-if", "name": _valid(each.threshold.text), "time": "0"}
        )
        if each.crossed:
            message = _valid(figures.crossed_text(each))
            ET.SubElement(case, "failure", {"type": "threshold", "message": message}).text = _details(comparison)
    ET.indent(suites)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(suites, encoding="unicode") + "\n"


def _details(comparison: Comparison) -> str:
    lines = [figures.headline(comparison.pods)]
    lines += [
        f"{group.change.value}: {', '.join(group.pods)}: {group.reason}"
        for group in comparison.groups()
        if group.change is Change.LOST
    ]
    return _valid("\n".join(lines))


def _valid(text: str) -> str:
    return _INVALID.sub("\N{REPLACEMENT CHARACTER}", text)
