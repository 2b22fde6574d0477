"""The index of trees of pod groups follows their catalogs."""

from __future__ import annotations

from random import Random
from typing import Any

from kubestow.api.meta import convert
from kubestow.api.scheduling import CompositePodGroup, PodGroup
from kubestow.cluster.cache import Cluster
from kubestow.cluster.pods.hierarchies import MAX_LEVELS, Group, Hierarchies, ancestors


def made(kind: type[Any], name: str, parent: str, *, version: int = 1, created: str | None = None) -> Any:
    metadata = {"name": name, "namespace": "default", "resourceVersion": str(version), "creationTimestamp": created}
    return convert(kind, {"metadata": metadata, "spec": {"parentCompositePodGroupName": parent}})


def names(groups: list[Group]) -> list[str]:
    return [group.metadata.name for group in groups]


def test_children_are_in_the_order_of_their_creation_whatever_their_kind() -> None:
    cluster = Cluster()
    hierarchies = Hierarchies(cluster.catalog(PodGroup), cluster.catalog(CompositePodGroup))
    root = made(CompositePodGroup, "root", "")
    cluster.catalog(PodGroup).put(made(PodGroup, "a", "root", created="2026-01-02T00:00:00Z"))
    cluster.catalog(PodGroup).put(made(PodGroup, "c", "root", created="2026-01-01T00:00:00Z"))
    cluster.catalog(CompositePodGroup).put(made(CompositePodGroup, "b", "root", created="2026-01-01T00:00:00Z"))
    assert names(hierarchies.children(root)) == ["b", "c", "a"]


def test_the_root_is_known_if_all_groups_above_exist_and_are_not_too_many() -> None:
    cluster = Cluster()
    composites = cluster.catalog(CompositePodGroup)
    hierarchies = Hierarchies(cluster.catalog(PodGroup), composites)
    leaf = made(PodGroup, "leaf", "c1")
    assert hierarchies.root_of(made(PodGroup, "alone", "")) == made(PodGroup, "alone", "")
    assert list(ancestors(leaf, composites)) == [None]
    assert hierarchies.root_of(leaf) is None
    levels = [made(CompositePodGroup, f"c{number}", f"c{number + 1}") for number in range(1, MAX_LEVELS - 1)]
    for one in levels:
        composites.put(one)
    assert [*ancestors(leaf, composites)] == [*levels, None]
    top = made(CompositePodGroup, f"c{MAX_LEVELS - 1}", "")
    composites.put(top)
    assert [*ancestors(leaf, composites)] == [*levels, top]
    assert hierarchies.root_of(leaf) == top
    composites.put(made(CompositePodGroup, f"c{MAX_LEVELS - 1}", "above", version=2))
    composites.put(made(CompositePodGroup, "above", ""))
    assert [*ancestors(leaf, composites)][-1] is None
    assert hierarchies.root_of(leaf) is None


def test_the_names_above_a_group_end_at_the_top_or_with_the_first_that_is_missing() -> None:
    cluster = Cluster()
    hierarchies = Hierarchies(cluster.catalog(PodGroup), cluster.catalog(CompositePodGroup))
    leaf = made(PodGroup, "leaf", "c1")
    found = [list(hierarchies.names_above(made(PodGroup, "alone", ""))), list(hierarchies.names_above(leaf))]
    for name, parent in (("c1", "c2"), ("c2", "")):
        cluster.catalog(CompositePodGroup).put(made(CompositePodGroup, name, parent))
        found.append(list(hierarchies.names_above(leaf)))
    assert found == [[], ["c1"], ["c1", "c2"], ["c1", "c2"]]


def test_the_index_is_what_the_catalogs_say_after_any_changes() -> None:
    random, cluster = Random(1), Cluster()
    kinds: tuple[type[Any], ...] = (PodGroup, CompositePodGroup)
    hierarchies = Hierarchies(*(cluster.catalog(kind) for kind in kinds))
    parents = ["", "p", "q", "r"]
    for version in range(600):
        kind, name = random.choice(kinds), random.choice("abcdef")
        if random.random() < 0.3:
            cluster.catalog(kind).remove("default", name)
        else:
            cluster.catalog(kind).put(made(kind, name, random.choice(parents), version=version))
        for parent in parents[1:]:
            everything = [group for each in kinds for group in cluster.catalog(each)]
            expected = {id(each) for each in everything if each.spec.parent_composite_pod_group_name == parent}
            assert {id(each) for each in hierarchies.children(made(CompositePodGroup, parent, ""))} == expected
    assert hierarchies._children.keys() <= {("default", parent) for parent in parents}
