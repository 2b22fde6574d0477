"""The project's README as the description of its distribution.

A package index shows the README without the repository, so relative links would lead nowhere. They become links
into the repository if ``project.urls`` names one as ``Source``; else only their text is kept, and of pictures nothing.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

__all__ = ["ReadmeHook", "for_package_index"]

_LINK = re.compile(r"(!?)\[([^\]]+)\]\(([^)]+)\)")
_ABSOLUTE = ("https://", "http://", "#")


def for_package_index(text: str, source: str = "") -> str:
    """A README whose relative links point into the repository ``source``, or are plain text without one.

    Pictures point to the file itself instead of the page about it; without a repository they are left out.
    """

    def link(match: re.Match[str]) -> str:
        mark, label, target = match.groups()
        if target.startswith(_ABSOLUTE):
            return match[0]
        if not source:
            return "" if mark else label
        return f"{mark}[{label}]({source.rstrip('/')}/{'raw' if mark else 'blob'}/main/{target})"

    return _LINK.sub(link, text)


class ReadmeHook(MetadataHookInterface):
    """The build hook, see ``tool.hatch.metadata.hooks`` in pyproject.toml."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the description of the distribution."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        source = metadata.get("urls", {}).get("Source", "")
        metadata["readme"] = {"content-type": "text/markdown", "text": for_package_index(text, source)}
