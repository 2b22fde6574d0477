"""Compaction: the watch history is dropped by its age, as kube-apiserver compacts etcd."""

from __future__ import annotations

import asyncio

from kubestow_devcluster.apiserver.storage.store import Store

__all__ = ["COMPACTION_INTERVAL", "compact_periodically"]

#: Seconds between two compactions, kube-apiserver's default.
COMPACTION_INTERVAL = 300.0


async def compact_periodically(store: Store) -> None:
    """Every :data:`COMPACTION_INTERVAL`, drop the history that is older than that; never returns."""
    while True:
        resource_version = store.resource_version
        await asyncio.sleep(COMPACTION_INTERVAL)
        store.compact(resource_version)
