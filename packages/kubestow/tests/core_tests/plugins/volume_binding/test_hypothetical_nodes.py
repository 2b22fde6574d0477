"""The volume plugins treat real, single and hypothetical rows alike after any sequence of events."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from core_tests.decisions import rejectors_of
from core_tests.plugins.volumes import plugin_harness, put
from kubestow.api.core import Pod
from kubestow.cluster.nodes.views import HypotheticalNodes, NodeChange, Nodes
from kubestow.scheduling.decision.result import Decision
from kubestow.testing import PluginHarness, node, pod
from kubestow.testing.storage import (
    DRIVER,
    attachment,
    capacity,
    claim,
    csi_driver,
    csi_node,
    mounting,
    storage_class,
    volume,
)

NODES = st.sampled_from(["n0", "n1", "n2", "n3"])
ZONES = st.sampled_from(["a", "b"])
CLAIMS = st.sampled_from(["c0", "c1", "c2", "c3"])
DISK: dict[str, Any] = {"gcePersistentDisk": {"pdName": "disk"}}
READ_ONLY: dict[str, Any] = {"gcePersistentDisk": {"pdName": "disk", "readOnly": True}}
EBS: dict[str, Any] = {"awsElasticBlockStore": {"volumeID": "vol-1"}}
POD_SPECS = st.sampled_from(
    [
        mounting("c0"),
        mounting("c1", "c2"),
        mounting("c3"),
        mounting(inline=[DISK]),
        mounting(inline=[READ_ONLY]),
        mounting("c0", inline=[EBS]),
        mounting(ephemeral=["own"]),
    ]
)
PROBES = [
    pod("one", spec=mounting("c0")),
    pod("two", spec=mounting("c1", "c2")),
    pod("disk", spec=mounting("c3", inline=[DISK])),
    pod("reader", spec=mounting(inline=[READ_ONLY, EBS])),
]
CLASSES = (storage_class(), storage_class("fast", provisioner=DRIVER, zones=["a"]), csi_driver(tracks_capacity=True))


def outcome(decision: Decision, harness: PluginHarness) -> object:
    """The message and the rejecting plugins, or the feasible nodes by name."""
    if decision.node_name is None:
        return decision.message, sorted(rejectors_of(decision))
    return sorted(Nodes(harness.cluster.nodes, decision.candidates).names)


def rejections(decision: Decision, nodes: Nodes, row: int) -> list[Any]:
    assert decision.feasibility is not None
    found = decision.feasibility.filters.rejections(nodes)
    return [(refusal.plugin, refusal.verdict.status(row)) for refusal in found if refusal.where[row]]


class VolumesMachine(RuleBasedStateMachine):
    """A cluster with random events; after each of them decisions must equal those of a new scheduler."""

    def __init__(self) -> None:
        super().__init__()
        self.objects: dict[tuple[type, str], Any] = {(type(obj), obj.metadata.name): obj for obj in CLASSES}
        self.pods: dict[str, Pod] = {}
        self.harness = plugin_harness(*CLASSES)

    def _put(self, obj: Any) -> None:
        self.objects[type(obj), obj.metadata.name] = obj
        put(self.harness, obj)

    @rule(name=NODES, zone=ZONES)
    def add_or_update_node(self, name: str, zone: str) -> None:
        obj = node(name, zone=zone, labels={"topology.ebs.csi.aws.com/zone": "b"})
        known = name in self.harness.cluster.nodes.rows
        (self.harness.cluster.update_node if known else self.harness.cluster.add_node)(obj)
        self.objects[type(obj), name] = obj

    @rule(name=NODES)
    def remove_node(self, name: str) -> None:
        if name in self.harness.cluster.nodes.rows:
            self.harness.cluster.remove_node(name)
            del self.objects[type(node()), name]

    @rule(name=NODES, limit=st.none() | st.integers(0, 2), ebs=st.none() | st.integers(0, 1), migrated=st.booleans())
    def put_csi_node(self, name: str, limit: int | None, ebs: int | None, migrated: bool) -> None:
        plugins = ["kubernetes.io/aws-ebs"] if migrated else []
        self._put(csi_node(name, migrated=plugins, csi_example_com=limit, ebs_csi_aws_com=ebs))

    @rule(name=CLAIMS, bound=st.booleans(), exclusive=st.booleans(), fast=st.booleans())
    def put_claim(self, name: str, bound: bool, exclusive: bool, fast: bool) -> None:
        mode = "ReadWriteOncePod" if exclusive else "ReadWriteOnce"
        volume_name = f"pv-{name}" if bound else ""
        self._put(claim(name, volume=volume_name, modes=[mode], storage_class="fast" if fast else "slow"))

    @rule(name=CLAIMS, zone=st.none() | ZONES, free=st.booleans(), ebs=st.booleans())
    def put_volume(self, name: str, zone: str | None, free: bool, ebs: bool) -> None:
        source = {"awsElasticBlockStore": {"volumeID": f"vol-{name}"}} if ebs else None
        self._put(volume(f"pv-{name}", zone=zone, claim="" if free else name, source=source, labels={}))

    @rule(zone=ZONES, available=st.sampled_from(["1Mi", "1Gi"]))
    def put_capacity(self, zone: str, available: str) -> None:
        self._put(capacity(f"in-{zone}", available=available, zone=zone, storage_class="fast"))

    @rule(node_name=NODES, name=CLAIMS)
    def put_attachment(self, node_name: str, name: str) -> None:
        self._put(attachment(f"at-{name}", node=node_name, volume=f"pv-{name}"))

    @rule(kind=st.sampled_from([claim, volume, csi_node, attachment, capacity]), pick=st.integers(0, 9))
    def remove_object(self, kind: Any, pick: int) -> None:
        examples: dict[Any, Any] = {
            claim: claim(),
            volume: volume(),
            csi_node: csi_node("n"),
            attachment: attachment("x", node="n", volume="v"),
            capacity: capacity("x", available="1"),
        }
        names = sorted(name for of, name in self.objects if of is type(examples[kind]))
        if names:
            obj = self.objects.pop((type(examples[kind]), names[pick % len(names)]))
            self.harness.cluster.catalog(type(obj)).remove(obj.metadata.namespace, obj.metadata.name)

    @rule(number=st.integers(0, 5), node_name=NODES, spec=POD_SPECS)
    def put_pod_on_node(self, number: int, node_name: str, spec: dict[str, Any]) -> None:
        obj = pod(f"b{number}", node=node_name, spec=spec)
        self.harness.cluster.put_pod(self.harness.info(obj))
        self.pods[obj.metadata.uid] = obj

    @rule(number=st.integers(0, 5))
    def remove_pod_from_node(self, number: int) -> None:
        self.harness.cluster.remove_pod(f"uid-default-b{number}")
        self.pods.pop(f"uid-default-b{number}", None)

    @rule(probe=st.sampled_from(PROBES))
    def decide(self, probe: Pod) -> None:
        self.harness.decide(probe)

    @precondition(lambda self: len(self.harness.cluster.nodes) > 0)
    @invariant()
    def decisions_equal_those_of_a_new_scheduler(self) -> None:
        fresh = plugin_harness(*self.objects.values(), *self.pods.values())
        for probe in PROBES:
            assert outcome(self.harness.decide(probe), self.harness) == outcome(fresh.decide(probe), fresh)

    @precondition(lambda self: len(self.harness.cluster.nodes) > 0)
    @rule(probe=st.sampled_from(PROBES))
    def a_view_of_one_row_gets_the_verdict_of_this_row(self, probe: Pod) -> None:
        decision = self.harness.decide(probe)
        if _is_rejected_by_pre_filter(decision):
            return
        nodes = self.harness.cluster.all_nodes()
        for row in range(len(nodes)):
            alone = Nodes(self.harness.cluster.nodes, np.array([row]))
            whole = rejections(decision, nodes, row)
            assert rejections(decision, alone, row) == whole

    @precondition(lambda self: len(self.harness.cluster.nodes) > 0)
    @rule(probe=st.sampled_from(PROBES), spec=POD_SPECS, pick=st.integers(0, 9), keep=st.booleans())
    def a_hypothetical_node_gets_the_verdict_of_a_real_one(
        self, probe: Pod, spec: dict[str, Any], pick: int, keep: bool
    ) -> None:
        cluster = self.harness.cluster
        decision = self.harness.decide(probe)
        if _is_rejected_by_pre_filter(decision) or _is_rejected_by_volume_restrictions(decision):
            return
        row = pick % len(cluster.nodes)
        removed = () if keep else tuple(cluster.nodes.pods[row].values())
        added = self.harness.info(pod("new", node=cluster.nodes.names[row], spec=spec))
        change = NodeChange(removed=removed, added=(added,))
        view = HypotheticalNodes(cluster.nodes, np.array([row]), [change])
        simulated = rejections(decision, view, row)
        after = plugin_harness(*self.objects.values(), *self.pods.values())
        for info in removed:
            after.cluster.remove_pod(info.uid)
        put(after, added.pod)
        later_decision = after.decide(probe)
        if not _is_rejected_by_pre_filter(later_decision) and not _is_rejected_by_volume_restrictions(later_decision):
            row_after = after.cluster.nodes.rows[cluster.nodes.names[row]]
            assert simulated == rejections(later_decision, after.cluster.all_nodes(), row_after)


def _is_rejected_by_pre_filter(decision: Decision) -> bool:
    assert decision.feasibility is not None
    return decision.feasibility.error is not None or decision.feasibility.diagnose().pre_filter_status is not None


def _is_rejected_by_volume_restrictions(decision: Decision) -> bool:
    """Whether claims in use on other nodes may count, which changes of one hypothetical row do not undo."""
    return "VolumeRestrictions" in rejectors_of(decision)


VolumesMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=30)
TestVolumesMachine = VolumesMachine.TestCase
