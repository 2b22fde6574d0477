"""What the claims and the amounts of one tenant can cost the scheduler (docs/security.md).

Cost is CPU time at n, 2n and 4n items. A linear attack that is four times as large costs four times as much, a
quadratic one sixteen times; the bound is between the two, and the smallest of some measurements counts.
"""

from __future__ import annotations

from collections.abc import Callable
from gc import collect
from time import process_time
from typing import Any

import pytest

from kubestow.api.meta import convert
from kubestow.api.resource import DeviceClass, ResourceClaim
from kubestow.testing import node, pod
from kubestow.testing.scheduler_harness import SchedulerHarness, in_virtual_time
from kubestow.testing.storage import DRIVER, claim, ephemeral_claim, mounting, storage_class, volume

#: The garbage collections that are measured look at what these tests create.
pytestmark = pytest.mark.usefixtures("only_own_garbage")

NODES = [node(f"n{number}") for number in range(6)]
#: Of a cost that is in proportion to the number of items, with what a garbage collector and caches may add.
MOST_FOR_FOUR_TIMES_AS_MANY = 9.0


def named_claims(count: int) -> list[str]:
    return [f"c{number}" for number in range(count)]


async def provision(harness: SchedulerHarness, count: int) -> None:
    """Claims that wait for their first consumer, of a class that provisions volumes."""
    harness.cluster.put(storage_class(provisioner=DRIVER))
    for name in named_claims(count):
        harness.cluster.put(claim(name))
    await _schedule_and_delete(harness, count)


async def bind(harness: SchedulerHarness, count: int) -> None:
    """Claims that take volumes from one another."""
    harness.cluster.put(storage_class())
    for name in named_claims(count):
        harness.cluster.put(volume(f"pv-{name}", size="2Gi"))
        harness.cluster.put(claim(name))
    await _schedule_and_delete(harness, count)


async def bind_sizes(harness: SchedulerHarness, count: int) -> None:
    """The same, each of a size of its own."""
    harness.cluster.put(storage_class())
    for number, name in enumerate(named_claims(count)):
        harness.cluster.put(volume(f"pv-{name}", size="8Gi"))
        harness.cluster.put(claim(name, size=f"{1000 + number}Mi"))
    await _schedule_and_delete(harness, count)


async def lack_volumes(harness: SchedulerHarness, count: int) -> None:
    """Claims of which the last finds no volume, and a change of each claim while the pod waits."""
    harness.cluster.put(storage_class())
    for name in named_claims(count):
        harness.cluster.put(claim(name))
    for name in named_claims(count - 1):
        harness.cluster.put(volume(f"pv-{name}"))
    await _schedule_and_delete(harness, count)


async def wait_for_ephemeral_claims(harness: SchedulerHarness, count: int) -> None:
    """A pending pod whose ephemeral claims are created one after the other."""
    harness.cluster.put(storage_class(provisioner=DRIVER))
    harness.cluster.put(pod("a", spec=mounting(ephemeral=named_claims(count))))
    await harness.settle()
    for name in named_claims(count):
        harness.cluster.put(ephemeral_claim("a", name))
    await harness.settle()
    harness.cluster.remove(harness.cluster.pod("a"))
    await harness.settle()


async def _schedule_and_delete(harness: SchedulerHarness, count: int) -> None:
    harness.cluster.put(pod("a", spec=mounting(*named_claims(count))))
    await harness.settle()
    for name in named_claims(count):
        harness.cluster.put(claim(name, metadata={"resourceVersion": "1000000", "labels": {"changed": "yes"}}))
    await harness.settle()
    harness.cluster.remove(harness.cluster.pod("a"))
    await harness.settle()


def resource_claim(number: int, **metadata: Any) -> ResourceClaim:
    owner = {"kind": "Pod", "name": "a", "uid": "uid-default-a", "controller": True}
    names = {"name": f"c{number}", "namespace": "default", "uid": f"uid-c{number}", "resourceVersion": "1"}
    request = {"name": "r", "exactly": {"deviceClassName": "gpu"}}
    manifest = {
        "metadata": {**names, "ownerReferences": [owner], **metadata},
        "spec": {"devices": {"requests": [request]}},
    }
    return convert(ResourceClaim, manifest)


async def wait_for_resource_claims(harness: SchedulerHarness, count: int) -> None:
    """A pending pod whose resource claims are created, and changed, one after the other."""
    harness.cluster.put(convert(DeviceClass, {"metadata": {"name": "gpu"}}))
    entries = [{"name": f"e{number}", "resourceClaimTemplateName": "t"} for number in range(count)]
    generated = [{"name": f"e{number}", "resourceClaimName": f"c{number}"} for number in range(count)]
    harness.cluster.put(pod("a", spec={"resourceClaims": entries}, status={"resourceClaimStatuses": generated}))
    await harness.settle()
    for number in range(count):
        harness.cluster.put(resource_claim(number))
    await harness.advance(30)
    for number in range(count):
        harness.cluster.put(resource_claim(number, resourceVersion="2", labels={"changed": "yes"}))
    await harness.settle()
    harness.cluster.remove(harness.cluster.pod("a"))
    await harness.settle()


Attack = Callable[[SchedulerHarness, int], Any]


def cpu_seconds(attack: Attack, count: int) -> float:
    spent = 0.0

    async def scenario(harness: SchedulerHarness) -> None:
        nonlocal spent
        collect()
        start = process_time()
        await attack(harness, count)
        spent = process_time() - start

    in_virtual_time(scenario, *NODES)
    return spent


ATTACKS = [provision, bind, bind_sizes, lack_volumes, wait_for_ephemeral_claims, wait_for_resource_claims]


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_the_claims_of_a_pod_cost_time_in_proportion_to_their_number(attack: Attack) -> None:
    cpu_seconds(attack, 10)  # imports and caches of the process
    few, many = (min(cpu_seconds(attack, count) for _ in range(2)) for count in (100, 400))
    assert many < MOST_FOR_FOUR_TIMES_AS_MANY * few


def test_pods_with_all_memory_of_64_bits_affect_no_other_pod() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        for number in range(2):
            harness.cluster.put(pod(f"hostile-{number}", memory="8E", node="n0"))
        await harness.settle()
        for number in range(12):
            harness.cluster.put(pod(f"victim-{number}", cpu="10m", memory="1Mi"))
            harness.cluster.put(pod(f"best-effort-{number}"))
        await harness.settle()
        assert all(harness.node_of(f"victim-{number}") not in ("", "n0") for number in range(12))
        assert all(harness.node_of(f"best-effort-{number}") for number in range(12))
        for number in range(2):
            harness.cluster.remove(harness.cluster.pod(f"hostile-{number}"))
        harness.cluster.put(pod("large", memory="15Gi", node_selector={"kubernetes.io/hostname": "n0"}))
        await harness.settle()
        assert harness.node_of("large") == "n0"

    in_virtual_time(scenario, *NODES)
