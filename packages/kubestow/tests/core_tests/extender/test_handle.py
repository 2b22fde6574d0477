"""The read-only plugin handle of an extender."""

from __future__ import annotations

import asyncio
import logging
from random import Random

import pytest

from kubestow.api.core import Service
from kubestow.cluster.cache import Cluster
from kubestow.config import FeatureGates
from kubestow.errors import KubestowError
from kubestow.extender.handle import ReadOnlyHandle
from kubestow.testing import pod


@pytest.fixture
def handle() -> ReadOnlyHandle:
    return ReadOnlyHandle(Cluster(), FeatureGates(), Random(1))


async def test_writes_are_rejected(handle: ReadOnlyHandle) -> None:
    with pytest.raises(KubestowError, match="cannot bind a pod: an extender only filters and scores"):
        await handle.bind(handle.cluster.shapes.info(pod("p")), "n")
    with pytest.raises(KubestowError, match="cannot patch an object"):
        await handle.patch(Service(), {})
    with pytest.raises(KubestowError, match="cannot write to resource claims"):
        _ = handle.resource_claims


async def test_the_state_of_kube_scheduler_is_unknown(handle: ReadOnlyHandle) -> None:
    assert not handle.is_preempting("uid-default-p")
    assert handle.waiting_pods() == ()
    assert await handle.wait_for(lambda: "now", 5.0) == "now"
    assert handle.now().tzinfo is not None


async def test_errors_of_background_tasks_are_logged(handle: ReadOnlyHandle, caplog: pytest.LogCaptureFixture) -> None:
    done = asyncio.Event()

    async def work() -> None:
        done.set()
        raise LookupError("no such thing")

    handle.spawn(work())
    await done.wait()
    assert "no such thing" in caplog.text


def test_events_are_logged(handle: ReadOnlyHandle, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        handle.record(handle.cluster.shapes.info(pod("p")), reason="Seen", action="Looking", note="as expected")
    assert "pod default/p: Seen: as expected" in caplog.text
