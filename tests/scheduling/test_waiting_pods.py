"""Pods that wait for permission."""

from __future__ import annotations

import asyncio
import weakref

from kubestow.cluster.pods.shapes import Shapes
from kubestow.scheduling.waiting_pods import WaitingPods
from kubestow.testing import pod
from kubestow.testing.virtual_time import run


def test_nothing_is_kept_of_a_pod_that_left_before_it_was_decided() -> None:
    async def story() -> None:
        waiting, info = WaitingPods(), Shapes().info(pod("a"))
        left = weakref.ref(waiting.add(info, {"Coscheduling": 600.0}))
        await asyncio.sleep(1)
        waiting.remove(info.uid)
        assert left() is None

    run(story())
