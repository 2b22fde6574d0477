"""docs/architecture.md lists every package with its purpose, and every path on the pages exists."""

from __future__ import annotations

import ast
import re
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
