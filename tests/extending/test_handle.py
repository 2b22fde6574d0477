"""What a served plugin may do: read, and nothing else."""

from __future__ import annotations

import asyncio
import logging
from random import Random

import pytest

from kubestow.api.core import Service
from kubestow.cluster.cache import Cluster
from kubestow.config import FeatureGates
from kubestow.errors import KubestowError
from kubestow.extending.handle import ReadingHandle
from kubestow.testing import pod


@pytest.fixture
def handle() -> ReadingHandle:
    return ReadingHandle(Cluster(), FeatureGates(), Random(1))


async def test_nothing_can_be_written(handle: ReadingHandle) -> None:
    with pytest.raises(KubestowError, match="cannot bind a pod: it only filters and scores"):
        await handle.bind(handle.cluster.shapes.info(pod("p")), "n")
    with pytest.raises(KubestowError, match="cannot patch an object"):
        await handle.patch(Service(), {})
    with pytest.raises(KubestowError, match="cannot write to resource claims"):
        _ = handle.resource_claims


async def test_the_other_schedulers_doings_are_unknown(handle: ReadingHandle) -> None:
    assert not handle.is_preempting("uid-default-p")
    assert handle.waiting_pods() == ()
    assert await handle.wait_for(lambda: "now", 5.0) == "now"
    assert handle.now().tzinfo is not None


async def test_work_in_the_background_fails_into_the_log(
    handle: ReadingHandle, caplog: pytest.LogCaptureFixture
) -> None:
    done = asyncio.Event()

    async def work() -> None:
        done.set()
        raise LookupError("no such thing")

    handle.spawn(work())
    await done.wait()
    assert "no such thing" in caplog.text


def test_events_go_to_the_log(handle: ReadingHandle, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        handle.record(handle.cluster.shapes.info(pod("p")), reason="Seen", action="Looking", note="as expected")
    assert "pod default/p: Seen: as expected" in caplog.text
