"""Histories of the server in virtual time: no seed breaks a rule, and servers with planted faults do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kubestow_devcluster.apiserver.registry.registry import Registry
from kubestow_devcluster.apiserver.storage.database import Database, GroupCommit
from kubestow_devcluster.apiserver.storage.store import Collection, Cursor, Store, WatchEvent
from tests.histories.history import Crash, Violation
from tests.histories.simulated_server import simulate


@pytest.mark.parametrize("seed", range(5))
def test_the_history_of_a_seed_breaks_no_rule(tmp_path: Path, seed: int) -> None:
    history, violations = simulate(tmp_path, seed)
    assert violations == []
    assert any(span.events for span in history.spans)
    assert sum(isinstance(step, Crash) for step in history.steps) == 4


def test_a_seed_has_one_history(tmp_path: Path) -> None:
    first, second = [simulate(tmp_path / name, 3)[0] for name in ("first", "second")]
    assert list(map(str, first.operations)) == list(map(str, second.operations))
    assert [span.events for span in first.spans] == [span.events for span in second.spans]


async def answer_at_once(self: GroupCommit) -> None:
    """Answers before the writes are on the disk."""


def forget_versions(load: Callable[..., Store]) -> Callable[..., Store]:
    """After a restart the counter starts at the newest object, so that versions of deletions are used again."""

    def load_without(self: Database, selectable: Any) -> Store:
        store = load(self, selectable)
        newest = [stored.resource_version for stored in store.collection("configmaps").snapshot()]
        store.resource_version = max(newest, default=store.resource_version)
        return store

    return load_without


def skip_events(take: Callable[..., list[WatchEvent]]) -> Callable[..., list[WatchEvent]]:
    """A watcher that gets several events at once misses one."""

    def take_without(self: Cursor, limit: int | None = None) -> list[WatchEvent]:
        events = take(self, limit)
        return events[:1] + events[2:]

    return take_without


def never_expire(cursor: Callable[..., Cursor]) -> Callable[..., Cursor]:
    """A watch from a version that is gone starts with the oldest event."""

    def cursor_from_the_oldest(self: Collection, resource_version: int) -> Cursor:
        return cursor(self, max(resource_version, self.compacted_version))

    return cursor_from_the_oldest


def ignore_preconditions(update: Callable[..., Any]) -> Callable[..., Any]:
    """A write overwrites what it has not seen."""

    def update_unconditionally(
        self: Registry, kind: Any, namespace: str, name: str, change: Any, *args: Any, **kw: Any
    ) -> Any:
        def changed(old: Any) -> Any:
            new = change(old)
            new["metadata"].pop("resourceVersion", None)
            return new

        return update(self, kind, namespace, name, changed, *args, **kw)

    return update_unconditionally


@pytest.mark.parametrize(
    ("owner", "name", "fault", "rules"),
    [
        (GroupCommit, "wait_durable", lambda original: answer_at_once, "resourceVersions do not go back|linearizable"),
        (Database, "load", forget_versions, "larger resourceVersion|do not go back|one change of one object"),
        (Cursor, "take", skip_events, "every change"),
        (Collection, "cursor", never_expire, "every change|ADDED is for"),
        (Registry, "update", ignore_preconditions, "linearizable"),
    ],
)
def test_a_planted_fault_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: type, name: str, fault: Callable[[Any], Any], rules: str
) -> None:
    monkeypatch.setattr(owner, name, fault(getattr(owner, name)))
    assert any(_names(simulate(tmp_path / str(seed), seed)[1], rules) for seed in range(10))


def _names(violations: list[Violation], rules: str) -> bool:
    return any(rule in violation.rule for violation in violations for rule in rules.split("|"))
