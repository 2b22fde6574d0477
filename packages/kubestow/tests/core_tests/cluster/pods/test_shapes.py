"""What copies of a pod share in memory."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kubestow.api.core import Pod
from kubestow.api.meta import OwnerReference
from kubestow.cluster.pods.shapes import Shapes
from kubestow.testing import pod
from kubestow.testing.storage import mounting

SET = OwnerReference(api_version="apps/v1", kind="ReplicaSet", name="web", uid="uid-web", controller=True)


def owned(name: str, *owners: OwnerReference, annotations: dict[str, str] | None = None) -> Pod:
    made = pod(name)
    copies = [msgspec.structs.replace(owner) for owner in owners]
    metadata = msgspec.structs.replace(made.metadata, owner_references=copies, annotations=annotations or {})
    return msgspec.structs.replace(made, metadata=metadata)


def test_copies_share_what_is_equal_in_their_metadata() -> None:
    shapes = Shapes()
    infos = [shapes.info(owned(name, SET, annotations={"team": "a"})) for name in ("web-1", "web-2")]
    one, other = (info.metadata for info in infos)
    assert one.owner_references is other.owner_references
    assert one.annotations is other.annotations
    assert one.finalizers is other.finalizers
    assert (one.name, other.name) == ("web-1", "web-2")


def test_shapes_that_agree_in_some_labels_are_one_group() -> None:
    shapes = Shapes()
    one, other = (shapes.info(pod(labels={"app": "web", "pod": number})).shape for number in "12")
    assert one.group({"app"}) == other.group({"app"})
    assert one.group({"app"}).labels == (("app", "web"),)
    assert one.group({"pod"}) != other.group({"pod"})
    assert one.group(()) == other.group(())
    assert one.group(None) != other.group(None)
    assert one.group(None).labels == (("app", "web"), ("pod", "1"))


def test_claims_of_volumes_are_named_or_those_of_ephemeral_volumes() -> None:
    info = Shapes().info(pod(spec=mounting("data", ephemeral=["scratch"], inline=[{"emptyDir": {}}])))
    assert info.shape.family.claims == (frozenset({"data"}), frozenset({"scratch"}))


def test_copies_keep_what_differs_in_their_metadata() -> None:
    shapes = Shapes()
    replaced = msgspec.structs.replace(SET, uid="uid-of-the-next-web")
    first = shapes.info(owned("web-1", SET, annotations={"team": "a"}))
    second = shapes.info(owned("web-2", replaced))
    assert second.shape is first.shape
    assert [owner.uid for owner in second.metadata.owner_references] == ["uid-of-the-next-web"]
    assert second.metadata.annotations == {}


def test_finalizers_of_copies_are_their_own() -> None:
    shapes = Shapes()
    infos = [shapes.info(pod(f"p{number}", metadata={"finalizers": [f"f{number}"]})) for number in range(2)]
    assert infos[0].shape is infos[1].shape
    assert [info.metadata.finalizers for info in infos] == [["f0"], ["f1"]]


@pytest.mark.parametrize(
    ("change", "is_same"),
    [
        ({"metadata": {"resource_version": "2"}}, True),
        ({"spec": {"node_name": "n1"}}, True),
        ({"status": {"phase": "Running"}}, True),
        ({"metadata": {"labels": {"app": "web", "version": "2"}}}, False),
        ({"metadata": {"namespace": "other"}}, False),
        ({"metadata": {"owner_references": [msgspec.structs.replace(SET, name="next")]}}, False),
        ({"spec": {"priority": 7}}, False),
        ({"spec": {"priority": 7, "node_name": "n1"}}, False),
    ],
)
def test_a_state_of_a_pod_has_the_shape_that_it_has_by_itself(change: dict[str, Any], is_same: bool) -> None:
    shapes = Shapes()
    first = owned("web-1", SET)
    metadata = msgspec.structs.replace(first.metadata, labels={"app": "web"})
    before = shapes.info(msgspec.structs.replace(first, metadata=metadata))
    parts = {part: msgspec.structs.replace(getattr(before.pod, part), **fields) for part, fields in change.items()}
    later = msgspec.structs.replace(before.pod, **parts)
    found, expected = shapes.info(later, before), Shapes().info(later)
    assert (found.shape is before.shape) == is_same
    assert found.shape is shapes.shape(later)
    assert (found.shape.labels, found.shape.family.key) == (expected.shape.labels, expected.shape.family.key)
    assert found.pod == expected.pod
    assert (found.requests, found.nonzero_requests) == (expected.requests, expected.nonzero_requests)


def test_a_spec_that_pods_share_does_not_give_them_one_shape() -> None:
    shapes = Shapes()
    first = pod("a", labels={"app": "a"})
    other = msgspec.structs.replace(first, metadata=msgspec.structs.replace(first.metadata, labels={"app": "b"}))
    found = [shapes.info(each).shape for each in (first, other, first, other)]
    assert [shape.labels["app"] for shape in found] == ["a", "b", "a", "b"]
    assert len(set(found)) == 2


def with_volumes(name: str, *sources: dict[str, Any], node: str = "") -> Pod:
    return pod(name, node=node, spec=mounting("data", inline=list(sources)))


def test_a_placed_pod_has_the_shape_of_its_pending_copies() -> None:
    shapes = Shapes()
    pending, placed = shapes.info(pod("a", cpu="1")), shapes.info(pod("b", cpu="1", node="n"))
    assert placed.shape is pending.shape
    assert (placed.spec.node_name, placed.shape.spec.node_name) == ("n", "")
    assert (Shapes().shape(pod("b", node="n")).spec.node_name, len(shapes)) == ("", 1)


def test_volumes_that_do_not_matter_are_no_part_of_the_shape() -> None:
    shapes = Shapes()
    disk = {"gcePersistentDisk": {"pdName": "disk"}}
    config = {"configMap": {"name": "config"}}
    plain = shapes.info(with_volumes("a"))
    assert shapes.info(with_volumes("b", config)).shape is plain.shape
    assert shapes.info(with_volumes("c", config, config, node="n")).shape is plain.shape
    assert len(plain.shape.spec.volumes) == len(shapes.info(with_volumes("b", config)).spec.volumes) == 1
    assert shapes.info(with_volumes("d", disk)).shape is not plain.shape
    assert shapes.info(with_volumes("e", config, disk)).shape.spec.volumes[-1].name == "inline-1"


def test_pending_copies_share_their_spec_and_placed_ones_have_their_own() -> None:
    shapes = Shapes()
    one, other = shapes.info(pod("a", cpu="1")), shapes.info(pod("b", cpu="1"))
    assert one.spec is other.spec is one.shape.spec
    placed = shapes.info(pod("c", cpu="1", node="n"))
    assert placed.spec is not one.spec
    assert one.spec.node_name == ""


@pytest.mark.parametrize(
    ("change", "is_same"),
    [
        ({"uid": "another"}, True),
        ({"name": "next"}, False),
        ({"kind": "StatefulSet"}, False),
        ({"api_version": "apps/v2"}, False),
        ({"controller": False}, False),
    ],
)
def test_pods_of_different_controllers_have_different_shapes(change: dict[str, Any], is_same: bool) -> None:
    shapes = Shapes()
    first = shapes.shape(owned("web-1", SET))
    assert (shapes.shape(owned("web-2", msgspec.structs.replace(SET, **change))) is first) == is_same
    assert shapes.shape(owned("alone")) is not first
    assert first.controller is not None and first.controller.name == "web"


@pytest.mark.parametrize(("owners", "owners_later"), [((), (SET,)), ((SET,), ())])
def test_a_pod_that_gets_or_loses_a_controller_has_another_shape(
    owners: tuple[OwnerReference, ...], owners_later: tuple[OwnerReference, ...]
) -> None:
    shapes = Shapes()
    before = shapes.info(owned("web-1", *owners))
    later = shapes.info(owned("web-1", *owners_later), before)
    assert later.shape is not before.shape
    assert (later.shape.controller is None) == (not owners_later)
