"""Gangs whose placement is searched for in a thread, with a scheduler that uses the API server over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from core_tests.scheduling.gangs.groups import GATES, member
from kubestow.testing import node, pod
from tests.integration.fixture import ClusterFixture, Object

pytest.importorskip("ortools", reason="kubestow[solvers] is not installed")

_ENABLED = [{"name": "GangScheduling"}, {"name": "GangPlacementSearch"}]
SEARCHING: dict[str, Any] = {"gates": GATES, "profiles": [{"plugins": {"multiPoint": {"enabled": _ENABLED}}}]}
#: Pod after pod takes the emptier node, and in both orders that are tried a pod is left over.
NODES = [node("n4", cpu="4"), node("n6", cpu="6")]


def group(name: str, minimum: int) -> Object:
    spec = {"schedulingPolicy": {"gang": {"minCount": minimum}}}
    return {"apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup", "metadata": {"name": name}, "spec": spec}


async def test_a_gang_is_bound_where_the_search_finds_nodes(cluster: ClusterFixture) -> None:
    pods = [member(name, "g", cpu=cpu) for name, cpu in {"a": "2", "b": "2", "c": "3", "d": "3"}.items()]
    await cluster.create(*NODES, group("g", 4), *pods)
    async with cluster.scheduler(**SEARCHING):
        assert await cluster.bound("a", "b", "c", "d") == ["n4", "n4", "n6", "n6"]


async def test_a_certificate_becomes_the_message_and_the_gang_is_bound_once_there_is_room(
    cluster: ClusterFixture,
) -> None:
    await cluster.create(*NODES, group("g", 3), *(member(name, "g", cpu="4") for name in "abc"))
    async with cluster.scheduler(**SEARCHING):
        await cluster.until(lambda: "no placement exists: at most 2 pods of the 3" in cluster.message("a"))
        await cluster.create(pod("other", cpu="1"))
        await cluster.bound("other")
        await cluster.create(node("late", cpu="4"))
        assert len(await cluster.bound("a", "b", "c")) == 3
