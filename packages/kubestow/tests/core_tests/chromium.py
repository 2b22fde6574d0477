"""Fixtures for a conftest.py: Chromium, and pages in it whose scripts may not fail."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from core_tests.hang_limit import HANG_LIMIT

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """A browser; skips the test where there is none. No event loop may run in this thread while it is open."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("no Chromium is installed")
    with api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """An empty page, in which no script may fail and nothing may violate the Content-Security-Policy."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    context.set_default_timeout(HANG_LIMIT * 1000)
    found = context.new_page()
    problems: list[str] = []
    found.on("pageerror", lambda error: problems.append(str(error)))
    found.on("console", lambda message: problems.append(message.text) if "Content Security" in message.text else None)
    found.on("console", lambda message: problems.append(message.text) if "Trusted" in message.text else None)
    yield found
    context.close()
    assert problems == []
