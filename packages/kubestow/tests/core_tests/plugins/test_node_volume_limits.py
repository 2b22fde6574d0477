"""NodeVolumeLimits: the limits of CSI drivers on attached volumes (semantics 8.11)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from core_tests.plugins.volumes import plugin_harness, put
from kubestow.cluster.nodes.views import HypotheticalNodes, NodeChange
from kubestow.framework.interface import Plugin
from kubestow.testing import PluginHarness, node, pod
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

NAME = "NodeVolumeLimits"
EXCEEDED = (NAME, ("node(s) exceed max volume count",))
EBS = {"awsElasticBlockStore": {"volumeID": "vol-1"}}


def claims(*names: str) -> Iterable[Any]:
    """Bound claims and their volumes."""
    for name in names:
        yield claim(name, volume=f"pv-{name}")
        yield volume(f"pv-{name}", claim=name)


def limited(*objects: Any, limit: int | None = 1, **gates: bool) -> PluginHarness:
    """A node whose CSI driver can attach ``limit`` volumes, and bound claims x, y and z."""
    return plugin_harness(
        node("a"), csi_node("a", csi_example_com=limit), *claims("x", "y", "z"), *objects, gates=gates
    )


def test_a_node_takes_as_many_volumes_as_its_driver_can_attach() -> None:
    scheduler = limited(pod("first", node="a", spec=mounting("x")), limit=2)
    assert scheduler.feasible(pod("second", spec=mounting("y"))) == {"a"}
    assert scheduler.rejections(pod("third", spec=mounting("y", "z"))) == {"a": EXCEEDED}


def test_a_volume_that_pods_share_counts_once() -> None:
    scheduler = limited(pod("first", node="a", spec=mounting("x")), pod("second", node="a", spec=mounting("x")))
    assert scheduler.feasible(pod("third", spec=mounting("x"))) == {"a"}
    scheduler.cluster.remove_pod("uid-default-first")
    assert scheduler.rejections(pod("fourth", spec=mounting("y"))) == {"a": EXCEEDED}
    scheduler.cluster.remove_pod("uid-default-second")
    assert scheduler.feasible(pod("fourth", spec=mounting("y"))) == {"a"}


def test_a_pod_that_adds_no_volume_passes_on_a_node_above_its_limit() -> None:
    scheduler = limited(pod("first", node="a", spec=mounting("x", "y")), limit=1)
    assert scheduler.feasible(pod("second", spec=mounting("x"))) == {"a"}


def test_a_driver_without_a_limit_can_attach_any_number_of_volumes() -> None:
    assert limited(limit=None).feasible(pod("many", spec=mounting("x", "y", "z"))) == {"a"}


def test_an_attachment_counts_even_when_no_pod_uses_it() -> None:
    scheduler = limited(attachment("at", node="a", volume="pv-x"))
    assert scheduler.rejections(pod("other", spec=mounting("y"))) == {"a": EXCEEDED}
    scheduler.cluster.catalog(type(attachment("at", node="a", volume="pv-x"))).remove("", "at")
    assert scheduler.feasible(pod("other", spec=mounting("y"))) == {"a"}


def test_an_attachment_of_a_volume_that_a_pod_mounts_counts_once() -> None:
    scheduler = limited(pod("first", node="a", spec=mounting("x")), attachment("at", node="a", volume="pv-x"), limit=2)
    assert scheduler.feasible(pod("second", spec=mounting("y"))) == {"a"}


def test_an_attachment_counts_once_its_volume_is_known() -> None:
    scheduler = limited(attachment("at", node="a", volume="late"))
    other = pod("other", spec=mounting("y"))
    assert scheduler.feasible(other) == {"a"}
    put(scheduler, volume("late"))
    assert scheduler.rejections(other) == {"a": EXCEEDED}


def test_a_claim_without_a_volume_counts_as_a_volume_of_its_provisioner() -> None:
    scheduler = limited(
        storage_class("fast", provisioner="csi.example.com"),
        claim("new", storage_class="fast"),
        pod("first", node="a", spec=mounting("x")),
    )
    assert scheduler.rejections(pod("second", spec=mounting("new"))) == {"a": EXCEEDED}


def test_a_claim_counts_for_another_driver_after_it_is_bound() -> None:
    scheduler = limited(
        storage_class("fast", provisioner="other.example.com"),
        claim("late", storage_class="fast"),
        pod("first", node="a", spec=mounting("late")),
    )
    assert scheduler.feasible(pod("second", spec=mounting("x"))) == {"a"}
    put(scheduler, volume("pv-late", claim="late"), claim("late", volume="pv-late"))
    assert scheduler.rejections(pod("second", spec=mounting("x"))) == {"a": EXCEEDED}


def test_in_tree_volumes_count_under_their_csi_driver_where_there_is_a_csi_node() -> None:
    scheduler = plugin_harness(
        node("a"),
        node("b"),
        csi_node("a", ebs_csi_aws_com=1),
        pod("first", node="a", spec=mounting(inline=[EBS])),
        claim("x", volume="pv"),
        volume("pv", claim="x", source={"awsElasticBlockStore": {"volumeID": "aws://zone/vol-2"}}),
    )
    assert scheduler.rejections(pod("second", spec=mounting("x"))) == {"a": EXCEEDED}


def test_an_in_tree_provisioner_counts_as_the_csi_driver_it_migrated_to() -> None:
    scheduler = plugin_harness(
        node("a"),
        csi_node("a", ebs_csi_aws_com=0),
        storage_class("gp2", provisioner="kubernetes.io/aws-ebs"),
        claim("x", storage_class="gp2"),
    )
    assert scheduler.rejections(pod("p", spec=mounting("x"))) == {"a": EXCEEDED}


def test_the_limits_of_a_new_csi_node_apply_to_existing_pods() -> None:
    scheduler = plugin_harness(node("a"), *claims("x", "y"), pod("first", node="a", spec=mounting("x")))
    second = pod("second", spec=mounting("y"))
    assert scheduler.feasible(second) == {"a"}
    put(scheduler, csi_node("a", csi_example_com=1))
    assert scheduler.rejections(second) == {"a": EXCEEDED}


def test_an_inline_volume_that_cannot_be_translated_is_an_error() -> None:
    scheduler = plugin_harness(node("a"), csi_node("a"))
    broken = {"awsElasticBlockStore": {"volumeID": "aws://zone/no-volume"}}
    assert (
        "converting volume(inline-0) from inline to csi: Invalid format for AWS volume"
        in scheduler.decide(pod("p", spec=mounting(inline=[broken]))).message
    )


def test_an_ephemeral_claim_with_another_owner_is_an_error_on_a_node_with_limits() -> None:
    scheduler = limited(
        claim("first-scratch", volume="pv-x", owner="other"),
        pod("first", node="a", spec=mounting(ephemeral=["scratch"])),
        limit=5,
    )
    message = scheduler.decide(pod("second", spec=mounting("y"))).message
    assert message == (
        'running "NodeVolumeLimits" filter plugin: PVC default/first-scratch was not created for pod default/first '
        "(pod is not owner)"
    )
    put(scheduler, ephemeral_claim("first", "scratch", volume="pv-x"))
    assert scheduler.feasible(pod("second", spec=mounting("y"))) == {"a"}


def test_a_missing_driver_rejects_a_node_only_with_the_gate() -> None:
    driver = csi_driver("csi.example.com", must_be_installed=True)
    scheduler = plugin_harness(node("a"), driver, *claims("x"))
    assert scheduler.feasible(pod("p", spec=mounting("x"))) == {"a"}
    scheduler = plugin_harness(node("a"), driver, *claims("x"), gates={"VolumeLimitScaling": True})
    refused = {"a": (NAME, ("csi.example.com CSI driver is not installed on the node",))}
    assert scheduler.rejections(pod("p", spec=mounting("x"))) == refused
    put(scheduler, csi_node("a", csi_example_com=None))
    assert scheduler.feasible(pod("p", spec=mounting("x"))) == {"a"}


def test_a_missing_claim_rejects_a_pod_without_the_other_volume_plugins() -> None:
    others = [{"name": name} for name in ("VolumeRestrictions", "VolumeBinding", "VolumeZone")]
    scheduler = plugin_harness(node("a"), csi_node("a"), profile={"plugins": {"multiPoint": {"disabled": others}}})
    reason = 'looking up PVC default/gone: persistentvolumeclaim "gone" not found'
    assert scheduler.rejections(pod("p", spec=mounting("gone"))) == {"a": (NAME, (reason,))}


def test_removed_pods_free_only_volumes_that_no_other_pod_uses() -> None:
    scheduler = limited(
        pod("one", node="a", spec=mounting("x")),
        pod("two", node="a", spec=mounting("x")),
        limit=1,
    )
    decision = scheduler.decide(pod("new", spec=mounting("y")))
    assert decision.feasibility is not None
    infos = [scheduler.cluster.nodes.pods[0][f"uid-default-{name}"] for name in ("one", "two")]
    views = [
        HypotheticalNodes(scheduler.cluster.nodes, np.array([0]), [NodeChange(removed=tuple(infos[:gone]))])
        for gone in (1, 2)
    ]
    refused = [[r.plugin for r in decision.feasibility.filters.rejections(view)] for view in views]
    assert refused == [[NAME], []]


def hint(scheduler: PluginHarness, label: str) -> Any:
    plugin: Plugin = next(p for p in scheduler.profiles["default-scheduler"].plugins if p.name == NAME)
    return next(i.hint for i in plugin.events_to_register if i.event.label == label)


def test_higher_limits_and_freed_volumes_requeue_a_pod() -> None:
    scheduler = limited()
    waiting = scheduler.info(pod("p", spec=mounting("x", inline=[EBS])))
    grew, deleted = hint(scheduler, "storage.k8s.io/CSINodeUpdate"), hint(scheduler, "PodDelete")
    assert grew(waiting, csi_node("a", d=1), csi_node("a", d=2))
    assert not grew(waiting, csi_node("a", d=2), csi_node("a", d=2))
    assert deleted(waiting, scheduler.info(pod("x", node="a", spec=mounting("y"))), None)
    assert not deleted(waiting, scheduler.info(pod("x", node="a")), None)
    assert not deleted(waiting, scheduler.info(pod("x", spec=mounting("y"))), None)
    detached = hint(scheduler, "storage.k8s.io/VolumeAttachmentDelete")
    inline = scheduler.info(pod("p", spec=mounting(inline=[EBS])))
    assert detached(waiting, attachment("x", node="a", volume="v"), None)
    assert detached(inline, attachment("x", node="a", volume="v", driver="ebs.csi.aws.com"), None)
    assert not detached(inline, attachment("x", node="a", volume="v"), None)
    added = hint(scheduler, "PersistentVolumeClaimAdd")
    assert added(waiting, None, claim("x")) and not added(waiting, None, claim("y"))


def test_results_are_not_shared_by_pods_with_ephemeral_volumes() -> None:
    """Their claims belong to one pod each."""
    scheduler = limited()
    (plugin,) = (each for each in scheduler.profiles["default-scheduler"].plugins if each.name == NAME)
    ephemeral: dict[str, Any] = {"ephemeral": {"volumeClaimTemplate": {"spec": {}}}}
    assert plugin.signature(scheduler.info(pod("a", spec=mounting(inline=[ephemeral])))) is None
    mounted = (("a", "x"), ("b", "x"), ("c", "y"))
    with_claim, twin, other = (plugin.signature(scheduler.info(pod(name, spec=mounting(of)))) for name, of in mounted)
    assert with_claim is not None
    assert with_claim == twin
    assert with_claim != other
