"""A comparison as Markdown, for the summary of a CI job or a comment on a pull request.

Names and messages come from the input; they are code spans, in which Markdown has no syntax and a forge makes no link
and mentions no user.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from kubestow_lab.comparison import figures
from kubestow_lab.comparison.comparison import Comparison
from kubestow_lab.comparison.thresholds import CheckedThreshold

__all__ = ["as_markdown"]

_MOST_GROUPS = 50


def as_markdown(comparison: Comparison, checked: Sequence[CheckedThreshold] = ()) -> str:
    """The thresholds, the metrics that move, and the pods that differ by change and owner."""
    return "\n".join(_lines(comparison, checked)) + "\n"


def _lines(comparison: Comparison, checked: Sequence[CheckedThreshold]) -> Iterator[str]:
    baseline, candidate = _code(comparison.baseline.name), _code(comparison.candidate.name)
    yield f"### Scheduling: {baseline} (baseline) and {candidate} (candidate)"
    yield ""
    if checked:
        crossed = sum(1 for found in checked if found.crossed)
        yield f"**{crossed} of {len(checked)} thresholds crossed**" if crossed else "No threshold is crossed."
        yield ""
        yield from _table(
            ("threshold", "candidate", "baseline", "limit", ""),
            (
                (
                    _code(found.threshold.text),
                    *(f"{value:g}" for value in (found.value, found.baseline, found.limit)),
                    ":x: crossed" if found.crossed else ":white_check_mark:",
                )
                for found in checked
            ),
        )
    yield figures.headline(comparison.pods) + "."
    yield ""
    yield from _table(
        ("metric", "baseline", "candidate", "change", ""),
        (
            (
                _code(found.name),
                figures.value_text(found, found.baseline),
                figures.value_text(found, found.candidate),
                figures.change_text(found),
                found.verdict,
            )
            for found in figures.metric_rows(comparison.metrics, checked)
        ),
    )
    groups = comparison.groups()
    if groups:
        yield from _table(
            ("pods", "change", "owner", "names", "why"),
            (
                (
                    f"{len(group.pods):,}",
                    group.change.value,
                    _code(f"{group.namespace} {group.owner}".strip()),
                    " ".join(_code(name) for name in figures.group_pods(group)),
                    _code(group.reason),
                )
                for group in groups[:_MOST_GROUPS]
            ),
        )
    if len(groups) > _MOST_GROUPS:
        rest = groups[_MOST_GROUPS:]
        yield f"… and {sum(len(group.pods) for group in rest):,} pods in {len(rest):,} more groups."
        yield ""


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(header)} |"
    yield f"|{'---|' * len(header)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"
    yield ""


def _code(text: str) -> str:
    """The text as a code span that is safe in a table; empty for an empty text."""
    text = re.sub(r"[\s\x00-\x1f\x7f-\x9f\u2028\u2029]+", " ", text).strip()
    if not text:
        return ""
    fence = "`" * (1 + max((len(run) for run in re.findall(r"`+", text)), default=0))
    inner = text.replace("\\|", "\\ |").replace("|", "\\|")  # a backslash before it would be what is escaped
    return f"{fence} {inner} {fence}" if "`" in text else f"{fence}{inner}{fence}"
