"""The watch history is dropped by its age."""

from __future__ import annotations

import asyncio

import pytest

from kubestow.testing import virtual_time
from kubestow_devcluster.apiserver.storage.store import (
    COMPACTION_INTERVAL,
    Expired,
    Store,
    StoredObject,
    compact_periodically,
)


def test_history_is_kept_for_one_interval_and_dropped_after_two() -> None:
    async def scenario() -> None:
        store = Store()
        compaction = asyncio.create_task(compact_periodically(store))
        await asyncio.sleep(1)
        store.put("pods", StoredObject("a", 1, b"{}", {}))
        pods = store.collection("pods")
        await asyncio.sleep(COMPACTION_INTERVAL)
        assert len(pods.cursor(0).take()) == 1
        await asyncio.sleep(COMPACTION_INTERVAL)
        with pytest.raises(Expired):
            pods.cursor(0)
        assert [stored.key for stored in pods.snapshot()] == ["a"]
        assert pods.cursor(1).take() == [], "a watch goes on from the last change"
        with pytest.raises(Expired):
            pods.snapshot_at(0)
        with pytest.raises(Expired):
            store.put("nodes", StoredObject("n", 2, b"{}", {}))
            await asyncio.sleep(2 * COMPACTION_INTERVAL)
            pods.snapshot_at(1)
        compaction.cancel()

    virtual_time.run(scenario())
