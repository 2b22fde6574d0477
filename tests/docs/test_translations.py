"""Translated pages have the sections, code and links of their originals: a change of one has to show in the other."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: Of each page the original, the last of its sections that is translated ("" for all), and those that are left out.
ORIGINALS = {
    "docs/zh/index.md": ("README.md", "", ()),
    "docs/zh/plugins.md": ("docs/plugins.md", "", ("The contract",)),
    "docs/zh/operate.md": ("docs/operate.md", "Why is my pod pending?", ()),
    "docs/ja/quick-start.md": ("README.md", "A plugin in ten lines", ()),
}
_BLOCK = re.compile(r"^```\w*\n.*?^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(((?!\w+:)[^)#\s]+)")


def text_of(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def sections(text: str) -> list[str]:
    """The parts of a page that begin with a heading of the second level; first, what is before them."""
    code = [found.span() for found in _BLOCK.finditer(text)]
    starts = [
        found.start()
        for found in re.finditer(r"^## ", text, re.MULTILINE)
        if not any(begin < found.start() < end for begin, end in code)
    ]
    return [text[begin:end] for begin, end in zip([0, *starts], [*starts, len(text)], strict=True)]


def original_sections(page: str) -> list[str]:
    """The sections of the original that are translated."""
    original, last, left_out = ORIGINALS[page]
    found = sections(text_of(original))
    titles = [section.partition("\n")[0].removeprefix("## ") for section in found]
    end = titles.index(last) + 1 if last else len(found)
    return [section for section, title in zip(found[:end], titles, strict=False) if title not in left_out]


def links(page: str, text: str) -> set[str]:
    """The files that a page links to, from the root of the repository."""
    folder = posixpath.dirname(page)
    return {posixpath.normpath(posixpath.join(folder, target)) for target in _LINK.findall(_BLOCK.sub("", text))}


def test_every_translation_has_an_original() -> None:
    pages = {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").glob("*/*.md")}
    assert {page for page in pages if page.startswith(("docs/zh/", "docs/ja/"))} == set(ORIGINALS)


@pytest.mark.parametrize("page", ORIGINALS)
def test_sections_and_code_are_those_of_the_original(page: str) -> None:
    found, expected = sections(text_of(page)), original_sections(page)
    assert [_BLOCK.findall(section) for section in found] == [_BLOCK.findall(section) for section in expected]


@pytest.mark.parametrize("page", ORIGINALS)
def test_links_are_those_of_the_original(page: str) -> None:
    """Or lead to the translation, if there is one in the same language."""
    language = posixpath.dirname(page)
    translations = {
        original: other for other, (original, _, _) in ORIGINALS.items() if posixpath.dirname(other) == language
    }
    found = links(page, text_of(page)) | {page}
    expected = links(ORIGINALS[page][0], "".join(original_sections(page))) - set(ORIGINALS)
    assert {target for target in expected if found.isdisjoint({target, translations.get(target)})} == set()


@pytest.mark.parametrize("page", ORIGINALS)
def test_links_lead_to_files(page: str) -> None:
    targets = links(page, text_of(page))
    assert targets and [target for target in targets if not (ROOT / target).exists()] == []
