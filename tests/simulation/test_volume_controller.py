"""The volume controller of offline worlds completes at once what was promised."""

from __future__ import annotations

from kubestow.api.storage import SELECTED_NODE, PersistentVolume, PersistentVolumeClaim
from kubestow.cluster.cache import Cluster
from kubestow.simulation.volume_controller import bind_promised_volumes
from kubestow.testing.storage import claim, volume


def cluster_with(*objects: PersistentVolume | PersistentVolumeClaim) -> Cluster:
    cluster = Cluster()
    for obj in objects:
        cluster.catalog(type(obj)).put(obj)
    return cluster


def claim_in(cluster: Cluster, name: str = "data") -> PersistentVolumeClaim:
    found = cluster.catalog(PersistentVolumeClaim).as_observed("default", name)
    assert found is not None
    return found


def test_a_promised_volume_is_bound_to_its_claim() -> None:
    cluster = cluster_with(claim(), volume("pv"))
    cluster.catalog(PersistentVolume).assume(volume("pv", claim="data", claim_uid="uid-default-data"))
    bind_promised_volumes(cluster)
    assert claim_in(cluster).is_bound and claim_in(cluster).spec.volume_name == "pv"
    assert [pv.status.phase for pv in cluster.catalog(PersistentVolume)] == ["Bound"]
    assert cluster.catalog(PersistentVolume).assumed() == []


def test_a_claim_to_be_provided_for_keeps_its_node_and_stays_unbound() -> None:
    cluster = cluster_with(claim())
    cluster.catalog(PersistentVolumeClaim).assume(claim(selected_node="a"))
    bind_promised_volumes(cluster)
    assert claim_in(cluster).metadata.annotations[SELECTED_NODE] == "a"
    assert not claim_in(cluster).is_bound


def test_once_woken_it_binds_what_was_reserved_by_others() -> None:
    reserved = (claim("other"), volume("pv-other", claim="other"), claim("strange"))
    stranger = volume("pv-strange", claim="strange", claim_uid="of-another")
    cluster = cluster_with(*reserved, stranger, claim())
    bind_promised_volumes(cluster)
    assert not claim_in(cluster, "other").is_bound
    cluster.catalog(PersistentVolumeClaim).assume(claim(selected_node="a"))
    bind_promised_volumes(cluster)
    assert claim_in(cluster, "other").is_bound
    assert not claim_in(cluster, "strange").is_bound
