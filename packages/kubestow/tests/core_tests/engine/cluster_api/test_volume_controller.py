"""The volume controllers of simulations."""

from __future__ import annotations

from kubestow.api.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from kubestow.cluster.cache import Cluster
from kubestow.engine.cluster_api.object_writes import VersionedStore
from kubestow.engine.cluster_api.volume_controller import bind_reserved_volumes, with_bound_volumes
from kubestow.testing.storage import claim, storage_class, volume


def bound_claims(*objects: PersistentVolume | PersistentVolumeClaim) -> dict[str, str]:
    """The volumes of the claims that the controller binds, by claim."""
    cluster = Cluster()
    for obj in objects:
        cluster.catalog(type(obj)).put(obj)
    volumes, claims = cluster.catalog(PersistentVolume), cluster.catalog(PersistentVolumeClaim)
    bind_reserved_volumes(VersionedStore(volumes), VersionedStore(claims))
    bound = {c.metadata.name: c.spec.volume_name for c in claims if c.is_bound}
    assert {pv.metadata.name for pv in volumes if pv.status.phase == "Bound"} == set(bound.values())
    return bound


def test_a_volume_is_bound_to_the_claim_of_its_claim_ref() -> None:
    reserved = volume("pv", claim="data", claim_uid="uid-default-data")
    assert bound_claims(claim(), reserved, volume("free")) == {"data": "pv"}


def test_a_pre_bound_volume_needs_no_uid_of_its_claim() -> None:
    assert bound_claims(claim(), volume("pv", claim="data")) == {"data": "pv"}


def test_a_volume_of_a_former_claim_of_that_name_is_not_bound() -> None:
    assert bound_claims(claim(), volume("pv", claim="data", claim_uid="of-another")) == {}


def test_a_claim_for_dynamic_provisioning_stays_unbound() -> None:
    assert bound_claims(claim(selected_node="a")) == {}


def volumes_of_claims(*objects: PersistentVolume | PersistentVolumeClaim | StorageClass) -> dict[str, str]:
    """The volumes of the claims that are bound before any pod needs them, by claim; in any order of the objects."""
    found = []
    for order in (objects, objects[::-1]):
        after = with_bound_volumes(order)
        bound = {
            c.metadata.name: c.spec.volume_name for c in after if isinstance(c, PersistentVolumeClaim) if c.is_bound
        }
        taken = {v.metadata.name for v in after if isinstance(v, PersistentVolume) if v.status.phase == "Bound"}
        assert taken == set(bound.values())
        found.append(bound)
    assert found[0] == found[1]
    return found[0]


def test_a_claim_without_a_class_to_wait_for_gets_the_smallest_volume_that_satisfies_it() -> None:
    volumes = (
        volume("big", size="9Gi"),
        volume("fitting", size="2Gi"),
        volume("small"),
        volume("other", storage_class="x"),
    )
    assert volumes_of_claims(claim(size="2Gi"), *volumes) == {"data": "fitting"}
    assert volumes_of_claims(claim(size="2Gi"), *volumes, storage_class(waits=False)) == {"data": "fitting"}
    assert volumes_of_claims(claim(size="2Gi"), *volumes, storage_class()) == {}


def test_a_volume_is_bound_to_one_claim() -> None:
    assert len(volumes_of_claims(claim("a"), volume("pv"))) == 1
    after = with_bound_volumes([claim("a"), claim("b"), volume("pv")])
    assert sum(1 for obj in after if isinstance(obj, PersistentVolumeClaim) and obj.is_bound) == 1


def test_a_reserved_volume_comes_before_smaller_ones_and_before_provisioning() -> None:
    reserved = volume("mine", size="9Gi", claim="data")
    for waits in (True, False):
        provisioning = storage_class(provisioner="csi", waits=waits)
        assert volumes_of_claims(claim(), volume("free"), reserved, provisioning) == {"data": "mine"}


def test_a_claim_gets_the_volume_that_it_names_or_none() -> None:
    named = claim(spec={"volumeName": "pv"})
    provisioning = storage_class(provisioner="csi", waits=False)
    assert volumes_of_claims(named, volume("a"), volume("pv", size="9Gi"), provisioning) == {"data": "pv"}
    assert volumes_of_claims(named, volume("a"), volume("pv", claim="another"), provisioning) == {}


def test_a_volume_is_provisioned_whatever_the_order_of_the_objects() -> None:
    provisioning = storage_class(provisioner="csi", waits=False)
    assert volumes_of_claims(claim(), provisioning) == {"data": "pvc-uid-default-data"}


def test_a_class_without_a_provisioner_provisions_nothing() -> None:
    for provisioner in ("", "kubernetes.io/no-provisioner"):
        assert volumes_of_claims(claim(), storage_class(provisioner=provisioner, waits=False)) == {}
    provisioned = volumes_of_claims(claim(), storage_class(provisioner="csi", waits=False))
    assert provisioned == {"data": "pvc-uid-default-data"}
    waiting = storage_class(provisioner="csi")
    assert volumes_of_claims(claim(), waiting) == {}
    assert volumes_of_claims(claim(selected_node="a"), waiting) == {"data": "pvc-uid-default-data"}
