"""NodeVolumeLimits: how many volumes the CSI drivers of a node can attach."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from kubestow.cluster.nodes.views import Change, HypotheticalNodes
from kubestow.framework.interface import Plugin
from kubestow.testing import World, node, pod
from kubestow.testing.storage import (
    attachment,
    claim,
    csi_driver,
    csi_node,
    ephemeral_claim,
    mounting,
    storage_class,
    volume,
)
from tests.plugins.volumes import put, world

NAME = "NodeVolumeLimits"
EXCEEDED = (NAME, ("node(s) exceed max volume count",))
EBS = {"awsElasticBlockStore": {"volumeID": "vol-1"}}


def claims(*names: str) -> Iterable[Any]:
    """Bound claims with their volumes."""
    for name in names:
        yield claim(name, volume=f"pv-{name}")
        yield volume(f"pv-{name}", claim=name)


def limited(*objects: Any, limit: int | None = 1, **gates: bool) -> World:
    """A node on which a driver can attach so many volumes."""
    return world(node("a"), csi_node("a", csi_example_com=limit), *claims("x", "y", "z"), *objects, gates=gates)


def test_a_node_takes_as_many_volumes_as_its_driver_can_attach() -> None:
    there = limited(pod("first", node="a", spec=mounting("x")), limit=2)
    assert there.feasible(pod("second", spec=mounting("y"))) == {"a"}
    assert there.refusals(pod("third", spec=mounting("y", "z"))) == {"a": EXCEEDED}


def test_a_volume_that_pods_share_counts_once() -> None:
    there = limited(pod("first", node="a", spec=mounting("x")), pod("second", node="a", spec=mounting("x")))
    assert there.feasible(pod("third", spec=mounting("x"))) == {"a"}
    there.cluster.remove_pod("uid-default-first")
    assert there.refusals(pod("fourth", spec=mounting("y"))) == {"a": EXCEEDED}
    there.cluster.remove_pod("uid-default-second")
    assert there.feasible(pod("fourth", spec=mounting("y"))) == {"a"}


def test_a_pod_that_adds_nothing_is_welcome_on_a_full_node() -> None:
    there = limited(pod("first", node="a", spec=mounting("x", "y")), limit=1)
    assert there.feasible(pod("second", spec=mounting("x"))) == {"a"}


def test_without_a_limit_there_is_none() -> None:
    assert limited(limit=None).feasible(pod("many", spec=mounting("x", "y", "z"))) == {"a"}


def test_an_attachment_counts_even_when_no_pod_uses_it() -> None:
    there = limited(attachment("at", node="a", volume="pv-x"))
    assert there.refusals(pod("other", spec=mounting("y"))) == {"a": EXCEEDED}
    there.cluster.catalog(type(attachment("at", node="a", volume="pv-x"))).remove("", "at")
    assert there.feasible(pod("other", spec=mounting("y"))) == {"a"}


def test_an_attachment_of_a_volume_that_a_pod_mounts_counts_once() -> None:
    there = limited(pod("first", node="a", spec=mounting("x")), attachment("at", node="a", volume="pv-x"), limit=2)
    assert there.feasible(pod("second", spec=mounting("y"))) == {"a"}


def test_an_attachment_counts_from_when_its_volume_is_known() -> None:
    there = limited(attachment("at", node="a", volume="late"))
    other = pod("other", spec=mounting("y"))
    assert there.feasible(other) == {"a"}
    put(there, volume("late"))
    assert there.refusals(other) == {"a": EXCEEDED}


def test_a_claim_without_a_volume_counts_for_whoever_will_provide_it() -> None:
    there = limited(
        storage_class("fast", provisioner="csi.example.com"),
        claim("new", storage_class="fast"),
        pod("first", node="a", spec=mounting("x")),
    )
    assert there.refusals(pod("second", spec=mounting("new"))) == {"a": EXCEEDED}


def test_the_count_follows_a_claim_that_gets_its_volume() -> None:
    there = limited(
        storage_class("fast", provisioner="other.example.com"),
        claim("late", storage_class="fast"),
        pod("first", node="a", spec=mounting("late")),
    )
    assert there.feasible(pod("second", spec=mounting("x"))) == {"a"}
    put(there, volume("pv-late", claim="late"), claim("late", volume="pv-late"))
    assert there.refusals(pod("second", spec=mounting("x"))) == {"a": EXCEEDED}


def test_in_tree_volumes_count_under_their_csi_driver_where_there_is_a_csi_node() -> None:
    there = world(
        node("a"),
        node("b"),
        csi_node("a", ebs_csi_aws_com=1),
        pod("first", node="a", spec=mounting(inline=[EBS])),
        claim("x", volume="pv"),
        volume("pv", claim="x", source={"awsElasticBlockStore": {"volumeID": "aws://zone/vol-2"}}),
    )
    assert there.refusals(pod("second", spec=mounting("x"))) == {"a": EXCEEDED}


def test_an_in_tree_provisioner_counts_as_the_driver_that_took_it_over() -> None:
    there = world(
        node("a"),
        csi_node("a", ebs_csi_aws_com=0),
        storage_class("gp2", provisioner="kubernetes.io/aws-ebs"),
        claim("x", storage_class="gp2"),
    )
    assert there.refusals(pod("p", spec=mounting("x"))) == {"a": EXCEEDED}


def test_a_new_csi_node_brings_limits_for_the_pods_that_are_there() -> None:
    there = world(node("a"), *claims("x", "y"), pod("first", node="a", spec=mounting("x")))
    second = pod("second", spec=mounting("y"))
    assert there.feasible(second) == {"a"}
    put(there, csi_node("a", csi_example_com=1))
    assert there.refusals(second) == {"a": EXCEEDED}


def test_an_inline_volume_that_cannot_be_translated_is_an_error() -> None:
    there = world(node("a"), csi_node("a"))
    broken = {"awsElasticBlockStore": {"volumeID": "aws://zone/no-volume"}}
    assert (
        "converting volume(inline-0) from inline to csi: Invalid format for AWS volume"
        in there.decide(pod("p", spec=mounting(inline=[broken]))).message
    )


def test_someone_elses_ephemeral_claim_is_an_error_on_a_limited_node() -> None:
    there = limited(
        claim("first-scratch", volume="pv-x", owner="somebody"),
        pod("first", node="a", spec=mounting(ephemeral=["scratch"])),
        limit=5,
    )
    message = there.decide(pod("second", spec=mounting("y"))).message
    assert message == (
        'running "NodeVolumeLimits" filter plugin: PVC default/first-scratch was not created for pod default/first '
        "(pod is not owner)"
    )
    put(there, ephemeral_claim("first", "scratch", volume="pv-x"))
    assert there.feasible(pod("second", spec=mounting("y"))) == {"a"}


def test_a_driver_that_must_be_installed_is_missed_only_behind_its_gate() -> None:
    driver = csi_driver("csi.example.com", must_be_installed=True)
    there = world(node("a"), driver, *claims("x"))
    assert there.feasible(pod("p", spec=mounting("x"))) == {"a"}
    there = world(node("a"), driver, *claims("x"), gates={"VolumeLimitScaling": True})
    refused = {"a": (NAME, ("csi.example.com CSI driver is not installed on the node",))}
    assert there.refusals(pod("p", spec=mounting("x"))) == refused
    put(there, csi_node("a", csi_example_com=None))
    assert there.feasible(pod("p", spec=mounting("x"))) == {"a"}


def test_a_missing_claim_refuses_when_nothing_else_has_looked_for_it() -> None:
    others = [{"name": name} for name in ("VolumeRestrictions", "VolumeBinding", "VolumeZone")]
    there = world(node("a"), csi_node("a"), profile={"plugins": {"multiPoint": {"disabled": others}}})
    reason = 'looking up PVC default/gone: persistentvolumeclaim "gone" not found'
    assert there.refusals(pod("p", spec=mounting("gone"))) == {"a": (NAME, (reason,))}


def test_victims_free_only_volumes_that_nobody_else_holds() -> None:
    there = limited(
        pod("one", node="a", spec=mounting("x")),
        pod("two", node="a", spec=mounting("x")),
        limit=1,
    )
    decision = there.decide(pod("new", spec=mounting("y")))
    assert decision.feasibility is not None
    infos = [there.cluster.nodes.pods[0][f"uid-default-{name}"] for name in ("one", "two")]
    views = [
        HypotheticalNodes(there.cluster.nodes, np.array([0]), [Change(removed=tuple(infos[:gone]))]) for gone in (1, 2)
    ]
    refused = [[r.plugin for r in decision.feasibility.filters.refusals(view)] for view in views]
    assert refused == [[NAME], []]


def hint(there: World, label: str) -> Any:
    plugin: Plugin = next(p for p in there.profiles["default-scheduler"].plugins if p.name == NAME)
    return next(i.hint for i in plugin.events_to_register if i.event.label == label)


def test_hints_wake_for_more_room_and_freed_volumes() -> None:
    there = limited()
    wanting = there.info(pod("p", spec=mounting("x", inline=[EBS])))
    grew, deleted = hint(there, "storage.k8s.io/CSINodeUpdate"), hint(there, "PodDelete")
    assert grew(wanting, csi_node("a", d=1), csi_node("a", d=2))
    assert not grew(wanting, csi_node("a", d=2), csi_node("a", d=2))
    assert deleted(wanting, there.info(pod("x", node="a", spec=mounting("y"))), None)
    assert not deleted(wanting, there.info(pod("x", node="a")), None)
    assert not deleted(wanting, there.info(pod("x", spec=mounting("y"))), None)
    detached = hint(there, "storage.k8s.io/VolumeAttachmentDelete")
    inline = there.info(pod("p", spec=mounting(inline=[EBS])))
    assert detached(wanting, attachment("x", node="a", volume="v"), None)
    assert detached(inline, attachment("x", node="a", volume="v", driver="ebs.csi.aws.com"), None)
    assert not detached(inline, attachment("x", node="a", volume="v"), None)
    added = hint(there, "PersistentVolumeClaimAdd")
    assert added(wanting, None, claim("x")) and not added(wanting, None, claim("y"))
