"""The immediate volume controller of the simulation."""

from __future__ import annotations

from kubestow.api.storage import PersistentVolume, PersistentVolumeClaim
from kubestow.cluster.cache import Cluster
from kubestow.simulation.cluster_api.object_writes import VersionedStore
from kubestow.simulation.cluster_api.volume_controller import bind_reserved_volumes
from kubestow.testing.storage import claim, volume


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
