"""The translated pages: their code is that of the originals, and their links resolve."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ORIGINALS = {
    "zh/index.md": "README.md",
    "zh/plugins.md": "docs/plugins.md",
    "zh/operate.md": "docs/operate.md",
    "ja/quick-start.md": "README.md",
}
_BLOCK = re.compile(r"^```\w*\n.*?^```$", re.MULTILINE | re.DOTALL)


def text_of(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def test_every_translation_has_an_original() -> None:
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").glob("*/*.md")}
    assert {page for page in pages if page.partition("/")[0] in ("zh", "ja")} == set(ORIGINALS)


@pytest.mark.parametrize("page", ORIGINALS)
def test_code_is_that_of_the_original(page: str) -> None:
    blocks = _BLOCK.findall(text_of(f"docs/{page}"))
    originals = _BLOCK.findall(text_of(ORIGINALS[page]))
    assert blocks and [block for block in blocks if block not in originals] == []


@pytest.mark.parametrize("page", ORIGINALS)
def test_links_lead_to_files(page: str) -> None:
    folder = (ROOT / "docs" / page).parent
    targets = re.findall(r"\]\(((?!\w+:)[^)#\s]+)", text_of(f"docs/{page}"))
    assert targets and [target for target in targets if not (folder / target).exists()] == []
