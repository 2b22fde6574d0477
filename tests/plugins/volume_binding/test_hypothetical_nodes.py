"""The volume plugins say the same of real, single and hypothetical rows, today and after any sequence of events."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kubestow.api.core import Pod
from kubestow.cluster.nodes.views import Change, HypotheticalNodes, Nodes
from kubestow.scheduling.decision.result import Decision
from kubestow.testing import World, node, pod
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
from tests.decisions import rejectors_of
from tests.plugins.volumes import put, world

NODES = st.sampled_from(["n0", "n1", "n2", "n3"])
ZONES = st.sampled_from(["a", "b"])
CLAIMS = st.sampled_from(["c0", "c1", "c2", "c3"])
DISK: dict[str, Any] = {"gcePersistentDisk": {"pdName": "disk"}}
READ_ONLY: dict[str, Any] = {"gcePersistentDisk": {"pdName": "disk", "readOnly": True}}
EBS: dict[str, Any] = {"awsElasticBlockStore": {"volumeID": "vol-1"}}
SPECS = st.sampled_from(
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


def told(decision: Decision, there: World) -> object:
    """Everything a decision says, node by node in the order of their names."""
    if decision.node_name is None:
        return decision.message, sorted(rejectors_of(decision))
    return sorted(Nodes(there.cluster.nodes, decision.candidates).names)


def refusals(decision: Decision, nodes: Nodes, row: int) -> list[Any]:
    assert decision.feasibility is not None
    found = decision.feasibility.filters.refusals(nodes)
    return [(refusal.plugin, refusal.verdict.status(row)) for refusal in found if refusal.where[row]]


class VolumesMachine(RuleBasedStateMachine):
    """One world lives through all events; at each look it is held against a world made just now."""

    def __init__(self) -> None:
        super().__init__()
        self.objects: dict[tuple[type, str], Any] = {(type(obj), obj.metadata.name): obj for obj in CLASSES}
        self.pods: dict[str, Pod] = {}
        self.there = world(*CLASSES)

    def _put(self, obj: Any) -> None:
        self.objects[type(obj), obj.metadata.name] = obj
        put(self.there, obj)

    @rule(name=NODES, zone=ZONES)
    def node_appears_or_moves(self, name: str, zone: str) -> None:
        shown = node(name, zone=zone, labels={"topology.ebs.csi.aws.com/zone": "b"})
        known = name in self.there.cluster.nodes.rows
        (self.there.cluster.update_node if known else self.there.cluster.add_node)(shown)
        self.objects[type(shown), name] = shown

    @rule(name=NODES)
    def node_goes(self, name: str) -> None:
        if name in self.there.cluster.nodes.rows:
            self.there.cluster.remove_node(name)
            del self.objects[type(node()), name]

    @rule(name=NODES, limit=st.none() | st.integers(0, 2), ebs=st.none() | st.integers(0, 1), migrated=st.booleans())
    def csi_node_appears_or_changes(self, name: str, limit: int | None, ebs: int | None, migrated: bool) -> None:
        plugins = ["kubernetes.io/aws-ebs"] if migrated else []
        self._put(csi_node(name, migrated=plugins, csi_example_com=limit, ebs_csi_aws_com=ebs))

    @rule(name=CLAIMS, bound=st.booleans(), exclusive=st.booleans(), fast=st.booleans())
    def claim_appears_or_changes(self, name: str, bound: bool, exclusive: bool, fast: bool) -> None:
        mode = "ReadWriteOncePod" if exclusive else "ReadWriteOnce"
        volume_name = f"pv-{name}" if bound else ""
        self._put(claim(name, volume=volume_name, modes=[mode], storage_class="fast" if fast else "slow"))

    @rule(name=CLAIMS, zone=st.none() | ZONES, free=st.booleans(), ebs=st.booleans())
    def volume_appears_or_changes(self, name: str, zone: str | None, free: bool, ebs: bool) -> None:
        source = {"awsElasticBlockStore": {"volumeID": f"vol-{name}"}} if ebs else None
        self._put(volume(f"pv-{name}", zone=zone, claim="" if free else name, source=source, labels={}))

    @rule(zone=ZONES, room=st.sampled_from(["1Mi", "1Gi"]))
    def capacity_is_reported(self, zone: str, room: str) -> None:
        self._put(capacity(f"in-{zone}", room=room, zone=zone, storage_class="fast"))

    @rule(where=NODES, name=CLAIMS)
    def volume_is_attached(self, where: str, name: str) -> None:
        self._put(attachment(f"at-{name}", node=where, volume=f"pv-{name}"))

    @rule(kind=st.sampled_from([claim, volume, csi_node, attachment, capacity]), pick=st.integers(0, 9))
    def object_goes(self, kind: Any, pick: int) -> None:
        made: dict[Any, Any] = {
            claim: claim(),
            volume: volume(),
            csi_node: csi_node("n"),
            attachment: attachment("x", node="n", volume="v"),
            capacity: capacity("x", room="1"),
        }
        names = sorted(name for of, name in self.objects if of is type(made[kind]))
        if names:
            obj = self.objects.pop((type(made[kind]), names[pick % len(names)]))
            self.there.cluster.catalog(type(obj)).remove(obj.metadata.namespace, obj.metadata.name)

    @rule(number=st.integers(0, 5), where=NODES, spec=SPECS)
    def pod_is_on_a_node(self, number: int, where: str, spec: dict[str, Any]) -> None:
        shown = pod(f"b{number}", node=where, spec=spec)
        self.there.cluster.put_pod(self.there.info(shown))
        self.pods[shown.metadata.uid] = shown

    @rule(number=st.integers(0, 5))
    def pod_goes(self, number: int) -> None:
        self.there.cluster.remove_pod(f"uid-default-b{number}")
        self.pods.pop(f"uid-default-b{number}", None)

    @rule(probe=st.sampled_from(PROBES))
    def somebody_asks(self, probe: Pod) -> None:
        self.there.decide(probe)

    @precondition(lambda self: len(self.there.cluster.nodes) > 0)
    @invariant()
    def old_answers_equal_fresh_ones(self) -> None:
        fresh = world(*self.objects.values(), *self.pods.values())
        for probe in PROBES:
            assert told(self.there.decide(probe), self.there) == told(fresh.decide(probe), fresh)

    @precondition(lambda self: len(self.there.cluster.nodes) > 0)
    @rule(probe=st.sampled_from(PROBES))
    def one_row_says_what_the_whole_says_of_it(self, probe: Pod) -> None:
        decision = self.there.decide(probe)
        if _pre_filter_refused(decision):
            return
        nodes = self.there.cluster.all_nodes()
        for row in range(len(nodes)):
            alone = Nodes(self.there.cluster.nodes, np.array([row]))
            whole = refusals(decision, nodes, row)
            assert refusals(decision, alone, row) == whole

    @precondition(lambda self: len(self.there.cluster.nodes) > 0)
    @rule(probe=st.sampled_from(PROBES), spec=SPECS, pick=st.integers(0, 9), keep=st.booleans())
    def what_is_imagined_comes_true(self, probe: Pod, spec: dict[str, Any], pick: int, keep: bool) -> None:
        cluster = self.there.cluster
        decision = self.there.decide(probe)
        if _pre_filter_refused(decision) or _claims_are_taken(decision):
            return
        row = pick % len(cluster.nodes)
        gone = () if keep else tuple(cluster.nodes.pods[row].values())
        comes = self.there.info(pod("new", node=cluster.nodes.names[row], spec=spec))
        change = Change(removed=gone, added=(comes,))
        view = HypotheticalNodes(cluster.nodes, np.array([row]), [change])
        imagined = refusals(decision, view, row)
        after = world(*self.objects.values(), *self.pods.values())
        for info in gone:
            after.cluster.remove_pod(info.uid)
        put(after, comes.pod)
        later = after.decide(probe)
        if not _pre_filter_refused(later) and not _claims_are_taken(later):
            real = after.cluster.nodes.rows[cluster.nodes.names[row]]
            assert imagined == refusals(later, after.cluster.all_nodes(), real)


def _pre_filter_refused(decision: Decision) -> bool:
    assert decision.feasibility is not None
    return decision.feasibility.error is not None or decision.feasibility.diagnose().pre_filter is not None


def _claims_are_taken(decision: Decision) -> bool:
    """Whether claims in use anywhere were counted, which nothing that is imagined of one row undoes."""
    return "VolumeRestrictions" in rejectors_of(decision)


VolumesMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestVolumesMachine = VolumesMachine.TestCase
