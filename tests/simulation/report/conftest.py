"""A browser."""

from __future__ import annotations

from tests.chromium import browser, page

__all__ = ["browser", "page"]
