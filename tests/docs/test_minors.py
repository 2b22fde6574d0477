"""docs/minors.md is what its generator writes."""

from __future__ import annotations

import re

from tools.site.minors import PAGE, page

from kubestow.rules.minors import Behaviour


def test_the_page_is_generated_from_the_declarations() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m tools.site.minors"


def test_every_behaviour_is_a_row() -> None:
    assert [one.name for one in Behaviour if f"| `{one.name}` | 1.{one.value.since} |" not in page()] == []


def test_the_semantics_link_to_every_subject_that_is_not_the_same_in_all_minor_versions() -> None:
    semantics = " ".join((PAGE.parent / "semantics.md").read_text(encoding="utf-8").split())
    subjects = {one.value.subject for one in Behaviour}
    anchors = {subject: re.sub(r"[^\w\s-]", "", subject.lower()).replace(" ", "-") for subject in subjects}
    assert [one for one, anchor in anchors.items() if f"[{one}](minors.md#{anchor})" not in semantics] == []
