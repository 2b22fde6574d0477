"""Order and completeness of watches, lists as snapshots, and resourceVersions over crashes.

Whatever an answer or an event shows is a fact about one resourceVersion: which object it changed, and to what. Facts of
all clients are put together, and each client has to agree with them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from tests.histories.history import History, Operation, Version, Violation, WatchSpan


class Change(NamedTuple):
    """What a write did at its resourceVersion. ``content`` is empty for a deletion."""

    resource_version: int
    key: str
    content: bytes


class Changes:
    """All changes that a history shows, by resourceVersion."""

    def __init__(self, history: History) -> None:
        self.violations: list[Violation] = []
        self._by_version: dict[int, Change] = {}
        for operation in history.operations:
            answer = operation.answer
            if answer is not None and answer.version is not None and operation.verb != "delete":
                self._add(operation.key, answer.version, str(operation))
            if answer is not None:
                for key, version in answer.listed.items():
                    self._add(key, version, str(operation))
        for span in history.spans:
            for event in span.events:
                self._add(
                    event.key, event.version, f"{span.watcher}: {event.type}", is_deletion=event.type == "DELETED"
                )
        self.ordered = sorted(self._by_version.values())
        self._of_key: dict[str, list[Change]] = defaultdict(list)
        for change in self.ordered:
            self._of_key[change.key].append(change)

    def _add(self, key: str, version: Version, source: str, *, is_deletion: bool = False) -> None:
        change = Change(version.resource_version, key, b"" if is_deletion else version.content)
        known = self._by_version.setdefault(change.resource_version, change)
        if known != change:
            rule = "a resourceVersion is one change of one object, also after a crash"
            self.violations.append(Violation(rule, f"{source} shows {change}, another client saw {known}"))

    def between(self, after: int, until: int) -> list[Change]:
        """The changes with ``after`` < resourceVersion <= ``until``."""
        bounds = [bisect_right(self.ordered, bound, key=lambda one: one.resource_version) for bound in (after, until)]
        return self.ordered[slice(*bounds)]

    def has_unseen(self, after: int, until: int) -> bool:
        """Whether there may be a change with ``after`` < resourceVersion <= ``until`` that no client saw."""
        return len(self.between(after, until)) < until - after

    def latest(self, key: str, until: int) -> Change | None:
        """The last known change of an object up to a resourceVersion."""
        changes = self._of_key.get(key, [])
        index = bisect_right(changes, until, key=lambda one: one.resource_version)
        return changes[index - 1] if index else None

    @property
    def keys(self) -> list[str]:
        return list(self._of_key)


def check_watches(history: History) -> list[Violation]:
    """What is wrong with watches, lists and resourceVersions."""
    changes = Changes(history)
    violations = changes.violations
    for span in history.spans:
        violations += _order(span)
        violations += _completeness(span, changes)
        violations += _types(span)
    violations += _snapshots(history, changes)
    violations += _monotone(history)
    return violations


def _order(span: WatchSpan) -> Iterator[Violation]:
    assert span.start.answer is not None
    versions = [span.start.answer.resource_version, *(event.version.resource_version for event in span.events)]
    for before, after in pairwise(versions):
        if after <= before:
            yield Violation(
                "events are in the order of their resourceVersions", f"{span.watcher}: {after} after {before}"
            )


def _completeness(span: WatchSpan, changes: Changes) -> Iterator[Violation]:
    assert span.start.answer is not None
    received = {event.version.resource_version for event in span.events}
    for change in changes.between(span.start.answer.resource_version, span.resource_version):
        if change.resource_version not in received:
            evidence = f"{span.watcher} is at {span.resource_version} and did not get {change}"
            yield Violation("a watcher gets every change after its resourceVersion", evidence)


def _types(span: WatchSpan) -> Iterator[Violation]:
    assert span.start.answer is not None
    existing = set(span.start.answer.listed)
    for event in span.events:
        if (event.key in existing) is (event.type == "ADDED"):
            evidence = f"{span.watcher}: {event.type} of {event.key} at {event.version.resource_version}"
            yield Violation("ADDED is for new objects, MODIFIED and DELETED for existing ones", evidence)
        if event.type == "DELETED":
            existing.discard(event.key)
        else:
            existing.add(event.key)


def _snapshots(history: History, changes: Changes) -> Iterator[Violation]:
    """A list at a resourceVersion has what the changes up to it have left."""
    for operation in history.operations:
        answer = operation.answer
        if operation.verb != "list" or answer is None or answer.status != 200:
            continue
        for key in {*changes.keys, *answer.listed}:
            listed, latest = answer.listed.get(key), changes.latest(key, answer.resource_version)
            existing = None if latest is None or not latest.content else latest
            if listed is None:
                # A deletion is a change that only watchers see.
                is_right = existing is None or changes.has_unseen(existing.resource_version, answer.resource_version)
            else:
                is_right = existing is not None and existing.resource_version == listed.resource_version
            if not is_right:
                evidence = f"{operation}: {key} is {listed}, and its last change before is {latest}"
                yield Violation("a list is the state at its resourceVersion", evidence)


def _monotone(history: History) -> Iterator[Violation]:
    """What began after something was seen is not older than that, whatever crashed in between."""
    seen = _growth(history)
    positions = [position for position, _ in seen]
    for operation in history.operations:
        answer = operation.answer
        index = bisect_right(positions, operation.invoked)
        if answer is None or not index:
            continue
        newest = seen[index - 1][1]
        if operation.verb == "list" and answer.status == 200 and answer.resource_version < newest:
            evidence = f"{operation}, after {newest} had been seen"
            yield Violation("resourceVersions do not go back, also after a crash", evidence)
        if _is_write(operation) and answer.version is not None and answer.version.resource_version <= newest:
            evidence = f"{operation}, after {newest} had been seen"
            yield Violation("a write has a larger resourceVersion than all before it, also after a crash", evidence)


def _is_write(operation: Operation) -> bool:
    return operation.verb in ("create", "update", "patch")


def newest_seen(history: History) -> int:
    """The largest resourceVersion that any client has seen."""
    return max((version for _, version in _growth(history)), default=0)


def _growth(history: History) -> list[tuple[int, int]]:
    """(position, the largest resourceVersion that any client had seen until then), where it grows."""
    seen = [(event.position, event.version.resource_version) for span in history.spans for event in span.events]
    for operation in history.operations:
        if operation.answer is not None and operation.returned is not None:
            version = operation.answer.version.resource_version if operation.answer.version is not None else 0
            seen.append((operation.returned, max(version, operation.answer.resource_version)))
    growing: list[tuple[int, int]] = []
    for position, version in sorted(seen):
        if not growing or version > growing[-1][1]:
            growing.append((position, version))
    return growing
