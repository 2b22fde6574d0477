"""The script of a report in a real browser, if there is one: it draws everything, and hostile input stays text."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.simulation.report.pages import Page
from tests.simulation.report.test_reports import HOSTILE, REPORTS, compared, explained, simulated

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(BROWSER is None, reason="needs chromium or google-chrome")


def drawn(text: str, folder: Path) -> str:
    """The page after its script has run. The script's errors fail the test."""
    assert BROWSER is not None
    path = folder / "report.html"
    path.write_text(text, encoding="utf-8")
    command = [BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--v=0"]
    # Frames are drawn in virtual time, too: the figures are drawn in one.
    command += ["--run-all-compositor-stages-before-draw", "--virtual-time-budget=5000"]
    command += [f"--user-data-dir={folder / 'profile'}", "--dump-dom", path.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "CONSOLE" not in done.stderr, done.stderr
    return done.stdout


@pytest.mark.parametrize("report", REPORTS)
def test_hostile_input_stays_text(report: Callable[..., str], tmp_path: Path) -> None:
    page = Page(drawn(report(tmp_path, HOSTILE), tmp_path))
    assert not {"img", "iframe", "a"} & page.tags
    assert len(page.scripts) == 2
    assert page.text.count("alert(1)") > 3


def test_all_figures_of_a_simulation_are_drawn(tmp_path: Path) -> None:
    page = Page(drawn(simulated(tmp_path, "web"), tmp_path))
    attributes = [found for _, found in page.elements]
    assert not [found for found in attributes if "data-figure" in found and "hidden" in found]
    assert sum(1 for tag, _ in page.elements if tag == "polyline") == 3 * 2 + 3
    [canvas] = [found for tag, found in page.elements if tag == "canvas"]
    assert int(canvas["width"] or 0) > 100 and canvas["tabindex"] == "0"
    assert "1 to 4 of 4" in page.text


def test_both_sides_of_a_comparison_are_drawn_side_by_side(tmp_path: Path) -> None:
    page = Page(drawn(compared(tmp_path, "web"), tmp_path))
    tags = [tag for tag, _ in page.elements]
    (at,) = [at for at, (_, found) in enumerate(page.elements) if found.get("class") == "maps"]
    assert tags[at:].count("canvas") == tags.count("canvas") == 2
    dashed = [found for tag, found in page.elements if tag == "polyline" and "stroke-dasharray" in found]
    assert len(dashed) == 3 * 2 + 3
    assert "node in the baseline" in page.text


KEYS = """<script>
  const press = (target, key) => target.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
  requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(() => {
    const read = (figure) => document.querySelector(`[data-figure=${figure}] .readout`).textContent;
    press(document.querySelector("[data-figure=timeline] svg[tabindex]"), "End");
    press(document.querySelector("canvas"), "ArrowRight");
    press(document.querySelector("canvas"), "End");
    const seen = [read("timeline"), read("nodes")];
    press(document.querySelector("canvas"), "Home");
    press(document.querySelector("canvas"), "Enter");
    seen.push(document.querySelector("[data-figure=pods] [role=status]").textContent);
    document.getElementById("theme").click();
    seen.push(document.documentElement.style.colorScheme);
    document.body.append(Object.assign(document.createElement("pre"), { textContent: seen.join("|") }));
  }, 500)));
</script></body>"""


def test_figures_can_be_read_with_the_keyboard(tmp_path: Path) -> None:
    text = simulated(tmp_path, "web")
    without_policy = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)
    page = Page(drawn(without_policy.replace("</body>", KEYS), tmp_path))
    over_time, at_node, pods, scheme = page.text.rpartition("\n")[2][-400:].split("|")
    assert "requested share after" in over_time and "cpu 60.0 %" in over_time
    assert at_node == "at the end: small: 0 pods; cpu 0 cores of 0.5 cores (0.0 %); memory 0 GiB of 16 GiB (0.0 %)"
    assert pods == "1 to 2 of 2"  # the pod on the first node, and the one that was evicted from there
    assert scheme in ("dark", "light")


def test_all_nodes_of_an_explanation_are_listed(tmp_path: Path) -> None:
    assert "1 to 2 of 2" in Page(drawn(explained(tmp_path, "web"), tmp_path)).text
