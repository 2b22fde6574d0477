"""The tracker of resource claims: devices allocated by observed, pending and written claims."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from kubestow.api.meta import ObjectMeta, OwnerReference
from kubestow.api.resource import (
    EXTENDED_RESOURCE_CLAIM,
    AllocationResult,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaim,
    ResourceClaimStatus,
)
from kubestow.cluster.cache import Cluster
from kubestow.cluster.resource_claims import AllocatedDevices, DeviceID, ResourceClaimTracker

D0, D1 = DeviceID("driver", "pool", "d0"), DeviceID("driver", "pool", "d1")


def claim(name: str, *devices: DeviceID, version: int = 0, uid: str = "", share: str | None = None) -> ResourceClaim:
    results = [
        DeviceRequestAllocationResult(
            driver=d.driver,
            pool=d.pool,
            device=d.device,
            share_id=share,
            consumed_capacity={"memory": "1Gi"} if share else {},
        )
        for d in devices
    ]
    allocation = AllocationResult(devices=DeviceAllocationResult(results=results)) if devices else None
    metadata = ObjectMeta(name=name, namespace="ns", uid=uid or f"uid-{name}", resource_version=str(version or ""))
    return ResourceClaim(metadata=metadata, status=ResourceClaimStatus(allocation=allocation))


def tracker(*claims: ResourceClaim) -> tuple[Cluster, ResourceClaimTracker]:
    cluster = Cluster()
    for one in claims:
        cluster.catalog(ResourceClaim).put(one)
    return cluster, cluster.resource_claims


def test_an_allocated_claim_has_its_devices() -> None:
    cluster, claims = tracker(claim("a", D0))
    assert claims.devices.is_allocated(D0) and not claims.devices.is_allocated(D1)
    cluster.catalog(ResourceClaim).remove("ns", "a")
    assert not claims.devices.is_allocated(D0)


def test_claims_from_before_the_tracker_are_counted() -> None:
    cluster, _ = tracker(claim("a", D0))
    assert ResourceClaimTracker(cluster.catalog(ResourceClaim)).devices.is_allocated(D0)


def test_a_pending_allocation_counts_until_it_is_removed() -> None:
    _, claims = tracker(claim("a"))
    claims.signal_pending_allocation(claim("a", D0))
    assert claims.devices.is_allocated(D0) and claims.has_pending_allocation("uid-a")
    assert claims.get("ns", "a") == claim("a")
    assert claims.remove_pending_allocation("uid-a")
    assert not claims.devices.is_allocated(D0)
    assert not claims.remove_pending_allocation("uid-a")


def test_a_written_claim_counts_before_the_watch_confirms_it() -> None:
    cluster, claims = tracker(claim("a", version=1))
    claims.signal_pending_allocation(claim("a", D0))
    claims.assume_after_api_call(claim("a", D0, version=3))
    claims.remove_pending_allocation("uid-a")
    assert claims.devices.is_allocated(D0)
    cluster.catalog(ResourceClaim).put(claim("a", version=2))  # an outdated event
    assert claims.devices.is_allocated(D0)
    assert claims.get("ns", "a") == claim("a", D0, version=3)


def test_the_observed_claim_counts_once_the_watch_has_caught_up() -> None:
    cluster, claims = tracker(claim("a", version=1))
    claims.assume_after_api_call(claim("a", D0, version=2))
    cluster.catalog(ResourceClaim).put(claim("a", D0, version=2))
    cluster.catalog(ResourceClaim).put(claim("a", version=3))
    assert not claims.devices.is_allocated(D0)


def test_a_written_claim_that_is_observed_already_is_not_kept() -> None:
    _, claims = tracker(claim("a", version=5))
    claims.assume_after_api_call(claim("a", D0, version=4))
    assert not claims.devices.is_allocated(D0)
    assert claims.get("ns", "a") == claim("a", version=5)


def test_a_claim_of_the_same_name_with_another_uid_is_another_claim() -> None:
    cluster, claims = tracker(claim("a", D0))
    cluster.catalog(ResourceClaim).put(claim("a", D1, uid="another"))
    assert claims.devices.is_allocated(D1) and not claims.devices.is_allocated(D0)


def test_a_deleted_claim_does_not_count() -> None:
    _, claims = tracker()
    claims.assume_after_api_call(claim("made", D0, version=1))
    claims.assume_deleted(claim("made", D0, version=1))
    assert not claims.devices.is_allocated(D0)


def test_a_response_that_arrives_after_the_deletion_of_its_claim_does_not_count() -> None:
    cluster, claims = tracker(claim("a", version=1), claim("b", version=2))
    cluster.catalog(ResourceClaim).remove("ns", "a")
    cluster.catalog(ResourceClaim).put(claim("b", version=5, uid="another"))
    claims.assume_after_api_call(claim("a", D0, version=3))
    claims.assume_after_api_call(claim("b", D1, version=4))
    assert not claims.devices.is_allocated(D0) and not claims.devices.is_allocated(D1)


def test_a_claim_that_a_new_list_lacked_for_a_while_is_known_again() -> None:
    cluster, claims = tracker(claim("a", version=1))
    cluster.catalog(ResourceClaim).remove("ns", "a")
    cluster.catalog(ResourceClaim).put(claim("a", version=1))
    claims.assume_after_api_call(claim("a", D0, version=2))
    assert claims.devices.is_allocated(D0)


def test_consumed_capacities_of_shares_are_summed() -> None:
    cluster, claims = tracker(claim("a", D0, share="1"), claim("b", D0, share="2"))
    assert claims.devices.is_shared(D0) and not claims.devices.is_allocated(D0)
    assert claims.devices.consumed_capacity(D0) == {"memory": 2 * 2**30 * 10**9}
    cluster.catalog(ResourceClaim).remove("ns", "a")
    assert claims.devices.consumed_capacity(D0) == {"memory": 2**30 * 10**9}
    cluster.catalog(ResourceClaim).remove("ns", "b")
    assert claims.devices.consumed_capacity(D0) is None


def test_admin_access_allocates_nothing() -> None:
    result = DeviceRequestAllocationResult(driver="driver", pool="pool", device="d0", admin_access=True)
    status = ResourceClaimStatus(allocation=AllocationResult(devices=DeviceAllocationResult(results=[result])))
    _, claims = tracker(msgspec.structs.replace(claim("a"), status=status))
    assert not claims.devices.is_allocated(D0)


def test_the_claim_for_extended_resources_is_found_by_its_pod() -> None:
    owner = OwnerReference(kind="Pod", name="p", uid="uid-p", controller=True)
    metadata = ObjectMeta(
        name="x", namespace="ns", uid="u", annotations={EXTENDED_RESOURCE_CLAIM: "true"}, owner_references=[owner]
    )
    cluster, claims = tracker(ResourceClaim(metadata=metadata))
    found = claims.extended_resource_claim("uid-p")
    assert found is not None and found.metadata.name == "x"
    cluster.catalog(ResourceClaim).remove("ns", "x")
    assert claims.extended_resource_claim("uid-p") is None


def test_a_written_claim_that_is_observed_to_be_deleted_does_not_count() -> None:
    cluster, claims = tracker(claim("a", version=1))
    claims.assume_after_api_call(claim("a", D0, version=3))
    assert claims.devices.is_allocated(D0)
    cluster.catalog(ResourceClaim).remove("ns", "a")
    assert not claims.devices.is_allocated(D0)
    assert claims.get("ns", "a") is None


def test_a_claim_for_extended_resources_is_that_of_its_controller_if_it_says_so() -> None:
    owners = [OwnerReference(kind="Pod", name=name, uid=f"uid-{name}", controller=name == "p") for name in "opq"]
    claimed = []
    for annotated in ({}, {EXTENDED_RESOURCE_CLAIM: "false"}, {EXTENDED_RESOURCE_CLAIM: "true"}):
        metadata = ObjectMeta(name="x", namespace="ns", uid="u", annotations=annotated, owner_references=owners)
        _, claims = tracker(ResourceClaim(metadata=metadata))
        claimed.append([name for name in "opq" if claims.extended_resource_claim(f"uid-{name}") is not None])
    assert claimed == [[], [], ["p"]]


def test_the_pools_that_changed_since_a_version_are_known_if_that_is_recent() -> None:
    devices = AllocatedDevices()
    claims = (claim(pool, DeviceID("driver", pool, "d")) for pool in ("one", "two"))
    first, second = (one.status.allocation or AllocationResult() for one in claims)
    devices.count(first, +1)
    before = devices.version
    assert devices.pools_changed_since(before) == set()
    devices.count(second, +1)
    assert devices.pools_changed_since(before) == {("driver", "two")}
    assert devices.pools_changed_since(0) == {("driver", "one"), ("driver", "two")}
    for _ in range(2100):  # more changes than are kept
        devices.count(second, -1)
        devices.count(second, +1)
    assert devices.pools_changed_since(before) is None
    assert devices.pools_changed_since(devices.version - 1) == {("driver", "two")}


def test_versions_grow_however_many_pools_there_have_been() -> None:
    devices, kept = AllocatedDevices(), claim("kept", DeviceID("driver", "kept", "d"))
    devices.count(kept.status.allocation or AllocationResult(), +1)
    version_of_kept = devices.pool_version("driver", "kept")
    for number in range(3000):
        pool = f"pool-{number % 1500}"
        allocation = claim("c", DeviceID("driver", pool, "d")).status.allocation or AllocationResult()
        for sign in (+1, -1):
            before, version = devices.pool_version("driver", pool), devices.version
            devices.count(allocation, sign)
            assert devices.pool_version("driver", pool) > before
            assert devices.pools_changed_since(version) == {("driver", pool)}
            assert devices.pools_changed_since(devices.version) == set()
    assert devices.pool_version("driver", "kept") == version_of_kept


def test_the_version_of_a_pool_grows_with_every_change() -> None:
    cluster, claims = tracker()
    before = claims.devices.pool_version("driver", "pool")
    cluster.catalog(ResourceClaim).put(claim("a", D0))
    assert claims.devices.pool_version("driver", "pool") > before
    assert claims.devices.pool_version("driver", "other") == 0


@st.composite
def _events(draw: st.DrawFn) -> list[tuple[str, str, tuple[DeviceID, ...]]]:
    kinds = st.sampled_from(["put", "remove", "signal", "remove pending", "write"])
    devices = st.sampled_from([(), (D0,), (D1,), (D0, D1)])
    return draw(st.lists(st.tuples(kinds, st.sampled_from("abc"), devices), max_size=20))


@given(_events())
def test_allocations_equal_those_of_the_claims(events: list[tuple[str, str, tuple[DeviceID, ...]]]) -> None:
    cluster, claims = tracker()
    catalog = cluster.catalog(ResourceClaim)
    pending: dict[str, tuple[DeviceID, ...]] = {}
    for version, (kind, name, devices) in enumerate(events, 1):
        if kind == "put":
            catalog.put(claim(name, *devices, version=version))
        elif kind == "remove":
            catalog.remove("ns", name)
        elif kind == "signal" and devices:
            claims.signal_pending_allocation(claim(name, *devices))
            pending[name] = devices
        elif kind == "remove pending":
            claims.remove_pending_allocation(f"uid-{name}")
            pending.pop(name, None)
        elif kind == "write" and catalog.get("ns", name) is not None:
            claims.assume_after_api_call(claim(name, *devices, version=version))
    for device in (D0, D1):
        known = [claims.get("ns", name) for name in "abc" if name not in pending]
        allocations = [one.status.allocation for one in known if one is not None and one.status.allocation]
        is_observed = any(r.device == device.device for a in allocations for r in a.devices.results)
        assert claims.devices.is_allocated(device) == (
            is_observed or any(device in devices for devices in pending.values())
        )
