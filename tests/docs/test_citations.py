"""Every citation of a rule, such as "semantics 8.16", resolves to a heading of docs/semantics.md."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
HEADINGS = set(re.findall(r"^#+ (\d+(?:\.\d+)*)\.? ", (ROOT / "docs" / "semantics.md").read_text(), re.MULTILINE))
CITATION = re.compile(r"\b[Ss]emantics(?:\s+#)? (\d+(?:\.\d+)*(?:(?:, | and | to )\d+(?:\.\d+)*)*)")


def citations() -> Iterator[tuple[Path, str]]:
    for folder in ("packages", "tests", "benchmarks", "docs"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".py", ".md") and path != Path(__file__):
                for cited in CITATION.findall(path.read_text(encoding="utf-8")):
                    for number in re.findall(r"\d+(?:\.\d+)*", cited):
                        yield path.relative_to(ROOT), number


def test_every_citation_resolves_to_a_heading() -> None:
    found = list(citations())
    assert len(found) > 100
    assert [(str(path), number) for path, number in found if number not in HEADINGS] == []


def test_no_rule_is_cited_by_another_name() -> None:
    other = re.compile(r"\b[Rr]eference (?:section )?\d+\.\d+")
    cited = {
        str(path.relative_to(ROOT))
        for folder in ("packages", "tests", "benchmarks")
        for path in (ROOT / folder).rglob("*.py")
        if path != Path(__file__) and other.search(path.read_text(encoding="utf-8"))
    }
    assert cited == set()
