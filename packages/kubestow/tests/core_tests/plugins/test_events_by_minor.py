"""Events and queueing hints of plugins that are not the same in all minor versions."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from core_tests.plugins.hints import requeues_after
from core_tests.scheduling.queue.test_minor_versions import around
from kubestow.api.core import Pod
from kubestow.api.storage import CSIDriver, CSINode, VolumeAttachment
from kubestow.cluster.changes.events import Action, EventResource
from kubestow.rules.minors import Behaviour, Minor
from kubestow.testing import PluginHarness, pod

HOSTNAME = "kubernetes.io/hostname"
WITH_CLAIM = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}


def terms(kind: str, **labels: str) -> dict[str, Any]:
    term = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": labels}}
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


REPELLED = pod("a", affinity=terms("podAntiAffinity", app="db"))


@pytest.mark.parametrize(
    ("plugin", "rejected", "deleted"),
    [
        ("NodeResourcesFit", pod("a", cpu="1"), pod("b", nominated="n")),
        ("NodePorts", pod("a", host_ports=[80]), pod("b", host_ports=[80], nominated="n")),
        ("NodeVolumeLimits", pod("a", spec=WITH_CLAIM), pod("b", spec=WITH_CLAIM, nominated="n")),
    ],
)
@around(Behaviour.HINTS_LOOK_AT_NOMINATED_PODS)
def test_the_deletion_of_a_nominated_pod_may_help(
    plugin: str, rejected: Pod, deleted: Pod, minor: Minor, has_behaviour: bool
) -> None:
    resource, action = EventResource.ASSIGNED_POD, Action.DELETE
    assert requeues_after(plugin, rejected, resource, action, old=deleted, minor=minor) is has_behaviour
    placed = pod("c", node="n", host_ports=[80], spec=WITH_CLAIM)
    assert requeues_after(plugin, rejected, resource, action, old=placed, minor=minor)


@pytest.mark.parametrize(
    ("plugin", "rejected"),
    [
        ("InterPodAffinity", REPELLED),
        (
            "PodTopologySpread",
            pod(
                "a",
                spread=[
                    {
                        "maxSkew": 1,
                        "topologyKey": HOSTNAME,
                        "whenUnsatisfiable": "DoNotSchedule",
                        "labelSelector": {"matchLabels": {"app": "db"}},
                    }
                ],
            ),
        ),
    ],
)
@around(Behaviour.TOPOLOGY_HINTS_LOOK_AT_NOMINATED_PODS)
def test_the_deletion_of_a_nominated_pod_may_help_topologies(
    plugin: str, rejected: Pod, minor: Minor, has_behaviour: bool
) -> None:
    resource, action = EventResource.ASSIGNED_POD, Action.DELETE
    deleted = pod("b", labels={"app": "db"}, nominated="n")
    assert requeues_after(plugin, rejected, resource, action, old=deleted, minor=minor) is has_behaviour
    placed = pod("b", labels={"app": "db"}, node="n")
    assert requeues_after(plugin, rejected, resource, action, old=placed, minor=minor)


@around(Behaviour.AFFINITY_HINT_LOOKS_AT_THE_POD_ITSELF)
def test_the_labels_of_the_pod_itself_and_the_pods_that_repel_it_may_help(minor: Minor, has_behaviour: bool) -> None:
    own = pod("a", labels={"app": "x"})
    changed = pod("a", labels={"app": "y"})
    resource, action = EventResource.UNSCHEDULABLE_POD, Action.UPDATE_POD_LABEL
    assert requeues_after("InterPodAffinity", own, resource, action, old=own, new=changed, minor=minor) is has_behaviour
    repelling = pod("b", node="n", affinity=terms("podAntiAffinity", app="x"))
    resource, action = EventResource.ASSIGNED_POD, Action.DELETE
    assert requeues_after("InterPodAffinity", own, resource, action, old=repelling, minor=minor) is has_behaviour


@around(Behaviour.ANTI_AFFINITY_HINT_LOOKS_AT_EVERY_TERM)
def test_one_of_several_anti_affinity_terms_may_have_repelled_a_pod(minor: Minor, has_behaviour: bool) -> None:
    two = terms("podAntiAffinity", app="db")
    two["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] += terms("podAntiAffinity", app="web")[
        "podAntiAffinity"
    ]["requiredDuringSchedulingIgnoredDuringExecution"]
    resource, labelled = EventResource.ASSIGNED_POD, pod("b", labels={"app": "db"}, node="n")

    def helps(rejected: Pod, action: Action, old: Pod, new: Pod | None = None) -> bool:
        return requeues_after("InterPodAffinity", rejected, resource, action, old=old, new=new, minor=minor)

    repelled = pod("a", affinity=two)
    assert helps(repelled, Action.DELETE, labelled) is has_behaviour
    relabelled = pod("b", labels={"app": "other"}, node="n")
    assert helps(repelled, Action.UPDATE_POD_LABEL, labelled, relabelled) is has_behaviour
    still_repelling = pod("b", labels={"app": "web"}, node="n")
    assert not helps(repelled, Action.UPDATE_POD_LABEL, labelled, still_repelling)
    repelling = pod("b", node="n", affinity=two)
    assert helps(pod("a", labels={"app": "db"}), Action.DELETE, repelling) is has_behaviour
    assert not helps(pod("a", labels={"app": "x"}), Action.DELETE, repelling)


def attachment(attacher: str) -> VolumeAttachment:
    return msgspec.convert({"metadata": {"name": "x"}, "spec": {"attacher": attacher}}, VolumeAttachment)


@around(Behaviour.ATTACHMENT_DELETIONS_REQUEUE)
def test_the_deletion_of_an_attachment_may_help(minor: Minor, has_behaviour: bool) -> None:
    resource, action = EventResource.VOLUME_ATTACHMENT, Action.DELETE
    rejected = pod("a", spec=WITH_CLAIM)
    deleted = attachment("csi.example.org")
    assert requeues_after("NodeVolumeLimits", rejected, resource, action, old=deleted, minor=minor) is has_behaviour


def csi_node(count: int) -> CSINode:
    drivers = [{"name": "d", "nodeID": "n", "allocatable": {"count": count}}]
    return msgspec.convert({"metadata": {"name": "n"}, "spec": {"drivers": drivers}}, CSINode)


@around(Behaviour.VOLUME_LIMIT_HINTS)
def test_limits_that_grow_may_help_and_hints_decide_about_attachments(minor: Minor, has_behaviour: bool) -> None:
    rejected = pod("a")
    old, new = csi_node(1), csi_node(2)
    resource, action = EventResource.CSI_NODE, Action.UPDATE
    assert (
        requeues_after("NodeVolumeLimits", rejected, resource, action, old=old, new=new, minor=minor) is has_behaviour
    )
    # The pod has no volumes, so a hint says that the deletion does not help.
    resource, action = EventResource.VOLUME_ATTACHMENT, Action.DELETE
    helps = requeues_after("NodeVolumeLimits", rejected, resource, action, old=attachment("csi.a"), minor=minor)
    assert helps is not has_behaviour


@around(Behaviour.CSI_DRIVER_HINT)
def test_a_csi_driver_helps_if_it_no_longer_tracks_capacity(minor: Minor, has_behaviour: bool) -> None:
    driver = CSIDriver(metadata=pod("d").metadata)
    resource, rejected = EventResource.CSI_DRIVER, pod("a")
    helps = requeues_after("VolumeBinding", rejected, resource, Action.UPDATE, old=driver, new=driver, minor=minor)
    assert helps is not has_behaviour
    assert requeues_after("VolumeBinding", rejected, resource, Action.ADD, new=driver, minor=minor) is not has_behaviour


@around(Behaviour.PREEMPTORS_WAIT_FOR_DELETIONS)
def test_default_preemption_registers_deletions(minor: Minor, has_behaviour: bool) -> None:
    plugins = PluginHarness(minor=minor).profiles["default-scheduler"].plugins
    plugin = next(plugin for plugin in plugins if plugin.name == "DefaultPreemption")
    assert bool(plugin.events_to_register) is has_behaviour


@pytest.mark.parametrize(("minor", "helps"), [(Minor(32), False), (Minor(33), True)])
def test_a_scale_down_helps_with_its_gate(minor: Minor, helps: bool) -> None:
    resource, action = EventResource.ASSIGNED_POD, Action.UPDATE_POD_SCALE_DOWN
    old, new = pod("b", node="n", cpu="2"), pod("b", node="n", cpu="1")
    rejected = pod("a", cpu="1")
    assert requeues_after("NodeResourcesFit", rejected, resource, action, old=old, new=new, minor=minor) is helps
