"""All checks of a history."""

from __future__ import annotations

from tests.histories.history import History, Violation
from tests.histories.linearizability import check_objects
from tests.histories.watch_streams import check_watches


def check(history: History) -> list[Violation]:
    """The rules of the API that a history breaks."""
    return [*check_objects(history), *check_watches(history)]
