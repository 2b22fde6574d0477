"""Promises of nodes, and who is told when one is over."""

from __future__ import annotations

from typing import Any

import pytest

from kubestow.api.core import Pod
from kubestow.errors import APIError
from kubestow.scheduling.ports import ObjectReference
from kubestow.testing import MemoryCluster, node, pod
from kubestow.testing.scheduler_harness import Living, in_virtual_time

DEDICATED = {"key": "dedicated", "operator": "Exists"}


class Stubborn(MemoryCluster):
    """Victims do not go, and nothing is ever written to a status unless ``notes`` are taken."""

    notes = True

    async def delete_pod(self, pod: ObjectReference) -> None:
        pass

    async def patch_pod_status(self, pod: ObjectReference, patch: Any) -> None:
        if not self.notes and patch.nominated_node_name:
            raise APIError(500, "InternalError", "etcd is down")
        await super().patch_pod_status(pod, patch)


def high(cluster: MemoryCluster | None = None, **changes: Any) -> Pod:
    return pod("high", cpu="4", priority=100, **changes)


@pytest.mark.parametrize("notes", [True, False])
def test_a_pod_that_goes_elsewhere_leaves_the_node_it_was_promised_to_others(notes: bool) -> None:
    cluster = Stubborn()
    cluster.notes = notes

    async def story(world: Living) -> None:
        world.cluster.put(high())
        await world.passes(5)
        assert world.scheduler.cluster.nomination("uid-default-high") == "n"
        world.cluster.put(pod("low", cpu="1", priority=1))
        await world.passes(5)
        assert world.node_of("low") == ""  # the room on the node is promised
        nominated = world.cluster.pod("high").status.nominated_node_name
        world.cluster.put(high(tolerations=[DEDICATED], nominated=nominated))
        await world.passes(20)
        assert (world.node_of("high"), world.node_of("low")) == ("special", "n")

    in_virtual_time(
        story,
        node("n", cpu="4"),
        node("special", cpu="4", taints=["dedicated=yes:NoSchedule"]),
        pod("victim", node="n", cpu="3"),
        cluster=cluster,
    )
