"""The immediate volume controller of the simulation."""

from __future__ import annotations

from kubestow.api.storage import SELECTED_NODE, PersistentVolume, PersistentVolumeClaim
from kubestow.cluster.cache import Cluster
from kubestow.simulation.volume_controller import bind_assumed_volumes
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


def test_an_assumed_volume_is_bound_to_its_claim() -> None:
    cluster = cluster_with(claim(), volume("pv"))
    cluster.catalog(PersistentVolume).assume(volume("pv", claim="data", claim_uid="uid-default-data"))
    bind_assumed_volumes(cluster)
    assert claim_in(cluster).is_bound and claim_in(cluster).spec.volume_name == "pv"
    assert [pv.status.phase for pv in cluster.catalog(PersistentVolume)] == ["Bound"]
    assert cluster.catalog(PersistentVolume).assumed() == []


def test_a_claim_for_dynamic_provisioning_keeps_its_node_and_stays_unbound() -> None:
    cluster = cluster_with(claim())
    cluster.catalog(PersistentVolumeClaim).assume(claim(selected_node="a"))
    bind_assumed_volumes(cluster)
    assert claim_in(cluster).metadata.annotations[SELECTED_NODE] == "a"
    assert not claim_in(cluster).is_bound


def test_prebound_volumes_are_bound_together_with_assumed_ones() -> None:
    prebound = (claim("other"), volume("pv-other", claim="other"), claim("recreated"))
    stale = volume("pv-recreated", claim="recreated", claim_uid="of-another")
    cluster = cluster_with(*prebound, stale, claim())
    bind_assumed_volumes(cluster)
    assert not claim_in(cluster, "other").is_bound
    cluster.catalog(PersistentVolumeClaim).assume(claim(selected_node="a"))
    bind_assumed_volumes(cluster)
    assert claim_in(cluster, "other").is_bound
    assert not claim_in(cluster, "recreated").is_bound
