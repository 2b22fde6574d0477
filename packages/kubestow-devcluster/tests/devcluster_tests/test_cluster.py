"""The composition of a cluster: what happens when one of its tasks ends."""

from __future__ import annotations

import asyncio

import pytest

from kubestow_devcluster.cluster import ComponentFailed, DevCluster
from kubestow_devcluster.kubelets.kubelets import Kubelets


def fail(kubelets: Kubelets) -> None:
    raise ZeroDivisionError("kubelets of a test")


async def test_the_end_of_a_component_fails_the_cluster(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Kubelets, "relist", fail)
    cluster = DevCluster()
    await cluster.start()
    with pytest.raises(ComponentFailed, match="kubelets ended: ZeroDivisionError"):
        await cluster.failed()
    assert [record.getMessage() for record in caplog.records] == ["kubelets ended unexpectedly"]
    await cluster.stop()


async def test_leaving_the_context_of_a_failed_cluster_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Kubelets, "relist", fail)
    with pytest.raises(ComponentFailed):
        async with DevCluster():
            await asyncio.sleep(0)
            await asyncio.sleep(0)


async def test_a_stopped_cluster_has_not_failed(caplog: pytest.LogCaptureFixture) -> None:
    async with DevCluster(nodes=1):
        await asyncio.sleep(0)
    assert not caplog.records
