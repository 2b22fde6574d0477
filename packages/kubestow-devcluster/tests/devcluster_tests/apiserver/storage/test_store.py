"""The store against a simple model: in any interleaving, each watcher reads exactly the history."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from kubestow_devcluster.apiserver.storage.store import Cursor, Expired, Store, StoredObject, WatchEvent

KEYS = st.sampled_from(["a/x", "a/y", "b/x", "b-1/x", "b/z"])


class ShortHistoryStore(Store):
    HISTORY_EVENTS = 6


class SmallHistoryStore(Store):
    HISTORY_BYTES = 1000


class Watcher:
    """A cursor and the events it has read."""

    def __init__(self, cursor: Cursor, start: int) -> None:
        self.cursor, self.start, self.read = cursor, start, list[WatchEvent]()


class StoreStateMachine(RuleBasedStateMachine):
    watchers: Bundle[Watcher] = Bundle("watchers")

    def __init__(self) -> None:
        super().__init__()
        self.store = ShortHistoryStore()
        self.pods = self.store.collection("pods")
        self.log: list[WatchEvent] = []
        self.states: dict[int, dict[str, StoredObject]] = {0: {}}
        self.compacted = 0

    @rule(key=KEYS, data=st.binary(max_size=3))
    def put(self, key: str, data: bytes) -> None:
        self._record(self.store.put("pods", StoredObject(key, self.store.next_resource_version, data, {})))

    @rule(key=KEYS)
    def delete(self, key: str) -> None:
        if self.pods.get(key) is not None:
            self._record(self.store.delete("pods", StoredObject(key, self.store.next_resource_version, b"", {})))

    @rule()
    def write_another_resource(self) -> None:
        self.store.put("nodes", StoredObject("n", self.store.next_resource_version, b"", {}))
        self.states[self.store.resource_version] = self._now()

    @rule(back=st.integers(0, 12))
    def compact(self, back: int) -> None:
        version = max(self.store.resource_version - back, 0)
        before = self.pods.compacted_version
        self.store.compact(version)
        self.compacted = max(self.compacted, version)
        dropped = [event.resource_version for event in self.log if before < event.resource_version <= version]
        assert self.pods.compacted_version == max([before, *dropped])

    @rule(target=watchers, back=st.integers(0, 12))
    def watch(self, back: int) -> Watcher:
        start = max(self.store.resource_version - back, self.pods.compacted_version)
        return Watcher(self.pods.cursor(start), start)

    @rule(watcher=watchers, limit=st.none() | st.integers(1, 3))
    def read(self, watcher: Watcher, limit: int | None) -> None:
        try:
            watcher.read += watcher.cursor.take(limit)
        except Expired:
            missed = [event for event in self.log if event.resource_version > watcher.cursor.resource_version]
            assert missed, "a cursor expires only when events were lost"
            assert missed[0].resource_version <= self.pods.compacted_version

    @rule(watcher=watchers)
    def resume(self, watcher: Watcher) -> None:
        try:
            watcher.cursor = self.pods.cursor(watcher.cursor.resource_version)
        except Expired:
            assert watcher.cursor.resource_version < self.pods.compacted_version

    @rule(back=st.integers(0, 12), prefix=st.sampled_from(["", "a/", "b/"]))
    def list_at_earlier_version(self, back: int, prefix: str) -> None:
        version = max(self.store.resource_version - back, 0)
        expected = sorted(item for item in self.states[version].items() if item[0].startswith(prefix))
        try:
            assert self.pods.snapshot_at(version, prefix) == [stored for _, stored in expected]
        except Expired:
            assert version < max(self.pods.compacted_version, self.compacted)
        else:
            assert version >= self.compacted

    @invariant()
    def lists_return_the_current_state(self) -> None:
        assert {stored.key: stored for stored in self.pods.snapshot()} == self._now()
        assert [stored.key for stored in self.pods.snapshot("b/")] == sorted(
            k for k in self._now() if k.startswith("b/")
        )

    @rule(watcher=watchers)
    def events_are_read_without_gaps(self, watcher: Watcher) -> None:
        after = [event for event in self.log if event.resource_version > watcher.start]
        assert watcher.read == after[: len(watcher.read)]

    def _now(self) -> dict[str, StoredObject]:
        return self.states[max(self.states)]

    def _record(self, event: WatchEvent) -> None:
        self.log.append(event)
        state = dict(self._now())
        state.pop(event.object.key, None)
        if event.type != "DELETED":
            state[event.object.key] = event.object
        self.states[event.resource_version] = state


TestStoreStateMachine = StoreStateMachine.TestCase


def test_a_write_at_a_used_resource_version_is_rejected() -> None:
    store = Store()
    store.put("pods", StoredObject("a/x", 1, b"", {}))
    with pytest.raises(ValueError, match="expected 2"):
        store.put("pods", StoredObject("a/y", 1, b"", {}))


def test_a_listener_is_called_once_at_the_next_write() -> None:
    store, calls = Store(), list[int]()
    store.collection("pods").notify_once(lambda: calls.append(store.resource_version))
    for name in ("x", "y"):
        store.put("pods", StoredObject(name, store.next_resource_version, b"", {}))
    assert calls == [1]


def test_objects_that_come_and_go_leave_nothing_behind() -> None:
    store = ShortHistoryStore()

    def churn(first: int) -> int:
        for number in range(first, first + 5000):
            key = f"a/{number}"
            store.put("pods", StoredObject(key, store.next_resource_version, b"x", {}))
            store.delete("pods", StoredObject(key, store.next_resource_version, b"x", {}))
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        before = churn(0)
        assert churn(5000) - before < 100_000
    finally:
        tracemalloc.stop()
    assert store.collection("pods").snapshot() == []


def test_a_key_consists_of_namespace_and_name() -> None:
    assert (StoredObject("ns/pod", 1, b"", {}).namespace, StoredObject("ns/pod", 1, b"", {}).name) == ("ns", "pod")
    assert (StoredObject("node", 1, b"", {}).namespace, StoredObject("node", 1, b"", {}).name) == ("", "node")


def test_large_objects_shorten_the_history_but_keep_the_newest_event() -> None:
    store = SmallHistoryStore()
    pods = store.collection("pods")
    for size in (300, 300, 300, 300, 5000):
        store.put("pods", StoredObject("a/x", store.next_resource_version, b"x" * size, {}))
    assert pods.compacted_version == 4
    assert [event.resource_version for event in pods.cursor(4).take()] == [5]
    with pytest.raises(Expired):
        pods.cursor(3)
