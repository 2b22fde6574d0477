"""Which volume a claim gets, and what binding writes."""

from __future__ import annotations

from typing import Any

import pytest

from kubestow.api.meta import ObjectMeta
from kubestow.api.storage import IS_DEFAULT_CLASS, PersistentVolume, PersistentVolumeClaim, StorageClass
from kubestow.rules.volumes import VolumeIndex, bound_claim, bound_volume, default_storage_class, may_bind_by_name
from kubestow.testing.storage import claim, volume

RWO, RWX = "ReadWriteOnce", "ReadWriteMany"


def match(
    wanted: PersistentVolumeClaim, *volumes: PersistentVolume, reserved_only: bool = False
) -> PersistentVolume | None:
    index = VolumeIndex()
    for one in volumes:
        index.put(one)
    return index.find_match(wanted, reserved_only=reserved_only)


@pytest.mark.parametrize(
    ("volumes", "best"),
    [
        ([volume("big", size="9Gi"), volume("fitting", size="2Gi"), volume("small")], "fitting"),
        ([volume("b", size="2Gi"), volume("a", size="2Gi")], "a"),
        ([volume("shared", size="2Gi", modes=[RWO, RWX]), volume("fewest", size="9Gi")], "fewest"),
        ([volume("other", size="2Gi", storage_class="x")], None),
        ([volume("bound", size="2Gi", phase="Bound")], None),
        ([volume("read", size="2Gi", modes=["ReadOnlyMany"])], None),
        ([volume("block", size="2Gi", spec={"volumeMode": "Block"})], None),
        ([volume("gone", size="2Gi", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})], None),
        ([volume("invalid", size="2Gx")], None),
        ([volume("unknown", spec={"capacity": {}})], None),
    ],
)
def test_a_claim_gets_the_unbound_volume_with_the_fewest_access_modes_that_is_smallest(
    volumes: list[PersistentVolume], best: str | None
) -> None:
    for order in (volumes, volumes[::-1]):
        found = match(claim(size="2Gi"), *order)
        assert (None if found is None else found.metadata.name) == best
        assert match(claim(size="2Gi"), *order, reserved_only=True) is None


@pytest.mark.parametrize(
    ("reserved", "is_found"),
    [
        (volume("pv", size="9Gi", claim="data"), True),
        (volume("pv", claim="data", storage_class="x"), True),  # whatever its class
        (volume("pv", claim="data", phase="Released"), True),
        (volume("pv", claim="data", claim_uid="of-another"), False),
        (volume("pv", claim="data", size="1Mi"), False),
        (volume("pv", claim="data", modes=[RWX]), False),
    ],
)
def test_a_reserved_volume_comes_first_if_it_satisfies_the_claim(reserved: PersistentVolume, is_found: bool) -> None:
    assert (match(claim(), reserved, reserved_only=True) is not None) == is_found
    found = match(claim(), volume("a"), reserved)
    assert found is not None
    assert found.metadata.name == ("pv" if is_found else "a")


def test_of_several_volumes_that_are_reserved_for_a_claim_it_gets_the_first_by_name() -> None:
    volumes = [volume(name, claim="data") for name in ("b", "a", "c")]
    assert match(claim(), *volumes, reserved_only=True) == volumes[1]


def test_a_volume_that_was_replaced_or_removed_is_found_no_more() -> None:
    index = VolumeIndex()
    index.put(volume("pv"))
    index.put(volume("pv", claim="another"))
    assert index.find_match(claim(), reserved_only=False) is None
    assert index.get("pv") == volume("pv", claim="another")
    index.remove("pv")
    assert (index.get("pv"), index.find_match(claim("another"), reserved_only=False)) == (None, None)


def test_the_other_volumes_of_its_class_stay_when_one_is_removed() -> None:
    index = VolumeIndex()
    for name in ("a", "b"):
        index.put(volume(name))
    index.remove("a")
    assert index.find_match(claim(), reserved_only=False) == volume("b")
    index.remove("b")
    assert not index._groups


def test_a_volume_of_unknown_size_satisfies_no_claim_that_requests_one() -> None:
    assert match(claim(size="1"), volume(spec={"capacity": {}})) is None


