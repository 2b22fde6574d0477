"""The objects of a kind: their observed and assumed states, and who hears of the changes."""

from __future__ import annotations

from typing import Any

import pytest

from kubestow.api.storage import PersistentVolumeClaim
from kubestow.cluster.cache import Cluster
from kubestow.cluster.changes.catalog import Catalog
from kubestow.cluster.changes.journal import EVERY_ROW
from kubestow.errors import KubestowError
from kubestow.testing.storage import claim


def state(name: str = "c", *, version: int = 1, size: str = "1Gi", namespace: str = "default") -> PersistentVolumeClaim:
    """A state of a claim; its size tells the states of one version apart."""
    return claim(name, namespace=namespace, size=size, metadata={"resourceVersion": str(version)})


class Listener:
    """Records the sizes before and after each change."""

    def __init__(self, catalog: Catalog[Any]) -> None:
        self.changes: list[tuple[str | None, str | None]] = []
        catalog.subscribe(self.changed)

    def changed(self, before: PersistentVolumeClaim | None, after: PersistentVolumeClaim | None) -> None:
        self.changes.append((_size(before), _size(after)))


def _size(shown: PersistentVolumeClaim | None) -> str | None:
    return None if shown is None else str(shown.spec.resources.requests["storage"])


def catalog_of(*claims: PersistentVolumeClaim) -> tuple[Cluster, Catalog[PersistentVolumeClaim]]:
    cluster = Cluster()
    for each in claims:
        cluster.catalog(PersistentVolumeClaim).put(each)
    return cluster, cluster.catalog(PersistentVolumeClaim)


def test_listeners_hear_of_all_objects_and_of_every_change() -> None:
    _, catalog = catalog_of(state("a"), state("b", size="2Gi"))
    listener = Listener(catalog)
    assert listener.changes == [(None, "1Gi"), (None, "2Gi")]
    listener.changes.clear()
    assert catalog.put(state("a", version=2, size="3Gi")) == state("a")
    assert catalog.put(state("new")) is None
    assert catalog.remove("default", "b") == state("b", size="2Gi")
    assert catalog.remove("default", "b") is None
    assert listener.changes == [("1Gi", "3Gi"), (None, "1Gi"), ("2Gi", None)]


def test_an_assumed_state_is_in_front_of_the_observed_one_until_it_is_restored() -> None:
    _, catalog = catalog_of(state())
    listener = Listener(catalog)
    listener.changes.clear()
    catalog.assume(state(size="2Gi"))
    assert (catalog.get("default", "c"), catalog.as_observed("default", "c")) == (state(size="2Gi"), state())
    assert catalog.assumed() == [state(size="2Gi")]
    catalog.assume(state(size="3Gi"))
    version = catalog.version
    for _ in range(2):
        catalog.restore("default", "c")
    assert (catalog.get("default", "c"), catalog.assumed()) == (state(), [])
    assert catalog.version == version + 1, "there was nothing to restore the second time"
    catalog.restore("default", "unknown")
    assert listener.changes == [("1Gi", "2Gi"), ("2Gi", "3Gi"), ("3Gi", "1Gi")]


def test_another_version_ends_what_was_assumed_and_the_same_one_does_not() -> None:
    _, catalog = catalog_of(state())
    listener = Listener(catalog)
    listener.changes.clear()
    catalog.assume(state(size="2Gi"))
    catalog.put(state())
    assert catalog.get("default", "c") == state(size="2Gi")
    catalog.put(state(version=2, size="3Gi"))
    assert (catalog.get("default", "c"), catalog.assumed()) == (state(version=2, size="3Gi"), [])
    catalog.assume(state(version=2, size="4Gi"))
    catalog.remove("default", "c")
    assert (catalog.get("default", "c"), catalog.assumed()) == (None, [])
    assert listener.changes == [("1Gi", "2Gi"), ("2Gi", "3Gi"), ("3Gi", "4Gi"), ("4Gi", None)]


def test_only_the_observed_state_of_an_object_can_be_built_on() -> None:
    _, catalog = catalog_of(state(version=2))
    with pytest.raises(KubestowError, match="PersistentVolumeClaim default/c has changed, so can't be assumed"):
        catalog.assume(state(version=1))
    with pytest.raises(KubestowError, match="PersistentVolumeClaim default/gone is gone, so can't be assumed"):
        catalog.assume(state("gone"))
    assert catalog.assumed() == []


def test_the_objects_of_a_namespace_are_in_the_order_of_their_names() -> None:
    _, catalog = catalog_of(state("b"), state("c"), state("a", namespace="other"))
    assert [each.metadata.name for each in catalog.in_namespace("default")] == ["b", "c"]
    catalog.put(state("a"))
    catalog.assume(state("b", size="2Gi"))
    assert [(each.metadata.name, _size(each)) for each in catalog.in_namespace("default")] == [
        *(("a", "1Gi"), ("b", "2Gi"), ("c", "1Gi"))
    ]
    catalog.remove("default", "c")
    assert [each.metadata.name for each in catalog.in_namespace("default")] == ["a", "b"]
    catalog.remove("other", "a")
    assert list(catalog.in_namespace("other")) == list(catalog.in_namespace("unknown")) == []
    assert len(catalog) == 2


def test_every_change_is_in_the_journal_and_has_a_version() -> None:
    cluster, catalog = catalog_of(state())
    position, version = cluster.journal.position, catalog.version
    catalog.assume(state(size="2Gi"))
    catalog.restore("default", "c")
    catalog.put(state(version=2))
    catalog.remove("default", "c")
    changes = cluster.journal.since(position)
    assert changes is not None
    assert (list(changes.rows), catalog.version - version) == ([EVERY_ROW] * 4, 4)
