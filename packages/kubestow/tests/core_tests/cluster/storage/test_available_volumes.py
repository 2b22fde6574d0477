"""Matching volumes for all nodes at once equals matching them for one node after the other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kubestow.api.formats.quantity import nanos
from kubestow.api.storage import PersistentVolume, PersistentVolumeClaim
from kubestow.cluster.cache import Cluster
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.storage.available_volumes import NO_VOLUME
from kubestow.rules.volumes import requirements_of
from kubestow.testing import node
from kubestow.testing.storage import claim, volume

ZONE = "topology.kubernetes.io/zone"
ZONES = st.sampled_from(["a", "b", "c"])
SIZES = st.sampled_from(["1Gi", "2Gi", "3Gi"])
NAMES = st.sampled_from([f"pv-{number}" for number in range(8)])

volumes = st.builds(
    lambda name, **fields: volume(name, **fields),
    NAMES,
    size=SIZES,
    zone=st.none() | ZONES,
    claim=st.sampled_from(["", "", "", "x", "y"]),
    modes=st.sampled_from([["ReadWriteOnce"], ["ReadWriteOnce", "ReadOnlyMany"], ["ReadOnlyMany"]]),
    phase=st.sampled_from(["Available", "Available", "Bound"]),
    storage_class=st.sampled_from(["slow", "slow", "fast"]),
)
claims = st.lists(
    st.builds(
        lambda name, size, mode: claim(name, size=size, modes=[mode]),
        st.sampled_from(["x", "y", "z"]),
        SIZES,
        st.sampled_from(["ReadWriteOnce", "ReadOnlyMany"]),
    ),
    min_size=1,
    max_size=6,
)


def plainly_chosen(
    wanted: PersistentVolumeClaim, offered: Sequence[PersistentVolume], zone: str, taken: set[str]
) -> str | None:
    """The rule (semantics 8.12) for one node: the name of the volume that a claim would be bound to."""
    best: PersistentVolume | None = None
    for pv in sorted(offered, key=lambda pv: pv.metadata.name):
        reserved = pv.spec.claim_ref
        if pv.metadata.name in taken or pv.spec.storage_class_name != wanted.spec.storage_class_name:
            continue
        if reserved is not None and reserved.name != wanted.metadata.name:
            continue
        if _size(pv) < nanos(wanted.spec.resources.requests["storage"]):
            continue
        if reserved is not None:
            return pv.metadata.name if _reaches(pv, zone) else None
        if pv.status.phase != "Available" or not _reaches(pv, zone):
            continue
        if set(wanted.spec.access_modes) <= set(pv.spec.access_modes) and (best is None or _size(pv) < _size(best)):
            best = pv
    return best.metadata.name if best is not None else None


def _size(pv: PersistentVolume) -> int:
    return nanos(pv.spec.capacity["storage"])


def _reaches(pv: PersistentVolume, zone: str) -> bool:
    if pv.spec.node_affinity is None or pv.spec.node_affinity.required is None:
        return True
    (term,) = pv.spec.node_affinity.required.node_selector_terms
    return zone in term.match_expressions[0].values


def agree(cluster: Cluster, wanted: Sequence[PersistentVolumeClaim]) -> None:
    offered = list(cluster.catalog(PersistentVolume))
    wanted = sorted(wanted, key=lambda one: requirements_of(one).size)
    order = np.roll(np.arange(len(cluster.nodes)), 1)
    for nodes in (cluster.all_nodes(), Nodes(cluster.nodes, order), Nodes(cluster.nodes, slice(0, 1))):
        _agree(cluster, nodes, offered, wanted)


def _agree(
    cluster: Cluster, nodes: Nodes, offered: Sequence[PersistentVolume], wanted: Sequence[PersistentVolumeClaim]
) -> None:
    matching = cluster.volumes.available.matching(nodes)
    taken = [matching.match(one, requirements_of(one)) for one in wanted]
    for row, name in enumerate(nodes.names):
        mine: set[str] = set()
        for one, choice in zip(wanted, taken, strict=True):
            expected = plainly_chosen(one, offered, nodes.node(row).metadata.labels[ZONE], mine)
            number = int(choice.numbers[row])
            assert (None if number == NO_VOLUME else choice.volumes[number].metadata.name) == expected, (name, one)
            mine |= {expected} if expected else set()


@given(st.lists(volumes, max_size=8), st.lists(ZONES, min_size=1, max_size=4), claims)
def test_matching_all_nodes_at_once_equals_matching_one_by_one(
    offered: list[PersistentVolume], zones: list[str], wanted: list[PersistentVolumeClaim]
) -> None:
    cluster = Cluster()
    for number, zone in enumerate(zones):
        cluster.add_node(node(f"n{number}", zone=zone))
    for pv in offered:
        cluster.catalog(PersistentVolume).put(pv)
    agree(cluster, wanted)


class AvailableVolumesMachine(RuleBasedStateMachine):
    """Matches are correct while volumes and nodes are added, changed and removed."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = Cluster()
        self.cluster.add_node(node("n0", zone="a"))

    @rule(pv=volumes)
    def volume_is_added_or_changed(self, pv: PersistentVolume) -> None:
        self.cluster.catalog(PersistentVolume).put(pv)

    @rule(name=NAMES)
    def volume_is_removed(self, name: str) -> None:
        self.cluster.catalog(PersistentVolume).remove("", name)

    @rule(name=NAMES)
    def volume_is_assumed(self, name: str) -> None:
        pv = self.cluster.catalog(PersistentVolume).get("", name)
        if pv is not None and pv.spec.claim_ref is None:
            self.cluster.catalog(PersistentVolume).assume(volume(name, claim="y"))

    @rule(name=NAMES)
    def assumption_is_undone(self, name: str) -> None:
        self.cluster.catalog(PersistentVolume).restore("", name)

    @rule(number=st.integers(0, 3), zone=ZONES)
    def node_is_added_or_moved(self, number: int, zone: str) -> None:
        observed = node(f"n{number}", zone=zone)
        if observed.metadata.name in self.cluster.nodes.rows:
            self.cluster.update_node(observed)
        else:
            self.cluster.add_node(observed)

    @rule(number=st.integers(0, 3))
    def node_is_removed(self, number: int) -> None:
        if f"n{number}" in self.cluster.nodes.rows and len(self.cluster.nodes) > 1:
            self.cluster.remove_node(f"n{number}")

    @invariant()
    def matches_are_correct(self) -> None:
        agree(self.cluster, [claim("x"), claim("z"), claim("z", size="2Gi")])


AvailableVolumesMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=25)
TestAvailableVolumesMachine = AvailableVolumesMachine.TestCase
