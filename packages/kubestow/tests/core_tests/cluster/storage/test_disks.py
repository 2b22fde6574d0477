"""Which in-tree inline disks two pods cannot share on one node."""

from __future__ import annotations

from typing import Any

import pytest

from kubestow.cluster.pods.shapes import Shapes
from kubestow.cluster.storage.pod_volumes import disks_of
from kubestow.testing import pod
from kubestow.testing.storage import mounting


def conflict(one: dict[str, Any], other: dict[str, Any]) -> bool:
    shapes = Shapes()
    (first,), (second,) = (disks_of(shapes.info(pod(spec=mounting(inline=[each]))).shape) for each in (one, other))
    return first.conflicts_with(second)


def gce(name: str = "d", *, read_only: bool = False) -> dict[str, Any]:
    return {"gcePersistentDisk": {"pdName": name, "readOnly": read_only}}


def iscsi(iqn: str = "d", *, read_only: bool = False) -> dict[str, Any]:
    return {"iscsi": {"iqn": iqn, "targetPortal": "t", "lun": 0, "readOnly": read_only}}


def rbd(*monitors: str, image: str = "d", pool: str = "rbd", read_only: bool = False) -> dict[str, Any]:
    return {"rbd": {"image": image, "pool": pool, "monitors": list(monitors), "readOnly": read_only}}


EBS: dict[str, Any] = {"awsElasticBlockStore": {"volumeID": "d", "readOnly": True}}


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (gce(), gce(), True),
        (gce(), gce("e"), False),
        (gce(), gce(read_only=True), True),
        (gce(read_only=True), gce(read_only=True), False),
        (EBS, EBS, True),  # although both are read-only
        (gce(), EBS, False),
        (gce(), iscsi(), False),
        (EBS, iscsi(), False),
        (iscsi(), iscsi(), True),
        (iscsi(read_only=True), iscsi(read_only=True), False),
        (rbd("m1", "m2"), rbd("m2"), True),
        (rbd("m1"), rbd("m2"), False),
        (rbd("m1"), rbd("m1", pool="other"), False),
        (rbd("m1"), rbd("m1", image="other"), False),
        (rbd("m1", read_only=True), rbd("m1", read_only=True), False),
    ],
)
def test_a_disk_is_shared_by_readers_only(one: dict[str, Any], other: dict[str, Any], expected: bool) -> None:
    assert conflict(one, other) is expected
    assert conflict(other, one) is expected