def test_a_claim_that_requests_no_size_gets_any_volume() -> None:
    assert match(claim(spec={"resources": {}}), volume(size="0")) == volume(size="0")


@pytest.mark.parametrize(
    ("named", "may_bind"),
    [
        (volume(), True),
        (volume(phase="Released"), True),
        (volume(storage_class="x"), False),
        (volume(modes=[RWX]), False),
        (volume(size="1Mi"), False),
        (volume(claim="data", size="1Mi", modes=[RWX]), True),  # reserved for the claim by hand
        (volume(claim="another"), False),
    ],
)
def test_a_claim_may_have_the_volume_that_it_names_if_that_is_reserved_for_it_or_matches(
    named: PersistentVolume, may_bind: bool
) -> None:
    assert may_bind_by_name(named, claim(spec={"volumeName": "pv"})) == may_bind


REFERENCE = {"kind": "PersistentVolumeClaim", "namespace": "default", "name": "data", "uid": "u"}
CLAIM: dict[str, Any] = {"metadata": {"name": "data"}, "spec": {"resources": {}}, "status": {"phase": "Pending"}}
VOLUME: dict[str, Any] = {
    "metadata": {"name": "pv"},
    "spec": {"capacity": {"storage": "1Gi"}, "accessModes": [RWO]},
    "status": {"phase": "Available"},
}


def test_binding_writes_each_side_once() -> None:
    bound = bound_volume(VOLUME, REFERENCE, "2026-01-01T00:00:00Z")
    assert bound["spec"]["claimRef"] == REFERENCE
    assert bound["metadata"]["annotations"] == {"pv.kubernetes.io/bound-by-controller": "yes"}
    assert bound["status"] == {"phase": "Bound", "lastPhaseTransitionTime": "2026-01-01T00:00:00Z"}
    assert bound_volume(bound, {**REFERENCE, "resourceVersion": "9"}, "2026-02-02T00:00:00Z") == bound

    written = bound_claim(CLAIM, bound)
    assert written["spec"] == {"resources": {}, "volumeName": "pv"}
    assert written["status"] == {"phase": "Bound", "accessModes": [RWO], "capacity": {"storage": "1Gi"}}
    assert written["metadata"]["annotations"] == {
        "pv.kubernetes.io/bind-completed": "yes",
        "pv.kubernetes.io/bound-by-controller": "yes",
    }
    assert bound_claim(written, bound) == written


def test_binding_keeps_the_annotations_of_the_volume() -> None:
    annotated = {**VOLUME, "metadata": {"name": "pv", "annotations": {"a": "b"}}}
    assert bound_volume(annotated, REFERENCE)["metadata"]["annotations"] == {
        "a": "b",
        "pv.kubernetes.io/bound-by-controller": "yes",
    }


def test_binding_keeps_what_the_status_says_besides() -> None:
    resizing = {**CLAIM, "status": {"phase": "Pending", "allocatedResources": {"storage": "2Gi"}}}
    assert bound_claim(resizing, VOLUME)["status"]["allocatedResources"] == {"storage": "2Gi"}


def test_what_was_bound_by_hand_is_not_marked_as_bound_by_the_controller() -> None:
    prebound = {**VOLUME, "spec": {**VOLUME["spec"], "claimRef": {**REFERENCE, "uid": ""}}}
    bound = bound_volume(prebound, REFERENCE)
    assert (bound["spec"]["claimRef"], bound["metadata"]) == (REFERENCE, {"name": "pv"})
    assert bound["status"] == {"phase": "Bound"}  # without a clock
    named = bound_claim({**CLAIM, "spec": {"volumeName": "pv"}}, bound)
    assert named["metadata"]["annotations"] == {"pv.kubernetes.io/bind-completed": "yes"}


def test_of_several_default_classes_the_newest_is_used_then_the_first_by_name() -> None:
    def storage_class(name: str, created: str, default: str = "true") -> StorageClass:
        metadata = ObjectMeta(name=name, creation_timestamp=created, annotations={IS_DEFAULT_CLASS: default})
        return StorageClass(metadata=metadata)

    classes = [storage_class("old", "2025"), storage_class("b", "2026"), storage_class("a", "2026")]
    assert default_storage_class([*classes, storage_class("none", "2027", "false")]) == "a"
    assert default_storage_class([]) is None
