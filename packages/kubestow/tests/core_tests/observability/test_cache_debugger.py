"""The cache debugger: what it logs about the cache, the queue, and differences from the API server."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import pytest

from kubestow.errors import Unreachable
from kubestow.observability.cache_debugger import CacheDebugger
from kubestow.scheduling.events.resources import NODES
from kubestow.scheduling.interfaces import Resource
from kubestow.testing import node, pod
from kubestow.testing.scheduler_harness import SchedulerHarness, in_virtual_time


def logged(caplog: pytest.LogCaptureFixture, message: str) -> list[dict[str, Any]]:
    return [record.__dict__["kubestow_fields"] for record in caplog.records if record.message == message]


def test_objects_that_only_the_api_server_or_only_the_cache_has_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def list_names(resource: Resource) -> Mapping[str, str]:
        nodes, pods = {"1": "a", "2": "new"}, {"uid-default-bound": "default/bound", "uid-new": "default/new"}
        return nodes if resource is NODES else pods

    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod("pending", cpu="64"))
        harness.cluster.put(pod("elsewhere", scheduler="another"))
        await harness.settle()
        with caplog.at_level(logging.INFO):
            await CacheDebugger(harness.scheduler, list_names).run()

    in_virtual_time(scenario, node("a"), node("gone"), pod("bound", node="a"))
    nodes, pods = logged(caplog, "Cache mismatch")
    assert nodes == {"missedNodes": ["new"], "redundantNodes": ["gone"]}
    assert [name.split()[0] for name in pods["missedPods"]] == ["default/new"]
    assert [name.split()[0] for name in pods["redundantPods"]] == ["default/elsewhere", "default/pending"]


def test_an_unreachable_api_server_is_logged_and_the_cache_is_dumped(caplog: pytest.LogCaptureFixture) -> None:
    async def list_names(resource: Resource) -> Mapping[str, str]:
        raise Unreachable("https://api", "no route")

    async def scenario(harness: SchedulerHarness) -> None:
        with caplog.at_level(logging.INFO):
            await CacheDebugger(harness.scheduler, list_names).run()

    in_virtual_time(scenario, node("a", cpu="4"), pod("bound", node="a", cpu="1"))
    assert logged(caplog, "Unable to compare the cache with the API server") == [{"err": "https://api: no route"}]
    (dumped,) = logged(caplog, "Cached node")
    assert dumped["requested"]["cpu"] == 1000 and dumped["allocatable"]["cpu"] == 4000
    assert dumped["scheduledPods"] == [
        {"name": "bound", "namespace": "default", "uid": "uid-default-bound", "nominatedNode": ""}
    ]
