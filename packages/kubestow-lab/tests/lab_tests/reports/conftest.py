"""A browser."""

from __future__ import annotations

from core_tests.chromium import browser, page

__all__ = ["browser", "page"]
