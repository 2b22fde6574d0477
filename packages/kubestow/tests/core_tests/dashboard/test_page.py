"""The files of the page: complete, small, and nothing inline."""

from __future__ import annotations

import gzip
import re
from importlib.resources import files
from pathlib import Path

import pytest

from kubestow.serving.dashboard_handler import page_file

ASSETS = Path(str(files("kubestow.dashboard"))) / "assets"
NAMES = sorted(path.relative_to(ASSETS).as_posix() for path in ASSETS.rglob("*") if path.is_file())
#: Bytes of all files together as they are sent.
MOST_BYTES = 150_000


@pytest.mark.parametrize("name", NAMES)
def test_every_file_is_served_compressed(name: str) -> None:
    found = page_file(name)
    assert found is not None
    assert found.content == (ASSETS / name).read_bytes() == gzip.decompress(found.compressed)
    assert (
        found.content_type.partition(";")[0]
        in {
            ".html": "text/html",
            ".js": "text/javascript",
            ".css": "text/css",
            ".svg": "image/svg+xml",
            ".txt": "text/plain",
        }[Path(name).suffix]
    )


@pytest.mark.parametrize("name", ["", "app.py", "../page.py", "vendor", "vendor/../app.js", "/etc/passwd", "app.js/"])
def test_nothing_else_is(name: str) -> None:
    assert page_file(name) is None


def test_the_page_is_small() -> None:
    sizes = {name: len(found.compressed) for name in NAMES if (found := page_file(name)) is not None}
    assert sum(sizes.values()) <= MOST_BYTES, sizes


def test_nothing_is_inline() -> None:
    """The Content-Security-Policy would block it."""
    page = (ASSETS / "index.html").read_text(encoding="utf-8")
    assert re.findall(r"<style|<script(?![^>]*\ssrc=)|\son\w+=|\sstyle=|javascript:", page) == []


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith((".js", ".html", ".css"))])
def test_nothing_comes_from_elsewhere(name: str) -> None:
    text = (ASSETS / name).read_text(encoding="utf-8")
    addresses = re.findall(
        r"""(?:src|href)=["'](\w+:[^"']+)|(?:import|from|fetch)\s*\(?["'](\w+:[^"']+)|url\((.+?)\)""", text
    )
    assert addresses == []


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith(".js") and not name.startswith("vendor/")])
def test_no_markup_is_made_of_text(name: str) -> None:
    """Names and messages are shown as text, so that they cannot be scripts."""
    text = (ASSETS / name).read_text(encoding="utf-8")
    sinks = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|dangerouslySetInnerHTML|srcdoc"
    assert re.findall(sinks, text) == []
