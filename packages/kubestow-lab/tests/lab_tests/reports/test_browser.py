"""The script of a report in a real browser, if there is one: it draws everything, and hostile input stays text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lab_tests.reports.pages import Page as Elements
from lab_tests.reports.test_reports import HOSTILE, REPORTS, compared, explained, simulated

if TYPE_CHECKING:
    from playwright.sync_api import Page

#: The figures are drawn in the first frame; the second has begun then.
NEXT_FRAMES = "() => new Promise(resolve => requestAnimationFrame(() => requestAnimationFrame(resolve)))"


def drawn(page: Page, text: str, folder: Path) -> Elements:
    """The page after its script has drawn the figures."""
    path = folder / "report.html"
    path.write_text(text, encoding="utf-8")
    page.goto(path.as_uri())
    page.evaluate(NEXT_FRAMES)
    return Elements(page.content())


@pytest.mark.parametrize("report", REPORTS)
def test_hostile_input_stays_text(page: Page, report: Callable[..., str], tmp_path: Path) -> None:
    found = drawn(page, report(tmp_path, HOSTILE), tmp_path)
    assert not {"img", "iframe", "a"} & found.tags
    assert len(found.scripts) == 2
    assert found.text.count("alert(1)") > 3


def test_all_figures_of_a_simulation_are_drawn(page: Page, tmp_path: Path) -> None:
    found = drawn(page, simulated(tmp_path, "web"), tmp_path)
    attributes = [each for _, each in found.elements]
    assert not [each for each in attributes if "data-figure" in each and "hidden" in each]
    assert sum(1 for tag, _ in found.elements if tag == "polyline") == 3 * 2 + 3
    [canvas] = [each for tag, each in found.elements if tag == "canvas"]
    assert int(canvas["width"] or 0) > 100 and canvas["tabindex"] == "0"
    assert "1 to 4 of 4" in found.text


def test_both_sides_of_a_comparison_are_drawn_side_by_side(page: Page, tmp_path: Path) -> None:
    found = drawn(page, compared(tmp_path, "web"), tmp_path)
    tags = [tag for tag, _ in found.elements]
    (at,) = [at for at, (_, each) in enumerate(found.elements) if each.get("class") == "maps"]
    assert tags[at:].count("canvas") == tags.count("canvas") == 2
    dashed = [each for tag, each in found.elements if tag == "polyline" and "stroke-dasharray" in each]
    assert len(dashed) == 3 * 2 + 3
    assert "node in the baseline" in found.text


def test_figures_can_be_read_with_the_keyboard(page: Page, tmp_path: Path) -> None:
    drawn(page, simulated(tmp_path, "web"), tmp_path)
    chart, canvas = page.locator("[data-figure=timeline] svg[tabindex]").first, page.locator("canvas").first
    chart.press("End")
    over_time = page.locator("[data-figure=timeline] .readout").first.text_content() or ""
    assert "requested share after" in over_time and "cpu 60.0 %" in over_time
    canvas.press("ArrowRight")
    canvas.press("End")
    assert page.locator("[data-figure=nodes] .readout").text_content() == (
        "at the end: small: 0 pods; cpu 0 cores of 0.5 cores (0.0 %); memory 0 GiB of 16 GiB (0.0 %)"
    )
    canvas.press("Home")
    canvas.press("Enter")
    # the pod on the first node, and the one that was evicted from there
    assert page.locator("[data-figure=pods] [role=status]").text_content() == "1 to 2 of 2"
    page.locator("#theme").click()
    assert page.evaluate("document.documentElement.style.colorScheme") in ("dark", "light")


def test_all_nodes_of_an_explanation_are_listed(page: Page, tmp_path: Path) -> None:
    assert "1 to 2 of 2" in drawn(page, explained(tmp_path, "web"), tmp_path).text
