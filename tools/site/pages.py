"""Hooks of mkdocs: pages from outside docs/, the generated reference, and links between all of them."""

from __future__ import annotations

import os
import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from tools.site import reference

ROOT = Path(__file__).parents[2]
#: The pages of the site whose text is a file outside docs/, by path in the repository.
OUTSIDE = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security-policy.md",
    "benchmarks/RESULTS.md": "results.md",
    "deploy/README.md": "deploy.md",
}
_SOURCES = {page: path for path, page in OUTSIDE.items()}
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])+)\]\(((?!\w+:|#)[^)\s]+)\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not in docs/."""
    for path, page in OUTSIDE.items():
        files.append(File.generated(config, page, content=(ROOT / path).read_text(encoding="utf-8")))
    for name, content in reference.pages().items():
        files.append(File.generated(config, f"reference/{name}.md", content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links and pictures lead to the files of the site; those to files that it does not have become text."""
    here = page.file.src_uri
    folder = posixpath.dirname(_SOURCES.get(here, f"docs/{here}"))

    def link(match: re.Match[str]) -> str:
        mark, label, target = match.groups()
        path, _, anchor = target.partition("#")
        found = _page_of(posixpath.normpath(posixpath.join(folder, path)))
        if found is None:
            return label
        relative = os.path.relpath(found, posixpath.dirname(here) or ".")
        return f"{mark}[{label}]({relative}{'#' + anchor if anchor else ''})"

    return _LINK.sub(link, markdown)


def _page_of(path: str) -> str | None:
    return path.removeprefix("docs/") if path.startswith("docs/") else OUTSIDE.get(path)
