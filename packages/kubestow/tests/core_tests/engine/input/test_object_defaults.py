"""Objects of manifests get what the API server and controllers add to them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from core_tests.engine.input.manifests import Object, arrivals, cluster, node, pod, workload, write
from kubestow.api.core import Namespace
from kubestow.api.meta import convert
from kubestow.api.resource import ResourceClaim
from kubestow.api.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.engine.input.object_defaults import with_default_class
from kubestow_lab.what_if.node_pools import read_node_pools


def one(found: ClusterObjects, kind: type[Any]) -> Any:
    """The only object of a kind."""
    [obj] = (obj for obj in found.objects if isinstance(obj, kind))
    return obj


def storage_class(name: str, *, default: bool = False, created: str | None = None) -> Object:
    annotations = {"storageclass.kubernetes.io/is-default-class": "true"} if default else {}
    metadata = {"name": name, "annotations": annotations, "creationTimestamp": created}
    return {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": metadata, "provisioner": "csi"}


def claim(name: str, **spec: Any) -> Object:
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec}


def test_a_node_can_allocate_its_capacity(tmp_path: Path) -> None:
    shape = {**node("a"), "status": {"capacity": {"cpu": "2", "pods": "10"}}}
    assert cluster(tmp_path, shape).nodes[0].status.allocatable == {"cpu": "2", "pods": "10"}
    path = tmp_path / "pool.yaml"
    path.write_text("kind: Node\nmetadata: {name: shape}\nstatus: {capacity: {cpu: 2}}\n")
    assert read_node_pools(path)[0].node(0).status.allocatable["cpu"] == "2"


def test_the_allocatable_amounts_of_a_node_are_kept(tmp_path: Path) -> None:
    shape = {**node("a"), "status": {"capacity": {"cpu": "2"}, "allocatable": {"cpu": "1"}}}
    assert cluster(tmp_path, shape).nodes[0].status.allocatable == {"cpu": "1"}


def test_a_storage_class_binds_immediately(tmp_path: Path) -> None:
    assert one(cluster(tmp_path, storage_class("fast")), StorageClass).volume_binding_mode == "Immediate"


def test_an_unbound_volume_is_available(tmp_path: Path) -> None:
    volume = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v"}, "spec": {}}
    assert one(cluster(tmp_path, volume), PersistentVolume).status.phase == "Available"
    released = {**volume, "status": {"phase": "Released"}}
    assert one(cluster(tmp_path, released), PersistentVolume).status.phase == "Released"


def test_a_device_request_is_for_one_device(tmp_path: Path) -> None:
    requests = [
        {"name": "one", "exactly": {"deviceClassName": "gpu"}},
        {"name": "all", "exactly": {"deviceClassName": "gpu", "allocationMode": "All"}},
        {"name": "any", "firstAvailable": [{"name": "two", "count": 2}, {"name": "one"}]},
    ]
    manifest = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "gpu"},
        "spec": {"devices": {"requests": requests}},
    }
    exact, everything, first = one(cluster(tmp_path, manifest), ResourceClaim).spec.devices.requests
    assert (exact.exactly.allocation_mode, exact.exactly.count) == ("ExactCount", 1)
    assert (everything.exactly.allocation_mode, everything.exactly.count) == ("All", 0)
    assert [(s.allocation_mode, s.count) for s in first.first_available] == [("ExactCount", 2), ("ExactCount", 1)]


def test_claims_without_a_class_get_the_default_one(tmp_path: Path) -> None:
    within = cluster(
        tmp_path,
        node("a"),
        claim("old"),
        storage_class("older", default=True, created="2026-01-01T00:00:00Z"),
        storage_class("b", default=True, created="2026-01-02T00:00:00Z"),
        storage_class("a", default=True, created="2026-01-02T00:00:00Z"),
        storage_class("newest", created="2026-01-03T00:00:00Z"),
    )
    assert one(within, PersistentVolumeClaim).storage_class == "a"
    template = {"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}
    stateful_set = workload("StatefulSet", "db", volumeClaimTemplates=[template])
    found = arrivals(tmp_path, stateful_set, claim("static", storageClassName=""), claim("named", volumeName="v"))
    assert [o.storage_class for o in found.objects if isinstance(o, PersistentVolumeClaim)] == ["", "", ""]
    found = arrivals(
        tmp_path, stateful_set, claim("static", storageClassName=""), claim("named", volumeName="v"), within=within
    )
    classes = {o.metadata.name: o.storage_class for o in found.objects if isinstance(o, PersistentVolumeClaim)}
    assert classes == {"data-db-0": "a", "static": "", "named": ""}


def test_a_default_class_of_the_workload_counts(tmp_path: Path) -> None:
    found = arrivals(tmp_path, pod("p"), claim("data"), storage_class("mine", default=True))
    assert [o.storage_class for o in found.objects if isinstance(o, PersistentVolumeClaim)] == ["mine"]


def test_a_dump_is_read_as_it_is(tmp_path: Path) -> None:
    bound = {
        **claim("data", storageClassName="fast", volumeName="v"),
        "status": {"phase": "Bound"},
    }
    found = ClusterObjects.load(write(tmp_path, node("a"), bound, storage_class("other", default=True)))
    assert one(found, PersistentVolumeClaim).storage_class == "fast"


def test_only_a_storage_class_is_the_default_class() -> None:
    annotations = {"storageclass.kubernetes.io/is-default-class": "true"}
    namespace = convert(Namespace, {"metadata": {"name": "n", "annotations": annotations}})
    without = convert(PersistentVolumeClaim, {"metadata": {"name": "data"}})
    assert with_default_class([without], [namespace]) == [without]
