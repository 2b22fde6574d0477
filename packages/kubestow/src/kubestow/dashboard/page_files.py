"""The files of the page, as package data. They are read and compressed when they are first asked for."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files

INDEX = "index.html"

#: The files that are served, and their content types. Nothing else is read, whatever a path says.
_CONTENT_TYPES = {
    INDEX: "text/html; charset=utf-8",
    "icon.svg": "image/svg+xml",
    "style.css": "text/css; charset=utf-8",
    **dict.fromkeys(
        (
            "app.js",
            "cluster.js",
            "decisions.js",
            "format.js",
            "pending.js",
            "pod.js",
            "queue.js",
            "store.js",
            "table.js",
            "try.js",
            "vendor/preact-htm.js",
            "vendor/uplot.js",
        ),
        "text/javascript; charset=utf-8",
    ),
    "vendor/uplot.css": "text/css; charset=utf-8",
    "vendor/LICENSES.txt": "text/plain; charset=utf-8",
}


@dataclass(frozen=True, slots=True)
class PageFile:
    """A file, its gzip form, and an entity tag of its content."""

    content_type: str
    content: bytes
    compressed: bytes
    etag: str


@cache
def page_file(name: str) -> PageFile | None:
    """A file of the page by its path below the assets; None for any other name."""
    content_type = _CONTENT_TYPES.get(name)
    if content_type is None:
        return None
    content = files(__package__).joinpath("assets", *name.split("/")).read_bytes()
    return PageFile(content_type, content, gzip.compress(content, 9, mtime=0), f'"{sha256(content).hexdigest()[:16]}"')
