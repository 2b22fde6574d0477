"""A browser, and development clusters."""

from core_tests.dashboard.browser.conftest import browser, page, start_cluster

__all__ = ["browser", "page", "start_cluster"]
