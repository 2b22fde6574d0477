"""Claims on devices in the life of a scheduler: written before the pod is bound, waited for, taken back."""

from __future__ import annotations

from kubestow.api.core import Pod
from kubestow.api.resource import ResourceClaim
from kubestow.testing import node, pod
from tests.plugins.dynamic_resources.devices import DRIVER, claim, device, device_class, exactly, pod_with, slice_of
from tests.scheduling.running import Living, in_virtual_time

GPU = slice_of("d0", node="n")
CLUSTER = (node("n"), device_class())


def pending(*claims: str, name: str = "p") -> Pod:
    return pod_with(*claims, name=name)


def test_a_claim_is_written_before_its_pod_is_bound() -> None:
    async def story(world: Living) -> None:
        world.cluster.put(pending("c"))
        await world.settles()
        assert world.node_of("p") == "n"
        written = world.cluster.claim("c")
        assert written.status.allocation is not None
        assert written.status.allocation.devices.results[0].device == "d0"
        assert written.is_reserved_for("uid-default-p")

    in_virtual_time(story, *CLUSTER, GPU, claim())


def test_a_pod_waits_for_its_claim_and_then_for_a_device() -> None:
    async def story(world: Living) -> None:
        world.cluster.put(pending("c"))
        await world.settles()
        assert world.cluster.condition("p") is None  # gated, never tried
        world.cluster.put(claim())
        await world.passes(1)
        condition = world.cluster.condition("p")
        assert condition is not None and "1 cannot allocate all claims" in condition.message
        world.cluster.put(GPU)
        await world.passes(30)
        assert world.node_of("p") == "n"

    in_virtual_time(story, *CLUSTER)


def test_one_device_is_never_given_to_two_claims() -> None:
    async def story(world: Living) -> None:
        for number in range(5):
            world.cluster.put(claim(f"c{number}"))
            world.cluster.put(pending(f"c{number}", name=f"p{number}"))
        await world.passes(60)
        held = [world.cluster.claim(f"c{number}").status.allocation for number in range(5)]
        assert sum(allocation is not None for allocation in held) == 2
        assert sum(bool(world.node_of(f"p{number}")) for number in range(5)) == 2

    in_virtual_time(story, *CLUSTER, slice_of("d0", "d1", node="n"))


def test_a_claim_that_loses_its_devices_makes_room() -> None:
    async def story(world: Living) -> None:
        world.cluster.put(pending("c", name="first"))
        await world.settles()
        world.cluster.put(pending("other", name="second"))
        await world.settles()
        assert world.node_of("second") == ""
        world.cluster.remove(world.cluster.pod("first"))
        world.cluster.put(claim())
        await world.passes(30)
        assert world.node_of("second") == "n"

    in_virtual_time(story, *CLUSTER, GPU, claim(), claim("other"))


def test_devices_in_the_wrong_place_are_taken_back_and_found_again() -> None:
    elsewhere = {
        "devices": {"results": [{"request": "r", "driver": DRIVER, "pool": "x", "device": "d0"}]},
        "nodeSelector": {
            "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["gone"]}]}]
        },
    }

    async def story(world: Living) -> None:
        world.cluster.put(pending("c"))
        await world.passes(30)
        assert world.node_of("p") == "n"

    in_virtual_time(story, *CLUSTER, GPU, claim("c", status={"allocation": elsewhere}))


def test_a_binding_that_fails_leaves_nobody_reserved() -> None:
    async def story(world: Living) -> None:
        world.cluster.bind_failures.append(RuntimeError("broken"))
        world.cluster.put(pending("c"))
        await world.settles()
        assert not world.cluster.claim("c").status.reserved_for
        await world.passes(30)
        assert world.node_of("p") == "n"
        assert world.cluster.claim("c").is_reserved_for("uid-default-p")

    in_virtual_time(story, *CLUSTER, GPU, claim())


def test_a_pod_waits_until_its_devices_are_attached() -> None:
    slow = slice_of(device("d0", bindingConditions=["Attached"]), node="n")

    async def story(world: Living) -> None:
        world.cluster.put(pending("c"))
        await world.passes(20)
        assert world.node_of("p") == ""
        assert "BindingConditionsPending" in [event.reason for event in world.cluster.events]
        attached = {
            "driver": DRIVER,
            "pool": "n",
            "device": "d0",
            "conditions": [{"type": "Attached", "status": "True"}],
        }
        current = world.cluster.claim("c")
        reported = claim("c", status={"devices": [attached]}).status.devices
        status = type(current.status)(
            allocation=current.status.allocation, reserved_for=current.status.reserved_for, devices=reported
        )
        world.cluster.put(ResourceClaim(metadata=current.metadata, spec=current.spec, status=status))
        await world.passes(10)
        assert world.node_of("p") == "n"

    in_virtual_time(story, *CLUSTER, slow, claim())


def test_extended_resources_get_a_claim_of_their_own() -> None:
    kind = device_class("gpu", extendedResourceName="example.com/gpu")

    async def story(world: Living) -> None:
        world.cluster.put(pod("p", requests={"example.com/gpu": "1"}))
        await world.settles()
        assert world.node_of("p") == "n"
        (made,) = world.cluster.objects(ResourceClaim).values()
        assert made.metadata.name.startswith("p-extended-resources-")
        assert made.is_reserved_for("uid-default-p")

    in_virtual_time(story, node("n"), kind, GPU)


def test_a_selector_that_fails_hurts_only_its_own_pod() -> None:
    async def story(world: Living) -> None:
        world.cluster.put(slice_of("d0", "d1", node="n"))
        world.cluster.put(claim("bad", exactly(1, "device.nonsense")))
        world.cluster.put(pending("bad", name="bad"))
        world.cluster.put(pending("c", name="good"))
        await world.passes(5)
        assert world.node_of("good") == "n"
        condition = world.cluster.condition("bad")
        assert condition is not None and condition.reason == "SchedulerError"
        assert "claim default/bad: selector #0: CEL compile error" in condition.message

    in_virtual_time(story, *CLUSTER, GPU, claim())
