"""docs/architecture.md lists every package with its purpose, paths on all pages exist, no row or term is doubled."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: Where the packages of each distribution are; those of the core are named without the first part.
SOURCES = sorted((ROOT / "packages").glob("*/src/*"))
CORE = ROOT / "packages" / "kubestow" / "src" / "kubestow"
DOCS = ROOT / "docs"
ROW = re.compile(r"^\| `([\w.]+)` \| (.+) \|$", re.MULTILINE)
PATH = re.compile(r"`((?:[\w.-]+/)+[\w.-]+\.(?:py|yaml|json|md))`")
ELSEWHERE = {"apiserver.md"}
"""Pages whose paths are relative to a package of their own."""


def purpose(package: Path) -> str:
    """The first sentence of the docstring of a package, as Markdown."""
    docstring = ast.get_docstring(ast.parse((package / "__init__.py").read_text(encoding="utf-8"))) or ""
    sentence = re.match(r".*?\.(?=\s|$)", " ".join(docstring.split("\n\n")[0].split()))
    assert sentence, f"the docstring of {package} does not begin with a sentence"
    return re.sub(r":\w+:`~?([^`]+)`", r"`\1`", sentence[0].replace("``", "`"))


def packages() -> dict[str, str]:
    """The purpose of each package, by dotted name."""
    found: dict[str, str] = {}
    for source in SOURCES:
        base = CORE if source == CORE else source.parent
        folders = (path.parent for path in source.rglob("__init__.py") if path.parent != CORE)
        found |= {".".join(folder.relative_to(base).parts): purpose(folder) for folder in sorted(folders)}
    return found


def test_every_package_is_listed_with_the_first_sentence_of_its_docstring() -> None:
    listed = dict(ROW.findall((DOCS / "architecture.md").read_text(encoding="utf-8")))
    expected = packages()
    assert listed == expected, "the rows should be:\n" + "\n".join(f"| `{k}` | {v} |" for k, v in expected.items())


@pytest.mark.parametrize("page", sorted(path.name for path in DOCS.glob("*.md") if path.name not in ELSEWHERE))
def test_every_path_on_a_page_exists(page: str) -> None:
    bases = (ROOT, CORE, *(source.parent for source in SOURCES))
    paths = PATH.findall((DOCS / page).read_text(encoding="utf-8"))
    assert [path for path in paths if not any((base / path).exists() for base in bases)] == []


@pytest.mark.parametrize("page", [*sorted(DOCS.glob("*.md")), ROOT / "README.md"], ids=lambda page: page.name)
def test_every_link_to_a_heading_or_file_resolves(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(((?!\w+:)[^)#\s]*)(?:#([^)\s]+))?\)", page.read_text(encoding="utf-8")):
        file = (page.parent / target) if target else page
        assert file.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.+)$", file.read_text(encoding="utf-8"), re.MULTILINE)
            anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert anchor in anchors, f"{target}#{anchor}"


def first_cells(page: str) -> list[str]:
    """The first cells of all rows of the tables on a page, without the headings of the tables."""
    lines = (DOCS / page).read_text(encoding="utf-8").splitlines()
    rows = [line for line, below in zip(lines, [*lines[1:], ""], strict=True) if not below.startswith("|---")]
    return [row.split("|")[1].strip() for row in rows if row.startswith("| ")]


@pytest.mark.parametrize("page", ["architecture.md", "glossary.md"])
def test_no_table_has_a_row_twice(page: str) -> None:
    found = first_cells(page)
    assert found, "the page has no tables"
    assert [cell for cell, count in Counter(found).items() if count > 1] == []


def test_each_term_of_the_glossary_has_one_meaning() -> None:
    terms = first_cells("glossary.md")
    assert [term for term in terms if re.search(r"[(,]", term)] == [], "a term that needs a qualifier has two meanings"
    words = Counter(term.lower().removesuffix("s") for term in terms)
    assert [term for term, count in words.items() if count > 1] == []


def test_each_meaning_in_the_glossary_is_one_sentence() -> None:
    rows = re.findall(
        r"^\| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", (DOCS / "glossary.md").read_text(encoding="utf-8"), re.M
    )
    assert len(rows) > len(first_cells("glossary.md"))
    assert [term for term, meaning, _ in rows if re.search(r"\. |\.$", meaning)] == []
