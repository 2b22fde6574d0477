"""The ledger of claims: which devices are taken, by what was told, promised or written."""

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
from kubestow.cluster.devices.claims import DeviceID, ResourceClaimTracker

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


def ledger(*claims: ResourceClaim) -> tuple[Cluster, ResourceClaimTracker]:
    cluster = Cluster()
    for one in claims:
        cluster.catalog(ResourceClaim).put(one)
    return cluster, cluster.resource_claims


def test_an_allocated_claim_has_its_devices() -> None:
    cluster, claims = ledger(claim("a", D0))
    assert claims.is_allocated(D0) and not claims.is_allocated(D1)
    cluster.catalog(ResourceClaim).remove("ns", "a")
    assert not claims.is_allocated(D0)


def test_claims_that_were_there_first_are_counted_too() -> None:
    cluster, _ = ledger(claim("a", D0))
    assert ResourceClaimTracker(cluster.catalog(ResourceClaim)).is_allocated(D0)


def test_a_promise_takes_devices_until_it_is_withdrawn() -> None:
    _, claims = ledger(claim("a"))
    claims.signal_pending_allocation(claim("a", D0))
    assert claims.is_allocated(D0) and claims.has_pending_allocation("uid-a")
    assert claims.get("ns", "a") == claim("a")
    assert claims.remove_pending_allocation("uid-a")
    assert not claims.is_allocated(D0)
    assert not claims.remove_pending_allocation("uid-a")


def test_what_was_written_counts_before_the_watch_says_so() -> None:
    cluster, claims = ledger(claim("a", version=1))
    claims.signal_pending_allocation(claim("a", D0))
    claims.assume_after_api_call(claim("a", D0, version=3))
    claims.remove_pending_allocation("uid-a")
    assert claims.is_allocated(D0)
    cluster.catalog(ResourceClaim).put(claim("a", version=2))  # late news
    assert claims.is_allocated(D0)
    assert claims.get("ns", "a") == claim("a", D0, version=3)


def test_the_watch_takes_over_once_it_has_caught_up() -> None:
    cluster, claims = ledger(claim("a", version=1))
    claims.assume_after_api_call(claim("a", D0, version=2))
    cluster.catalog(ResourceClaim).put(claim("a", D0, version=2))
    cluster.catalog(ResourceClaim).put(claim("a", version=3))
    assert not claims.is_allocated(D0)


def test_what_the_watch_has_told_already_is_not_kept() -> None:
    _, claims = ledger(claim("a", version=5))
    claims.assume_after_api_call(claim("a", D0, version=4))
    assert not claims.is_allocated(D0)
    assert claims.get("ns", "a") == claim("a", version=5)


def test_a_namesake_is_another_claim() -> None:
    cluster, claims = ledger(claim("a", D0))
    cluster.catalog(ResourceClaim).put(claim("a", D1, uid="another"))
    assert claims.is_allocated(D1) and not claims.is_allocated(D0)


def test_a_claim_that_was_deleted_is_gone() -> None:
    _, claims = ledger()
    claims.assume_after_api_call(claim("made", D0, version=1))
    claims.assume_deleted(claim("made", D0, version=1))
    assert not claims.is_allocated(D0)


def test_shares_add_up() -> None:
    cluster, claims = ledger(claim("a", D0, share="1"), claim("b", D0, share="2"))
    assert claims.is_shared(D0) and not claims.is_allocated(D0)
    assert claims.consumed_capacity(D0) == {"memory": 2 * 2**30 * 10**9}
    cluster.catalog(ResourceClaim).remove("ns", "a")
    assert claims.consumed_capacity(D0) == {"memory": 2**30 * 10**9}
    cluster.catalog(ResourceClaim).remove("ns", "b")
    assert claims.consumed_capacity(D0) is None


def test_who_only_looks_on_takes_nothing() -> None:
    result = DeviceRequestAllocationResult(driver="driver", pool="pool", device="d0", admin_access=True)
    status = ResourceClaimStatus(allocation=AllocationResult(devices=DeviceAllocationResult(results=[result])))
    _, claims = ledger(msgspec.structs.replace(claim("a"), status=status))
    assert not claims.is_allocated(D0)


def test_the_claim_for_extended_resources_is_found_by_its_pod() -> None:
    owner = OwnerReference(kind="Pod", name="p", uid="uid-p", controller=True)
    metadata = ObjectMeta(
        name="x", namespace="ns", uid="u", annotations={EXTENDED_RESOURCE_CLAIM: "true"}, owner_references=[owner]
    )
    cluster, claims = ledger(ResourceClaim(metadata=metadata))
    found = claims.extended_resource_claim("uid-p")
    assert found is not None and found.metadata.name == "x"
    cluster.catalog(ResourceClaim).remove("ns", "x")
    assert claims.extended_resource_claim("uid-p") is None


def test_every_change_of_a_pool_is_counted() -> None:
    cluster, claims = ledger()
    before = claims.pool_version("driver", "pool")
    cluster.catalog(ResourceClaim).put(claim("a", D0))
    assert claims.pool_version("driver", "pool") > before
    assert claims.pool_version("driver", "other") == 0


@st.composite
def _events(draw: st.DrawFn) -> list[tuple[str, str, tuple[DeviceID, ...]]]:
    kinds = st.sampled_from(["put", "remove", "promise", "withdraw", "wrote"])
    devices = st.sampled_from([(), (D0,), (D1,), (D0, D1)])
    return draw(st.lists(st.tuples(kinds, st.sampled_from("abc"), devices), max_size=20))


@given(_events())
def test_the_books_always_agree_with_the_claims(events: list[tuple[str, str, tuple[DeviceID, ...]]]) -> None:
    cluster, claims = ledger()
    catalog = cluster.catalog(ResourceClaim)
    promised: dict[str, tuple[DeviceID, ...]] = {}
    for version, (kind, name, devices) in enumerate(events, 1):
        if kind == "put":
            catalog.put(claim(name, *devices, version=version))
        elif kind == "remove":
            catalog.remove("ns", name)
        elif kind == "promise" and devices:
            claims.signal_pending_allocation(claim(name, *devices))
            promised[name] = devices
        elif kind == "withdraw":
            claims.remove_pending_allocation(f"uid-{name}")
            promised.pop(name, None)
        elif kind == "wrote" and catalog.get("ns", name) is not None:
            claims.assume_after_api_call(claim(name, *devices, version=version))
    for device in (D0, D1):
        known = [claims.get("ns", name) for name in "abc" if name not in promised]
        allocations = [one.status.allocation for one in known if one is not None and one.status.allocation]
        told = any(r.device == device.device for a in allocations for r in a.devices.results)
        assert claims.is_allocated(device) == (told or any(device in devices for devices in promised.values()))
