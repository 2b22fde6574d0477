"""In-memory writes with preconditions."""

from __future__ import annotations

import pytest

from kubestow.api.storage import PersistentVolumeClaim
from kubestow.cluster.cache import Cluster
from kubestow.engine.cluster_api.object_writes import VersionedStore, merge_patched
from kubestow.errors import APIError
from kubestow.scheduling.events.resources import resource_of
from kubestow.scheduling.interfaces import ObjectReference
from kubestow.testing.storage import claim

CLAIMS = resource_of(PersistentVolumeClaim)


def reference(obj: PersistentVolumeClaim, **changes: str) -> ObjectReference:
    of = obj.metadata
    fields = {"namespace": of.namespace, "name": of.name, "uid": of.uid, "resource_version": of.resource_version}
    return ObjectReference(kind="PersistentVolumeClaim", **(fields | changes))


def test_every_write_gets_a_newer_resource_version() -> None:
    store = VersionedStore(Cluster().catalog(PersistentVolumeClaim))
    versions = [int(store.put(obj).metadata.resource_version) for obj in (claim(), claim("other"), claim())]
    assert versions == sorted(set(versions))
    observed = claim("third", metadata={"resourceVersion": "100"})
    catalog = Cluster().catalog(PersistentVolumeClaim)
    catalog.put(observed)
    assert int(VersionedStore(catalog).put(observed).metadata.resource_version) > 100


def test_a_write_ends_what_was_assumed() -> None:
    catalog = Cluster().catalog(PersistentVolumeClaim)
    catalog.put(claim())
    catalog.assume(claim(selected_node="a"))
    VersionedStore(catalog).put(claim())
    assert catalog.assumed() == []


def test_a_merge_patch_changes_only_what_it_names() -> None:
    current = claim(metadata={"annotations": {"kept": "x", "gone": "y"}})
    patched = merge_patched(
        CLAIMS, current, reference(current), {"metadata": {"annotations": {"gone": None, "new": "z"}}}
    )
    assert patched.metadata.annotations == {"kept": "x", "new": "z"}
    assert patched.spec == current.spec


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"resource_version": "0"}, "the object has been modified; please apply your changes to the latest version"),
        ({"uid": "other"}, "Precondition failed: UID in precondition: other, UID in object meta: uid-default-data"),
    ],
)
def test_a_failed_precondition_is_a_conflict(changes: dict[str, str], problem: str) -> None:
    with pytest.raises(
        APIError, match=f'Operation cannot be fulfilled on persistentvolumeclaims "data": {problem}'
    ) as e:
        merge_patched(CLAIMS, claim(), reference(claim(), **changes), {})
    assert e.value.code == 409


def test_a_patch_of_a_missing_object_is_not_found() -> None:
    with pytest.raises(APIError, match='persistentvolumeclaims "data" not found'):
        merge_patched(CLAIMS, None, reference(claim()), {})
