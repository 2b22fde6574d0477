"""The checks of watches, lists and resourceVersions: planted wrong histories are found."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.histories.history import Answer, EventType, History, Operation, Version, WatchSpan
from tests.histories.watch_streams import check_watches


def version(number: int, content: str = "") -> Version:
    return Version(number, "u", frozenset({("x", content)}), f"{number} {content}".encode())


def write(history: History, key: str, number: int) -> None:
    operation = history.invoke(Operation("c", "update", key))
    history.answer(operation, Answer(200, version(number)))


def listed(history: History, resource_version: int, **versions: int) -> Operation:
    operation = history.invoke(Operation("c", "list", ""))
    objects = {key: version(number) for key, number in versions.items()}
    history.answer(operation, Answer(200, listed=objects, resource_version=resource_version))
    return operation


def watched(history: History, start: Operation, *events: tuple[EventType, str, int]) -> WatchSpan:
    span = history.open_span("w", start)
    for type_, key, number in events:
        history.receive(span, type_, key, version(number))
    return span


def right(history: History) -> None:
    start = listed(history, 4, a=3)
    write(history, "a", 5)
    write(history, "b", 6)
    span = watched(history, start, ("MODIFIED", "a", 5), ("ADDED", "b", 6), ("DELETED", "a", 8))
    history.crash()
    history.receive(span, "MODIFIED", "b", version(9))
    listed(history, 9, b=9)


def missed_event(history: History) -> None:
    start = listed(history, 4)
    write(history, "a", 5)
    write(history, "b", 6)
    watched(history, start, ("ADDED", "b", 6))


def missed_deletion(history: History) -> None:
    start = listed(history, 4, a=3)
    watched(history, start, ("DELETED", "a", 5), ("ADDED", "a", 6))
    watched(history, start, ("MODIFIED", "a", 6))


def missed_before_a_bookmark(history: History) -> None:
    start = listed(history, 4)
    write(history, "a", 5)
    watched(history, start).resource_version = 5


def repeated_event(history: History) -> None:
    watched(history, listed(history, 4), ("ADDED", "a", 5), ("MODIFIED", "a", 5))


def events_out_of_order(history: History) -> None:
    watched(history, listed(history, 4), ("ADDED", "a", 6), ("ADDED", "b", 5))


def added_twice(history: History) -> None:
    watched(history, listed(history, 4), ("ADDED", "a", 5), ("ADDED", "a", 6))


def deleted_without_existing(history: History) -> None:
    watched(history, listed(history, 4), ("DELETED", "a", 5))


def reused_version(history: History) -> None:
    write(history, "a", 5)
    history.crash()
    write(history, "b", 5)


def other_content(history: History) -> None:
    write(history, "a", 5)
    span = history.open_span("w", listed(history, 4))
    history.receive(span, "ADDED", "a", version(5, "other"))


def version_that_goes_back(history: History) -> None:
    watched(history, listed(history, 4), ("ADDED", "a", 7))
    history.crash()
    listed(history, 6)


def write_in_the_past(history: History) -> None:
    listed(history, 9)
    write(history, "a", 8)


def list_that_is_torn(history: History) -> None:
    write(history, "a", 5)
    write(history, "b", 6)
    listed(history, 6, a=5)


def list_of_something_older(history: History) -> None:
    write(history, "a", 5)
    write(history, "a", 6)
    listed(history, 6, a=5)


def test_a_right_history_breaks_no_rule() -> None:
    history = History()
    right(history)
    assert check_watches(history) == []


def test_a_deletion_that_no_watcher_saw_explains_an_absent_object() -> None:
    history = History()
    write(history, "a", 5)
    listed(history, 6)
    assert check_watches(history) == []


@pytest.mark.parametrize(
    ("record", "rule"),
    [
        (missed_event, "a watcher gets every change"),
        (missed_deletion, "a watcher gets every change"),
        (missed_before_a_bookmark, "a watcher gets every change"),
        (repeated_event, "events are in the order"),
        (events_out_of_order, "events are in the order"),
        (added_twice, "ADDED is for new objects"),
        (deleted_without_existing, "ADDED is for new objects"),
        (reused_version, "a resourceVersion is one change"),
        (other_content, "a resourceVersion is one change"),
        (version_that_goes_back, "resourceVersions do not go back"),
        (write_in_the_past, "a write has a larger resourceVersion"),
        (list_that_is_torn, "a list is the state"),
        (list_of_something_older, "a list is the state"),
    ],
)
def test_a_wrong_history_breaks_its_rule(record: Callable[[History], None], rule: str) -> None:
    history = History()
    record(history)
    assert any(violation.rule.startswith(rule) for violation in check_watches(history))
