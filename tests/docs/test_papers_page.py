"""docs/papers.md: its commands and options exist, and every paper is listed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from kubestow_lab.cli.paper import paper as command
from kubestow_lab.papers.paper import PAPERS

PAGE = (Path(__file__).parents[2] / "docs" / "papers.md").read_text(encoding="utf-8")


def test_the_commands_are_spelled_right() -> None:
    for arguments in re.findall(r"^\$ kubestow paper (.+)$", PAGE, re.MULTILINE):
        command.make_context("paper", shlex.split(arguments))


def test_every_paper_is_listed_with_its_tolerance() -> None:
    for paper in PAPERS.values():
        tolerance = "none: .+" if paper.tolerance is None else str(paper.tolerance)
        assert re.search(rf"^\| `{paper.name}`: .+ \| {tolerance} \|$", PAGE, re.MULTILINE)
