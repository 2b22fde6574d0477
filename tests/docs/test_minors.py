"""docs/minors.md is what its generator writes."""

from __future__ import annotations

from tools.site.minors import PAGE, page

from kubestow.rules.minors import Behaviour


def test_the_page_is_generated_from_the_declarations() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m tools.site.minors"


def test_every_behaviour_is_a_row() -> None:
    assert [one.name for one in Behaviour if f"| `{one.name}` | 1.{one.value.since} |" not in page()] == []
